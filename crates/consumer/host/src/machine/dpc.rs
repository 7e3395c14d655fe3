//! Deferred procedure calls.

use std::{
    ffi::c_void,
    hint, ptr,
    sync::atomic::{
        AtomicU8, AtomicU32,
        Ordering::{AcqRel, Acquire, Relaxed},
    },
    thread,
};

use fallible::{AllocError, Arc, try_box};

use super::{
    core::MachineRef,
    irql::Irql,
    queue::Entry,
    rules::{Rule, broken, broken_at_drop},
    thread::{self as current, Entered, ThreadState},
};

/// What a queued call is given: two words that mean nothing to the machine (`SystemArgument1` and `SystemArgument2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// The first word.
    pub first: *mut c_void,
    /// The second word.
    pub second: *mut c_void,
}

// SAFETY: the machine carries the words from thread to thread and never uses them as pointers.
unsafe impl Send for Arguments {}
// SAFETY: as for `Send`.
unsafe impl Sync for Arguments {}

impl Arguments {
    /// Two null words.
    pub const NONE: Self = Self { first: ptr::null_mut(), second: ptr::null_mut() };

    /// Two numbers.
    #[must_use]
    pub const fn numbers(first: usize, second: usize) -> Self {
        Self { first: ptr::without_provenance_mut(first), second: ptr::without_provenance_mut(second) }
    }
}

/// Where a DPC goes in the queue, and whether the processor begins with its queue at once (`KDPC_IMPORTANCE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Importance {
    /// At the end; the processor does not begin for its sake, unless the queue grows long.
    Low = 0,
    /// At the end; the processor begins if it is the one that queues.
    #[default]
    Medium = 1,
    /// At the beginning; the processor begins.
    High = 2,
    /// At the end; the processor begins.
    MediumHigh = 3,
}

impl Importance {
    const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Low,
            2 => Self::High,
            3 => Self::MediumHigh,
            _ => Self::Medium,
        }
    }
}

/// Set in `place` while the DPC is queued; the bits above hold the processor's index plus one, once that is decided.
const QUEUED: u32 = 1;
/// Set in `place` when the owner has dropped the DPC.
const FREED: u32 = 1 << 31;
/// The call goes to the processor that queues it.
const NO_TARGET: u32 = u32::MAX;

/// The part of a DPC that a queue refers to. Each call writes to it: it shares no cache line with what other processors use.
#[repr(align(64))]
pub struct DpcInner {
    pub machine: MachineRef,
    pub name: &'static str,
    pub number: u64,
    place: AtomicU32,
    target: AtomicU32,
    importance: AtomicU8,
    routine: Box<dyn Fn(Arguments) + Send + Sync>,
}

impl DpcInner {
    /// Runs the routine on the current thread.
    pub fn run(&self, arguments: Arguments) {
        (self.routine)(arguments);
    }

    /// Says in which queue the DPC is. Called by that queue, under its lock.
    pub fn set_place(&self, processor: u32) {
        self.place.fetch_or((processor + 1) << 1, AcqRel);
    }

    /// Says that the DPC is not queued any more. Called by its queue, under its lock.
    ///
    /// This reads what every unsuccessful queueing wrote, so that what happened before any of them happens before the run.
    #[inline]
    pub fn clear_place(&self) {
        self.place.fetch_and(FREED, AcqRel);
    }

    /// Says that the DPC is queued. Returns false if it was before; else the caller puts it into a queue.
    #[inline]
    pub fn claim(&self) -> bool {
        let before = self.place.fetch_or(QUEUED, AcqRel);
        if before & QUEUED != 0 {
            return false;
        }
        if before & FREED != 0 {
            self.clear_place();
            broken(Rule::DpcFreedWhileQueued, format_args!("DPC `{}` queued after it was freed", self.name));
        }
        true
    }

    /// The processor whose queue is the next one.
    #[inline]
    pub fn processor(&self) -> u32 {
        match self.target.load(Relaxed) {
            NO_TARGET => self.machine.current_processor(),
            target => target,
        }
    }

