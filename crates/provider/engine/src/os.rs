//! What the engine asks of an operating system.
//!
//! Everything is reached through one trait, statically: no dynamic dispatch on the data path. Implementations: the Windows
//! kernel (`crates/drivers/driver-common`), a machine of threads or of one seeded thread (`crates/consumer/host`), and loom in the model checks.
//!
//! The contracts are those of the Windows kernel, because that is where the engine must be right:
//!
//! - Engine functions may be called at `IRQL <= DISPATCH_LEVEL` unless their documentation says otherwise.
//! - A DPC runs at `DISPATCH_LEVEL`. Queueing one that is queued already does nothing. Calls that queue themselves or each
//!   other without end do no harm, as long as each run is bounded: an implementation whose DPCs hold off threads runs
//!   them in a thread at times, so that the processor is below `DISPATCH_LEVEL` between two of them.
//! - What is called while a spin lock is held must not block, and no lock is taken twice by one processor.

use fallible::Arc;
use ntstatus::NtStatus;

/// An operating system, as a value: cheap to clone, and without size in a kernel.
pub trait Os: Clone + Send + Sync + Sized + 'static {
    /// A spin lock around a `T`.
    type Lock<T: Send + 'static>: SpinLock<T>;
    /// A deferred procedure call that runs the routine `R`.
    type Dpc<R: Routine>: Dpc<R>;
    /// A one-shot timer whose expiry runs the routine `R` as a DPC.
    type Timer<R: Routine>: Timer<R>;
    /// Something to wait for at `PASSIVE_LEVEL`.
    type Event: Event;
    /// Bytes that a consumer handed in to be registered.
    type Memory: Memory;

    /// A spin lock that holds `value`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`; `value` is dropped.
    fn lock<T: Send + 'static>(&self, value: T) -> Result<Self::Lock<T>, NtStatus>;

    /// A DPC that runs on `processor` (an index below [`Os::processors`]).
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    fn dpc<R: Routine>(&self, processor: u32) -> Result<Self::Dpc<R>, NtStatus>;

    /// A timer whose routine runs on any processor.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    fn timer<R: Routine>(&self) -> Result<Self::Timer<R>, NtStatus>;

    /// An event that is not signalled.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    fn event(&self) -> Result<Self::Event, NtStatus>;

    /// The number of processors, at least one. It does not change while the engine lives.
    fn processors(&self) -> u32;

    /// The index of the processor that asks. Below `DISPATCH_LEVEL` it may be out of date at once.
    fn current_processor(&self) -> u32;

    /// The processor for work that is wanted on one of `affinity`; `None` if the machine has none of them.
    ///
    /// Asked again it may name another one of the set, so that objects with equal affinity spread over it.
    fn processor_for(&self, affinity: Affinity) -> Option<u32>;

    /// Microseconds since some moment in the past. Never goes back.
    fn now(&self) -> u64;

    /// The shortest delay, in microseconds, that a timer can tell from none. At least one.
    fn timer_resolution(&self) -> u32;

    /// Thirty-two bits that a peer cannot guess easily, for the keys in tokens.
    fn random(&self) -> u32;
}

/// A set of processors of one group: `GROUP_AFFINITY` (`NDKPI 3.12`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Affinity {
    /// The processor group.
    pub group: u16,
    /// One bit for each processor of the group.
    pub mask: u64,
}

/// A spin lock: raises to `DISPATCH_LEVEL` while it is held.
///
/// A closure instead of a guard lets every implementation keep its bookkeeping on the stack, and shows at a glance what
/// runs under the lock: never a consumer's callback (`architecture`, rule 4).
pub trait SpinLock<T>: Send + Sync {
    /// Runs `work` on the value with the lock held.
    ///
    /// Locking again from inside `work` is a deadlock.
    fn with<U>(&self, work: impl FnOnce(&mut T) -> U) -> U;
}

/// Code that runs later, and what it runs on.
pub trait Routine: 'static {
    /// What the routine works on.
    type Target: Send + Sync + 'static;

    /// Runs once, at `DISPATCH_LEVEL`.
    fn run(target: &Arc<Self::Target>);
}

/// A deferred procedure call.
///
/// It may be dropped while its routine runs, but not while it is queued. That holds if the target owns it: the queued call holds
/// the target, and the target holds the call.
pub trait Dpc<R: Routine>: Send + Sync {
    /// Queues the call, which holds a reference to `target` until it has run.
    ///
    /// `false` if it was queued already: it then runs once, for the target of the first queueing. A call that has begun to
    /// run is not queued any more, and may run on another processor before the first has returned.
    ///
    /// Whatever it returns, what the caller did before happens before the run.
    ///
    /// Callable at any `IRQL <= DISPATCH_LEVEL`, with locks held.
    fn queue(&self, target: &Arc<R::Target>) -> bool;
}

/// A one-shot timer.
///
/// Its owner serialises `set` and `cancel`, and all its targets are the same object.
pub trait Timer<R: Routine>: Send + Sync {
    /// Runs the routine once, `delay` microseconds from now or a little later. A due time set before is forgotten.
    ///
    /// The timer holds a reference to `target` until the routine has run or the timer was cancelled. An expiry of the
    /// forgotten due time may still be on its way: the routine must be able to tell that it came too early.
    fn set(&self, delay: u64, target: &Arc<R::Target>);

    /// Forgets the due time. `false` if none was set or the routine has run, is running or is about to run.
    fn cancel(&self) -> bool;
}

/// Something to wait for. Once set it stays set.
pub trait Event: Send + Sync {
    /// Ends all waits, now and later. May be called at `IRQL <= DISPATCH_LEVEL`.
    fn set(&self);

    /// Waits until the event was set. `PASSIVE_LEVEL`, no lock held.
    fn wait(&self);
}

/// A pinned, virtually contiguous range of bytes that stays mapped as long as the value lives.
///
/// The owner of the bytes may change them at any time, and so may other transfers, as with hardware: implementations copy
/// without assuming that the bytes stand still. Offsets count from the first byte of the range. An access outside the
/// range is a fault of the engine; implementations panic on it rather than touch other memory.
pub trait Memory: Send + Sync + 'static {
    /// The virtual address by which the consumer names the first byte. Only compared and subtracted, never used.
    fn base(&self) -> u64;

    /// The number of bytes.
    fn len(&self) -> usize;

    /// Returns true if there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes of this range to `into`.
    fn read(&self, offset: usize, into: &mut [u8]);

    /// Copies `from` into this range, in order: the last byte never changes before an earlier one (`NDKPI 2.6`).
    fn write(&self, offset: usize, from: &[u8]);

    /// Copies `len` bytes of `from` into this range. The two may overlap; if they do not, in order as [`Memory::write`].
    fn copy_from(&self, offset: usize, from: &Self, from_offset: usize, len: usize);

    /// Prefetches the bytes at `offset` for writing. A hint without visible effect: an offset outside of the range does no harm.
    fn prefetch(&self, offset: usize) {
        let _ = offset;
    }
}
