//! Connections.

use std::{ffi::c_void, net::SocketAddr, ptr};

use nd2::abi::{HRESULT, OVERLAPPED};
use ndkpi::{SOCKADDR, SOCKADDR_INET};

use super::{Client, Connector, Listener, Qp};

fn bytes(data: &[u8]) -> (*const c_void, u32) {
    let start = if data.is_empty() { ptr::null() } else { data.as_ptr().cast() };
    (start, u32::try_from(data.len()).expect("short data"))
}

/// The address that `get` stores.
fn address(get: impl FnOnce(*mut SOCKADDR, *mut u32) -> HRESULT) -> Result<SocketAddr, HRESULT> {
    let mut place = SOCKADDR_INET::UNSPECIFIED;
    let mut length = u32::try_from(size_of::<SOCKADDR_INET>()).expect("a short address");
    let result = get((&raw mut place).cast(), &raw mut length);
    if result != HRESULT::ND_SUCCESS {
        return Err(result);
    }
    assert_eq!(length, place.length(), "the size that was used");
    Ok(place.to_socket_addr().expect("an address"))
}

/// How a method gets the length of a buffer that is too small.
pub fn too_small(get: impl FnOnce(*mut SOCKADDR, *mut u32) -> HRESULT) -> (HRESULT, u32) {
    let mut length = 0;
    let result = get(ptr::null_mut(), &raw mut length);
    (result, length)
}

impl Connector {
    /// `Bind`.
    pub fn bind(&self, address: SocketAddr) -> HRESULT {
        let raw = SOCKADDR_INET::from(address);
        // SAFETY: the object is held, and the address valid.
        unsafe { (self.table().Bind)(self.as_ptr(), raw.as_ptr(), raw.length()) }
    }

    /// `Connect`.
    pub fn connect(&self, qp: &Qp, to: SocketAddr, reads: (u32, u32), data: &[u8], request: &Client) -> HRESULT {
        let (raw, (data, length)) = (SOCKADDR_INET::from(to), bytes(data));
        let request: *mut OVERLAPPED = request.as_ptr();
        // SAFETY: the objects are held, the pointers valid, and the structure lives until the request has ended.
        unsafe {
            (self.table().Connect)(
                self.as_ptr(),
                qp.as_ptr(),
                raw.as_ptr(),
                raw.length(),
                reads.0,
                reads.1,
                data,
                length,
                request,
            )
        }
    }

    /// `CompleteConnect`.
    pub fn complete(&self, request: &Client) -> HRESULT {
        // SAFETY: the object is held, and the structure lives until the request has ended.
        unsafe { (self.table().CompleteConnect)(self.as_ptr(), request.as_ptr()) }
    }

    /// `Accept`.
    pub fn accept(&self, qp: &Qp, reads: (u32, u32), data: &[u8], request: &Client) -> HRESULT {
        let (data, length) = bytes(data);
        let (table, request) = (self.table(), request.as_ptr());
        // SAFETY: the objects are held, the pointers valid, and the structure lives until the request has ended.
        unsafe { (table.Accept)(self.as_ptr(), qp.as_ptr(), reads.0, reads.1, data, length, request) }
    }

    /// `Reject`.
    pub fn reject(&self, data: &[u8]) -> HRESULT {
        let (data, length) = bytes(data);
        // SAFETY: the object is held, and the pointer valid.
        unsafe { (self.table().Reject)(self.as_ptr(), data, length) }
    }

    /// `GetReadLimits`.
    pub fn read_limits(&self) -> Result<(u32, u32), HRESULT> {
        let (mut inbound, mut outbound) = (0, 0);
        // SAFETY: the object is held, and the pointers are valid.
        let result = unsafe { (self.table().GetReadLimits)(self.as_ptr(), &raw mut inbound, &raw mut outbound) };
        if result == HRESULT::ND_SUCCESS { Ok((inbound, outbound)) } else { Err(result) }
    }

    /// `GetPrivateData`.
    pub fn private_data(&self, into: &mut [u8]) -> (HRESULT, u32) {
        let mut length = u32::try_from(into.len()).expect("a short buffer");
        let place = if into.is_empty() { ptr::null_mut() } else { into.as_mut_ptr().cast() };
        // SAFETY: the object is held, and the buffer as long as `length` says, or null.
        let result = unsafe { (self.table().GetPrivateData)(self.as_ptr(), place, &raw mut length) };
        (result, length)
    }

    /// `GetLocalAddress`.
    pub fn local(&self) -> Result<SocketAddr, HRESULT> {
        // SAFETY: the object is held, and the pointers are valid.
        address(|place, length| unsafe { (self.table().GetLocalAddress)(self.as_ptr(), place, length) })
    }

    /// `GetLocalAddress` without a buffer.
    pub fn local_length(&self) -> (HRESULT, u32) {
        // SAFETY: the object is held, and the pointers are valid or null.
        too_small(|place, length| unsafe { (self.table().GetLocalAddress)(self.as_ptr(), place, length) })
    }

    /// `GetPeerAddress`.
    pub fn peer(&self) -> Result<SocketAddr, HRESULT> {
        // SAFETY: the object is held, and the pointers are valid.
        address(|place, length| unsafe { (self.table().GetPeerAddress)(self.as_ptr(), place, length) })
    }

    /// `NotifyDisconnect`.
    pub fn notify_disconnect(&self, request: &Client) -> HRESULT {
        // SAFETY: the object is held, and the structure lives until the request has ended.
        unsafe { (self.table().NotifyDisconnect)(self.as_ptr(), request.as_ptr()) }
    }

    /// `Disconnect`.
    pub fn disconnect(&self, request: &Client) -> HRESULT {
        // SAFETY: the object is held, and the structure lives until the request has ended.
        unsafe { (self.table().Disconnect)(self.as_ptr(), request.as_ptr()) }
    }
}

impl Listener {
    /// `Bind`.
    pub fn bind(&self, address: SocketAddr) -> HRESULT {
        let raw = SOCKADDR_INET::from(address);
        // SAFETY: the object is held, and the address valid.
        unsafe { (self.table().Bind)(self.as_ptr(), raw.as_ptr(), raw.length()) }
    }

    /// `Listen`.
    pub fn listen(&self, backlog: u32) -> HRESULT {
        // SAFETY: the object is held.
        unsafe { (self.table().Listen)(self.as_ptr(), backlog) }
    }

    /// `GetLocalAddress`.
    pub fn local(&self) -> Result<SocketAddr, HRESULT> {
        // SAFETY: the object is held, and the pointers are valid.
        address(|place, length| unsafe { (self.table().GetLocalAddress)(self.as_ptr(), place, length) })
    }

    /// `GetConnectionRequest`.
    pub fn request(&self, connector: &Connector, request: &Client) -> HRESULT {
        // SAFETY: the objects are held, and the structure lives until the request has ended.
        unsafe { (self.table().GetConnectionRequest)(self.as_ptr(), connector.as_ptr(), request.as_ptr()) }
    }
}
