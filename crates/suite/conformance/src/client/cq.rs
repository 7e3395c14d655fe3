//! `NDK_CQ` (`NDKPI 5.4`, `NDKPI 7.1`).

use alloc::vec::Vec;
use core::{
    cell::RefCell,
    ffi::c_void,
    ptr,
    sync::atomic::{
        AtomicI32, AtomicU32, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use ndkpi::{NDK_CQ, NDK_OPERATION_TYPE, NDK_RESULT, NDK_RESULT_EX, NDK_VERSION, NtStatus};

use super::{
    life::{Core, Kind, Life, Owned},
    request::{Pending, Then, request},
    session::Session,
};
use crate::case::{Check, Stop};

/// What a case does in the notification callback.
pub type Hook<'s> = &'s (dyn Fn(&'s CqCore<'s>, NtStatus) -> Check + Send + Sync + 's);

/// A completion queue.
pub type Cq<'s> = Owned<'s, CqCore<'s>>;

/// A completion queue, as callbacks and other threads see it.
pub struct CqCore<'s> {
    life: Life<'s>,
    hook: Option<Hook<'s>>,
    /// Polls and arms that run (`NDKPI 7.1.2`).
    turns: AtomicU32,
    arms: AtomicU32,
    callbacks: AtomicU32,
    errors: AtomicU32,
    /// The status of the latest callback that was no success.
    error: AtomicI32,
    /// Callbacks that run.
    running: AtomicU32,
    /// Where an arm runs at `DISPATCH_LEVEL`: the thread, and the processor plus one.
    arming_thread: AtomicUsize,
    arming_processor: AtomicU32,
    /// Callbacks made inside such an arm.
    inside_arm: AtomicU32,
}

/// A completion, with what the version in force has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// How the request went.
    pub status: NtStatus,
    /// Bytes received.
    pub bytes: u32,
    /// The context of the queue pair.
    pub qp: usize,
    /// The context of the request.
    pub request: usize,
    /// The kind of request; none from `NdkGetCqResults`.
    pub kind: Option<NDK_OPERATION_TYPE>,
    /// The invalidated token, if the kind has one.
    pub token: Option<u32>,
    /// The provider's error code, if the version has it.
    pub error: Option<u32>,
}

impl Done {
    fn plain(result: &NDK_RESULT) -> Self {
        Self {
            status: result.Status,
            bytes: result.BytesTransferred,
            qp: result.QPContext.addr(),
            request: result.RequestContext.addr(),
            kind: None,
            token: None,
            error: None,
        }
    }

    fn extended(result: &NDK_RESULT_EX, version: NDK_VERSION) -> Self {
        Self {
            status: result.Status,
            bytes: result.BytesTransferred,
            qp: result.QPContext.addr(),
            request: result.RequestContext.addr(),
            kind: Some(result.Type),
            token: result.invalidated_token(),
            error: result.provider_error_code(version),
        }
    }
}

impl<'s> Core<'s> for CqCore<'s> {
    type Public = NDK_CQ;
    const KIND: Kind = Kind::Cq;

    fn life(&self) -> &Life<'s> {
        &self.life
    }
}

impl<'s> CqCore<'s> {
    pub(super) const fn new(life: Life<'s>, hook: Option<Hook<'s>>) -> Self {
        Self {
            life,
            hook,
            turns: AtomicU32::new(0),
            arms: AtomicU32::new(0),
            callbacks: AtomicU32::new(0),
            errors: AtomicU32::new(0),
            error: AtomicI32::new(0),
            running: AtomicU32::new(0),
            arming_thread: AtomicUsize::new(0),
            arming_processor: AtomicU32::new(0),
            inside_arm: AtomicU32::new(0),
        }
    }

    pub(super) const fn context(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// The session.
    #[must_use]
    pub const fn session(&self) -> &'s Session<'s> {
        self.life.session()
    }

    /// Its life.
    #[must_use]
    pub const fn life(&self) -> &Life<'s> {
        &self.life
    }

