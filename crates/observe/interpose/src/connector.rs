//! What a connector, a listener or a shared endpoint is asked (`NDKPI 5.8`, `NDKPI 5.9`).

use core::ffi::c_void;

use ndkpi::{NDK_CONNECTOR, NDK_LISTENER, NDK_SHARED_ENDPOINT, NtStatus, Object, SOCKADDR};

use crate::{
    Args, Function, Hooks, OutArgs, Outcome,
    call::{EventReport, slot},
    shadow::find,
};

/// A number behind a pointer that may be null.
///
/// # Safety
///
/// `number` is null or valid for reading.
pub unsafe fn behind(number: *const u32) -> Option<u32> {
    if number.is_null() || !number.is_aligned() {
        return None;
    }
    // SAFETY: not null, aligned, and valid for reading (`# Safety`).
    Some(unsafe { number.read() })
}

/// A function that asks for an address.
///
/// # Safety
///
/// `public` is an object that stays open until this returns; `length` is null or valid for reading.
unsafe fn ask<H: Hooks, T: Object>(
    public: *mut T,
    function: Function,
    buffer: *mut SOCKADDR,
    length: *mut u32,
    call: impl FnOnce(*mut T) -> NtStatus,
) -> NtStatus {
    // SAFETY: `public` is open for the call (`# Safety`).
    let shadow = match unsafe { find::<H, T>(public, function) } {
        Ok(shadow) => shadow,
        Err(status) => return status,
    };
    let address = |length| Args::Address { out: OutArgs { buffer: buffer.addr(), length } };
    // SAFETY: null or valid (`# Safety`).
    let mut report = EventReport::new(shadow, function, address(unsafe { behind(length) }));
    if let Err(status) = report.begin() {
        return status;
    }
    let status = call(shadow.inner());
    // SAFETY: `length` is null or valid for reading (`# Safety`).
    report.end_with(address(unsafe { behind(length) }), Outcome::Status(status));
    status
}

/// `NDK_FN_GET_LOCAL_ADDRESS` of a connector.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the connector is open, `length` valid, the buffer as long as it says.
pub unsafe extern "system" fn local_address<H: Hooks>(
    connector: *mut NDK_CONNECTOR,
    buffer: *mut SOCKADDR,
    length: *mut u32,
) -> NtStatus {
    let call = |inner: *mut NDK_CONNECTOR| {
        let (inner, function) = slot!(inner, NdkGetLocalAddress, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's object is open; the rest is the consumer's.
        unsafe { function(inner, buffer, length) }
    };
    // SAFETY: `connector` is open for the call, and `length` null or valid for reading (`# Safety`).
    unsafe { ask::<H, _>(connector, Function::GetLocalAddress, buffer, length, call) }
}

/// `NDK_FN_GET_PEER_ADDRESS`.
///
/// # Safety
///
/// As [`local_address`].
pub unsafe extern "system" fn peer_address<H: Hooks>(
    connector: *mut NDK_CONNECTOR,
    buffer: *mut SOCKADDR,
    length: *mut u32,
) -> NtStatus {
    let call = |inner: *mut NDK_CONNECTOR| {
        let (inner, function) = slot!(inner, NdkGetPeerAddress, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's object is open; the rest is the consumer's.
        unsafe { function(inner, buffer, length) }
    };
    // SAFETY: `connector` is open for the call, and `length` null or valid for reading (`# Safety`).
    unsafe { ask::<H, _>(connector, Function::GetPeerAddress, buffer, length, call) }
}

/// `NDK_FN_GET_LISTENER_LOCAL_ADDRESS`.
///
/// # Safety
///
/// As [`local_address`].
pub unsafe extern "system" fn listener_address<H: Hooks>(
    listener: *mut NDK_LISTENER,
    buffer: *mut SOCKADDR,
    length: *mut u32,
) -> NtStatus {
    let call = |inner: *mut NDK_LISTENER| {
        let (inner, function) = slot!(inner, NdkGetLocalAddress, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's object is open; the rest is the consumer's.
        unsafe { function(inner, buffer, length) }
    };
    // SAFETY: `listener` is open for the call, and `length` null or valid for reading (`# Safety`).
    unsafe { ask::<H, _>(listener, Function::GetListenerLocalAddress, buffer, length, call) }
}

/// `NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS`.
///
/// # Safety
///
/// As [`local_address`].
pub unsafe extern "system" fn endpoint_address<H: Hooks>(
    endpoint: *mut NDK_SHARED_ENDPOINT,
    buffer: *mut SOCKADDR,
    length: *mut u32,
) -> NtStatus {
    let call = |inner: *mut NDK_SHARED_ENDPOINT| {
        let (inner, function) = slot!(inner, NdkGetLocalAddress, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's object is open; the rest is the consumer's.
        unsafe { function(inner, buffer, length) }
    };
    // SAFETY: `endpoint` is open for the call, and `length` null or valid for reading (`# Safety`).
    unsafe { ask::<H, _>(endpoint, Function::GetSharedEndpointLocalAddress, buffer, length, call) }
}

/// `NDK_FN_GET_CONNECTION_DATA`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the connector is open, the pointers null or valid, the buffer as long as its length says.
pub unsafe extern "system" fn connection_data<H: Hooks>(
    connector: *mut NDK_CONNECTOR,
    inbound: *mut u32,
    outbound: *mut u32,
    data: *mut c_void,
    length: *mut u32,
) -> NtStatus {
    // SAFETY: `connector` is open for the call (`# Safety`).
    let shadow = match unsafe { find::<H, _>(connector, Function::GetConnectionData) } {
        Ok(shadow) => shadow,
        Err(status) => return status,
    };
    let args = |inbound, outbound, length| Args::GetConnectionData {
        inbound,
        outbound,
        out: OutArgs { buffer: data.addr(), length },
    };
    // SAFETY: null or valid (`# Safety`).
    let before = unsafe { behind(length) };
    let mut report = EventReport::new(shadow, Function::GetConnectionData, args(None, None, before));
    if let Err(status) = report.begin() {
        return status;
    }
    let (inner, function) = slot!(shadow.inner::<NDK_CONNECTOR>(), NdkGetConnectionData, NtStatus::NOT_SUPPORTED);
    // SAFETY: the provider's object is open; the rest is the consumer's.
    let status = unsafe { function(inner, inbound, outbound, data, length) };
    let (inbound, outbound) = if status.is_success() {
        // SAFETY: null or valid, and the provider has stored the limits.
        (unsafe { behind(inbound) }, unsafe { behind(outbound) })
    } else {
        (None, None)
    };
    // SAFETY: `length` is null or valid for reading (`# Safety`).
    report.end_with(args(inbound, outbound, unsafe { behind(length) }), Outcome::Status(status));
    status
}
