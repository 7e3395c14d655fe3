//! How a client gets the provider: the exports of the library (`DllGetClassObject`, `DllCanUnloadNow`).
//!
//! NetworkDirect asks `DllGetClassObject` for `IND2Provider` itself and not for a class factory; version 1 asks for one, which
//! `softnd` has.

use core::ffi::c_void;

use fallible::Arc;
use ndkpi::GUID;

use crate::{
    Client, Device, Engine, OverlappedOs,
    abi::{HRESULT, IID_IND2Provider, IID_IUnknown},
    live_objects,
};

/// Returns true if [`get_class_object`] has the interface.
#[must_use]
pub fn has(iid: &GUID) -> bool {
    [IID_IND2Provider, IID_IUnknown].contains(iid)
}

/// `DllGetClassObject`: makes a provider of `devices()`, which is called only if the interface exists.
///
/// # Safety
///
/// `iid` is null or valid for reading, `out` null or valid for writing.
pub unsafe fn get_class_object<P: OverlappedOs, D: AsRef<[Arc<Device<P>>]>>(
    iid: *const GUID,
    out: *mut *mut c_void,
    devices: impl FnOnce() -> Result<D, HRESULT>,
) -> HRESULT {
    if iid.is_null() || out.is_null() {
        return HRESULT::E_POINTER;
    }
    // SAFETY: `out` is not null.
    unsafe { out.write(core::ptr::null_mut()) };
    // SAFETY: `iid` is not null.
    if !has(&unsafe { iid.read() }) {
        return HRESULT::E_NOINTERFACE;
    }
    match devices() {
        // Nobody outside of the process lists its connections.
        // SAFETY: `iid` is null or valid for reading, and `out` null or valid for writing (`# Safety`).
        Ok(devices) => unsafe { Engine::create(devices.as_ref(), &Client::default(), iid, out) },
        Err(result) => result,
    }
}

/// `DllCanUnloadNow`: `S_OK` if no object is left.
pub fn can_unload_now() -> HRESULT {
    if live_objects() == 0 { HRESULT::S_OK } else { HRESULT::S_FALSE }
}
