//! Deferred procedure calls on a chosen processor.

use alloc::boxed::Box;
use core::{
    marker::PhantomData,
    pin::Pin,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicU32,
        Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    },
};

use engine::os::{Dpc, Routine};
use fallible::{Arc, try_box};
use kernel::{Fixed, check};
use ndkpi::NtStatus;
use wdk_sys::{
    _KDPC_IMPORTANCE, KDPC, PVOID,
    ntddk::{
        KeFlushQueuedDpcs, KeInitializeDpc, KeInsertQueueDpc, KeRemoveQueueDpc, KeSetImportanceDpc,
        KeSetTargetProcessorDpcEx,
    },
};

use super::{
    processor,
    worker::{self, Fate, QueueEntry},
};

/// A DPC of `R`.
///
/// # Invariants
///
/// The DPC was initialised with `run::<R>` and the address of its `Call`. It is queued only with a counted reference to an
/// `R::Target` as its first argument.
pub struct KernelDpc<R: Routine> {
    call: Pin<Box<Call>>,
    runs: PhantomData<fn(R)>,
}

struct Call {
    dpc: Fixed<KDPC>,
    /// The kernel has the DPC in a queue, or is about to get it. Its own word for that is in the DPC, and no document says what order
    /// it gives to a caller whose DPC is queued already.
    is_queued: AtomicBool,
    /// Where the DPC runs.
    processor: u32,
    /// Its entry in the queue of that processor's worker.
    entry: QueueEntry,
}

// SAFETY: the kernel's routines may be called for one DPC by any number of threads at a time.
#[expect(clippy::non_send_fields_in_send_ty, reason = "the pointers in it are the kernel's")]
unsafe impl<R: Routine> Send for KernelDpc<R> {}
// SAFETY: as for `Send`; nothing else touches it.
unsafe impl<R: Routine> Sync for KernelDpc<R> {}

impl Call {
    /// The DPC, for the kernel's routines.
    fn dpc(self: Pin<&Self>) -> *mut KDPC {
        // SAFETY: the field of a pinned value that is pinned with it always: nothing moves it out.
        let dpc = unsafe { self.map_unchecked(|call| &call.dpc) };
        dpc.get()
    }
}

impl<R: Routine> KernelDpc<R> {
    /// A DPC that runs on the processor with that index.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`; `STATUS_INVALID_PARAMETER` if there is no such processor.
    pub fn try_new(index: u32) -> Result<Self, NtStatus> {
        let mut number = processor::number(index)?;
        let dpc = Fixed::new(KDPC::default());
        let call = Call { dpc, is_queued: AtomicBool::new(false), processor: index, entry: QueueEntry::new() };
        let call = Box::into_pin(try_box(call).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?);
        let context: PVOID = ptr::from_ref(&*call).cast_mut().cast();
        let dpc = call.as_ref().dpc();
        // SAFETY: memory for a DPC, pinned, which nobody else knows yet.
        unsafe { KeInitializeDpc(dpc, Some(run::<R>), context) };
        // SAFETY: the DPC is initialised and not queued, and the number lives until the call returns.
        check(unsafe { KeSetTargetProcessorDpcEx(dpc, &raw mut number) })?;
        // A DPC of medium importance for another processor waits until that one looks for itself; this one is sent.
        // SAFETY: the DPC is initialised and not queued.
        unsafe { KeSetImportanceDpc(dpc, _KDPC_IMPORTANCE::MediumHighImportance) };
        Ok(Self { call, runs: PhantomData })
    }
}

impl<R: Routine> Dpc<R> for KernelDpc<R> {
    fn queue(&self, target: &Arc<R::Target>) -> bool {
        // `run` reads what every call of this has written, also one that returns `false`.
        if self.call.is_queued.swap(true, AcqRel) {
            return false;
        }
        if DRAINS.load(Relaxed) {
            QUEUED.fetch_add(1, AcqRel);
        }
        let counted = Arc::into_raw(target.clone());
        // SAFETY: the DPC is initialised (invariant), and `run::<R>` gets a counted reference.
        let queued = unsafe { KeInsertQueueDpc(self.call.as_ref().dpc(), counted.cast_mut().cast(), ptr::null_mut()) };
        debug_assert!(queued != 0, "the DPC has begun since it was last queued");
        true
    }
}

impl<R: Routine> Drop for KernelDpc<R> {
    fn drop(&mut self) {
        // A call that is running does not need the DPC any more: the kernel has taken out of it what it needs. One that is
        // queued there is not (the contract of `Dpc`). Were there one, its memory must not be freed in the queue, and its
        // reference would be lost: the argument is the kernel's, which documents no way to ask for it.
        // SAFETY: the DPC is initialised (invariant).
        let removed = unsafe { KeRemoveQueueDpc(self.call.as_ref().dpc()) };
        debug_assert!(removed == 0, "a DPC was dropped while it was queued");
    }
}

unsafe extern "C" fn run<R: Routine>(_dpc: *mut KDPC, context: PVOID, target: PVOID, _unused: PVOID) {
    // SAFETY: the address of the call (invariant), which lives until the routine begins (the contract of `Dpc`).
    let call = unsafe { &*context.cast_const().cast::<Call>() };
    call.is_queued.swap(false, AcqRel);
    let fate = worker::of(call.processor).map_or(Fate::Runs, |worker| {
        // SAFETY: `queue` gave this call a counted reference (invariant), which nobody else takes. The call uses the worker of its
        // processor always, and as long as it waits it counts as queued: it is not dropped.
        unsafe { worker.admit(&call.entry, work::<R>, target) }
    });
    match fate {
        // SAFETY: the reference is still this call's.
        Fate::Runs => unsafe { work::<R>(target) },
        Fate::Waits => {}
        // SAFETY: the reference is still this call's. The run that waits has one of its own.
        Fate::WaitedAlready => drop(unsafe { Arc::<R::Target>::from_raw(target.cast_const().cast()) }),
    }
}

/// Runs the routine.
///
/// # Safety
///
/// `target` is a counted reference to an `R::Target`, which this takes. At `DISPATCH_LEVEL`.
unsafe fn work<R: Routine>(target: PVOID) {
    // SAFETY: `target` is a counted reference to an `R::Target` (`# Safety`), given up to this.
    let target = unsafe { Arc::<R::Target>::from_raw(target.cast_const().cast()) };
    R::run(&target);
}

/// Somebody waits in [`drain`].
static DRAINS: AtomicBool = AtomicBool::new(false);

/// DPCs that were queued meanwhile.
static QUEUED: AtomicU32 = AtomicU32::new(0);

/// Waits until no DPC that was queued before is still running. `PASSIVE_LEVEL`.
fn flush() {
    // SAFETY: the caller is at `PASSIVE_LEVEL`.
    unsafe { KeFlushQueuedDpcs() };
}

/// Waits until no DPC is queued or running. `PASSIVE_LEVEL`; nobody but DPCs that run now queues any more, and what they queue comes to an end.
///
/// The kernel waits for those that were queued before. One of them may queue another one, on a processor that is not waited for any more:
/// what the engine still has to say to peers, for example, is queued for the socket.
pub fn drain() {
    DRAINS.store(true, SeqCst);
    // Behind this, no DPC runs that has not seen it.
    flush();
    loop {
        let before = QUEUED.load(Acquire);
        flush();
        if QUEUED.load(Acquire) == before {
            break;
        }
    }
    DRAINS.store(false, Release);
}
