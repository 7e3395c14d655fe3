//! Version 1 of the interface.

use std::{ffi::c_void, net::SocketAddr, ptr};

use nd2::abi::{
    HANDLE, HRESULT, IClassFactoryVtbl, INDAdapterVtbl, INDConnectorVtbl, INDEndpointVtbl, INDListenVtbl,
    INDProviderVtbl, IUnknownVtbl, ND_ADAPTER_INFO1, ND_MR_HANDLE, ND_MW_DESCRIPTOR, ND_RESULT, ND_SGE,
    SOCKET_ADDRESS_LIST, Table,
};
use ndkpi::{GUID, SOCKADDR_INET};

use super::{Client, Com, Overlapped, Queue1};
use crate::Memory;

/// `IClassFactory`.
pub type Factory = Com<IClassFactoryVtbl>;
/// `INDProvider`.
pub type Provider1 = Com<INDProviderVtbl>;
/// `INDAdapter`.
pub type Adapter1 = Com<INDAdapterVtbl>;
/// `INDMemoryWindow`.
pub type Window1 = Com<IUnknownVtbl>;
/// `INDConnector`.
pub type Connector1 = Com<INDConnectorVtbl>;
/// `INDEndpoint`.
pub type Endpoint1 = Com<INDEndpointVtbl>;
/// `INDListen`.
pub type Listen1 = Com<INDListenVtbl>;

macro_rules! overlapped {
    ($($type:ty),+) => {
        $(impl Overlapped for $type {
            fn cancel(&self) -> HRESULT {
                // SAFETY: the object is held.
                unsafe { (self.table().base.CancelOverlappedRequests)(self.as_ptr()) }
            }

            fn outcome(&self, request: &Client, wait: bool) -> HRESULT {
                let (method, mut bytes) = (self.table().base.GetOverlappedResult, usize::MAX);
                // SAFETY: the object is held, and the structure and the number are valid.
                let result = unsafe { method(self.as_ptr(), request.as_ptr(), &raw mut bytes, i32::from(wait)) };
                assert_eq!(bytes, 0, "no request transfers bytes");
                result
            }
        })+
    };
}

overlapped!(Adapter1, Connector1, Listen1);

/// A block's address, as the context of its request.
fn at(block: &mut ND_RESULT) -> *mut ND_RESULT {
    ptr::with_exposed_provenance_mut(ptr::from_mut(block).expose_provenance())
}

impl Factory {
    /// `CreateInstance`.
    pub fn create<T: Table>(&self, outer: *mut c_void, iid: &GUID) -> Result<Com<T>, HRESULT> {
        // SAFETY: the object is held, and the pointers are valid or null.
        Com::make(|out| unsafe { (self.table().CreateInstance)(self.as_ptr(), outer, iid, out) })
    }

    /// `LockServer`.
    pub fn lock(&self, lock: bool) -> HRESULT {
        // SAFETY: the object is held.
        unsafe { (self.table().LockServer)(self.as_ptr(), i32::from(lock)) }
    }
}

impl Provider1 {
    /// `QueryAddressList`.
    pub fn addresses(&self, into: &mut [u64], length: &mut usize) -> HRESULT {
        let list = if into.is_empty() { ptr::null_mut() } else { into.as_mut_ptr().cast::<SOCKET_ADDRESS_LIST>() };
        // SAFETY: the object is held, and the buffer as long as `length` says, or null.
        unsafe { (self.table().QueryAddressList)(self.as_ptr(), list, length) }
    }

    /// `OpenAdapter`.
    pub fn open(&self, address: SocketAddr) -> Result<Adapter1, HRESULT> {
        let address = SOCKADDR_INET::from(address);
        let (method, length) = (self.table().OpenAdapter, address.length() as usize);
        // SAFETY: the object is held, and the address as long as it says.
        Com::make(|out| unsafe { method(self.as_ptr(), address.as_ptr(), length, out) })
    }
}

