//! `IND2Connector`.

use core::{ffi::c_void, slice};

use engine::connection::ReadLimits;
use ndkpi::{GUID, SOCKADDR};

use super::{
    Class, borrow,
    overlapped::{overlapped, request},
    part::{find_on, part},
    qp::QueuePair,
};
use crate::{
    abi::{HRESULT, IID_IND2Connector, IID_IND2Overlapped, IND2ConnectorVtbl, OVERLAPPED},
    address,
    back_end::{BackEnd, Connector as _, Part as _},
};

part! {
    /// A connector.
    Connector: Connector
}

impl<B: BackEnd> Class for Connector<B> {
    type Table = IND2ConnectorVtbl;

    const TABLE: &'static IND2ConnectorVtbl = &IND2ConnectorVtbl {
        base: overlapped::<Self>(),
        Bind: bind::<B>,
        Connect: connect::<B>,
        CompleteConnect: complete_connect::<B>,
        Accept: accept::<B>,
        Reject: reject::<B>,
        GetReadLimits: get_read_limits::<B>,
        GetPrivateData: get_private_data::<B>,
        GetLocalAddress: get_local_address::<B>,
        GetPeerAddress: get_peer_address::<B>,
        NotifyDisconnect: notify_disconnect::<B>,
        Disconnect: disconnect::<B>,
    };
    const INTERFACES: &'static [GUID] = &[IID_IND2Connector, IID_IND2Overlapped];
}

/// `IND2Connector::Bind`.
///
/// # Safety
///
/// `this` is such a connector; `address` is null or valid for reading `length` bytes.
unsafe extern "system" fn bind<B: BackEnd>(this: *mut c_void, address: *const SOCKADDR, length: u32) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<B>>(this) };
    // SAFETY: `address` is null or valid for reading `length` bytes (`# Safety`).
    let address = unsafe { address::read(address, length) };
    address.and_then(|address| object.0.bind(address)).into()
}

/// `IND2Connector::Connect`.
///
/// # Safety
///
/// `this` is such a connector; `qp` is null or a COM object; `address` and `data` are null or valid for reading as many bytes;
/// no request is outstanding on `overlapped`, which the client keeps until a request that pends ends.
unsafe extern "system" fn connect<B: BackEnd>(
    this: *mut c_void,
    qp: *mut c_void,
    address: *const SOCKADDR,
    length: u32,
    inbound: u32,
    outbound: u32,
    data: *const c_void,
    data_length: u32,
    overlapped: *mut OVERLAPPED,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds. Nothing is outstanding on `overlapped`, which stays (`# Safety`).
    unsafe {
        request::<Connector<B>>(this, overlapped, |object, overlapped| {
            let qp = find_on::<QueuePair<B>>(object.0.adapter(), qp);
            let qp = qp.as_ref().map(|qp| &qp.0);
            let remote = match address::read(address, length) {
                Ok(remote) => remote,
                Err(status) => return status,
            };
            match address::bytes(data, data_length) {
                Ok(data) => object.0.connect(qp, remote, ReadLimits { inbound, outbound }, data, overlapped),
                Err(status) => status,
            }
        })
    }
}

/// `IND2Connector::CompleteConnect`. Waits for nothing.
///
/// # Safety
///
/// As [`notify_disconnect`].
unsafe extern "system" fn complete_connect<B: BackEnd>(this: *mut c_void, overlapped: *mut OVERLAPPED) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds. Nothing is outstanding on `overlapped`, which stays (`# Safety`).
    unsafe { request::<Connector<B>>(this, overlapped, |object, overlapped| object.0.complete_connect(overlapped)) }
}

/// `IND2Connector::Accept`.
///
/// # Safety
///
/// As [`connect`].
unsafe extern "system" fn accept<B: BackEnd>(
    this: *mut c_void,
    qp: *mut c_void,
    inbound: u32,
    outbound: u32,
    data: *const c_void,
    data_length: u32,
    overlapped: *mut OVERLAPPED,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds. Nothing is outstanding on `overlapped`, which stays (`# Safety`).
    unsafe {
        request::<Connector<B>>(this, overlapped, |object, overlapped| {
            let qp = find_on::<QueuePair<B>>(object.0.adapter(), qp);
            let qp = qp.as_ref().map(|qp| &qp.0);
            match address::bytes(data, data_length) {
                Ok(data) => object.0.accept(qp, ReadLimits { inbound, outbound }, data, overlapped),
                Err(status) => status,
            }
        })
    }
}

