//! Completion queues (`NDKPI 5.4`, `NDKPI 7.1`).

use alloc::boxed::Box;
use core::{
    cell::UnsafeCell,
    ffi::c_void,
    marker::PhantomData,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicI32, AtomicU8,
        Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    },
};

use fallible::try_box;
use ndkpi::{
    NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED, NDK_CQ, NDK_CQ_NOTIFY_ANY, NDK_CQ_NOTIFY_ERRORS, NDK_CQ_NOTIFY_SOLICITED,
    NDK_RESULT, NDK_VERSION, NtStatus,
};

use crate::{
    adapter::Adapter,
    completion::Completion,
    object::{Node, Object, Parts, slot},
    os::Event,
    request::{Kept, Pending, request},
};

/// The type of an arm (`NDKPI 2.3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// Any completion.
    Any,
    /// A receive whose sender solicits an event, and any failed request.
    Solicited,
    /// A failure of the queue itself.
    Errors,
}

/// A consumer's handler for the callback of its queue.
type Handler = Box<dyn FnMut(&mut Poller<'_>, NtStatus) + Send>;

/// A handler is installed. Without one a callback sets the event.
const HANDLED: u8 = 1;
/// The handler runs, or [`Cq::notify`] has not finished yet.
const RUNS: u8 = 2;
/// The handler must not run again.
const ENDS: u8 = 4;
/// A callback came while [`Cq::notify`] had the queue, which runs the handler in its place.
const MISSED: u8 = 8;

/// The parts of a completion queue.
///
/// # Invariants
///
/// While `phase` is 0, `handler` belongs to the [`Cq`]. From `HANDLED` on it belongs to whoever has set `RUNS`, a callback or
/// [`Cq::notify`], until that one clears the bit; so does the right to poll and to arm (`NDKPI 7.1.2`). In the end the handler
/// belongs to whichever sees the other's bit: the callback that clears `RUNS` and finds `ENDS`, or the [`Notified`] that sets
/// `ENDS` and does not find `RUNS`.
pub struct CqParts {
    phase: AtomicU8,
    handler: UnsafeCell<Option<Handler>>,
    event: Box<dyn Event>,
    /// A callback came since the queue was last seen empty: an arm may be ignored for what it still holds (`NDKPI 7.1.5`).
    stale: AtomicBool,
    /// The status of the latest callback that reported a failure.
    failure: AtomicI32,
}

// SAFETY: a handler is `Send`, and is used by one thread at a time, as the invariant says; the rest is `Sync`.
unsafe impl Sync for CqParts {}

impl Parts for CqParts {
    type Raw = NDK_CQ;
}

mod sealed {
    /// Something that has a completion queue.
    pub trait HasCq {
        /// The queue.
        fn cq(&self) -> &crate::object::Object<super::CqParts>;
    }
}
pub use sealed::HasCq;

/// A [`Cq`] or a [`Notified`]: a queue pair can complete to either.
pub trait CompletionQueue: HasCq {}

impl CompletionQueue for Cq {}
impl CompletionQueue for Notified {}

/// A completion queue that is polled or waited for.
///
/// Polls and arms take `&mut`, because only one may run at a time (`NDKPI 7.1.2`).
pub struct Cq {
    pub(crate) object: Object<CqParts>,
}

impl HasCq for Cq {
    fn cq(&self) -> &Object<CqParts> {
        &self.object
    }
}

impl Adapter {
    /// Creates a completion queue for `depth` completions. `PASSIVE_LEVEL`.
    ///
    /// It must be deep enough for every request that is posted and not yet polled, including silent ones. A queue that overruns
    /// fails, and its queue pairs with it (`NDKPI 7.1.10`).
    ///
    /// # Errors
    ///
    /// The provider's status: `STATUS_INVALID_PARAMETER` for a depth above `MaxCqDepth`.
    pub fn create_cq(&self, depth: u32) -> Result<Cq, NtStatus> {
        let parts = CqParts {
            phase: AtomicU8::new(0),
            handler: UnsafeCell::new(None),
            event: self.core().os().event()?,
            stale: AtomicBool::new(false),
            failure: AtomicI32::new(NtStatus::SUCCESS.0),
        };
        let function = slot!(self.core().raw(), NdkCreateCq)?;
        let object = Object::create(self.reference(), parts, |node, completion, context, place| {
            // SAFETY: the adapter is open, both contexts live until the queue's close has completed or, of the request,
            // until its completion, and there is no affinity.
            unsafe {
                function(
                    self.core().raw(),
                    depth,
                    Some(notified),
                    node.context(),
                    ptr::null(),
                    completion,
                    context,
                    place,
                )
            }
        })?;
        Ok(Cq { object })
    }
}

impl Cq {
    /// The poller of this queue.
    pub fn poller(&mut self) -> Poller<'_> {
        Poller { object: &self.object, _alone: PhantomData }
    }

    /// Like [`Poller::poll`].
    pub fn poll<'b>(&mut self, into: &'b mut [Completion]) -> &'b [Completion] {
        self.poller().poll(into)
    }

    /// Like [`Poller::arm`].
    pub fn arm(&mut self, notify: Notify) {
        self.poller().arm(notify);
    }

    /// Waits for completions and takes as many as fit. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// The queue has failed: `STATUS_BUFFER_OVERFLOW` or `STATUS_INTERNAL_ERROR` (`NDKPI 6`). `STATUS_INVALID_DEVICE_STATE` if
    /// the caller may not wait, `STATUS_INVALID_PARAMETER` if `into` is empty.
    pub fn wait<'b>(&mut self, into: &'b mut [Completion], notify: Notify) -> Result<&'b [Completion], NtStatus> {
        self.wait_with(into, notify, |event| {
            event.wait();
            true
        })
    }

    /// Like [`Cq::wait`], for at most about this many microseconds. No completions means that the time has run out.
    ///
    /// # Errors
    ///
    /// The same as [`Cq::wait`].
    pub fn wait_for<'b>(
        &mut self,
        into: &'b mut [Completion],
        notify: Notify,
        micros: u64,
    ) -> Result<&'b [Completion], NtStatus> {
        self.wait_with(into, notify, |event| event.wait_for(micros))
    }

    fn wait_with<'b>(
        &mut self,
        into: &'b mut [Completion],
        notify: Notify,
        wait: impl Fn(&dyn Event) -> bool,
    ) -> Result<&'b [Completion], NtStatus> {
        if into.is_empty() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let mut count = self.poll(into).len();
        while count == 0 {
            let parts = &self.object.parts;
            if !self.object.adapter().os().may_wait() {
                return Err(NtStatus::INVALID_DEVICE_STATE);
            }
            NtStatus(parts.failure.load(Acquire)).ok()?;
            parts.event.clear();
            self.arm(notify);
            // An entry from before the arm that was there at the last callback may not cause another one (NDKPI 7.1.5).
            count = self.poll(into).len();
            if count == 0 {
                let in_time = wait(&*self.object.parts.event);
                count = self.poll(into).len();
                if !in_time {
                    break;
                }
            }
        }
        Ok(&into[..count])
    }

    /// Installs `handler`, which is called whenever an arm is satisfied, and arms for `first`. The handler polls with the poller
    /// it gets, and arms again if it wants another call. It runs at `IRQL <= DISPATCH_LEVEL`, never concurrently with itself, and
    /// must not wait.
    ///
    /// Completions that an earlier callback announced and nobody has taken since need not satisfy the new arm (`NDKPI 7.1.5`), and a
    /// failure of the queue that was told once satisfies none (`NDKPI 7.1.10`). If there may be some, or the queue has failed, the
    /// handler is called before this function returns, and may find that there is no completion.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn notify<H>(self, first: Notify, handler: H) -> Result<Notified, NtStatus>
    where
        H: FnMut(&mut Poller<'_>, NtStatus) + Send + 'static,
    {
        let handler: Handler = try_box(handler)?;
        let parts = &self.object.parts;
        // SAFETY: the phase is 0, so the handler belongs to the `Cq`, which this function has. A callback that comes now, of an
        // arm that was left behind, does not touch it.
        unsafe { *parts.handler.get() = Some(handler) };
        // From here on callbacks want the handler, which polls: `RUNS` keeps them away until the arm is over.
        parts.phase.store(HANDLED | RUNS, SeqCst);
        Poller { object: &self.object, _alone: PhantomData }.arm(first);
        // A callback that found no handler has been seen here, or sees the phase: both sides store first, and then load.
        let is_stale = parts.stale.load(SeqCst);
        let failure = NtStatus(parts.failure.load(Acquire));
        if is_stale || !failure.is_success() {
            // SAFETY: this call has set `RUNS`.
            unsafe { handle(&self.object, failure) };
        }
        // SAFETY: this call has set `RUNS`, and takes it back here.
        unsafe { leave(&self.object) };
        Ok(Notified { object: self.object })
    }

    /// Like [`Poller::moderate`].
    ///
    /// # Errors
    ///
    /// The same as [`Poller::moderate`].
    pub fn moderate(&mut self, micros: u32, count: u32) -> Result<(), NtStatus> {
        self.poller().moderate(micros, count)
    }

    /// Changes the depth of the queue (`NDKPI 7.1.11`). What is queued stays. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_NOT_SUPPORTED` if the adapter cannot do it, `STATUS_INSUFFICIENT_RESOURCES`. The request itself fails, and the queue
    /// stays as it was, if `depth` is above `MaxCqDepth` or below what is queued.
    pub fn resize(&self, depth: u32) -> Result<Pending<()>, NtStatus> {
        resize(&self.object, depth)
    }
}

