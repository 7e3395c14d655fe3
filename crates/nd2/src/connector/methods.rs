//! The table of `IND2Connector`.

use core::{ffi::c_void, ptr::NonNull};

use engine::{
    connection::{Answer, ConnectParameters, Connector as EngineConnector, ConnectorRequest},
    qp::Qp,
};
use fallible::Arc;
use ndkpi::{GUID, NtStatus, SOCKADDR};

use super::{Connector, Core, reads};
use crate::{
    Platform,
    abi::{HRESULT, IID_IND2Connector, IID_IND2Overlapped, IND2ConnectorVtbl, OVERLAPPED},
    address,
    com::{Class, borrow},
    overlapped::{Overlapped, overlapped},
    qp::QueuePair,
};

impl<P: Platform> Class for Connector<P> {
    type Table = IND2ConnectorVtbl;

    const TABLE: &'static IND2ConnectorVtbl = &IND2ConnectorVtbl {
        base: overlapped::<Self>(),
        Bind: bind::<P>,
        Connect: connect::<P>,
        CompleteConnect: complete_connect::<P>,
        Accept: accept::<P>,
        Reject: reject::<P>,
        GetReadLimits: get_read_limits::<P>,
        GetPrivateData: get_private_data::<P>,
        GetLocalAddress: get_local_address::<P>,
        GetPeerAddress: get_peer_address::<P>,
        NotifyDisconnect: notify_disconnect::<P>,
        Disconnect: disconnect::<P>,
    };
    const INTERFACES: &'static [GUID] = &[IID_IND2Connector, IID_IND2Overlapped];
}

impl<P: Platform> Overlapped for Connector<P> {
    type Platform = P;

    fn file(&self) -> &Arc<P::File> {
        &self.core.file
    }

    fn cancel(&self) -> Result<(), NtStatus> {
        self.core.cancel();
        Ok(())
    }

    fn cancel_one(&self, overlapped: NonNull<OVERLAPPED>) {
        self.core.cancel_one(overlapped);
    }
}

/// A status that says all there is to say, whether it came as an error or not.
fn either(result: Result<NtStatus, NtStatus>) -> HRESULT {
    result.unwrap_or_else(|status| status).into()
}

/// `IND2Connector::Bind`.
///
/// # Safety
///
/// `this` is such a connector; `address` is null or valid for reading `length` bytes.
unsafe extern "system" fn bind<P: Platform>(this: *mut c_void, address: *const SOCKADDR, length: u32) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<P>>(this) };
    // SAFETY: the caller's promise.
    let address = unsafe { address::read(address, length) };
    address.and_then(|address| object.core.bind(address)).into()
}

/// `IND2Connector::Connect`.
///
/// # Safety
///
/// `this` is such a connector; `qp` is null or a COM object; `address` and `data` are null or valid for reading as many bytes;
/// no request is outstanding on `overlapped`, which the client keeps until a request that pends ends.
unsafe extern "system" fn connect<P: Platform>(
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
    let Some(overlapped) = NonNull::new(overlapped) else { return HRESULT::ND_INVALID_PARAMETER };
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<P>>(this) };
    let core = &object.core;
    let connect = |qp: &Arc<Qp<P::Os>>| {
        // SAFETY: the caller's promise.
        let remote = unsafe { address::read(address, length) }?;
        // SAFETY: the caller's promise.
        let private_data = unsafe { address::bytes(data, data_length) }?;
        let parameters = ConnectParameters { remote, reads: reads(inbound, outbound), private_data };
        // SAFETY: the caller's promise.
        unsafe { Core::connect(core, qp, &parameters, overlapped) }
    };
    // SAFETY: the caller's promise.
    unsafe { QueuePair::connect(core, qp, connect) }.map_or(HRESULT::ND_INVALID_PARAMETER, either)
}

/// `IND2Connector::CompleteConnect`. Waits for nothing.
///
/// # Safety
///
/// As [`notify_disconnect`].
unsafe extern "system" fn complete_connect<P: Platform>(this: *mut c_void, overlapped: *mut OVERLAPPED) -> HRESULT {
    let Some(overlapped) = NonNull::new(overlapped) else { return HRESULT::ND_INVALID_PARAMETER };
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<P>>(this) };
    // SAFETY: the caller's promise.
    either(unsafe { object.core.complete_connect(overlapped) })
}

/// `IND2Connector::Accept`.
///
/// # Safety
///
/// As [`connect`].
unsafe extern "system" fn accept<P: Platform>(
    this: *mut c_void,
    qp: *mut c_void,
    inbound: u32,
    outbound: u32,
    data: *const c_void,
    data_length: u32,
    overlapped: *mut OVERLAPPED,
) -> HRESULT {
    let Some(overlapped) = NonNull::new(overlapped) else { return HRESULT::ND_INVALID_PARAMETER };
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<P>>(this) };
    let core = &object.core;
    let accept = |qp: &Arc<Qp<P::Os>>| {
        // SAFETY: the caller's promise.
        let data = unsafe { address::bytes(data, data_length) }?;
        let engine = core.engine()?;
        let ask = || EngineConnector::accept(&engine, qp, reads(inbound, outbound), data).map(|()| Answer::Pending);
        // SAFETY: the caller's promise.
        Ok(unsafe { core.ask(ConnectorRequest::Accept, Some(qp), overlapped, ask) })
    };
    // SAFETY: the caller's promise.
    unsafe { QueuePair::connect(core, qp, accept) }.map_or(HRESULT::ND_INVALID_PARAMETER, either)
}