/// Registered bytes of version 1.
pub struct Region1 {
    /// Its handle.
    pub handle: ND_MR_HANDLE,
    /// The bytes.
    pub buffer: Memory,
}

impl Region1 {
    /// `length` bytes from `offset` on, for a request.
    pub fn sge(&self, offset: usize, length: usize) -> ND_SGE {
        ND_SGE { pAddr: self.buffer.pointer(offset).cast(), Length: length, hMr: self.handle }
    }
}

impl Adapter1 {
    /// `GetFileHandle`.
    pub fn file(&self) -> HANDLE {
        // SAFETY: the object is held.
        unsafe { (self.table().GetFileHandle)(self.as_ptr()) }
    }

    /// `Query`.
    pub fn info(&self, version: u32, length: &mut usize) -> Result<ND_ADAPTER_INFO1, HRESULT> {
        let mut info = ND_ADAPTER_INFO1::default();
        // SAFETY: the object is held, and the structure has a place of its size, which `length` is at most.
        let result = unsafe { (self.table().Query)(self.as_ptr(), version, &raw mut info, length) };
        if result == HRESULT::ND_SUCCESS { Ok(info) } else { Err(result) }
    }

    /// `Control`, with nothing.
    pub fn control(&self, request: &Client) -> HRESULT {
        let (mut bytes, none) = (usize::MAX, ptr::null_mut());
        // SAFETY: the object is held, and the number and the structure are valid.
        let result =
            unsafe { (self.table().Control)(self.as_ptr(), 7, none, 0, none, 0, &raw mut bytes, request.as_ptr()) };
        assert_eq!(bytes, 0);
        result
    }

    /// `CreateCompletionQueue`.
    pub fn queue(&self, entries: usize) -> Result<Queue1, HRESULT> {
        // SAFETY: the object is held, and the pointer is valid.
        Com::make(|out| unsafe { (self.table().CreateCompletionQueue)(self.as_ptr(), entries, out) })
    }

    /// `RegisterMemory`.
    pub fn register(
        &self,
        buffer: *const c_void,
        length: usize,
        request: &Client,
        handle: &mut ND_MR_HANDLE,
    ) -> HRESULT {
        let method = self.table().RegisterMemory;
        // SAFETY: the object is held; the bytes stay as long as they are registered, the handle until the request has ended.
        unsafe { method(self.as_ptr(), buffer, length, request.as_ptr(), handle) }
    }

    /// `DeregisterMemory`.
    pub fn deregister(&self, handle: ND_MR_HANDLE, request: &Client) -> HRESULT {
        // SAFETY: the object is held, and the structure lives until the request has ended.
        unsafe { (self.table().DeregisterMemory)(self.as_ptr(), handle, request.as_ptr()) }
    }

    /// `CreateMemoryWindow`.
    pub fn window(&self, result: &mut ND_RESULT) -> Result<Window1, HRESULT> {
        // SAFETY: the object is held, and the pointers are valid.
        Com::make(|out| unsafe { (self.table().CreateMemoryWindow)(self.as_ptr(), result, out) })
    }

    /// `CreateConnector`.
    pub fn connector(&self) -> Result<Connector1, HRESULT> {
        // SAFETY: the object is held, and the pointer is valid.
        Com::make(|out| unsafe { (self.table().CreateConnector)(self.as_ptr(), out) })
    }

    /// `Listen`: at a port, or at any; the port.
    pub fn listen(&self, backlog: usize, port: u16) -> Result<(Listen1, u16), HRESULT> {
        let (method, mut assigned) = (self.table().Listen, 0);
        // SAFETY: the object is held, and the pointers are valid.
        let made = Com::make(|out| unsafe { method(self.as_ptr(), backlog, 6, port.to_be(), &raw mut assigned, out) });
        made.map(|listen| (listen, u16::from_be(assigned)))
    }
}

