//! Requests that may pend (`NDKPI 5.0`, patterns P1 and P2).
//!
//! A provider may return the outcome, or call back with it later, or before its function has returned. So what the callback
//! uses lies in memory that is counted: one reference is the callback's, one is that of who waits. No context lies on a
//! stack, and nobody who gives up waiting pulls memory from under the provider.

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

use crate::{adapter::AdapterCore, fast::Place, os::Event};

/// Nobody has said yet what is to be done at the end.
const OPEN: u8 = 0;
/// `then` holds what is to be done at the end.
const THEN: u8 = 1;
/// The request has ended; `status` is its outcome.
const DONE: u8 = 2;

/// What is to be done at the end of a request.
type Then = Box<dyn FnOnce(NtStatus) + Send>;

/// What the provider may read or write until the request has ended.
///
/// NDKPI does not say that addresses and private data are copied by the call (`NDKPI 7.3` is about work requests), so they
/// are kept until the end.
#[derive(Default)]
pub struct Kept {
    pub addresses: [SOCKADDR_INET; 2],
    pub data: Option<Box<[u8]>>,
    /// The place of a mapping: the provider stores it, nobody reads it here.
    _place: Option<Arc<Place>>,
}

impl Kept {
    /// With these addresses and a copy of the private data.
    pub fn new(addresses: [SOCKADDR_INET; 2], data: &[u8]) -> Result<Self, NtStatus> {
        let data = try_slice(data.len(), |index| data[index])?;
        Ok(Self { addresses, data: Some(data), _place: None })
    }

    /// With the place of a mapping.
    pub fn of_mapping(place: &Arc<Place>) -> Self {
        Self { _place: Some(place.clone()), ..Self::default() }
    }

    /// The private data as a call takes them.
    pub fn data(&self) -> (*const c_void, u32) {
        match self.data.as_deref() {
            None | Some([]) => (ptr::null(), 0),
            Some(data) => (data.as_ptr().cast(), u32::try_from(data.len()).unwrap_or(u32::MAX)),
        }
    }
}

/// A request, in memory that outlives it.
///
/// # Invariants
///
/// `then` is written by the owner of the one [`Pending`], while `phase` is `OPEN`; it is taken by who finds `THEN` when
/// moving `phase` to `DONE`, or by the owner if that has happened before.
pub struct State {
    phase: AtomicU8,
    status: AtomicI32,
    /// Where the provider stores an object, if it does not pend.
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

    /// Makes the request. `call` gets the context, on which a reference is counted for the callback.
    fn start(this: &Arc<Self>, call: impl FnOnce(*mut c_void) -> NtStatus) {
        let context = Arc::into_raw(this.clone());
        let status = call(context.cast_mut().cast());
        if status != NtStatus::PENDING {
            // SAFETY: the context came from `into_raw`, and the provider, which did not pend, does not call back.
            let state = unsafe { Arc::from_raw(context) };
            state.finish(status);
        }
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

    /// Waits for the outcome. The caller may wait.
    fn wait(&self) -> NtStatus {
        loop {
            match self.outcome() {
                Some(status) => return status,
                None => self.event.wait(),
            }
        }
    }
}

/// A request that was made. It goes on if this is dropped; what it was to give is dropped then.
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

    /// Waits for the outcome, and returns what the request gives. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// What the provider says; `STATUS_INVALID_DEVICE_STATE`, and the request goes on without its value, if the caller may not
    /// wait and the outcome is not known yet.
    pub fn wait(self) -> Result<T, NtStatus> {
        if self.state.outcome().is_none() && !self.adapter.os().may_wait() {
            return Err(NtStatus::INVALID_DEVICE_STATE);
        }
        match self.state.wait() {
            NtStatus::SUCCESS => Ok(self.value),
            status => Err(status),
        }
    }
}

impl<T: Send + 'static> Pending<T> {
    /// Calls `work` with what the request gives, when it ends: at once if it has ended, else in the provider's callback, at
    /// `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`: there is no memory for `work`. The request goes on without its value.
    pub fn then(self, work: impl FnOnce(Result<T, NtStatus>) + Send + 'static) -> Result<(), NtStatus> {
        let Self { state, value, .. } = self;
        let then: Then = try_box(move |status| match status {
            NtStatus::SUCCESS => work(Ok(value)),
            status => work(Err(status)),
        })?;
        if let Some(status) = state.outcome() {
            then(status);
            return Ok(());
        }
        // SAFETY: this was the one `Pending`, and nobody takes `then` before the phase says that it is there.
        unsafe { *state.then.get() = Some(then) };
        if state.phase.compare_exchange(OPEN, THEN, Release, Acquire).is_err() {
            // SAFETY: the request has ended without seeing `THEN`, so nobody else takes it.
            if let Some(then) = unsafe { &mut *state.then.get() }.take() {
                then(NtStatus(state.status.load(Relaxed)));
            }
        }
        Ok(())
    }
}

/// Makes a request of pattern P2 that gives `value`. `call` gets what is kept for it, and what the function wants at its end.
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

/// Makes a request of pattern P1 and waits for its object.
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
    // A provider that says so and has none.
    if object.is_null() { Err(NtStatus::INTERNAL_ERROR) } else { Ok(object.cast()) }
}

/// `NDK_FN_REQUEST_COMPLETION`.
///
/// # Safety
///
/// `context` came from [`State::start`], and this is the only call with it.
unsafe extern "system" fn request_completed(context: *mut c_void, status: NtStatus) {
    // SAFETY: a reference was counted for this call (the caller's promise).
    let state = unsafe { Arc::from_raw(context.cast_const().cast::<State>()) };
    state.finish(status);
}

/// `NDK_FN_CREATE_COMPLETION`.
///
/// # Safety
///
/// As for [`request_completed`].
unsafe extern "system" fn create_completed(context: *mut c_void, status: NtStatus, object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: as for `request_completed`.
    let state = unsafe { Arc::from_raw(context.cast_const().cast::<State>()) };
    state.object.store(object.cast(), Release);
    state.finish(status);
}
