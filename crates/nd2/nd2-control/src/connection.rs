//! Connectors and listeners.

use core::{ffi::c_void, net::SocketAddr, ptr};

use nd2::abi::{HRESULT, IND2ConnectorVtbl, IND2ListenerVtbl, IND2QueuePairVtbl, OVERLAPPED};
use ndkpi::{NtStatus, SOCKADDR, SOCKADDR_INET};

use crate::{
    Request, Session, System,
    handles::{Kind, Object},
    objects::{done, one},
    wire::{
        ADDRESS, Accept, BindAddress, Connect, DATA, GetConnectionRequest, Handle, Listen, Reads, Verb, address_bytes,
        all, answer, begin,
    },
};

/// An address as methods take it.
fn address(bytes: &[u8; ADDRESS]) -> (*const SOCKADDR, u32) {
    #[expect(clippy::cast_possible_truncation, reason = "a small constant")]
    let length = ADDRESS as u32;
    (bytes.as_ptr().cast(), length)
}

/// The rest of an input as private data.
fn private_data(bytes: &[u8]) -> Result<(*const c_void, u32), NtStatus> {
    if bytes.len() > DATA {
        return Err(NtStatus::INVALID_BUFFER_SIZE);
    }
    let length = u32::try_from(bytes.len()).map_err(|_| NtStatus::INVALID_BUFFER_SIZE)?;
    Ok((if length == 0 { ptr::null() } else { bytes.as_ptr().cast() }, length))
}

/// The address that `get` gives.
fn ask(get: impl FnOnce(*mut SOCKADDR, *mut u32) -> HRESULT) -> Result<SocketAddr, NtStatus> {
    let mut raw = SOCKADDR_INET::UNSPECIFIED;
    #[expect(clippy::cast_possible_truncation, reason = "a small constant")]
    let mut length = size_of::<SOCKADDR_INET>() as u32;
    done(get((&raw mut raw).cast(), &raw mut length))?;
    raw.to_socket_addr().ok_or(NtStatus::INTERNAL_ERROR)
}

impl<S: System> Session<S> {
    /// `BindConnector`, `BindListener`.
    pub(crate) fn bind_address(&self, verb: Verb, request: &S::Request) -> Result<usize, NtStatus> {
        let input: &BindAddress = all(request.input())?;
        let (handle, (at, length)) = (input.object.get(), address(&input.address));
        if verb == Verb::BindConnector {
            let connector: Object<IND2ConnectorVtbl> = self.object(handle)?;
            // SAFETY: the connector is held, and the address has as many bytes.
            done(unsafe { (connector.table().Bind)(connector.as_ptr(), at, length) })?;
        } else {
            let listener: Object<IND2ListenerVtbl> = self.object(handle)?;
            // SAFETY: the listener is held, and the address has as many bytes.
            done(unsafe { (listener.table().Bind)(listener.as_ptr(), at, length) })?;
        }
        Ok(0)
    }

    /// `Connect`.
    pub(crate) fn connect(&self, input: &[u8], overlapped: *mut OVERLAPPED) -> Result<HRESULT, NtStatus> {
        let (Connect { accept, address: to }, data) = begin(input)?;
        let connector: Object<IND2ConnectorVtbl> = self.object(accept.connector.get())?;
        let qp = self.argument::<IND2QueuePairVtbl>(accept.queue_pair.get())?;
        let (inbound, outbound) = (accept.reads.inbound.get(), accept.reads.outbound.get());
        let ((to, length), (data, bytes)) = (address(to), private_data(data)?);
        let of_qp = qp.as_ref().map_or(ptr::null_mut(), Object::as_ptr);
        let (connect, this) = (connector.table().Connect, connector.as_ptr());
        // SAFETY: the objects are held or null, the address and the data have as many bytes, and the structure is a call that
        // lives until it ends.
        Ok(unsafe { connect(this, of_qp, to, length, inbound, outbound, data, bytes, overlapped) })
    }

    /// `Accept`.
    pub(crate) fn accept(&self, input: &[u8], overlapped: *mut OVERLAPPED) -> Result<HRESULT, NtStatus> {
        let (Accept { connector, queue_pair, reads }, data) = begin(input)?;
        let connector: Object<IND2ConnectorVtbl> = self.object(connector.get())?;
        let qp = self.argument::<IND2QueuePairVtbl>(queue_pair.get())?;
        let (inbound, outbound) = (reads.inbound.get(), reads.outbound.get());
        let (data, bytes) = private_data(data)?;
        let of_qp = qp.as_ref().map_or(ptr::null_mut(), Object::as_ptr);
        let (accept, this) = (connector.table().Accept, connector.as_ptr());
        // SAFETY: the objects are held or null, the data has as many bytes, and the structure is a call that lives until it ends.
        Ok(unsafe { accept(this, of_qp, inbound, outbound, data, bytes, overlapped) })
    }

