//! `INDListen`.

use std::{ffi::c_void, net::SocketAddr, sync::Arc};

use nd2::{
    abi::{
        HRESULT, IID_IND2Listener, IID_INDListen, IID_INDOverlapped, IND2ListenerVtbl, IND2OverlappedVtbl,
        INDListenVtbl, OVERLAPPED,
    },
    com::{Class, borrow, find},
};
use ndkpi::{GUID, SOCKADDR_INET};

use crate::version1::{
    adapter::{Core, ok},
    connector::Connector,
    held::{ComRef, Overlapped, overlapped, short},
};

/// A listener of version 1, which listens from the beginning.
pub struct Listen {
    listener: ComRef<IND2ListenerVtbl>,
    _adapter: Arc<Core>,
}

impl Listen {
    /// Listens at a port, or at one that is free. Returns the port.
    pub fn try_new(adapter: &Arc<Core>, backlog: usize, port: u16) -> Result<(Self, u16), HRESULT> {
        let (create, this) = (adapter.adapter.table().base.CreateListener, adapter.adapter.as_ptr());
        let make = |iid, out| {
            // SAFETY: the adapter is held, and both pointers are valid.
            unsafe { create(this, iid, adapter.file(), out) }
        };
        // SAFETY: listeners have this table.
        let listener: ComRef<IND2ListenerVtbl> = unsafe { ComRef::make(&IID_IND2Listener, make) }?;
        let (table, this) = (listener.table(), listener.as_ptr());
        let at = adapter.address(port);
        // SAFETY: the listener is held, and the address as long as it says.
        ok(unsafe { (table.Bind)(this, at.as_ptr(), at.length()) })?;
        // SAFETY: the listener is held. In both versions zero is as many as there may be.
        ok(unsafe { (table.Listen)(this, short(backlog)) })?;
        let mut raw = SOCKADDR_INET::UNSPECIFIED;
        let mut length = short(size_of::<SOCKADDR_INET>());
        // SAFETY: the listener is held, and the address has a place of the size that is said.
        ok(unsafe { (table.GetLocalAddress)(this, (&raw mut raw).cast(), &raw mut length) })?;
        let assigned = raw.to_socket_addr().as_ref().map_or(port, SocketAddr::port);
        Ok((Self { listener, _adapter: adapter.clone() }, assigned))
    }
}

impl Class for Listen {
    type Table = INDListenVtbl;

    const TABLE: &'static INDListenVtbl =
        &INDListenVtbl { base: overlapped::<Self>(), GetConnectionRequest: get_connection_request };
    const INTERFACES: &'static [GUID] = &[IID_INDListen, IID_INDOverlapped];
}

impl Overlapped for Listen {
    fn overlapped(&self) -> (&IND2OverlappedVtbl, *mut c_void) {
        (&self.listener.table().base, self.listener.as_ptr())
    }
}

/// `INDListen::GetConnectionRequest`.
///
/// # Safety
///
/// `this` is such a listener; `connector` is null or a COM object; no request is outstanding on `overlapped`, which the client
/// keeps until a request that pends ends.
unsafe extern "system" fn get_connection_request(
    this: *mut c_void,
    connector: *mut c_void,
    overlapped: *mut OVERLAPPED,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Listen>(this) };
    // SAFETY: `connector` is null or a COM object (`# Safety`).
    let Some(connector) = (unsafe { find::<Connector>(connector) }) else { return HRESULT::ND_INVALID_PARAMETER };
    let method = object.listener.table().GetConnectionRequest;
    // SAFETY: both objects are held; nothing is outstanding on `overlapped`, which stays (`# Safety`).
    unsafe { method(object.listener.as_ptr(), connector.beneath(), overlapped) }
}