impl Notified {
    /// Like [`Cq::resize`].
    ///
    /// # Errors
    ///
    /// The same as [`Cq::resize`].
    pub fn resize(&self, depth: u32) -> Result<Pending<()>, NtStatus> {
        resize(&self.object, depth)
    }
}

/// `NdkResizeCq`.
fn resize(cq: &Object<CqParts>, depth: u32) -> Result<Pending<()>, NtStatus> {
    if !cq.adapter().has(NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED) {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    let function = slot!(cq.raw(), NdkResizeCq)?;
    request(cq.adapter(), Kept::default(), (), |(), _, completion, context| {
        // SAFETY: the queue is open, and the context lives until the request has completed.
        unsafe { function(cq.raw(), depth, completion, context) }
    })
}

/// A completion queue with a handler. Dropping it removes the handler: no new call begins, and the handler is dropped, by its own
/// call if one is running.
///
/// A handler may own queue pairs of its queue. It must not own its `Notified`: each would keep the other alive.
pub struct Notified {
    pub(crate) object: Object<CqParts>,
}

impl HasCq for Notified {
    fn cq(&self) -> &Object<CqParts> {
        &self.object
    }
}

impl Drop for Notified {
    fn drop(&mut self) {
        let parts = &self.object.parts;
        if parts.phase.fetch_or(ENDS, AcqRel) & RUNS == 0 {
            // SAFETY: this has set `ENDS` and not found `RUNS`; no callback sets that from now on.
            drop(unsafe { &mut *parts.handler.get() }.take());
        }
    }
}

/// Polls and arms a completion queue, one call at a time.
pub struct Poller<'a> {
    object: &'a Node<CqParts>,
    /// Makes the poller neither `Copy` nor `Sync`.
    _alone: PhantomData<&'a mut ()>,
}