    /// `CompleteConnect`, `NotifyDisconnect`, `Disconnect`.
    pub(crate) fn of_connection(
        &self,
        verb: Verb,
        input: &[u8],
        overlapped: *mut OVERLAPPED,
    ) -> Result<HRESULT, NtStatus> {
        let connector: Object<IND2ConnectorVtbl> = self.object(all::<Handle>(input)?.object.get())?;
        let method = match verb {
            Verb::CompleteConnect => connector.table().CompleteConnect,
            Verb::NotifyDisconnect => connector.table().NotifyDisconnect,
            Verb::Disconnect => connector.table().Disconnect,
            _ => return Err(NtStatus::INVALID_DEVICE_REQUEST),
        };
        // SAFETY: the connector is held, and the structure is a call that lives until it ends.
        Ok(unsafe { method(connector.as_ptr(), overlapped) })
    }

    /// `GetConnectionRequest`.
    pub(crate) fn connection_request(&self, input: &[u8], overlapped: *mut OVERLAPPED) -> Result<HRESULT, NtStatus> {
        let input: &GetConnectionRequest = all(input)?;
        let listener: Object<IND2ListenerVtbl> = self.object(input.listener.get())?;
        let connector = self.argument::<IND2ConnectorVtbl>(input.connector.get())?;
        let of_connector = connector.as_ref().map_or(ptr::null_mut(), Object::as_ptr);
        let method = listener.table().GetConnectionRequest;
        // SAFETY: the objects are held or null, and the structure is a call that lives until it ends.
        Ok(unsafe { method(listener.as_ptr(), of_connector, overlapped) })
    }

    /// `Reject`.
    pub(crate) fn reject(&self, request: &S::Request) -> Result<usize, NtStatus> {
        let (Handle { object }, data) = begin(request.input())?;
        let connector: Object<IND2ConnectorVtbl> = self.object(object.get())?;
        let (data, length) = private_data(data)?;
        // SAFETY: the connector is held, and the data has as many bytes.
        done(unsafe { (connector.table().Reject)(connector.as_ptr(), data, length) })?;
        Ok(0)
    }

    /// `ReadLimits`.
    pub(crate) fn read_limits(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let connector: Object<IND2ConnectorVtbl> = self.object(one(request)?)?;
        let (mut inbound, mut outbound) = (0, 0);
        let get = connector.table().GetReadLimits;
        // SAFETY: the connector is held, and the places are valid.
        done(unsafe { get(connector.as_ptr(), &raw mut inbound, &raw mut outbound) })?;
        answer(request.output(), &Reads { inbound: inbound.into(), outbound: outbound.into() })
    }

    /// `PrivateData`: all of it or nothing.
    pub(crate) fn private_data(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let connector: Object<IND2ConnectorVtbl> = self.object(one(request)?)?;
        let output = request.output();
        let room = output.len().min(DATA);
        let mut length = u32::try_from(room).unwrap_or(0);
        let place = if room == 0 { ptr::null_mut() } else { output.as_mut_ptr().cast() };
        let get = connector.table().GetPrivateData;
        // SAFETY: the connector is held, and the output has as many bytes.
        done(unsafe { get(connector.as_ptr(), place, &raw mut length) })?;
        Ok((length as usize).min(room))
    }

    /// `LocalAddress`, `PeerAddress`.
    pub(crate) fn address(&self, verb: Verb, request: &mut S::Request) -> Result<usize, NtStatus> {
        let handle = one(request)?;
        let (kind, object) = self.any(handle)?;
        drop(object);
        let found = match (verb, kind) {
            (Verb::LocalAddress, Kind::Listener) => {
                let listener: Object<IND2ListenerVtbl> = self.object(handle)?;
                // SAFETY: the listener is held, and the places are valid.
                ask(|place, length| unsafe { (listener.table().GetLocalAddress)(listener.as_ptr(), place, length) })
            }
            (_, Kind::Connector) => {
                let connector: Object<IND2ConnectorVtbl> = self.object(handle)?;
                let table = connector.table();
                let get = if verb == Verb::LocalAddress { table.GetLocalAddress } else { table.GetPeerAddress };
                // SAFETY: the connector is held, and the places are valid.
                ask(|place, length| unsafe { get(connector.as_ptr(), place, length) })
            }
            _ => return Err(NtStatus::INVALID_HANDLE),
        }?;
        answer(request.output(), &address_bytes(found))
    }

    /// `Listen`.
    pub(crate) fn listen(&self, request: &S::Request) -> Result<usize, NtStatus> {
        let input: &Listen = all(request.input())?;
        let listener: Object<IND2ListenerVtbl> = self.object(input.listener.get())?;
        // SAFETY: the listener is held.
        done(unsafe { (listener.table().Listen)(listener.as_ptr(), input.backlog.get()) })?;
        Ok(0)
    }
}
