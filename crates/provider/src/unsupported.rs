//! Slots whose functions are still to come. They must not be null (`NDKPI 4`), so they say that they are not supported.

#![allow(
    clippy::wildcard_imports,
    clippy::too_many_arguments,
    clippy::missing_const_for_fn,
    reason = "goes away with the functions that replace it"
)]

use core::ffi::c_void;

use ndkpi::*;

/// `NDK_FN_CREATE_SHARED_ENDPOINT`.
///
/// # Safety
///
/// Nothing is used.
pub unsafe extern "system" fn create_shared_endpoint(
    _: *mut NDK_ADAPTER,
    _: *const SOCKADDR,
    _: u32,
    _: Option<NDK_FN_CREATE_COMPLETION>,
    _: *mut c_void,
    _: *mut *mut NDK_SHARED_ENDPOINT,
) -> NtStatus {
    NtStatus::NOT_SUPPORTED
}

/// `NDK_FN_CREATE_CONNECTOR`.
///
/// # Safety
///
/// Nothing is used.
pub unsafe extern "system" fn create_connector(
    _: *mut NDK_ADAPTER,
    _: Option<NDK_FN_CREATE_COMPLETION>,
    _: *mut c_void,
    _: *mut *mut NDK_CONNECTOR,
) -> NtStatus {
    NtStatus::NOT_SUPPORTED
}

/// `NDK_FN_CREATE_LISTENER`.
///
/// # Safety
///
/// Nothing is used.
pub unsafe extern "system" fn create_listener(
    _: *mut NDK_ADAPTER,
    _: Option<NDK_FN_CONNECT_EVENT_CALLBACK>,
    _: *mut c_void,
    _: Option<NDK_FN_CREATE_COMPLETION>,
    _: *mut c_void,
    _: *mut *mut NDK_LISTENER,
) -> NtStatus {
    NtStatus::NOT_SUPPORTED
}
