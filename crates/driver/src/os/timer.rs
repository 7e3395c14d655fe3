//! One-shot timers.

use core::{
    cell::UnsafeCell,
    ptr,
    sync::atomic::{
        AtomicPtr, AtomicU32, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed},
    },
};

use engine::os::{Routine, Timer};
use fallible::Shared;
use ndkpi::NtStatus;
use wdk_sys::{
    KDPC, KTIMER, LARGE_INTEGER, PVOID,
    ntddk::{
        ExSetTimerResolution, KeCancelTimer, KeInitializeDpc, KeInitializeTimer, KeQueryTimeIncrement,
        KeRemoveQueueDpc, KeSetTimer,
    },
};

/// Deferred calls of one timer.
///
/// When a timer is set again, the call of the due time before may have left the timer's queue and not reached that of the
/// deferred calls. If both used one DPC, two due times could end in one call, and it would be unknown how many references
/// that call holds. With a few of them to choose from, each call has a DPC of its own.
const SLOTS: usize = 3;

/// A timer that runs `R`.
pub struct KernelTimer<R: Routine> {
    state: Shared<State<R>>,
}

/// What the kernel keeps pointers into.
///
/// # Invariants
///
/// `timer` and the DPCs are initialised, and in a [`Shared`] they do not move. The timer is only ever set with the DPC of a
/// slot. A slot's `target` is null, or a counted reference that belongs to the call that its DPC is going to make; with it
/// goes a counted reference to the state.
struct State<R: Routine> {
    timer: UnsafeCell<KTIMER>,
    slots: [Slot<R>; SLOTS],
    /// The slot with which the timer was set last.
    current: AtomicUsize,
}

struct Slot<R: Routine> {
    dpc: UnsafeCell<KDPC>,
    target: AtomicPtr<R::Target>,
}

// SAFETY: the kernel's routines may be called for one timer or DPC by any number of threads at a time; the references in the
// slots are `Send` and `Sync` as all targets are.
#[expect(clippy::non_send_fields_in_send_ty, reason = "the pointers in it are the kernel's")]
unsafe impl<R: Routine> Send for State<R> {}
// SAFETY: as for `Send`.
unsafe impl<R: Routine> Sync for State<R> {}

impl<R: Routine> KernelTimer<R> {
    /// A timer that is not set.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new() -> Result<Self, NtStatus> {
        let slot = || Slot { dpc: UnsafeCell::new(KDPC::default()), target: AtomicPtr::new(ptr::null_mut()) };
        let state = State {
            timer: UnsafeCell::new(KTIMER::default()),
            slots: core::array::from_fn(|_| slot()),
            current: AtomicUsize::new(0),
        };
        let state = Shared::try_new(state).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        let context: PVOID = Shared::as_ptr(&state).cast_mut().cast();
        for slot in &state.slots {
            // SAFETY: memory for a DPC that stays where it is, and nobody else knows it yet.
            unsafe { KeInitializeDpc(slot.dpc.get(), Some(run::<R>), context) };
        }
        // SAFETY: memory for a timer that stays where it is, and nobody else knows it yet.
        unsafe { KeInitializeTimer(state.timer.get()) };
        Ok(Self { state })
    }

    /// Takes back every call that has not begun. Whether there was one.
    fn retract(&self) -> bool {
        let state = &self.state;
        // SAFETY: the timer is initialised (invariant).
        let was_set = unsafe { KeCancelTimer(state.timer.get()) } != 0;
        let mut retracted = was_set;
        if was_set {
            self.give_back(&state.slots[state.current.load(Relaxed)]);
        }
        for slot in &state.slots {
            // SAFETY: the DPC is initialised (invariant).
            if unsafe { KeRemoveQueueDpc(slot.dpc.get()) } != 0 {
                self.give_back(slot);
                retracted = true;
            }
        }
        retracted
    }

    /// Gives back the references of a call that will not be made.
    fn give_back(&self, slot: &Slot<R>) {
        let target = slot.target.swap(ptr::null_mut(), AcqRel);
        if !target.is_null() {
            // SAFETY: the slot's reference (invariant), which the swap has taken out of it.
            drop(unsafe { Shared::from_raw(target.cast_const()) });
        }
        // SAFETY: the reference to the state that goes with the call (invariant).
        drop(unsafe { Shared::from_raw(Shared::as_ptr(&self.state)) });
    }
}

