//! `IND2Listener`.

use core::ffi::c_void;

use ndkpi::{GUID, SOCKADDR};

use super::{
    Class, borrow,
    connector::Connector,
    overlapped::{overlapped, request},
    part::{find_on, part},
};
use crate::{
    abi::{HRESULT, IID_IND2Listener, IID_IND2Overlapped, IND2ListenerVtbl, OVERLAPPED},
    address,
    back_end::{BackEnd, Listener as _, Part as _},
};

part! {
    /// A listener.
    Listener: Listener
}

impl<B: BackEnd> Class for Listener<B> {
    type Table = IND2ListenerVtbl;

    const TABLE: &'static IND2ListenerVtbl = &IND2ListenerVtbl {
        base: overlapped::<Self>(),
        Bind: bind::<B>,
        Listen: listen::<B>,
        GetLocalAddress: get_local_address::<B>,
        GetConnectionRequest: get_connection_request::<B>,
    };
    const INTERFACES: &'static [GUID] = &[IID_IND2Listener, IID_IND2Overlapped];
}

/// `IND2Listener::Bind`.
///
/// # Safety
///
/// `this` is such a listener; `address` is null or valid for reading `length` bytes.
unsafe extern "system" fn bind<B: BackEnd>(this: *mut c_void, address: *const SOCKADDR, length: u32) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Listener<B>>(this) };
    // SAFETY: `address` is null or valid for reading `length` bytes (`# Safety`).
    let address = unsafe { address::read(address, length) };
    address.and_then(|address| object.0.bind(address)).into()
}

/// `IND2Listener::Listen`.
///
/// # Safety
///
/// `this` is such a listener.
unsafe extern "system" fn listen<B: BackEnd>(this: *mut c_void, backlog: u32) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Listener<B>>(this) };
    object.0.listen(backlog).into()
}

/// `IND2Listener::GetLocalAddress`: from `Bind` on.
///
/// # Safety
///
/// `this` is such a listener; `length` is null or valid, `address` null or valid for writing as many bytes.
unsafe extern "system" fn get_local_address<B: BackEnd>(
    this: *mut c_void,
    address: *mut SOCKADDR,
    length: *mut u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Listener<B>>(this) };
    let found = object.0.local_address();
    // SAFETY: `length` is null or valid, and `address` null or valid for writing as many bytes (`# Safety`).
    found.and_then(|found| unsafe { address::write(found, address, length) }).into()
}

/// `IND2Listener::GetConnectionRequest`.
///
/// # Safety
///
/// `this` is such a listener; `connector` is null or a COM object; no request is outstanding on `overlapped`, which the
/// client keeps until a request that pends ends.
unsafe extern "system" fn get_connection_request<B: BackEnd>(
    this: *mut c_void,
    connector: *mut c_void,
    overlapped: *mut OVERLAPPED,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds. Nothing is outstanding on `overlapped`, which stays (`# Safety`).
    unsafe {
        request::<Listener<B>>(this, overlapped, |object, overlapped| {
            let connector = find_on::<Connector<B>>(object.0.adapter(), connector);
            object.0.get_connection_request(connector.as_ref().map(|connector| &connector.0), overlapped)
        })
    }
}