impl Poller<'_> {
    /// Takes as many completions as are there and fit. `IRQL <= DISPATCH_LEVEL`.
    pub fn poll<'b>(&mut self, into: &'b mut [Completion]) -> &'b [Completion] {
        // A callback that comes from here on may be about entries that this poll does not see any more.
        let stale = self.object.parts.stale.load(Relaxed) && self.object.parts.stale.swap(false, AcqRel);
        let count = self.take(into);
        if stale && count == into.len() {
            self.object.parts.stale.store(true, Release);
        }
        &into[..count]
    }

    /// `NdkGetCqResultsEx`, or the plain function of NDKPI 1.1.
    fn take(&mut self, into: &mut [Completion]) -> usize {
        let most = u32::try_from(into.len()).unwrap_or(u32::MAX);
        let raw = self.object.raw();
        // SAFETY: the queue is open.
        let Some(function) = (unsafe { NDK_CQ::get_cq_results_ex(raw) }) else {
            return self.take_plain(into);
        };
        // SAFETY: the queue is open, a `Completion` is an `NDK_RESULT_EX`, there is room for `most`, and nobody else polls or
        // arms, because there is one `Poller`: that of the `Cq`, or of who has set `RUNS`.
        let count = unsafe { function(raw, into.as_mut_ptr().cast(), most) };
        let count = into.len().min(count as usize);
        if self.object.adapter().version < NDK_VERSION::V2_1 {
            into[..count].iter_mut().for_each(Completion::forget_reason);
        }
        count
    }

    /// `NdkGetCqResults`.
    fn take_plain(&mut self, into: &mut [Completion]) -> usize {
        let Ok(function) = slot!(self.object.raw(), NdkGetCqResults) else { return 0 };
        let mut done = 0;
        while done < into.len() {
            let mut results = [NDK_RESULT::ZEROED; 16];
            let most = results.len().min(into.len() - done);
            // SAFETY: as in `take`; at most 16 results are asked for.
            let count = unsafe { function(self.object.raw(), results.as_mut_ptr(), u32::try_from(most).unwrap_or(0)) };
            let count = most.min(count as usize);
            for (place, result) in into[done..].iter_mut().zip(&results[..count]) {
                *place = Completion::plain(*result);
            }
            done += count;
            if count < most {
                break;
            }
        }
        done
    }

    /// Asks for one callback. `IRQL <= DISPATCH_LEVEL`.
    pub fn arm(&mut self, notify: Notify) {
        let number = match notify {
            Notify::Any => NDK_CQ_NOTIFY_ANY,
            Notify::Solicited => NDK_CQ_NOTIFY_SOLICITED,
            Notify::Errors => NDK_CQ_NOTIFY_ERRORS,
        };
        let Ok(function) = slot!(self.object.raw(), NdkArmCq) else { return };
        // SAFETY: the queue is open, and nobody else polls or arms, because there is one `Poller`.
        unsafe { function(self.object.raw(), number) };
    }

    /// Delays callbacks until so many microseconds have passed or so many completions have arrived (`NDKPI 7.1.6`). `IRQL <=
    /// DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_NOT_SUPPORTED` without the adapter flag, `STATUS_INVALID_PARAMETER_MIX` if there is no limit at all.
    pub fn moderate(&mut self, micros: u32, count: u32) -> Result<(), NtStatus> {
        let function = slot!(self.object.raw(), NdkControlCqInterruptModeration)?;
        // SAFETY: the queue is open, and nobody else calls this, because there is one `Poller`.
        unsafe { function(self.object.raw(), micros, count) }.ok()
    }
}

