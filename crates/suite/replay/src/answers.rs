//! What comes of a call: at once, or by a callback.

use std::{
    ffi::c_void,
    ptr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicPtr, Ordering::SeqCst},
    },
};

use ndkpi::{NDK_CONNECTOR, NDK_OBJECT_HEADER, NtStatus};

/// A request that may pend.
#[derive(Default)]
pub struct Ongoing {
    status: Mutex<Option<NtStatus>>,
    object: AtomicPtr<NDK_OBJECT_HEADER>,
}

impl Ongoing {
    /// The request has ended.
    pub fn finish(&self, status: NtStatus, object: *mut NDK_OBJECT_HEADER) {
        self.object.store(object, SeqCst);
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
    }

    /// How it has ended, if it has.
    pub fn status(&self) -> Option<NtStatus> {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object that was created, or null.
    pub fn object(&self) -> *mut NDK_OBJECT_HEADER {
        self.object.load(SeqCst)
    }

    /// A counted reference, as the context of a callback.
    pub fn context(this: &Arc<Self>) -> *mut c_void {
        Arc::into_raw(this.clone()).cast_mut().cast()
    }

    /// The reference in a context.
    ///
    /// # Safety
    ///
    /// `context` came from [`Ongoing::context`], and this is called once for it.
    pub unsafe fn of(context: *mut c_void) -> Arc<Self> {
        // SAFETY: `context` came from `Ongoing::context`, whose reference this takes back, once (`# Safety`).
        unsafe { Arc::from_raw(context.cast_const().cast()) }
    }
}

/// `NDK_FN_CREATE_COMPLETION`.
///
/// # Safety
///
/// The context is of [`Ongoing::context`], for this one call.
pub unsafe extern "system" fn created(context: *mut c_void, status: NtStatus, object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: `context` came from `Ongoing::context`, for this one call (`# Safety`).
    unsafe { Ongoing::of(context) }.finish(status, object);
}

/// `NDK_FN_REQUEST_COMPLETION`.
///
/// # Safety
///
/// As [`created`].
pub unsafe extern "system" fn requested(context: *mut c_void, status: NtStatus) {
    // SAFETY: `context` came from `Ongoing::context`, for this one call (`# Safety`).
    unsafe { Ongoing::of(context) }.finish(status, ptr::null_mut());
}

/// `NDK_FN_CLOSE_COMPLETION`.
///
/// # Safety
///
/// As [`created`].
pub unsafe extern "system" fn closed(context: *mut c_void) {
    // SAFETY: `context` came from `Ongoing::context`, for this one call (`# Safety`).
    unsafe { Ongoing::of(context) }.finish(NtStatus::SUCCESS, ptr::null_mut());
}

/// What the event callbacks of an object have been told. Lives as long as the replay.
#[derive(Default)]
pub struct Events {
    told: Mutex<Vec<NtStatus>>,
    incoming: Mutex<Vec<usize>>,
}

impl Events {
    /// The context of the callbacks.
    pub fn context(this: &Arc<Self>) -> *mut c_void {
        Arc::as_ptr(this).cast_mut().cast()
    }

    /// How often it was called back.
    pub fn count(&self) -> usize {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The status of a callback, counted from 0.
    pub fn status(&self, nth: usize) -> Option<NtStatus> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).get(nth).copied()
    }

    /// A connector that has come in, counted from 0.
    pub fn connector(&self, nth: usize) -> *mut NDK_CONNECTOR {
        let incoming = self.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        incoming.get(nth).map_or(ptr::null_mut(), |address| ptr::with_exposed_provenance_mut(*address))
    }

    /// Every connector that has come in.
    pub fn connectors(&self) -> usize {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn tell(&self, status: NtStatus) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).push(status);
    }
}

/// `NDK_FN_CQ_NOTIFICATION_CALLBACK`, and that of shared receive queues.
///
/// # Safety
///
/// The context is of [`Events::context`].
pub unsafe extern "system" fn notified(context: *mut c_void, status: NtStatus) {
    // SAFETY: a context of `Events::context` (`# Safety`), and the events live as long as the replay.
    unsafe { &*context.cast_const().cast::<Events>() }.tell(status);
}

/// `NDK_FN_DISCONNECT_EVENT_CALLBACK`.
///
/// # Safety
///
/// As [`notified`].
pub unsafe extern "system" fn disconnected(context: *mut c_void) {
    // SAFETY: `context` came from `Events::context`, and the events outlive their object (`# Safety`).
    unsafe { &*context.cast_const().cast::<Events>() }.tell(NtStatus::SUCCESS);
}

/// `NDK_FN_CONNECT_EVENT_CALLBACK`.
///
/// # Safety
///
/// As [`notified`].
pub unsafe extern "system" fn connecting(context: *mut c_void, connector: *mut NDK_CONNECTOR) {
    // SAFETY: `context` came from `Events::context`, and the events outlive their object (`# Safety`).
    let events = unsafe { &*context.cast_const().cast::<Events>() };
    events.incoming.lock().unwrap_or_else(PoisonError::into_inner).push(connector.expose_provenance());
    events.tell(NtStatus::SUCCESS);
}
