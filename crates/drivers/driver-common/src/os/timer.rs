//! One-shot timers.

use core::{
    pin::Pin,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use engine::os::{Os, Routine, SpinLock, Timer};
use fallible::Arc;
use kernel::Fixed;
use ndkpi::NtStatus;
use wdk_sys::{
    KDPC, KTIMER, LARGE_INTEGER, PVOID,
    ntddk::{
        ExSetTimerResolution, KeCancelTimer, KeInitializeDpc, KeInitializeTimer, KeQueryTimeIncrement,
        KeRemoveQueueDpc, KeSetTimer,
    },
};

use super::{Kernel, KernelLock};

/// A timer that runs `R`.
pub struct KernelTimer<R: Routine> {
    state: Arc<State<R>>,
}

/// What the kernel keeps pointers into.
///
/// # Invariants
///
/// `timer` and `dpc` are initialised. The state is in an [`Arc`], and nobody takes it out of there. The timer is set only with this DPC, under the
/// lock, and only while no call is [under way](Plan::under_way). A call that is under way holds a counted reference to the
/// state.
struct State<R: Routine> {
    timer: Fixed<KTIMER>,
    dpc: Fixed<KDPC>,
    plan: KernelLock<Plan<R::Target>>,
}

/// The state of a timer that its lock protects.
///
/// Between a due time and its DPC there is a moment at which neither [`KeCancelTimer`] nor [`KeRemoveQueueDpc`] finds
/// anything to take back. A timer that were set again just then might have one call for two due times, or two, and nobody could
/// tell which. So it is not set: the call that is under way finds the later due time, and sets the timer itself.
struct Plan<T> {
    /// A call will be made that cannot be taken back, or that nobody has tried to take back.
    under_way: bool,
    /// For whom; `None` if nobody wants the call any more.
    target: Option<Arc<T>>,
    /// The call that is under way is that of a due time which was forgotten: the one that is wanted comes later, then.
    postponed_to: Option<u64>,
}

// SAFETY: the kernel's routines may be called for one timer or DPC by any number of threads at a time.
#[expect(clippy::non_send_fields_in_send_ty, reason = "the pointers in it are the kernel's")]
unsafe impl<R: Routine> Send for State<R> {}
// SAFETY: as for `Send`; everything else is behind a lock.
unsafe impl<R: Routine> Sync for State<R> {}

impl<R: Routine> KernelTimer<R> {
    /// A timer that is not set.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new() -> Result<Self, NtStatus> {
        let state = Arc::try_new(State {
            timer: Fixed::new(KTIMER::default()),
            dpc: Fixed::new(KDPC::default()),
            plan: KernelLock::new(Plan { under_way: false, target: None, postponed_to: None }),
        });
        let state: Arc<State<R>> = state.map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        let context: PVOID = Arc::as_ptr(&state).cast_mut().cast();
        // SAFETY: memory for a DPC, pinned, which nobody else knows yet.
        unsafe { KeInitializeDpc(State::dpc(&state), Some(run::<R>), context) };
        // SAFETY: memory for a timer, pinned, which nobody else knows yet.
        unsafe { KeInitializeTimer(State::timer(&state)) };
        Ok(Self { state })
    }
}

impl<R: Routine> State<R> {
    /// The timer, for the kernel's routines.
    fn timer(this: &Arc<Self>) -> *mut KTIMER {
        // SAFETY: what is in an `Arc` stays there until its last reference is dropped, and then ends there (invariant).
        unsafe { Pin::new_unchecked(&this.timer) }.get()
    }

    /// The DPC, for the kernel's routines.
    fn dpc(this: &Arc<Self>) -> *mut KDPC {
        // SAFETY: as for the timer.
        unsafe { Pin::new_unchecked(&this.dpc) }.get()
    }

    /// Sets the kernel's timer to `delay` microseconds. No call is under way, and `plan` is this state's.
    fn begin(this: &Arc<Self>, plan: &mut Plan<R::Target>, delay: u64) {
        plan.under_way = true;
        // Given back by the call, or by who takes it back.
        core::mem::forget(this.clone());
        // Negative: counted from now, in units of 100 nanoseconds.
        let units = i64::try_from(delay.saturating_mul(10)).unwrap_or(i64::MAX);
        let due = LARGE_INTEGER { QuadPart: -units };
        // SAFETY: the timer and the DPC are initialised (invariant), and the call has its reference.
        unsafe { KeSetTimer(Self::timer(this), due, Self::dpc(this)) };
    }