    /// Callbacks so far.
    #[must_use]
    pub fn callbacks(&self) -> u32 {
        self.callbacks.load(Acquire)
    }

    /// Callbacks so far that reported an error.
    #[must_use]
    pub fn errors(&self) -> u32 {
        self.errors.load(Acquire)
    }

    /// What the latest of them reported.
    pub fn error(&self) -> NtStatus {
        NtStatus(self.error.load(Acquire))
    }

    /// Callbacks that run now.
    #[must_use]
    pub fn running(&self) -> u32 {
        self.running.load(Acquire)
    }

    /// Callbacks that were made inside [`CqCore::arm_raised`].
    #[must_use]
    pub fn callbacks_inside_arm(&self) -> u32 {
        self.inside_arm.load(Acquire)
    }

    /// `NdkArmCq`.
    ///
    /// # Errors
    ///
    /// The case uses the queue against `NDKPI 7.1.2` or after its close.
    pub fn arm(&self, kind: u32) -> Check {
        let call = self.life.call()?;
        let _turn = self.turn()?;
        let (cq, function) = slot!(call, NDK_CQ, NdkArmCq);
        self.arms.fetch_add(1, AcqRel);
        // SAFETY: the queue is open, and no other call of the three of NDKPI 7.1.2 runs.
        unsafe { function(cq, kind) };
        Ok(())
    }

    /// `NdkArmCq` at `DISPATCH_LEVEL`, where no callback that is made inside the call can go unnoticed.
    ///
    /// # Errors
    ///
    /// Like [`CqCore::arm`].
    pub fn arm_raised(&self, kind: u32) -> Check {
        let platform = self.session().platform();
        let mut result = Ok(());
        platform.raised(&mut || {
            let place = platform.execution_context();
            self.arming_thread.store(place.thread, Relaxed);
            self.arming_processor.store(place.processor + 1, Release);
            result = self.arm(kind);
            self.arming_processor.store(0, Release);
        });
        result
    }

