//! Requests: functions that complete in one of three ways (`NDKPI 5.0`, patterns P1 and P2).

use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{
        AtomicI32, AtomicPtr, AtomicU32,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use ndkpi::{NDK_FN_CREATE_COMPLETION, NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_HEADER, NtStatus, Object};

use super::{
    life::Life,
    session::{CompletionKind, Session},
};
use crate::case::{Check, Stop};

/// Something to do inside the callback of a request, which gets its status.
pub type Then<'s> = &'s (dyn Fn(NtStatus) + Send + Sync + 's);

/// What the place for a new object holds before the provider is called: an address at which nothing is.
const UNTOUCHED: *mut c_void = ptr::without_provenance_mut(0x5AFE);

/// The function runs; it returned `STATUS_PENDING`; it returned anything else.
const RUNS: u32 = 0;
const PENDS: u32 = 1;
const DONE: u32 = 2;

/// One request, in memory that outlives it.
pub struct RequestState<'s> {
    session: &'s Session<'s>,
    /// Of the object on which it was made; none for an adapter.
    life: Option<&'s Life<'s>>,
    what: &'static str,
    returned: AtomicU32,
    callbacks: AtomicU32,
    status: AtomicI32,
    /// The object that the callback named.
    object: AtomicPtr<c_void>,
    /// The place for the object that the function fills.
    place: AtomicPtr<c_void>,
    then: Option<Then<'s>>,
}

impl<'s> RequestState<'s> {
    fn begin(
        session: &'s Session<'s>,
        life: Option<&'s Life<'s>>,
        what: &'static str,
        then: Option<Then<'s>>,
    ) -> Check<&'s Self> {
        let request = session.keep(Self {
            session,
            life,
            what,
            returned: AtomicU32::new(RUNS),
            callbacks: AtomicU32::new(0),
            status: AtomicI32::new(NtStatus::PENDING.0),
            object: AtomicPtr::new(ptr::null_mut()),
            place: AtomicPtr::new(UNTOUCHED),
            then,
        })?;
        session.await_callback(true);
        Ok(request)
    }

    const fn context(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Notes what the function has returned.
    fn note_return(&'s self, status: NtStatus) -> Pending<'s> {
        let session = self.session;
        if status == NtStatus::PENDING {
            let kind = if self.callbacks.load(Acquire) > 0 { CompletionKind::Early } else { CompletionKind::Later };
            self.returned.store(PENDS, Release);
            session.count_completion(kind);
            return Pending { request: self, kind };
        }
        self.returned.store(DONE, Release);
        session.count_completion(CompletionKind::Inline);
        if self.callbacks.load(Acquire) > 0 {
            session.fault(format_args!("{} returned {status} and completed too (NDKPI 5.0)", self.what));
        } else {
            self.status.store(status.0, Release);
            session.await_callback(false);
        }
        Pending { request: self, kind: CompletionKind::Inline }
    }

    /// The callback runs.
    fn complete(&self, status: NtStatus, object: *mut NDK_OBJECT_HEADER) {
        let session = self.session;
        let running = session.enter_callback(self.life);
        let before = self.callbacks.fetch_add(1, AcqRel);
        if before > 0 {
            session.fault(format_args!("{} completed {} times (NDKPI 5.0)", self.what, before + 1));
        } else if self.returned.load(Acquire) == DONE {
            session.fault(format_args!("{} did not pend and completed too (NDKPI 5.0)", self.what));
        } else {
            if status == NtStatus::PENDING {
                session.fault(format_args!("{} completed with {status}", self.what));
            }
            self.object.store(object.cast(), Relaxed);
            if let Some(work) = self.then {
                work(status);
            }
            // Who waits sees the end of the request only now, but perhaps before this callback has returned.
            self.status.store(status.0, Release);
            session.await_callback(false);
        }
        drop(running);
    }

    fn status(&self) -> Option<NtStatus> {
        let status = NtStatus(self.status.load(Acquire));
        (status != NtStatus::PENDING).then_some(status)
    }
}

/// A request that was made.
#[derive(Clone, Copy)]
#[must_use]
pub struct Pending<'s> {
    request: &'s RequestState<'s>,
    kind: CompletionKind,
}

impl Pending<'_> {
    /// How it came to its end, as far as is known.
    #[must_use]
    pub const fn kind(&self) -> CompletionKind {
        self.kind
    }

    /// The outcome, if it is known.
    #[must_use]
    pub fn outcome(&self) -> Option<NtStatus> {
        self.request.status()
    }

    /// How many callbacks have come.
    #[must_use]
    pub fn callbacks(&self) -> u32 {
        self.request.callbacks.load(Acquire)
    }

    /// Waits for the outcome.
    ///
    /// # Errors
    ///
    /// It does not come.
    pub fn wait(&self) -> Check<NtStatus> {
        let request = self.request;
        request
            .session
            .wait_for(format_args!("the completion of {} (NDKPI 5.0)", request.what), || request.status().is_some())?;
        Ok(request.status().unwrap_or(NtStatus::PENDING))
    }

    /// Waits for the outcome, even if the suite is cancelled: the object of a create request belongs to its caller, and would
    /// never be closed.
    fn outwait(&self) -> Check<NtStatus> {
        let request = self.request;
        let platform = request.session.platform();
        let limit = platform.patience();
        platform.wait(limit, &|| request.status().is_some());
        let what = request.what;
        request.status().ok_or_else(|| {
            Stop::failed(format_args!("waited {} ms for the completion of {what} (NDKPI 5.0)", limit / 1000))
        })
    }

    /// Waits for a success.
    ///
    /// # Errors
    ///
    /// It does not come, or another outcome does.
    pub fn succeeds(&self) -> Check {
        let status = self.wait()?;
        if status == NtStatus::SUCCESS { Ok(()) } else { Err(Stop::status(self.request.what, status)) }
    }

    /// Waits for this outcome.
    ///
    /// # Errors
    ///
    /// It does not come, or another outcome does.
    pub fn ends_with(&self, expected: NtStatus) -> Check {
        let status = self.wait()?;
        ensure_eq!(status, expected, "{}", self.request.what);
        Ok(())
    }
}

