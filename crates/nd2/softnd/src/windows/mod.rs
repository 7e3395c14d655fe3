//! The library on Windows: its exports, memory of the process, the driver's device, and overlapped requests that end at an event and a
//! completion port.

mod device;
mod file;
mod handle;
mod interfaces;
mod overlapped_os;
mod runtime;

use core::{ffi::c_void, ptr};

use nd2::{abi::HRESULT, class};
use ndkpi::GUID;
use runtime::Adapters;

use crate::{driver, version1};

/// Gives a client the provider, asked for `IND2Provider`; or for version 1 of the interface a class factory.
///
/// The class is not looked at: a client has found the library by the identifier of its registration.
///
/// # Safety
///
/// `iid` is null or valid for reading, `out` null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn DllGetClassObject(
    _class: *const GUID,
    iid: *const GUID,
    out: *mut *mut c_void,
) -> HRESULT {
    if iid.is_null() || out.is_null() {
        return HRESULT::E_POINTER;
    }
    // SAFETY: the pointer is not null.
    unsafe { out.write(ptr::null_mut()) };
    // SAFETY: the pointer is not null, and valid for reading (`# Safety`).
    if !version1::has(&unsafe { iid.read() }) {
        return HRESULT::E_NOINTERFACE;
    }
    match runtime::adapters() {
        Ok(adapters) => {
            let provider = |iid, out| match adapters {
                // SAFETY: the pointers of this call (`# Safety`), or valid ones that version 1 has made for itself.
                Adapters::Process(device) => unsafe { class::get_class_object(iid, out, || Ok([device])) },
                // SAFETY: the same pointers, whichever back end there is.
                Adapters::Driver(transport) => unsafe { driver::get_class_object(iid, out, || Ok(transport)) },
            };
            // SAFETY: `iid` is null or valid for reading, and `out` null or valid for writing (`# Safety`).
            unsafe { version1::get_class_object(iid, out, provider) }
        }
        Err(result) => result,
    }
}

/// Says if the library can be unloaded (`S_OK`). If so, its threads have ended.
#[unsafe(no_mangle)]
pub extern "system" fn DllCanUnloadNow() -> HRESULT {
    runtime::stop()
}