    /// Where in the queue it goes.
    #[inline]
    pub fn importance(&self) -> Importance {
        Importance::from_number(self.importance.load(Relaxed))
    }

    fn queue_with(this: &Arc<Self>, raises: bool, arguments: impl FnOnce() -> Arguments) -> bool {
        if !this.claim() {
            return false;
        }
        let entry = Entry::new(this.clone(), arguments());
        this.machine.insert(this.processor(), entry, this.importance(), raises);
        true
    }

    fn remove(&self) -> Option<Arguments> {
        loop {
            let place = self.place.load(Acquire);
            if place & QUEUED == 0 {
                return None;
            }
            if place & !FREED == QUEUED {
                // Another thread has decided to queue the DPC and is about to say where.
                hint::spin_loop();
                thread::yield_now();
                continue;
            }
            if let Some(entry) = self.machine.take_out(((place & !FREED) >> 1) - 1, self) {
                return Some(entry.arguments);
            }
        }
    }
}

impl Drop for DpcInner {
    fn drop(&mut self) {
        self.machine.forget_dpc();
    }
}

/// A DPC object: `KDPC`. Its owner may not drop it while it is queued, as the kernel's may not be freed then; it may be
/// dropped while its routine runs.
pub struct Dpc {
    pub(super) inner: Arc<DpcInner>,
}

impl Dpc {
    /// A DPC that runs `routine` at `DISPATCH_LEVEL`: `KeInitializeDpc`. `name` appears in messages.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory. Queueing needs none.
    pub fn try_new(
        machine: &MachineRef,
        name: &'static str,
        routine: impl Fn(Arguments) + Send + Sync + 'static,
    ) -> Result<Self, AllocError> {
        let routine: Box<dyn Fn(Arguments) + Send + Sync> = try_box(routine)?;
        let number = machine.next_number();
        machine.expect_dpc()?;
        // From here on the value's drop takes back what `expect_dpc` has done.
        let inner = Arc::try_new(DpcInner {
            machine: machine.clone(),
            name,
            number,
            place: AtomicU32::new(0),
            target: AtomicU32::new(NO_TARGET),
            importance: AtomicU8::new(Importance::default() as u8),
            routine,
        })?;
        Ok(Self { inner })
    }

    /// Chooses the processor on which later calls run; `None` for the one that queues: `KeSetTargetProcessorDpcEx`.
    ///
    /// # Panics
    ///
    /// If the machine has no such processor.
    pub fn set_target(&self, processor: Option<u32>) {
        let count = self.inner.machine.processors();
        assert!(processor.is_none_or(|index| index < count), "no processor {processor:?} among {count}");
        self.inner.target.store(processor.unwrap_or(NO_TARGET), Relaxed);
    }

    /// Chooses where in the queue later calls go: `KeSetImportanceDpc`.
    pub fn set_importance(&self, importance: Importance) {
        self.inner.importance.store(importance as u8, Relaxed);
    }

    /// Queues the call: `KeInsertQueueDpc`. `false`, and nothing else, if it is queued already.
    ///
    /// Callable at any IRQL. A call that has begun to run is not queued any more.
    #[expect(clippy::must_use_candidate, reason = "that the call is queued already is no concern of most callers")]
    pub fn queue(&self, arguments: Arguments) -> bool {
        self.queue_with(|| arguments)
    }

    /// [`Dpc::queue`] with arguments that are only made if the call is not queued yet.
    pub fn queue_with(&self, arguments: impl FnOnce() -> Arguments) -> bool {
        let machine = &self.inner.machine;
        machine.preempt();
        let queued = DpcInner::queue_with(&self.inner, true, arguments);
        machine.preempt();
        queued
    }

