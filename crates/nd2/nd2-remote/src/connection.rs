//! `IND2Connector` and `IND2Listener`.

use std::{ffi::c_void, net::SocketAddr, sync::Arc};

use nd2::{
    abi::{
        HRESULT, IID_IND2Connector, IID_IND2Listener, IID_IND2Overlapped, IND2ConnectorVtbl, IND2ListenerVtbl,
        OVERLAPPED,
    },
    address,
    com::{Class, borrow, find},
};
use nd2_control::wire::{ADDRESS, DATA, Reader, Verb};
use ndkpi::{GUID, NtStatus, SOCKADDR, SOCKADDR_INET};

use crate::{
    Transport,
    adapter::Core,
    held::{Held, Message, Overlapped, overlapped},
    post::QueuePair,
    provider::read_address,
};

/// A connector.
pub struct Connector<T: Transport> {
    pub adapter: Arc<Core<T>>,
    pub file: Arc<T::File>,
    pub held: Held<T>,
}

/// A listener.
pub struct Listener<T: Transport> {
    pub adapter: Arc<Core<T>>,
    pub file: Arc<T::File>,
    pub held: Held<T>,
}

macro_rules! overlapped_classes {
    ($($class:ident),+) => {
        $(impl<T: Transport> Overlapped for $class<T> {
            type Transport = T;

            fn held(&self) -> &Held<T> {
                &self.held
            }

            fn file(&self) -> &Arc<T::File> {
                &self.file
            }
        })+
    };
}

overlapped_classes!(Connector, Listener);

impl<T: Transport> Class for Connector<T> {
    type Table = IND2ConnectorVtbl;

    const TABLE: &'static IND2ConnectorVtbl = &IND2ConnectorVtbl {
        base: overlapped::<Self>(),
        Bind: bind::<T>,
        Connect: connect::<T>,
        CompleteConnect: complete_connect::<T>,
        Accept: accept::<T>,
        Reject: reject::<T>,
        GetReadLimits: get_read_limits::<T>,
        GetPrivateData: get_private_data::<T>,
        GetLocalAddress: get_local_address::<Self>,
        GetPeerAddress: get_peer_address::<T>,
        NotifyDisconnect: notify_disconnect::<T>,
        Disconnect: disconnect::<T>,
    };
    const INTERFACES: &'static [GUID] = &[IID_IND2Connector, IID_IND2Overlapped];
}

impl<T: Transport> Class for Listener<T> {
    type Table = IND2ListenerVtbl;

    const TABLE: &'static IND2ListenerVtbl = &IND2ListenerVtbl {
        base: overlapped::<Self>(),
        Bind: bind_listener::<T>,
        Listen: listen::<T>,
        GetLocalAddress: get_local_address::<Self>,
        GetConnectionRequest: get_connection_request::<T>,
    };
    const INTERFACES: &'static [GUID] = &[IID_IND2Listener, IID_IND2Overlapped];
}

/// A message that goes on with the client's address.
///
/// # Safety
///
/// `address` is null or valid for reading `length` bytes.
unsafe fn with_address(message: Message, address: *const SOCKADDR, length: u32) -> Result<Message, NtStatus> {
    // SAFETY: the caller's promise.
    let raw = SOCKADDR_INET::from(unsafe { address::read(address, length) }?);
    let mut bytes = [0; ADDRESS];
    let count = (raw.length() as usize).min(ADDRESS);
    // SAFETY: the structure has as many bytes, all of them initialised.
    bytes[..count].copy_from_slice(unsafe { std::slice::from_raw_parts(raw.as_ptr().cast::<u8>(), count) });
    Ok(message.bytes(&bytes))
}

/// A message that ends with the client's private data.
///
/// # Safety
///
/// `data` is null or valid for reading `length` bytes.
unsafe fn with_data(message: Message, data: *const c_void, length: u32) -> Result<Message, NtStatus> {
    // SAFETY: the caller's promise.
    let data = unsafe { address::bytes(data, length) }?;
    if data.len() > DATA { Err(NtStatus::INVALID_BUFFER_SIZE) } else { Ok(message.bytes(data)) }
}

/// `IND2Connector::Bind`.
///
/// # Safety
///
/// `this` is such a connector; `address` is null or valid for reading `length` bytes.
unsafe extern "system" fn bind<T: Transport>(this: *mut c_void, address: *const SOCKADDR, length: u32) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<T>>(this) };
    // SAFETY: the caller's promise.
    let message = unsafe { with_address(object.held.message(), address, length) };
    message.map_or_else(HRESULT::of, |message| object.held.tell(Verb::BindConnector, &message))
}