impl Listen1 {
    /// `GetConnectionRequest`.
    pub fn request(&self, connector: &Connector1, request: &Client) -> HRESULT {
        let method = self.table().GetConnectionRequest;
        // SAFETY: the objects are held, and the structure lives until the request has ended.
        unsafe { method(self.as_ptr(), connector.as_ptr(), request.as_ptr()) }
    }
}

impl Connector1 {
    /// `CreateEndpoint`, with two elements a request; and the bytes that can be inline.
    pub fn endpoint(
        &self,
        queues: [&Queue1; 2],
        depth: usize,
        reads: (usize, usize),
    ) -> Result<(Endpoint1, usize), HRESULT> {
        let (method, [receives, others], mut inline) = (self.table().CreateEndpoint, queues.map(Com::as_ptr), 0);
        let (this, place) = (self.as_ptr(), &raw mut inline);
        // SAFETY: the objects are held, and the pointers are valid.
        let made = Com::make(|out| unsafe {
            method(this, receives, others, depth, depth, 2, 2, reads.0, reads.1, place, out)
        });
        made.map(|endpoint| (endpoint, inline))
    }

    /// `Connect`, from any port.
    pub fn connect(&self, endpoint: *mut c_void, address: SocketAddr, data: &[u8], request: &Client) -> HRESULT {
        let address = SOCKADDR_INET::from(address);
        let (method, length) = (self.table().Connect, address.length() as usize);
        let (from, bytes) = (data.as_ptr().cast(), data.len());
        // SAFETY: the object is held, the endpoint one or null, and address and data as long as they say.
        unsafe { method(self.as_ptr(), endpoint, address.as_ptr(), length, 6, 0, from, bytes, request.as_ptr()) }
    }

    /// `CompleteConnect`.
    pub fn complete(&self, request: &Client) -> HRESULT {
        // SAFETY: the object is held, and the structure lives until the request has ended.
        unsafe { (self.table().CompleteConnect)(self.as_ptr(), request.as_ptr()) }
    }

    /// `Accept`.
    pub fn accept(&self, endpoint: *mut c_void, data: &[u8], request: &Client) -> HRESULT {
        let method = self.table().Accept;
        // SAFETY: the object is held, the endpoint one or null, and the data as long as it says.
        unsafe { method(self.as_ptr(), endpoint, data.as_ptr().cast(), data.len(), request.as_ptr()) }
    }

    /// `Reject`.
    pub fn reject(&self, data: &[u8]) -> HRESULT {
        // SAFETY: the object is held, and the data as long as it says.
        unsafe { (self.table().Reject)(self.as_ptr(), data.as_ptr().cast(), data.len()) }
    }

    /// `GetConnectionData`: the limits for reads, and the bytes that there are.
    pub fn data(&self, into: &mut [u8]) -> (HRESULT, (usize, usize), usize) {
        let (mut inbound, mut outbound, mut length) = (usize::MAX, usize::MAX, into.len());
        let (method, bytes) = (self.table().GetConnectionData, into.as_mut_ptr().cast());
        // SAFETY: the object is held, and the pointers are valid.
        let result = unsafe { method(self.as_ptr(), &raw mut inbound, &raw mut outbound, bytes, &raw mut length) };
        (result, (inbound, outbound), length)
    }

