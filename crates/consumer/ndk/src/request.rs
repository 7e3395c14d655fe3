//! Requests that may pend (`NDKPI 5.0`, patterns P1 and P2).
//!
//! A provider may return the outcome, call back with it later, or call back before its function has returned. So the context is a
//! reference-counted allocation, with one reference for the callback and one for the waiter. It is never on a stack, and a waiter
//! that gives up cannot free memory that the provider still uses.

use alloc::boxed::Box;
use core::{
    cell::UnsafeCell,
    ffi::c_void,
    ptr,
    sync::atomic::{
        AtomicI32, AtomicPtr, AtomicU8,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use fallible::{Arc, try_box, try_slice};
use ndkpi::{NDK_FN_CREATE_COMPLETION, NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_HEADER, NtStatus, SOCKADDR_INET};

use crate::{adapter::AdapterCore, fast::LamBuffer, os::Event};

/// No continuation has been set yet.
const OPEN: u8 = 0;
/// `then` holds the continuation.
const THEN: u8 = 1;
/// The request has completed; `status` is its outcome.
const DONE: u8 = 2;

/// What to do when a request completes.
type Then = Box<dyn FnOnce(NtStatus) + Send>;

/// Memory that the provider may read or write until the request completes.
///
/// NDKPI does not say that addresses and private data are copied by the call (`NDKPI 7.3` is about work requests), so they
/// are kept until then.
#[derive(Default)]
pub struct Kept {
    pub addresses: [SOCKADDR_INET; 2],
    pub data: Option<Box<[u8]>>,
    /// The storage of a mapping, which the provider fills in.
    _buffer: Option<Arc<LamBuffer>>,
}

impl Kept {
    /// Keeps these addresses and a copy of the private data.
    pub fn new(addresses: [SOCKADDR_INET; 2], data: &[u8]) -> Result<Self, NtStatus> {
        let data = try_slice(data.len(), |index| data[index])?;
        Ok(Self { addresses, data: Some(data), _buffer: None })
    }

    /// Keeps the storage of a mapping.
    pub fn of_mapping(buffer: &Arc<LamBuffer>) -> Self {
        Self { _buffer: Some(buffer.clone()), ..Self::default() }
    }

    /// The private data in the form a call takes.
    pub fn data(&self) -> (*const c_void, u32) {
        match self.data.as_deref() {
            None | Some([]) => (ptr::null(), 0),
            Some(data) => (data.as_ptr().cast(), u32::try_from(data.len()).unwrap_or(u32::MAX)),
        }
    }
}

/// The state of a request, which outlives it.
///
/// # Invariants
///
/// `then` is written by the owner of the one [`Pending`], while `phase` is `OPEN`; it is taken by whoever finds `THEN` when
/// moving `phase` to `DONE`, or by the owner if that happened earlier.
pub struct State {
    phase: AtomicU8,
    status: AtomicI32,
    /// Where the provider stores an object if the call does not pend.
    object: AtomicPtr<c_void>,
    event: Box<dyn Event>,
    kept: Kept,
    then: UnsafeCell<Option<Then>>,
}

// SAFETY: what is in it may be used on any thread, and `then` is used as the invariant says.
unsafe impl Send for State {}
// SAFETY: as for `Send`.
unsafe impl Sync for State {}

impl State {
    fn new(adapter: &AdapterCore, kept: Kept) -> Result<Arc<Self>, NtStatus> {
        Arc::try_new(Self {
            phase: AtomicU8::new(OPEN),
            status: AtomicI32::new(NtStatus::PENDING.0),
            object: AtomicPtr::new(ptr::null_mut()),
            event: adapter.os().event()?,
            kept,
            then: UnsafeCell::new(None),
        })
        .map_err(Into::into)
    }

    /// Starts the request. `call` gets the context, which holds a reference for the callback.
    fn start(this: &Arc<Self>, call: impl FnOnce(*mut c_void) -> NtStatus) {
        let context = Arc::into_raw(this.clone());
        let status = call(context.cast_mut().cast());
        if status != NtStatus::PENDING {
            // SAFETY: the context came from `into_raw`, and the provider, which did not pend, does not call back.
            let state = unsafe { Arc::from_raw(context) };
            state.finish(status);
        }
    }

    /// The object whose close this is has closed.
    pub fn closed(&self) {
        self.finish(NtStatus::SUCCESS);
    }

    fn finish(&self, status: NtStatus) {
        self.status.store(status.0, Relaxed);
        if self.phase.swap(DONE, AcqRel) == THEN {
            // SAFETY: `THEN` was found when moving to `DONE`.
            if let Some(then) = unsafe { &mut *self.then.get() }.take() {
                then(status);
            }
        }
        self.event.set();
    }

    fn outcome(&self) -> Option<NtStatus> {
        (self.phase.load(Acquire) == DONE).then(|| NtStatus(self.status.load(Relaxed)))
    }

    /// Calls `then` with the outcome: at once if it is known. Only the owner of the one [`Pending`] calls this, once.
    fn when_done(&self, then: Then) {
        if let Some(status) = self.outcome() {
            return then(status);
        }
        // SAFETY: the caller is the owner, and nobody takes `then` before the phase says that it is there.
        unsafe { *self.then.get() = Some(then) };
        if self.phase.compare_exchange(OPEN, THEN, Release, Acquire).is_err() {
            // SAFETY: the request has ended without seeing `THEN`, so nobody else takes it.
            if let Some(then) = unsafe { &mut *self.then.get() }.take() {
                then(NtStatus(self.status.load(Relaxed)));
            }
        }
    }

    /// Waits for the outcome. The caller must be allowed to wait.
    fn wait(&self) -> NtStatus {
        loop {
            match self.outcome() {
                Some(status) => return status,
                None => self.event.wait(),
            }
        }
    }
}

/// A request in progress. If this is dropped the request continues, and its result is dropped.
#[must_use = "dropping it gives up what the request was to give"]
pub struct Pending<T> {
    state: Arc<State>,
    adapter: Arc<AdapterCore>,
    value: T,
}

impl<T> Pending<T> {
    /// The outcome, if it is known. `IRQL <= DISPATCH_LEVEL`.
    #[must_use]
    pub fn outcome(&self) -> Option<NtStatus> {
        self.state.outcome()
    }

    /// Waits for the request and returns its result. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// The provider's status; `STATUS_INVALID_DEVICE_STATE` if the outcome is not known yet and the caller may not
    /// wait; the request then continues and its result is dropped.
    pub fn wait(self) -> Result<T, NtStatus> {
        if self.state.outcome().is_none() && !self.adapter.os().may_wait() {
            return Err(NtStatus::INVALID_DEVICE_STATE);
        }
        match self.state.wait() {
            NtStatus::SUCCESS => Ok(self.value),
            status => Err(status),
        }
    }

    /// Why the request has failed, if it has.
    pub(crate) fn failure(&self) -> Option<NtStatus> {
        self.outcome().filter(|status| *status != NtStatus::SUCCESS)
    }

    /// Calls `wake` when the request has completed. Once at most, and not together with [`Pending::then`].
    pub(crate) fn wake(&self, wake: impl FnOnce() + Send + 'static) -> Result<(), NtStatus> {
        self.state.when_done(try_box(|_| wake())?);
        Ok(())
    }
}

impl Pending<()> {
    /// The close of an object. It completes in [`State::closed`].
    pub(crate) fn close(adapter: &Arc<AdapterCore>) -> Result<(Self, Arc<State>), NtStatus> {
        let state = State::new(adapter, Kept::default())?;
        Ok((Self { state: state.clone(), adapter: adapter.clone(), value: () }, state))
    }
}

impl<T: Send + 'static> Pending<T> {
    /// Calls `work` with the result when the request completes: at once if it has completed, otherwise in the provider's callback
    /// at `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`: there is no memory for `work`. The request continues and its result is dropped.
    pub fn then(self, work: impl FnOnce(Result<T, NtStatus>) + Send + 'static) -> Result<(), NtStatus> {
        let Self { state, value, .. } = self;
        let then: Then = try_box(move |status| match status {
            NtStatus::SUCCESS => work(Ok(value)),
            status => work(Err(status)),
        })?;
        state.when_done(then);
        Ok(())
    }
}

/// Starts a request of pattern P2 whose result is `value`. `call` gets the memory kept for it, and the function's last arguments.
pub fn request<T>(
    adapter: &Arc<AdapterCore>,
    kept: Kept,
    value: T,
    call: impl FnOnce(&T, &Kept, Option<NDK_FN_REQUEST_COMPLETION>, *mut c_void) -> NtStatus,
) -> Result<Pending<T>, NtStatus> {
    let state = State::new(adapter, kept)?;
    State::start(&state, |context| call(&value, &state.kept, Some(request_completed), context));
    Ok(Pending { state, adapter: adapter.clone(), value })
}

/// Like [`request`], and waits for the result. A caller that may not wait is refused before anything begins.
pub fn complete<T>(
    adapter: &Arc<AdapterCore>,
    kept: Kept,
    value: T,
    call: impl FnOnce(&T, &Kept, Option<NDK_FN_REQUEST_COMPLETION>, *mut c_void) -> NtStatus,
) -> Result<T, NtStatus> {
    if !adapter.os().may_wait() {
        return Err(NtStatus::INVALID_DEVICE_STATE);
    }
    request(adapter, kept, value, call)?.wait()
}

/// Starts a request of pattern P1 and waits for its object.
pub fn create<T>(
    adapter: &AdapterCore,
    call: impl FnOnce(Option<NDK_FN_CREATE_COMPLETION>, *mut c_void, *mut *mut T) -> NtStatus,
) -> Result<*mut T, NtStatus> {
    if !adapter.os().may_wait() {
        return Err(NtStatus::INVALID_DEVICE_STATE);
    }
    let state = State::new(adapter, Kept::default())?;
    State::start(&state, |context| call(Some(create_completed), context, state.object.as_ptr().cast()));
    match state.wait() {
        NtStatus::SUCCESS => {}
        status => return Err(status),
    }
    let object = state.object.load(Acquire);
    // The provider reported success without an object.
    if object.is_null() { Err(NtStatus::INTERNAL_ERROR) } else { Ok(object.cast()) }
}

/// `NDK_FN_REQUEST_COMPLETION`.
///
/// # Safety
///
/// `context` came from [`State::start`], and this is the only call with it.
unsafe extern "system" fn request_completed(context: *mut c_void, status: NtStatus) {
    // SAFETY: a reference was counted for this call (`# Safety`).
    let state = unsafe { Arc::from_raw(context.cast_const().cast::<State>()) };
    state.finish(status);
}

/// `NDK_FN_CREATE_COMPLETION`.
///
/// # Safety
///
/// The same as [`request_completed`].
unsafe extern "system" fn create_completed(context: *mut c_void, status: NtStatus, object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: as for `request_completed`.
    let state = unsafe { Arc::from_raw(context.cast_const().cast::<State>()) };
    state.object.store(object.cast(), Release);
    state.finish(status);
}