impl<R: Routine> Timer<R> for KernelTimer<R> {
    fn set(&self, delay: u64, target: &Shared<R::Target>) {
        self.retract();
        let state = &self.state;
        let current = state.current.load(Relaxed);
        // With luck the next one; the others are taken only if calls of as many due times are just beginning.
        let order = (1..=SLOTS).map(|step| (current + step) % SLOTS);
        let next = order.clone().find(|&index| state.slots[index].target.load(Acquire).is_null());
        let index = next.unwrap_or((current + 1) % SLOTS);
        let slot = &state.slots[index];

        let counted = Shared::into_raw(target.clone()).cast_mut();
        let before = slot.target.swap(counted, AcqRel);
        if !before.is_null() {
            // No slot was free. The call that is just beginning will find the new reference.
            // SAFETY: the slot's reference (invariant), which the swap has taken out of it.
            drop(unsafe { Shared::from_raw(before.cast_const()) });
        }
        core::mem::forget(state.clone());
        state.current.store(index, Relaxed);

        // Negative: counted from now, in units of 100 nanoseconds.
        let units = i64::try_from(delay.saturating_mul(10)).unwrap_or(i64::MAX);
        let due = LARGE_INTEGER { QuadPart: -units };
        // SAFETY: the timer and the DPC are initialised (invariant), and the call has its references.
        unsafe { KeSetTimer(state.timer.get(), due, slot.dpc.get()) };
    }

    fn cancel(&self) -> bool {
        self.retract()
    }
}

impl<R: Routine> Drop for KernelTimer<R> {
    fn drop(&mut self) {
        self.retract();
    }
}

unsafe extern "C" fn run<R: Routine>(dpc: *mut KDPC, context: PVOID, _one: PVOID, _two: PVOID) {
    // SAFETY: the context is the state's address, and this call has a counted reference to it (invariant).
    let state = unsafe { Shared::<State<R>>::from_raw(context.cast_const().cast()) };
    let Some(slot) = state.slots.iter().find(|slot| ptr::eq(slot.dpc.get(), dpc)) else { return };
    let target = slot.target.swap(ptr::null_mut(), AcqRel);
    if !target.is_null() {
        // SAFETY: the slot's reference (invariant), which the swap has taken out of it.
        let target = unsafe { Shared::from_raw(target.cast_const()) };
        R::run(&target);
    }
}

/// The clock's period in units of 100 nanoseconds; zero while it was not asked to be faster.
static PERIOD: AtomicU32 = AtomicU32::new(0);

/// What the system's clock is asked to tick at: one millisecond, in units of 100 nanoseconds.
const WANTED_PERIOD: u32 = 10_000;

/// Has the system's clock tick faster. `PASSIVE_LEVEL`.
pub fn raise_resolution() {
    // SAFETY: the caller is at `PASSIVE_LEVEL`.
    let period = unsafe { ExSetTimerResolution(WANTED_PERIOD, 1) };
    PERIOD.store(period, Relaxed);
}

/// Lets the system's clock tick as it likes. `PASSIVE_LEVEL`, once after each [`raise_resolution`].
pub fn restore_resolution() {
    // SAFETY: the caller is at `PASSIVE_LEVEL`, and the resolution was raised before.
    unsafe { ExSetTimerResolution(0, 0) };
    PERIOD.store(0, Relaxed);
}

/// What the driver's settings want: delays are not timed finer, in microseconds.
static GRANULARITY: AtomicU32 = AtomicU32::new(1);

/// Has delays not be timed finer than that many microseconds.
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