    /// Begins a poll or an arm. Two at a time are against the rules, but for what a callback does while the arm that it
    /// answers has not returned yet: that cannot be helped, and so the provider has to bear it.
    fn turn(&self) -> Check<RunningCallback<'_>> {
        let others = self.turns.fetch_add(1, AcqRel);
        let turn = RunningCallback(&self.turns);
        ensure!(others == 0 || self.running() > 0, "the case polls or arms a completion queue twice at a time");
        Ok(turn)
    }

    /// `NdkGetCqResultsEx` for at most `most` completions, or `NdkGetCqResults` if the version has no other.
    ///
    /// # Errors
    ///
    /// Like [`CqCore::arm`]; the provider returns more completions than it may.
    pub fn poll(&self, most: usize) -> Check<Vec<Done>> {
        let mut all = Vec::new();
        self.poll_into(most, &mut all)?;
        Ok(all)
    }

    /// Like [`CqCore::poll`], adding to `all`. Returns how many came.
    ///
    /// # Errors
    ///
    /// Like [`CqCore::poll`].
    pub fn poll_into(&self, most: usize, all: &mut Vec<Done>) -> Check<usize> {
        let mut count = 0;
        self.poll_each(most, |done| {
            if all.try_reserve(1).is_ok() {
                all.push(done);
            }
            count += 1;
        })?;
        Ok(count)
    }

    /// Like [`CqCore::poll`], but passes each completion to `each`. Allocates nothing.
    ///
    /// # Errors
    ///
    /// Like [`CqCore::poll`].
    pub fn poll_each(&self, most: usize, each: impl FnMut(Done)) -> Check<usize> {
        let mut results = [NDK_RESULT_EX::ZEROED; 16];
        let most = most.min(results.len());
        self.poll_with(&mut results[..most], each)
    }

    /// Like [`CqCore::poll_each`], for at most as many completions as `results` has places.
    ///
    /// # Errors
    ///
    /// Like [`CqCore::poll`].
    pub fn poll_with(&self, results: &mut [NDK_RESULT_EX], mut each: impl FnMut(Done)) -> Check<usize> {
        let call = self.life.call()?;
        let cq: *mut NDK_CQ = call.object();
        // SAFETY: the queue is open.
        let function = unsafe { NDK_CQ::get_cq_results_ex(cq) };
        let Some(function) = function else {
            drop(call);
            return self.poll_plain(results.len(), each);
        };
        let _turn = self.turn()?;
        let most = u32::try_from(results.len()).unwrap_or(u32::MAX);
        // SAFETY: the queue is open, the array has as many places, and no other call of the three of NDKPI 7.1.2 runs.
        let count = unsafe { function(cq, results.as_mut_ptr(), most) } as usize;
        ensure!(count <= results.len(), "NdkGetCqResultsEx for {most} results returned {count} (NDKPI 5.4)");
        // SAFETY: the queue is open.
        let version = unsafe { (*cq).Header.Version };
        results[..count].iter().for_each(|result| each(Done::extended(result, version)));
        Ok(count)
    }

    /// `NdkGetCqResults` for at most `most` completions.
    ///
    /// # Errors
    ///
    /// Like [`CqCore::poll`].
    pub fn poll_plain(&self, most: usize, mut each: impl FnMut(Done)) -> Check<usize> {
        let call = self.life.call()?;
        let _turn = self.turn()?;
        let (cq, function) = slot!(call, NDK_CQ, NdkGetCqResults);
        let mut results = [NDK_RESULT::ZEROED; 16];
        let most = u32::try_from(most.min(results.len())).unwrap_or(0);
        // SAFETY: the queue is open, the array has as many places, and no other call of the three of NDKPI 7.1.2 runs.
        let count = unsafe { function(cq, results.as_mut_ptr(), most) } as usize;
        ensure!(count <= most as usize, "NdkGetCqResults for {most} results returned {count} (NDKPI 5.4)");
        results[..count].iter().for_each(|result| each(Done::plain(result)));
        Ok(count)
    }

    /// `NdkResizeCq`.
    ///
    /// # Errors
    ///
    /// The queue is closed, or there is no memory.
    pub fn resize(&'s self, depth: u32) -> Check<Pending<'s>> {
        self.resize_then(depth, None)
    }

    /// `NdkResizeCq`, with something to do in its callback.
    ///
    /// # Errors
    ///
    /// The queue is closed, or there is no memory.
    pub fn resize_then(&'s self, depth: u32, then: Option<Then<'s>>) -> Check<Pending<'s>> {
        let call = self.life.call()?;
        let (cq, function) = slot!(call, NDK_CQ, NdkResizeCq);
        request(&self.life, "NdkResizeCq", then, |completion, context| {
            // SAFETY: the queue is open, the context is kept by the session.
            unsafe { function(cq, depth, completion, context) }
        })
    }

    /// `NdkControlCqInterruptModeration`, with the interval in microseconds.
    ///
    /// # Errors
    ///
    /// The queue is closed.
    pub fn moderate(&self, interval: u32, count: u32) -> Check<NtStatus> {
        let call = self.life.call()?;
        let (cq, function) = slot!(call, NDK_CQ, NdkControlCqInterruptModeration);
        // SAFETY: the queue is open.
        Ok(unsafe { function(cq, interval, count) })
    }

    /// Polls until `count` completions have come.
    ///
    /// # Errors
    ///
    /// They do not come in time.
    pub fn take(&self, count: usize) -> Check<Vec<Done>> {
        let mut all = Vec::new();
        all.try_reserve(count).map_err(|_| Stop::inconclusive(format_args!("no memory for the case")))?;
        let all = RefCell::new(all);
        let wrong = RefCell::new(None);
        let session = self.session();
        let came = session.wait("completions", || {
            let mut all = all.borrow_mut();
            loop {
                let missing = count - all.len();
                if missing == 0 {
                    return true;
                }
                match self.poll_into(missing.min(16), &mut all) {
                    Ok(0) => return false,
                    Ok(_) => {}
                    Err(stop) => {
                        wrong.replace(Some(stop));
                        return true;
                    }
                }
            }
        });
        let all = all.into_inner();
        match (wrong.into_inner(), came) {
            (Some(stop), _) => Err(stop),
            (None, Ok(())) => Ok(all),
            (None, Err(Stop::Failed(_))) => {
                let waited = session.platform().patience() / 1000;
                fail!("{} of {count} completions came within {waited} ms", all.len())
            }
            (None, Err(skipped)) => Err(skipped),
        }
    }

    /// Polls until one completion has come.
    ///
    /// # Errors
    ///
    /// Like [`CqCore::take`].
    pub fn take_one(&self) -> Check<Done> {
        Ok(self.take(1)?[0])
    }

    /// Checks that nothing more comes.
    ///
    /// # Errors
    ///
    /// A completion comes.
    pub fn stays_empty(&self) -> Check {
        self.session().settle();
        match self.poll(1)?.first() {
            None => Ok(()),
            Some(done) => fail!("an unexpected completion: {done:?}"),
        }
    }

    /// Waits for the callback number `count`, counted from the creation of the queue.
    ///
    /// # Errors
    ///
    /// It does not come, or one more does.
    pub fn wait_callbacks(&self, count: u32) -> Check {
        self.session().wait_for(format_args!("callback {count} of the completion queue"), || {
            self.callbacks() >= count && self.running() == 0
        })?;
        ensure_eq!(self.callbacks(), count, "callbacks of the completion queue");
        Ok(())
    }

    /// Looks that it stays at `count` callbacks.
    ///
    /// # Errors
    ///
    /// There are more, or fewer.
    pub fn stays_at_callbacks(&self, count: u32) -> Check {
        self.session().settle();
        ensure_eq!(self.callbacks(), count, "callbacks of the completion queue");
        Ok(())
    }
}