/// Makes a request (pattern P2). `call` gets what the function wants at the end.
///
/// # Errors
///
/// The case is inconclusive if there is no memory.
pub fn request<'s>(
    life: &'s Life<'s>,
    what: &'static str,
    then: Option<Then<'s>>,
    call: impl FnOnce(Option<NDK_FN_REQUEST_COMPLETION>, *mut c_void) -> NtStatus,
) -> Check<Pending<'s>> {
    let request = RequestState::begin(life.session(), Some(life), what, then)?;
    let status = call(Some(request_completed), request.context());
    Ok(request.note_return(status))
}

/// Like [`request`], on an adapter.
///
/// # Errors
///
/// The case is inconclusive if there is no memory.
pub fn request_on_adapter<'s>(
    session: &'s Session<'s>,
    what: &'static str,
    then: Option<Then<'s>>,
    call: impl FnOnce(Option<NDK_FN_REQUEST_COMPLETION>, *mut c_void) -> NtStatus,
) -> Check<Pending<'s>> {
    let request = RequestState::begin(session, None, what, then)?;
    let status = call(Some(request_completed), request.context());
    Ok(request.note_return(status))
}

/// The outcome of a create request: an object that has no owner yet, or the reason that there is none.
pub type Created<T> = Result<*mut T, NtStatus>;

/// Creates an object (pattern P1) and waits for it, whoever wants the suite to end meanwhile. `call` gets what the function
/// wants at the end.
///
/// # Errors
///
/// The provider breaks the rules of the pattern.
pub fn create<'s, T: Object>(
    session: &'s Session<'s>,
    parent: Option<&'s Life<'s>>,
    what: &'static str,
    call: impl FnOnce(Option<NDK_FN_CREATE_COMPLETION>, *mut c_void, *mut *mut T) -> NtStatus,
) -> Check<Created<T>> {
    let request = RequestState::begin(session, parent, what, None)?;
    let status = call(Some(create_completed), request.context(), request.place.as_ptr().cast());
    let pending = request.note_return(status);
    let outcome = pending.outwait()?;
    let place = request.place.load(Acquire);
    if pending.kind() != CompletionKind::Inline && place != UNTOUCHED {
        // Not the end of the case: the object has to be closed.
        session.fault(format_args!(
            "{what} returned {} and wrote the place for the object (NDKPI 5.0, P1)",
            NtStatus::PENDING
        ));
    }
    if outcome != NtStatus::SUCCESS {
        return Ok(Err(outcome));
    }
    let object = if pending.kind() == CompletionKind::Inline { place } else { request.object.load(Relaxed) };
    if object.is_null() || object == UNTOUCHED {
        fail!("{what} succeeded without an object (NDKPI 5.0, P1)");
    }
    Ok(Ok(object.cast()))
}

/// `NDK_FN_REQUEST_COMPLETION`.
///
/// # Safety
///
/// `context` is a `RequestState` that is kept by a session.
unsafe extern "system" fn request_completed(context: *mut c_void, status: NtStatus) {
    // SAFETY: a `RequestState` that a session keeps (`# Safety`), and the session outlives every callback.
    let request = unsafe { &*context.cast_const().cast::<RequestState<'_>>() };
    request.complete(status, ptr::null_mut());
}

/// `NDK_FN_CREATE_COMPLETION`.
///
/// # Safety
///
/// `context` is a `RequestState` that is kept by a session.
unsafe extern "system" fn create_completed(context: *mut c_void, status: NtStatus, object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: a `RequestState` that a session keeps (`# Safety`), and the session outlives every callback.
    let request = unsafe { &*context.cast_const().cast::<RequestState<'_>>() };
    request.complete(status, object);
}