/// `IND2Connector::Reject`.
///
/// # Safety
///
/// `this` is such a connector; `data` is null or valid for reading as many bytes.
unsafe extern "system" fn reject<B: BackEnd>(this: *mut c_void, data: *const c_void, data_length: u32) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<B>>(this) };
    // SAFETY: `data` is null or valid for reading `data_length` bytes (`# Safety`).
    let data = unsafe { address::bytes(data, data_length) };
    data.and_then(|data| object.0.reject(data)).into()
}

/// `IND2Connector::GetReadLimits`.
///
/// # Safety
///
/// `this` is such a connector; `inbound` and `outbound` are null or valid for writing.
unsafe extern "system" fn get_read_limits<B: BackEnd>(
    this: *mut c_void,
    inbound: *mut u32,
    outbound: *mut u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<B>>(this) };
    let limits = match object.0.read_limits() {
        Ok(limits) => limits,
        Err(status) => return status.into(),
    };
    if !inbound.is_null() {
        // SAFETY: the pointer is not null.
        unsafe { inbound.write(limits.inbound) };
    }
    if !outbound.is_null() {
        // SAFETY: the pointer is not null.
        unsafe { outbound.write(limits.outbound) };
    }
    HRESULT::ND_SUCCESS
}

/// `IND2Connector::GetPrivateData`: what fits, and how much there is.
///
/// # Safety
///
/// `this` is such a connector; `length` is null or valid, `data` null or valid for writing as many bytes.
unsafe extern "system" fn get_private_data<B: BackEnd>(
    this: *mut c_void,
    data: *mut c_void,
    length: *mut u32,
) -> HRESULT {
    if length.is_null() {
        return HRESULT::ND_INVALID_PARAMETER;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<B>>(this) };
    // SAFETY: the pointer is not null.
    let room = if data.is_null() { 0 } else { unsafe { length.read() } };
    let into: &mut [u8] = if room == 0 {
        &mut []
    } else {
        // SAFETY: the buffer is not null and valid for writing that many bytes (`# Safety`).
        unsafe { slice::from_raw_parts_mut(data.cast::<u8>(), room as usize) }
    };
    let needed = match object.0.private_data(into) {
        Ok(needed) => needed,
        Err(status) => return status.into(),
    };
    let needed = u32::try_from(needed).unwrap_or(u32::MAX);
    // SAFETY: the pointer is not null.
    unsafe { length.write(needed) };
    if needed > room { HRESULT::ND_BUFFER_OVERFLOW } else { HRESULT::ND_SUCCESS }
}

/// `IND2Connector::GetLocalAddress`: from `Bind` on.
///
/// # Safety
///
/// `this` is such a connector; `length` is null or valid, `address` null or valid for writing as many bytes.
unsafe extern "system" fn get_local_address<B: BackEnd>(
    this: *mut c_void,
    address: *mut SOCKADDR,
    length: *mut u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<B>>(this) };
    let found = object.0.local_address();
    // SAFETY: `length` is null or valid, and `address` null or valid for writing as many bytes (`# Safety`).
    found.and_then(|found| unsafe { address::write(found, address, length) }).into()
}

/// `IND2Connector::GetPeerAddress`.
///
/// # Safety
///
/// As [`get_local_address`].
unsafe extern "system" fn get_peer_address<B: BackEnd>(
    this: *mut c_void,
    address: *mut SOCKADDR,
    length: *mut u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<B>>(this) };
    let found = object.0.peer_address();
    // SAFETY: `length` is null or valid, and `address` null or valid for writing as many bytes (`# Safety`).
    found.and_then(|found| unsafe { address::write(found, address, length) }).into()
}

/// `IND2Connector::NotifyDisconnect`.
///
/// # Safety
///
/// `this` is such a connector; no request is outstanding on `overlapped`, which the client keeps until a request that pends
/// ends.
unsafe extern "system" fn notify_disconnect<B: BackEnd>(this: *mut c_void, overlapped: *mut OVERLAPPED) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds. Nothing is outstanding on `overlapped`, which stays (`# Safety`).
    unsafe { request::<Connector<B>>(this, overlapped, |object, overlapped| object.0.notify_disconnect(overlapped)) }
}

/// `IND2Connector::Disconnect`.
///
/// # Safety
///
/// As [`notify_disconnect`].
unsafe extern "system" fn disconnect<B: BackEnd>(this: *mut c_void, overlapped: *mut OVERLAPPED) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds. Nothing is outstanding on `overlapped`, which stays (`# Safety`).
    unsafe { request::<Connector<B>>(this, overlapped, |object, overlapped| object.0.disconnect(overlapped)) }
}