    /// [`Dpc::queue_with`] for callers whose locks do not raise the IRQL: below `DISPATCH_LEVEL` nobody can tell whether one is
    /// held, so the call does not interrupt the thread but runs on the processor's own.
    pub fn queue_unraised_with(&self, arguments: impl FnOnce() -> Arguments) -> bool {
        DpcInner::queue_with(&self.inner, false, arguments)
    }

    /// Takes the call out of the queue: `KeRemoveQueueDpc`. Its arguments, or `None` if it was not queued.
    #[must_use = "the arguments may hold a reference"]
    pub fn remove(&self) -> Option<Arguments> {
        self.inner.remove()
    }

    /// Returns true if the call is queued at this moment.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        self.inner.place.load(Acquire) & QUEUED != 0
    }

    /// Something that can queue the call without owning it.
    #[must_use]
    pub fn handle(&self) -> DpcHandle {
        DpcHandle { inner: self.inner.clone() }
    }
}

impl Drop for Dpc {
    fn drop(&mut self) {
        let place = self.inner.place.fetch_or(FREED, AcqRel);
        if place & QUEUED != 0 && !self.inner.machine.is_stopped() {
            let DpcInner { name, number, .. } = &*self.inner;
            broken_at_drop(Rule::DpcFreedWhileQueued, format_args!("DPC `{name}` #{number}"));
        }
    }
}

/// Queues a DPC that another object owns: for the expiry of a timer.
#[derive(Clone)]
pub struct DpcHandle {
    inner: Arc<DpcInner>,
}

impl DpcHandle {
    /// Like [`Dpc::queue`].
    #[must_use = "if the call was queued already, nobody has taken the arguments"]
    pub fn queue(&self, arguments: Arguments) -> bool {
        DpcInner::queue_with(&self.inner, true, || arguments)
    }
}

/// Runs a call that was taken out of the queue of `processor`, on the current thread, as that processor.
///
/// `cargo xtask dpcs` looks for this function by its name.
///
/// # Panics
///
/// As [`watch`].
#[inline(never)]
pub fn run_entry(machine: &MachineRef, entry: Entry, processor: u32) {
    let Entry { dpc, arguments, .. } = entry;
    let name = dpc.name;
    let routine = || {
        dpc.run(arguments);
        // The DPC may be freed while its routine runs: then this is the last reference.
        drop(dpc);
    };
    current::with(|state| {
        let _entered = Entered::new(state, machine.number(), processor);
        watch(state, machine, name, routine);
    });
}

/// Runs the routine of the DPC `name` on the current thread, whose `state` this is, and which is on a processor at
/// `DISPATCH_LEVEL`.
///
/// # Panics
///
/// As the routine does; [`Rule::IrqlNotRestored`] or [`Rule::LockHeld`] if it leaves something behind; [`Rule::DpcTooLong`].
#[inline]
pub fn watch(state: &ThreadState, machine: &MachineRef, name: &'static str, routine: impl FnOnce()) {
    state.copied.set(0);
    let (limit, byte_limit) = (machine.settings().dpc_time_limit, machine.settings().dpc_byte_limit);
    let started = limit.map(|_| std::time::Instant::now());
    routine();
    let copied = state.copied.get();
    // A call that copies less, which is nearly every one, writes nothing that others share.
    if copied > machine.core.most_copied.load(Relaxed) {
        machine.core.most_copied.fetch_max(copied, Relaxed);
    }
    if state.irql.get() != Irql::DISPATCH_LEVEL {
        broken(Rule::IrqlNotRestored, format_args!("DPC `{name}` returned at {}", state.irql.get()));
    }
    if state.locks.get() > 0 {
        super::irql::assert_no_locks_held();
    }
    if copied > byte_limit {
        broken(Rule::DpcTooLong, format_args!("DPC `{name}` copied {copied} bytes, more than {byte_limit}"));
    }
    if let (Some(limit), Some(started)) = (limit, started) {
        let took = started.elapsed();
        if took > limit {
            broken(Rule::DpcTooLong, format_args!("DPC `{name}` ran for {took:?}, longer than {limit:?}"));
        }
    }
}
