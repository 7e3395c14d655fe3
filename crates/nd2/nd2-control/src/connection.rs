//! Connectors and listeners.

use core::{ffi::c_void, net::SocketAddr, ptr};

use nd2::abi::{HRESULT, IND2ConnectorVtbl, IND2ListenerVtbl, IND2QueuePairVtbl, OVERLAPPED};
use ndkpi::{NtStatus, SOCKADDR, SOCKADDR_INET};

use crate::{
    Request, Session, System,
    handles::{Kind, Object},
    objects::{done, one, write_address},
    wire::{ADDRESS, DATA, Reader, Verb, Writer},
};

/// The address in an input.
fn address<'a>(input: &mut Reader<'a>) -> Result<(*const SOCKADDR, u32), NtStatus> {
    let bytes: &'a [u8] = input.bytes(ADDRESS)?;
    #[expect(clippy::cast_possible_truncation, reason = "a small constant")]
    let length = ADDRESS as u32;
    Ok((bytes.as_ptr().cast(), length))
}

/// The rest of an input as private data.
fn private_data(input: Reader<'_>) -> Result<(*const c_void, u32), NtStatus> {
    let bytes = input.rest();
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
        let mut input = Reader::new(request.input());
        let handle = input.u64()?;
        let (at, length) = address(&mut input)?;
        input.end()?;
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
    pub(crate) fn connect(&self, mut input: Reader<'_>, overlapped: *mut OVERLAPPED) -> Result<HRESULT, NtStatus> {
        let connector: Object<IND2ConnectorVtbl> = self.object(input.u64()?)?;
        let qp = self.argument::<IND2QueuePairVtbl>(input.u64()?)?;
        let (inbound, outbound) = (input.u32()?, input.u32()?);
        let (to, length) = address(&mut input)?;
        let (data, bytes) = private_data(input)?;
        let of_qp = qp.as_ref().map_or(ptr::null_mut(), Object::as_ptr);
        let (connect, this) = (connector.table().Connect, connector.as_ptr());
        // SAFETY: the objects are held or null, the address and the data have as many bytes, and the structure is a call that
        // lives until it ends.
        Ok(unsafe { connect(this, of_qp, to, length, inbound, outbound, data, bytes, overlapped) })
    }

    /// `Accept`.
    pub(crate) fn accept(&self, mut input: Reader<'_>, overlapped: *mut OVERLAPPED) -> Result<HRESULT, NtStatus> {
        let connector: Object<IND2ConnectorVtbl> = self.object(input.u64()?)?;
        let qp = self.argument::<IND2QueuePairVtbl>(input.u64()?)?;
        let (inbound, outbound) = (input.u32()?, input.u32()?);
        let (data, bytes) = private_data(input)?;
        let of_qp = qp.as_ref().map_or(ptr::null_mut(), Object::as_ptr);
        let (accept, this) = (connector.table().Accept, connector.as_ptr());
        // SAFETY: the objects are held or null, the data has as many bytes, and the structure is a call that lives until it ends.
        Ok(unsafe { accept(this, of_qp, inbound, outbound, data, bytes, overlapped) })
    }

    /// `CompleteConnect`, `NotifyDisconnect`, `Disconnect`.
    pub(crate) fn of_connection(
        &self,
        verb: Verb,
        mut input: Reader<'_>,
        overlapped: *mut OVERLAPPED,
    ) -> Result<HRESULT, NtStatus> {
        let connector: Object<IND2ConnectorVtbl> = self.object(input.u64()?)?;
        input.end()?;
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
    pub(crate) fn connection_request(
        &self,
        mut input: Reader<'_>,
        overlapped: *mut OVERLAPPED,
    ) -> Result<HRESULT, NtStatus> {
        let listener: Object<IND2ListenerVtbl> = self.object(input.u64()?)?;
        let connector = self.argument::<IND2ConnectorVtbl>(input.u64()?)?;
        input.end()?;
        let of_connector = connector.as_ref().map_or(ptr::null_mut(), Object::as_ptr);
        let method = listener.table().GetConnectionRequest;
        // SAFETY: the objects are held or null, and the structure is a call that lives until it ends.
        Ok(unsafe { method(listener.as_ptr(), of_connector, overlapped) })
    }

    /// `Reject`.
    pub(crate) fn reject(&self, request: &S::Request) -> Result<usize, NtStatus> {
        let mut input = Reader::new(request.input());
        let connector: Object<IND2ConnectorVtbl> = self.object(input.u64()?)?;
        let (data, length) = private_data(input)?;
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
        let mut writer = Writer::new(request.output());
        writer.u32(inbound)?.u32(outbound)?;
        Ok(writer.written())
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
        let mut writer = Writer::new(request.output());
        write_address(&mut writer, found)?;
        Ok(writer.written())
    }

    /// `Listen`.
    pub(crate) fn listen(&self, request: &S::Request) -> Result<usize, NtStatus> {
        let mut input = Reader::new(request.input());
        let listener: Object<IND2ListenerVtbl> = self.object(input.u64()?)?;
        let backlog = input.u32()?;
        input.end()?;
        // SAFETY: the listener is held.
        done(unsafe { (listener.table().Listen)(listener.as_ptr(), backlog) })?;
        Ok(0)
    }
}
