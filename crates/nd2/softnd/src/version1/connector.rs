//! `INDConnector`.

use std::{
    ffi::c_void,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use nd2::{
    abi::{
        HRESULT, IID_IND2Connector, IID_INDConnector, IID_INDEndpoint, IID_INDOverlapped, IND2ConnectorVtbl,
        IND2OverlappedVtbl, INDConnectorVtbl, OVERLAPPED,
    },
    com::{Class, Object, borrow, find},
};
use ndkpi::{GUID, NtStatus, SOCKADDR};

use crate::version1::{
    adapter::{Core, ok},
    endpoint::{Endpoint, Sizes},
    held::{ComRef, Overlapped, overlapped, short, with_length},
};

/// A connector of version 1.
pub struct Connector {
    beneath: ComRef<IND2ConnectorVtbl>,
    /// It has an address of its own: from the first connect on.
    bound: AtomicBool,
    adapter: Arc<Core>,
}

impl Connector {
    pub fn try_new(adapter: &Arc<Core>) -> Result<Self, HRESULT> {
        let (create, this) = (adapter.adapter.table().base.CreateConnector, adapter.adapter.as_ptr());
        let make = |iid, out| {
            // SAFETY: the adapter is held, and both pointers are valid.
            unsafe { create(this, iid, adapter.file(), out) }
        };
        // SAFETY: connectors have this table.
        let beneath = unsafe { ComRef::make(&IID_IND2Connector, make) }?;
        Ok(Self { beneath, bound: AtomicBool::new(false), adapter: adapter.clone() })
    }

    /// The connector of version 2.
    pub const fn beneath(&self) -> *mut c_void {
        self.beneath.as_ptr()
    }

    fn table(&self) -> &IND2ConnectorVtbl {
        self.beneath.table()
    }

    /// Gives it a local address, if it has none.
    fn bind(&self, port: u16) -> Result<(), HRESULT> {
        if self.bound.load(Relaxed) {
            return Ok(());
        }
        let at = self.adapter.address(port);
        // SAFETY: the connector is held, and the address as long as it says.
        let bound = unsafe { (self.table().Bind)(self.beneath(), at.as_ptr(), at.length()) };
        // Another thread may have been faster.
        if bound != HRESULT::of(NtStatus::ADDRESS_ALREADY_ASSOCIATED) {
            ok(bound)?;
        }
        self.bound.store(true, Relaxed);
        Ok(())
    }
}

impl Class for Connector {
    type Table = INDConnectorVtbl;

    const TABLE: &'static INDConnectorVtbl = &INDConnectorVtbl {
        base: overlapped::<Self>(),
        CreateEndpoint: create_endpoint,
        Connect: connect,
        CompleteConnect: complete_connect,
        Accept: accept,
        Reject: reject,
        GetConnectionData: get_connection_data,
        GetLocalAddress: get_local_address,
        GetPeerAddress: get_peer_address,
        NotifyDisconnect: notify_disconnect,
        Disconnect: disconnect,
    };
    const INTERFACES: &'static [GUID] = &[IID_INDConnector, IID_INDOverlapped];
}

impl Overlapped for Connector {
    fn overlapped(&self) -> (&IND2OverlappedVtbl, *mut c_void) {
        (&self.table().base, self.beneath())
    }
}

/// `INDConnector::CreateEndpoint`.
///
/// # Safety
///
/// `this` is such a connector; the queues are null or COM objects; `inline` and `out` are null or valid for writing.
unsafe extern "system" fn create_endpoint(
    this: *mut c_void,
    receive_queue: *mut c_void,
    initiator_queue: *mut c_void,
    receives: usize,
    requests: usize,
    receive_sge: usize,
    request_sge: usize,
    inbound_reads: usize,
    outbound_reads: usize,
    inline: *mut usize,
    out: *mut *mut c_void,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector>(this) };
    let make = || {
        let sizes = Sizes {
            depths: [receives, requests].map(short),
            sge: [receive_sge, request_sge].map(short),
            reads: [inbound_reads, outbound_reads].map(short),
        };
        // SAFETY: both queues are null or COM objects (`# Safety`).
        let endpoint = unsafe { Endpoint::try_new(&object.adapter, [receive_queue, initiator_queue], &sizes) }?;
        if !inline.is_null() {
            // SAFETY: the pointer is not null.
            unsafe { inline.write(endpoint.inline_bytes()) };
        }
        Ok(endpoint)
    };
    // SAFETY: the identifier is a constant, and `out` is null or valid for writing (`# Safety`).
    unsafe { Object::hand_out(&IID_INDEndpoint, out, make) }
}

/// `INDConnector::Connect`. `port`, in network byte order, is the local one; that of the peer is in its address.
///
/// # Safety
///
/// `this` is such a connector; `endpoint` is null or a COM object; `address` and `data` are null or valid for reading as many
/// bytes; no request is outstanding on `overlapped`, which the client keeps until a request that pends ends.
unsafe extern "system" fn connect(
    this: *mut c_void,
    endpoint: *mut c_void,
    address: *const SOCKADDR,
    length: usize,
    _protocol: i32,
    port: u16,
    data: *const c_void,
    data_length: usize,
    overlapped: *mut OVERLAPPED,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector>(this) };
    // SAFETY: `endpoint` is null or a COM object (`# Safety`).
    let Some(endpoint) = (unsafe { find::<Endpoint>(endpoint) }) else { return HRESULT::ND_INVALID_PARAMETER };
    if let Err(result) = object.bind(u16::from_be(port)) {
        return result;
    }
    let [inbound, outbound] = endpoint.reads();
    let (this, qp, length, bytes) = (object.beneath(), endpoint.beneath(), short(length), short(data_length));
    let method = object.table().Connect;
    // SAFETY: both objects are held; address and data have the lengths that are given, and `overlapped` stays (`# Safety`).
    unsafe { method(this, qp, address, length, inbound, outbound, data, bytes, overlapped) }
}