/// `NDK_FN_CQ_NOTIFICATION_CALLBACK`.
///
/// # Safety
///
/// `context` is the node of an open completion queue, and no other callback of it runs (`NDKPI 7.1.7`).
unsafe extern "system" fn notified(context: *mut c_void, status: NtStatus) {
    // SAFETY: the node of an open queue (`# Safety`), which lives until the close has completed: that waits for this callback.
    let node = unsafe { &*context.cast_const().cast::<Node<CqParts>>() };
    let parts = &node.parts;
    if !status.is_success() {
        parts.failure.store(status.0, Release);
    }
    parts.stale.store(true, SeqCst);
    let entered = parts.phase.fetch_update(SeqCst, SeqCst, |phase| match phase {
        HANDLED => Some(HANDLED | RUNS),
        phase if phase & (RUNS | ENDS) == RUNS => Some(phase | MISSED),
        _ => None,
    });
    match entered {
        Ok(HANDLED) => {}
        Err(0) => return parts.event.set(),
        _ => return,
    }
    // SAFETY: this call has set `RUNS`.
    unsafe {
        handle(node, status);
        leave(node);
    }
}

/// Calls the handler.
///
/// # Safety
///
/// The caller has set `RUNS`.
unsafe fn handle(node: &Node<CqParts>, status: NtStatus) {
    // SAFETY: the handler belongs to the caller (invariant).
    if let Some(handler) = unsafe { &mut *node.parts.handler.get() } {
        handler(&mut Poller { object: node, _alone: PhantomData }, status);
    }
}

/// Gives the handler back: runs it first for callbacks that were missed, each of which was one of the provider's, and drops it if
/// it must not run again.
///
/// # Safety
///
/// The caller has set `RUNS`, and does not count on it from now on.
unsafe fn leave(node: &Node<CqParts>) {
    let parts = &node.parts;
    let mut phase = parts.phase.load(Acquire);
    loop {
        let missed = phase & (MISSED | ENDS) == MISSED;
        let next = if missed { phase & !MISSED } else { phase & !(MISSED | RUNS) };
        if let Err(now) = parts.phase.compare_exchange(phase, next, AcqRel, Acquire) {
            phase = now;
        } else if missed {
            // SAFETY: the caller has set `RUNS`, and it is still set.
            unsafe { handle(node, NtStatus(parts.failure.load(Acquire))) };
            phase = parts.phase.load(Acquire);
        } else {
            break;
        }
    }
    if phase & ENDS != 0 {
        // Dropping the handler may drop the last reference to the queue, whose close then waits for this callback.
        // SAFETY: this has taken `RUNS` back and found `ENDS`.
        drop(unsafe { &mut *parts.handler.get() }.take());
    }
}