    /// `GetLocalAddress` or `GetPeerAddress`.
    pub fn address(&self, peer: bool) -> Result<SocketAddr, HRESULT> {
        let mut raw = SOCKADDR_INET::UNSPECIFIED;
        let mut length = size_of::<SOCKADDR_INET>();
        let method = if peer { self.table().GetPeerAddress } else { self.table().GetLocalAddress };
        // SAFETY: the object is held, and the address has a place of the size that is said.
        let result = unsafe { method(self.as_ptr(), (&raw mut raw).cast(), &raw mut length) };
        if result != HRESULT::ND_SUCCESS {
            return Err(result);
        }
        assert_eq!(length, raw.length() as usize);
        raw.to_socket_addr().ok_or(HRESULT::ND_INVALID_ADDRESS)
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

impl Endpoint1 {
    /// `Flush`.
    pub fn flush(&self) -> HRESULT {
        // SAFETY: the object is held.
        unsafe { (self.table().Flush)(self.as_ptr()) }
    }

    /// `StartRequestBatch`, or `SubmitRequestBatch`.
    pub fn batch(&self, submit: bool) {
        let method = if submit { self.table().SubmitRequestBatch } else { self.table().StartRequestBatch };
        // SAFETY: the object is held.
        unsafe { method(self.as_ptr()) };
    }

    /// `Send`.
    pub fn send(&self, block: &mut ND_RESULT, list: &[ND_SGE], flags: u32) -> HRESULT {
        // SAFETY: the object is held, and the list as long as it says; the block stays until it has come back.
        unsafe { (self.table().Send)(self.as_ptr(), at(block), list.as_ptr(), list.len(), flags) }
    }

    /// `SendAndInvalidate`.
    pub fn send_and_invalidate(&self, block: &mut ND_RESULT, list: &[ND_SGE], window: &ND_MW_DESCRIPTOR) -> HRESULT {
        let method = self.table().SendAndInvalidate;
        // SAFETY: the object is held, and the list as long as it says; the block stays until it has come back.
        unsafe { method(self.as_ptr(), at(block), list.as_ptr(), list.len(), window, 0) }
    }

    /// `Receive`.
    pub fn receive(&self, block: &mut ND_RESULT, list: &[ND_SGE]) -> HRESULT {
        // SAFETY: the object is held, and the list as long as it says; the block stays until it has come back.
        unsafe { (self.table().Receive)(self.as_ptr(), at(block), list.as_ptr(), list.len()) }
    }

    /// `Bind` of `length` bytes from `offset` on.
    pub fn bind(
        &self,
        block: &mut ND_RESULT,
        region: &Region1,
        window: &Window1,
        (offset, length): (usize, usize),
        flags: u32,
    ) -> Result<ND_MW_DESCRIPTOR, HRESULT> {
        let mut descriptor = ND_MW_DESCRIPTOR { Base: [0; 8], Length: [0; 8], Token: [0; 4] };
        let (method, this, bytes) = (self.table().Bind, self.as_ptr(), region.buffer.pointer(offset).cast());
        let (block, handle, place) = (at(block), region.handle, &raw mut descriptor);
        // SAFETY: the objects are held; the block stays until it has come back, and the descriptor has a place.
        let result = unsafe { method(this, block, handle, window.as_ptr(), bytes, length, flags, place) };
        if result == HRESULT::ND_SUCCESS { Ok(descriptor) } else { Err(result) }
    }

    /// `Invalidate`.
    pub fn invalidate(&self, block: &mut ND_RESULT, window: &Window1) -> HRESULT {
        // SAFETY: the objects are held; the block stays until it has come back.
        unsafe { (self.table().Invalidate)(self.as_ptr(), at(block), window.as_ptr(), 0) }
    }

    /// `Read`.
    pub fn read(&self, block: &mut ND_RESULT, list: &[ND_SGE], window: &ND_MW_DESCRIPTOR, offset: u64) -> HRESULT {
        let method = self.table().Read;
        // SAFETY: the object is held, and the list as long as it says; the block stays until it has come back.
        unsafe { method(self.as_ptr(), at(block), list.as_ptr(), list.len(), window, offset, 0) }
    }

    /// `Write`.
    pub fn write(&self, block: &mut ND_RESULT, list: &[ND_SGE], window: &ND_MW_DESCRIPTOR, offset: u64) -> HRESULT {
        let method = self.table().Write;
        // SAFETY: the object is held, and the list as long as it says; the block stays until it has come back.
        unsafe { method(self.as_ptr(), at(block), list.as_ptr(), list.len(), window, offset, 0) }
    }
}