/// `IND2Connector::Reject`.
///
/// # Safety
///
/// `this` is such a connector; `data` is null or valid for reading as many bytes.
unsafe extern "system" fn reject<P: Platform>(this: *mut c_void, data: *const c_void, data_length: u32) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<P>>(this) };
    let reject = || {
        // SAFETY: the caller's promise.
        let data = unsafe { address::bytes(data, data_length) }?;
        EngineConnector::reject(&object.core.engine()?, data)
    };
    reject().into()
}

/// `IND2Connector::GetReadLimits`.
///
/// # Safety
///
/// `this` is such a connector; `inbound` and `outbound` are null or valid for writing.
unsafe extern "system" fn get_read_limits<P: Platform>(
    this: *mut c_void,
    inbound: *mut u32,
    outbound: *mut u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<P>>(this) };
    let data = match object.core.connection_data(&mut []) {
        Ok(data) => data,
        Err(status) => return status.into(),
    };
    if !inbound.is_null() {
        // SAFETY: the pointer is not null.
        unsafe { inbound.write(data.reads.inbound) };
    }
    if !outbound.is_null() {
        // SAFETY: the pointer is not null.
        unsafe { outbound.write(data.reads.outbound) };
    }
    HRESULT::ND_SUCCESS
}

/// `IND2Connector::GetPrivateData`: what fits, and how much there is.
///
/// # Safety
///
/// `this` is such a connector; `length` is null or valid, `data` null or valid for writing as many bytes.
unsafe extern "system" fn get_private_data<P: Platform>(
    this: *mut c_void,
    data: *mut c_void,
    length: *mut u32,
) -> HRESULT {
    if length.is_null() {
        return HRESULT::ND_INVALID_PARAMETER;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<P>>(this) };
    // SAFETY: the pointer is not null.
    let room = if data.is_null() { 0 } else { unsafe { length.read() } };
    let into: &mut [u8] = if room == 0 {
        &mut []
    } else {
        // SAFETY: the buffer is not null and valid for writing that many bytes (the caller's promise).
        unsafe { core::slice::from_raw_parts_mut(data.cast::<u8>(), room as usize) }
    };
    let found = match object.core.connection_data(into) {
        Ok(found) => found,
        Err(status) => return status.into(),
    };
    let needed = u32::try_from(found.required).unwrap_or(u32::MAX);
    // SAFETY: the pointer is not null.
    unsafe { length.write(needed) };
    if needed > room { HRESULT::ND_BUFFER_OVERFLOW } else { HRESULT::ND_SUCCESS }
}

/// `IND2Connector::GetLocalAddress`: from `Bind` on.
///
/// # Safety
///
/// `this` is such a connector; `length` is null or valid, `address` null or valid for writing as many bytes.
unsafe extern "system" fn get_local_address<P: Platform>(
    this: *mut c_void,
    address: *mut SOCKADDR,
    length: *mut u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<P>>(this) };
    let found = object.core.local_address();
    // SAFETY: the caller's promise.
    found.and_then(|found| unsafe { address::write(found, address, length) }).into()
}

/// `IND2Connector::GetPeerAddress`.
///
/// # Safety
///
/// As [`get_local_address`].
unsafe extern "system" fn get_peer_address<P: Platform>(
    this: *mut c_void,
    address: *mut SOCKADDR,
    length: *mut u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<P>>(this) };
    let found = object.core.engine().and_then(|engine| engine.peer_address());
    // SAFETY: the caller's promise.
    found.and_then(|found| unsafe { address::write(found, address, length) }).into()
}

/// `IND2Connector::NotifyDisconnect`.
///
/// # Safety
///
/// `this` is such a connector; no request is outstanding on `overlapped`, which the client keeps until a request that pends
/// ends.
unsafe extern "system" fn notify_disconnect<P: Platform>(this: *mut c_void, overlapped: *mut OVERLAPPED) -> HRESULT {
    let Some(overlapped) = NonNull::new(overlapped) else { return HRESULT::ND_INVALID_PARAMETER };
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<P>>(this) };
    // SAFETY: the caller's promise.
    unsafe { object.core.notify_disconnect(overlapped) }.into()
}

/// `IND2Connector::Disconnect`.
///
/// # Safety
///
/// As [`notify_disconnect`].
unsafe extern "system" fn disconnect<P: Platform>(this: *mut c_void, overlapped: *mut OVERLAPPED) -> HRESULT {
    let Some(overlapped) = NonNull::new(overlapped) else { return HRESULT::ND_INVALID_PARAMETER };
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<P>>(this) };
    // SAFETY: the caller's promise.
    either(unsafe { object.core.disconnect(overlapped) })
}
