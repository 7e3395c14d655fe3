//! `softnd.dll`: the NetworkDirect service provider interface over a loopback adapter, for Windows programs.
//!
//! Where the driver has its device, the adapters are the driver's ([`driver`]), and so are their peers: other processes, and
//! kernel consumers. Elsewhere the provider is `nd2` on the host's machine of threads, and this crate adds what is Windows: memory
//! of the process, and overlapped requests that end at an event and a completion port ([`file`]).
//!
//! What the adapter is like is in the file that `SOFTND_CONFIG` names and in environment variables: see `nd2_settings`.
//!
//! On other systems this crate is empty.

#![cfg(windows)]

mod driver;
mod file;
mod handle;
mod interfaces;
mod platform;
mod runtime;

use core::{ffi::c_void, ptr};

use nd2::{abi::HRESULT, class};
use ndkpi::GUID;
use runtime::Adapters;

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
    // SAFETY: the pointer is not null, and valid for reading (the caller's promise).
    if !nd2_version1::has(&unsafe { iid.read() }) {
        return HRESULT::E_NOINTERFACE;
    }
    match runtime::adapters() {
        Ok(adapters) => {
            let provider = |iid, out| match adapters {
                // SAFETY: the caller's promise, or that of who calls this.
                Adapters::Process(device) => unsafe { class::get_class_object(iid, out, || Ok([device])) },
                // SAFETY: as before.
                Adapters::Driver(transport) => unsafe { nd2_remote::get_class_object(iid, out, || Ok(transport)) },
            };
            // SAFETY: the caller's promise.
            unsafe { nd2_version1::get_class_object(iid, out, provider) }
        }
        Err(result) => result,
    }
}

/// Says if the library can be unloaded (`S_OK`). If so, its threads have ended.
#[unsafe(no_mangle)]
pub extern "system" fn DllCanUnloadNow() -> HRESULT {
    runtime::stop()
}