    /// Tries to take back the call that is under way. Its reference to the state is the result, to be dropped when the lock is
    /// not held any more; `None` if there is no such call, or it cannot be taken back.
    fn take_back(this: &Arc<Self>, plan: &mut Plan<R::Target>) -> Option<Arc<Self>> {
        if !plan.under_way {
            return None;
        }
        // SAFETY: the timer is initialised (invariant).
        let was_set = unsafe { KeCancelTimer(Self::timer(this)) };
        // SAFETY: the DPC is initialised (invariant).
        if was_set == 0 && unsafe { KeRemoveQueueDpc(Self::dpc(this)) } == 0 {
            return None;
        }
        plan.under_way = false;
        // SAFETY: the reference of the call that was under way (invariant), which will not be made.
        Some(unsafe { Arc::from_raw(Arc::as_ptr(this)) })
    }
}

impl<R: Routine> Timer<R> for KernelTimer<R> {
    fn set(&self, delay: u64, target: &Arc<R::Target>) {
        let mut wanted = Some(target.clone());
        // What is not wanted any more is dropped after the lock is released.
        let unused = self.state.plan.with(|plan| {
            let taken_back = State::take_back(&self.state, plan);
            core::mem::swap(&mut plan.target, &mut wanted);
            if plan.under_way {
                plan.postponed_to = Some(Kernel.now().saturating_add(delay));
            } else {
                State::begin(&self.state, plan, delay);
            }
            taken_back
        });
        drop((unused, wanted));
    }

    fn cancel(&self) -> bool {
        let (taken_back, target) = self.state.plan.with(|plan| {
            plan.postponed_to = None;
            // A call that cannot be taken back will find that it has nobody to run for.
            (State::take_back(&self.state, plan), plan.target.take())
        });
        drop(taken_back);
        target.is_some()
    }
}

impl<R: Routine> Drop for KernelTimer<R> {
    fn drop(&mut self) {
        let _ = self.cancel();
    }
}

unsafe extern "C" fn run<R: Routine>(_dpc: *mut KDPC, context: PVOID, _one: PVOID, _two: PVOID) {
    // SAFETY: the context is the state's address, and this call has a counted reference to it (invariant).
    let state = unsafe { Arc::<State<R>>::from_raw(context.cast_const().cast()) };
    let target = state.plan.with(|plan| {
        plan.under_way = false;
        if let Some(due) = plan.postponed_to.take() {
            State::begin(&state, plan, due.saturating_sub(Kernel.now()));
            return None;
        }
        plan.target.take()
    });
    if let Some(target) = target {
        R::run(&target);
    }
}

/// The clock's period in units of 100 nanoseconds; zero while it was not asked to be faster.
static PERIOD: AtomicU32 = AtomicU32::new(0);

/// What the system's clock is asked to tick at: one millisecond, in units of 100 nanoseconds.
const WANTED_PERIOD: u32 = 10_000;

/// Raises the resolution of the system's clock to [`WANTED_PERIOD`]. `PASSIVE_LEVEL`.
pub fn raise_resolution() {
    // SAFETY: the caller is at `PASSIVE_LEVEL`.
    let period = unsafe { ExSetTimerResolution(WANTED_PERIOD, 1) };
    PERIOD.store(period, Relaxed);
}

/// Restores the resolution of the system's clock. `PASSIVE_LEVEL`, once after each [`raise_resolution`].
pub fn restore_resolution() {
    // SAFETY: the caller is at `PASSIVE_LEVEL`, and the resolution was raised before.
    unsafe { ExSetTimerResolution(0, 0) };
    PERIOD.store(0, Relaxed);
}

/// What the driver's settings want: delays are not timed finer, in microseconds.
static GRANULARITY: AtomicU32 = AtomicU32::new(1);

/// Sets the timer granularity, in microseconds.
pub fn set_granularity(microseconds: u32) {
    GRANULARITY.store(microseconds, Relaxed);
}

/// The shortest delay, in microseconds, that a timer can tell from none.
pub fn resolution() -> u32 {
    let period = match PERIOD.load(Relaxed) {
        // SAFETY: the routine has no conditions.
        0 => unsafe { KeQueryTimeIncrement() },
        period => period,
    };
    (period / 10).max(GRANULARITY.load(Relaxed)).max(1)
}