/// `IND2Listener::Bind`.
///
/// # Safety
///
/// `this` is such a listener; `address` is null or valid for reading `length` bytes.
unsafe extern "system" fn bind_listener<T: Transport>(
    this: *mut c_void,
    address: *const SOCKADDR,
    length: u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Listener<T>>(this) };
    // SAFETY: the caller's promise.
    let message = unsafe { with_address(object.held.message(), address, length) };
    message.map_or_else(HRESULT::of, |message| object.held.tell(Verb::BindListener, &message))
}

/// `IND2Connector::Connect`.
///
/// # Safety
///
/// `this` is such a connector; `qp` is null or a COM object; `address` and `data` are null or valid for reading as many bytes;
/// no request is outstanding on `overlapped`, which the client keeps until a request that pends ends.
unsafe extern "system" fn connect<T: Transport>(
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
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<T>>(this) };
    // SAFETY: the caller's promise.
    let handle = unsafe { QueuePair::handle_of(&object.adapter, qp) };
    let message = object.held.message().u64(handle).u32(inbound).u32(outbound);
    // SAFETY: the caller's promise.
    let message = unsafe { with_address(message, address, length) };
    // SAFETY: the caller's promise.
    let message = message.and_then(|message| unsafe { with_data(message, data, data_length) });
    match message {
        // SAFETY: the caller's promise.
        Ok(message) => unsafe { object.begin(Verb::Connect, &message, overlapped) },
        Err(status) => status.into(),
    }
}

/// `IND2Connector::CompleteConnect`.
///
/// # Safety
///
/// As [`notify_disconnect`].
unsafe extern "system" fn complete_connect<T: Transport>(this: *mut c_void, overlapped: *mut OVERLAPPED) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<T>>(this) };
    // SAFETY: the caller's promise.
    unsafe { object.begin(Verb::CompleteConnect, &object.held.message(), overlapped) }
}

/// `IND2Connector::Accept`.
///
/// # Safety
///
/// As [`connect`].
unsafe extern "system" fn accept<T: Transport>(
    this: *mut c_void,
    qp: *mut c_void,
    inbound: u32,
    outbound: u32,
    data: *const c_void,
    data_length: u32,
    overlapped: *mut OVERLAPPED,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<T>>(this) };
    // SAFETY: the caller's promise.
    let handle = unsafe { QueuePair::handle_of(&object.adapter, qp) };
    let message = object.held.message().u64(handle).u32(inbound).u32(outbound);
    // SAFETY: the caller's promise.
    match unsafe { with_data(message, data, data_length) } {
        // SAFETY: the caller's promise.
        Ok(message) => unsafe { object.begin(Verb::Accept, &message, overlapped) },
        Err(status) => status.into(),
    }
}

/// `IND2Connector::Reject`.
///
/// # Safety
///
/// `this` is such a connector; `data` is null or valid for reading as many bytes.
unsafe extern "system" fn reject<T: Transport>(this: *mut c_void, data: *const c_void, data_length: u32) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<T>>(this) };
    // SAFETY: the caller's promise.
    let message = unsafe { with_data(object.held.message(), data, data_length) };
    message.map_or_else(HRESULT::of, |message| object.held.tell(Verb::Reject, &message))
}

/// `IND2Connector::GetReadLimits`.
///
/// # Safety
///
/// `this` is such a connector; `inbound` and `outbound` are null or valid for writing.
unsafe extern "system" fn get_read_limits<T: Transport>(
    this: *mut c_void,
    inbound: *mut u32,
    outbound: *mut u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<T>>(this) };
    let answer: [u8; 8] = match object.held.ask(Verb::ReadLimits, &object.held.message()) {
        Ok(answer) => answer,
        Err(status) => return status.into(),
    };
    let mut answer = Reader::new(&answer);
    for place in [inbound, outbound] {
        let limit = answer.u32().unwrap_or(0);
        if !place.is_null() {
            // SAFETY: the pointer is not null.
            unsafe { place.write(limit) };
        }
    }
    HRESULT::ND_SUCCESS
}

