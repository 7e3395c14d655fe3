//! An adapter of plug and play, which can go.

use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicPtr,
        Ordering::{AcqRel, Acquire, Release},
    },
};

/// Tells plug and play that a device has failed for good: it is removed as one that was pulled. `IRQL <= DISPATCH_LEVEL`.
///
/// It is called with what [`Presence::is`] was told, while that is there.
pub type Fail = unsafe fn(device: *mut c_void);

/// An adapter that can be opened, or not, and the device that it is.
pub struct Presence {
    is_ready: AtomicBool,
    /// The device; null before there is one, and after it has failed.
    device: AtomicPtr<c_void>,
    fail: Fail,
}

impl Presence {
    /// Of an adapter that cannot be opened yet and is no device yet.
    #[must_use]
    pub const fn new(fail: Fail) -> Self {
        Self { is_ready: AtomicBool::new(false), device: AtomicPtr::new(ptr::null_mut()), fail }
    }

    /// The device of the adapter.
    ///
    /// # Safety
    ///
    /// `fail` may be called with it as long as somebody has the adapter open.
    pub unsafe fn is(&self, device: *mut c_void) {
        self.device.store(device, Release);
    }

    /// Returns true if consumers can open the adapter.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Acquire)
    }

    /// Lets consumers open the adapter, or lets no more of them. `IRQL <= DISPATCH_LEVEL`.
    pub fn set_ready(&self, ready: bool) {
        self.is_ready.store(ready, Release);
    }

    /// Has plug and play remove the device, once. Called by somebody who has the adapter open. `IRQL <= DISPATCH_LEVEL`.
    pub(crate) fn fail(&self) {
        let device = self.device.swap(ptr::null_mut(), AcqRel);
        if !device.is_null() {
            // SAFETY: the device is there as long as somebody has the adapter open (the promise of `is`), and the caller has.
            unsafe { (self.fail)(device) };
        }
    }
}