struct RunningCallback<'t>(&'t AtomicU32);

impl Drop for RunningCallback<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Release);
    }
}

/// `NDK_FN_CQ_NOTIFICATION_CALLBACK`.
///
/// # Safety
///
/// `context` is a `CqCore` that is kept by a session.
pub(super) unsafe extern "system" fn notified(context: *mut c_void, status: NtStatus) {
    // SAFETY: a `CqCore` that a session keeps (`# Safety`), and the session outlives every callback.
    let core = unsafe { &*context.cast_const().cast::<CqCore<'_>>() };
    let session = core.session();
    let running = session.enter_callback(Some(&core.life));
    if core.running.fetch_add(1, AcqRel) != 0 {
        session.fault(format_args!("two callbacks of one completion queue ran at a time (NDKPI 7.1.7)"));
    }
    let callbacks = core.callbacks.load(Relaxed) + 1;
    if callbacks > core.arms.load(Acquire) {
        session.fault(format_args!("a callback of a completion queue that was not armed (NDKPI 7.1.3)"));
    }
    let processor = core.arming_processor.load(Acquire);
    if processor != 0 {
        let place = session.platform().execution_context();
        if place.processor + 1 == processor && place.thread == core.arming_thread.load(Relaxed) {
            core.inside_arm.fetch_add(1, AcqRel);
        }
    }
    if status != NtStatus::SUCCESS {
        core.error.store(status.0, Release);
        core.errors.fetch_add(1, AcqRel);
    }
    if let Some(hook) = core.hook {
        session.note(hook(core, status));
    }
    // What the hook did has happened for who sees the count.
    core.callbacks.fetch_add(1, AcqRel);
    core.running.fetch_sub(1, AcqRel);
    drop(running);
}