/// `INDConnector::CompleteConnect`.
///
/// # Safety
///
/// `this` is such a connector; no request is outstanding on `overlapped`, which the client keeps until a request that pends
/// ends.
unsafe extern "system" fn complete_connect(this: *mut c_void, overlapped: *mut OVERLAPPED) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector>(this) };
    // SAFETY: the connector is held; nothing is outstanding on `overlapped`, which stays (`# Safety`).
    unsafe { (object.table().CompleteConnect)(object.beneath(), overlapped) }
}

/// `INDConnector::Accept`.
///
/// # Safety
///
/// As [`connect`].
unsafe extern "system" fn accept(
    this: *mut c_void,
    endpoint: *mut c_void,
    data: *const c_void,
    data_length: usize,
    overlapped: *mut OVERLAPPED,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector>(this) };
    // SAFETY: `endpoint` is null or a COM object (`# Safety`).
    let Some(endpoint) = (unsafe { find::<Endpoint>(endpoint) }) else { return HRESULT::ND_INVALID_PARAMETER };
    let [inbound, outbound] = endpoint.reads();
    let (this, qp, method) = (object.beneath(), endpoint.beneath(), object.table().Accept);
    // SAFETY: both objects are held; the data has the length that is given, and `overlapped` stays (`# Safety`).
    unsafe { method(this, qp, inbound, outbound, data, short(data_length), overlapped) }
}

/// `INDConnector::Reject`.
///
/// # Safety
///
/// `this` is such a connector; `data` is null or valid for reading as many bytes.
unsafe extern "system" fn reject(this: *mut c_void, data: *const c_void, data_length: usize) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector>(this) };
    // SAFETY: the connector is held; the data is null or has the length that is given (`# Safety`).
    unsafe { (object.table().Reject)(object.beneath(), data, short(data_length)) }
}

/// `INDConnector::GetConnectionData`: what the peer offers, and its private data, as much of it as fits.
///
/// # Safety
///
/// `this` is such a connector; all pointers are null or valid for writing, `data` as many bytes as `length` says.
unsafe extern "system" fn get_connection_data(
    this: *mut c_void,
    inbound: *mut usize,
    outbound: *mut usize,
    data: *mut c_void,
    length: *mut usize,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector>(this) };
    let (table, this) = (object.table(), object.beneath());
    let (mut inbound_reads, mut outbound_reads) = (0, 0);
    // SAFETY: the connector is held, and both numbers have places.
    let result = unsafe { (table.GetReadLimits)(this, &raw mut inbound_reads, &raw mut outbound_reads) };
    if result != HRESULT::ND_SUCCESS {
        return result;
    }
    for (place, value) in [(inbound, inbound_reads), (outbound, outbound_reads)] {
        if !place.is_null() {
            // SAFETY: the pointer is not null.
            unsafe { place.write(value as usize) };
        }
    }
    if length.is_null() {
        return HRESULT::ND_SUCCESS;
    }
    // SAFETY: the connector is held; `data` is null or has room for as many bytes as `length` says (`# Safety`).
    let fill = |length| unsafe { (table.GetPrivateData)(this, data, length) };
    // SAFETY: `length` is null or valid for reading and writing (`# Safety`).
    unsafe { with_length(length, fill) }
}

/// `INDConnector::GetLocalAddress`.
///
/// # Safety
///
/// `this` is such a connector; `length` is null or valid, `address` null or valid for writing as many bytes.
unsafe extern "system" fn get_local_address(this: *mut c_void, address: *mut SOCKADDR, length: *mut usize) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector>(this) };
    // SAFETY: the connector is held; `address` is null or has room for as many bytes as `length` says (`# Safety`).
    let fill = |length| unsafe { (object.table().GetLocalAddress)(object.beneath(), address, length) };
    // SAFETY: `length` is null or valid for reading and writing (`# Safety`).
    unsafe { with_length(length, fill) }
}

/// `INDConnector::GetPeerAddress`.
///
/// # Safety
///
/// As [`get_local_address`].
unsafe extern "system" fn get_peer_address(this: *mut c_void, address: *mut SOCKADDR, length: *mut usize) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector>(this) };
    // SAFETY: the connector is held; `address` is null or has room for as many bytes as `length` says (`# Safety`).
    let fill = |length| unsafe { (object.table().GetPeerAddress)(object.beneath(), address, length) };
    // SAFETY: `length` is null or valid for reading and writing (`# Safety`).
    unsafe { with_length(length, fill) }
}

/// `INDConnector::NotifyDisconnect`.
///
/// # Safety
///
/// As [`complete_connect`].
unsafe extern "system" fn notify_disconnect(this: *mut c_void, overlapped: *mut OVERLAPPED) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector>(this) };
    // SAFETY: the connector is held; nothing is outstanding on `overlapped`, which stays (`# Safety`).
    unsafe { (object.table().NotifyDisconnect)(object.beneath(), overlapped) }
}

/// `INDConnector::Disconnect`.
///
/// # Safety
///
/// As [`complete_connect`].
unsafe extern "system" fn disconnect(this: *mut c_void, overlapped: *mut OVERLAPPED) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Connector>(this) };
    // SAFETY: the connector is held; nothing is outstanding on `overlapped`, which stays (`# Safety`).
    unsafe { (object.table().Disconnect)(object.beneath(), overlapped) }
}