/// `IND2Connector::GetPrivateData`: what fits, and how much there is.
///
/// # Safety
///
/// `this` is such a connector; `length` is null or valid, `data` null or valid for writing as many bytes.
unsafe extern "system" fn get_private_data<T: Transport>(
    this: *mut c_void,
    data: *mut c_void,
    length: *mut u32,
) -> HRESULT {
    if length.is_null() {
        return HRESULT::ND_INVALID_PARAMETER;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<T>>(this) };
    let mut found = [0; DATA];
    let message = object.held.message();
    let asked = message.get().and_then(|input| object.held.transport.call(Verb::PrivateData.code(), input, &mut found));
    let needed = match asked {
        Ok(needed) => needed,
        Err(status) => return status.into(),
    };
    // SAFETY: the pointer is not null.
    let room = unsafe { length.replace(u32::try_from(needed).unwrap_or(u32::MAX)) } as usize;
    let room = if data.is_null() { 0 } else { room };
    let fits = needed.min(room);
    if fits > 0 {
        // SAFETY: the buffer is not null and valid for writing that many bytes (the caller's promise).
        unsafe { data.cast::<u8>().copy_from(found.as_ptr(), fits) };
    }
    if needed > room { HRESULT::ND_BUFFER_OVERFLOW } else { HRESULT::ND_SUCCESS }
}

/// The address that a verb gives.
fn address_of<T: Transport>(held: &Held<T>, verb: Verb) -> Result<SocketAddr, NtStatus> {
    read_address(&held.ask::<ADDRESS>(verb, &held.message())?)
}

/// `GetLocalAddress`: from `Bind` on.
///
/// # Safety
///
/// `this` is an object of the class; `length` is null or valid, `address` null or valid for writing as many bytes.
unsafe extern "system" fn get_local_address<C: Overlapped>(
    this: *mut c_void,
    address: *mut SOCKADDR,
    length: *mut u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<C>(this) };
    let found = address_of(object.held(), Verb::LocalAddress);
    // SAFETY: the caller's promise.
    found.and_then(|found| unsafe { address::write(found, address, length) }).into()
}

/// `IND2Connector::GetPeerAddress`.
///
/// # Safety
///
/// As [`get_local_address`].
unsafe extern "system" fn get_peer_address<T: Transport>(
    this: *mut c_void,
    address: *mut SOCKADDR,
    length: *mut u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<T>>(this) };
    let found = address_of(&object.held, Verb::PeerAddress);
    // SAFETY: the caller's promise.
    found.and_then(|found| unsafe { address::write(found, address, length) }).into()
}

/// `IND2Connector::NotifyDisconnect`.
///
/// # Safety
///
/// `this` is such a connector; no request is outstanding on `overlapped`, which the client keeps until a request that pends
/// ends.
unsafe extern "system" fn notify_disconnect<T: Transport>(this: *mut c_void, overlapped: *mut OVERLAPPED) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<T>>(this) };
    // SAFETY: the caller's promise.
    unsafe { object.begin(Verb::NotifyDisconnect, &object.held.message(), overlapped) }
}

/// `IND2Connector::Disconnect`.
///
/// # Safety
///
/// As [`notify_disconnect`].
unsafe extern "system" fn disconnect<T: Transport>(this: *mut c_void, overlapped: *mut OVERLAPPED) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector<T>>(this) };
    // SAFETY: the caller's promise.
    unsafe { object.begin(Verb::Disconnect, &object.held.message(), overlapped) }
}

/// `IND2Listener::Listen`.
///
/// # Safety
///
/// `this` is such a listener.
unsafe extern "system" fn listen<T: Transport>(this: *mut c_void, backlog: u32) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Listener<T>>(this) };
    object.held.tell(Verb::Listen, &object.held.message().u32(backlog))
}

/// `IND2Listener::GetConnectionRequest`.
///
/// # Safety
///
/// `this` is such a listener; `connector` is null or a COM object; no request is outstanding on `overlapped`, which the
/// client keeps until a request that pends ends.
unsafe extern "system" fn get_connection_request<T: Transport>(
    this: *mut c_void,
    connector: *mut c_void,
    overlapped: *mut OVERLAPPED,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Listener<T>>(this) };
    let own = |connector: &Connector<T>| {
        if Arc::ptr_eq(&connector.adapter, &object.adapter) { connector.held.handle } else { 0 }
    };
    // SAFETY: the caller's promise.
    let handle = unsafe { find::<Connector<T>, _>(connector, own) }.unwrap_or(0);
    // SAFETY: the caller's promise.
    unsafe { object.begin(Verb::GetConnectionRequest, &object.held.message().u64(handle), overlapped) }
}
