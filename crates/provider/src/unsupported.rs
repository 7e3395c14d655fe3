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

/// `NDK_FN_BUILD_LAM`.
///
/// # Safety
///
/// Nothing is used.
pub unsafe extern "system" fn build_lam(
    _: *mut NDK_ADAPTER,
    _: *mut MDL,
    _: usize,
    _: Option<NDK_FN_REQUEST_COMPLETION>,
    _: *mut c_void,
    _: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    _: *mut u32,
    _: *mut u32,
) -> NtStatus {
    NtStatus::NOT_SUPPORTED
}

/// `NDK_FN_RELEASE_LAM`.
///
/// # Safety
///
/// Nothing is used.
pub unsafe extern "system" fn release_lam(_: *mut NDK_ADAPTER, _: *mut NDK_LOGICAL_ADDRESS_MAPPING) {}

/// `NDK_FN_CREATE_MR`.
///
/// # Safety
///
/// Nothing is used.
pub unsafe extern "system" fn create_mr(
    _: *mut NDK_PD,
    _: BOOLEAN,
    _: Option<NDK_FN_CREATE_COMPLETION>,
    _: *mut c_void,
    _: *mut *mut NDK_MR,
) -> NtStatus {
    NtStatus::NOT_SUPPORTED
}

/// `NDK_FN_CREATE_MW`.
///
/// # Safety
///
/// Nothing is used.
pub unsafe extern "system" fn create_mw(
    _: *mut NDK_PD,
    _: Option<NDK_FN_CREATE_COMPLETION>,
    _: *mut c_void,
    _: *mut *mut NDK_MW,
) -> NtStatus {
    NtStatus::NOT_SUPPORTED
}

/// `NDK_FN_CREATE_SRQ`.
///
/// # Safety
///
/// Nothing is used.
pub unsafe extern "system" fn create_srq(
    _: *mut NDK_PD,
    _: u32,
    _: u32,
    _: u32,
    _: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
    _: *mut c_void,
    _: *const GROUP_AFFINITY,
    _: Option<NDK_FN_CREATE_COMPLETION>,
    _: *mut c_void,
    _: *mut *mut NDK_SRQ,
) -> NtStatus {
    NtStatus::NOT_SUPPORTED
}

/// `NDK_FN_CREATE_QP_WITH_SRQ`.
///
/// # Safety
///
/// Nothing is used.
pub unsafe extern "system" fn create_qp_with_srq(
    _: *mut NDK_PD,
    _: *mut NDK_CQ,
    _: *mut NDK_CQ,
    _: *mut NDK_SRQ,
    _: *mut c_void,
    _: u32,
    _: u32,
    _: u32,
    _: Option<NDK_FN_CREATE_COMPLETION>,
    _: *mut c_void,
    _: *mut *mut NDK_QP,
) -> NtStatus {
    NtStatus::NOT_SUPPORTED
}

/// `NDK_FN_BIND`.
///
/// # Safety
///
/// Nothing is used.
pub unsafe extern "system" fn bind(
    _: *mut NDK_QP,
    _: *mut c_void,
    _: *mut NDK_MR,
    _: *mut NDK_MW,
    _: *mut c_void,
    _: usize,
    _: u32,
) -> NtStatus {
    NtStatus::NOT_SUPPORTED
}

/// `NDK_FN_FAST_REGISTER`.
///
/// # Safety
///
/// Nothing is used.
pub unsafe extern "system" fn fast_register(
    _: *mut NDK_QP,
    _: *mut c_void,
    _: *mut NDK_MR,
    _: u32,
    _: *const NDK_LOGICAL_ADDRESS,
    _: u32,
    _: usize,
    _: *mut c_void,
    _: u32,
) -> NtStatus {
    NtStatus::NOT_SUPPORTED
}

/// `NDK_FN_INVALIDATE`.
///
/// # Safety
///
/// Nothing is used.
pub unsafe extern "system" fn invalidate(
    _: *mut NDK_QP,
    _: *mut c_void,
    _: *mut NDK_OBJECT_HEADER,
    _: u32,
) -> NtStatus {
    NtStatus::NOT_SUPPORTED
}
