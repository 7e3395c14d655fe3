//! `softnd.dll`: the NetworkDirect service provider interface over a loopback adapter, for Windows programs.
//!
//! The provider is `nd2` on the host's machine of threads. This crate adds what is Windows: the exports, memory of the
//! process, and overlapped requests that end at an event and a completion port ([`file`]).
//!
//! What the adapter is like is in the file that `SOFTND_CONFIG` names and in environment variables: see `nd2::settings`.
//!
//! On other systems this crate is empty.

#![cfg(windows)]

mod file;
mod platform;
mod runtime;

use core::ffi::c_void;

use nd2::{abi::HRESULT, class};
use ndkpi::GUID;

/// Gives a client the provider: asked for `IND2Provider`, not for a class factory.
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
    // SAFETY: the caller's promise.
    unsafe { class::get_class_object(iid, out, runtime::devices) }
}

/// Says if the library can be unloaded (`S_OK`). If so, its threads have ended.
#[unsafe(no_mangle)]
pub extern "system" fn DllCanUnloadNow() -> HRESULT {
    runtime::stop()
}
