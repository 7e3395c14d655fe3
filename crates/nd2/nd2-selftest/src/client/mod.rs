//! The interfaces as a client uses them: raw pointers, called through their tables.

#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::not_unsafe_ptr_arg_deref,
    reason = "every method is the one of the interface that it names, and takes what a client may pass by mistake"
)]

mod connection;
mod memory;
mod queue;
mod version1;

use std::{ffi::c_void, marker::PhantomData, ptr, ptr::NonNull};

pub use memory::{Piece, foreign};
use nd2::abi::{
    HANDLE, HRESULT, IID_IND2CompletionQueue, IID_IND2Connector, IID_IND2Listener, IID_IND2MemoryRegion,
    IID_IND2MemoryWindow, IID_IND2QueuePair, IID_IND2SharedReceiveQueue, IID_INDCompletionQueue, IND2AdapterVtbl,
    IND2CompletionQueueVtbl, IND2ConnectorVtbl, IND2ListenerVtbl, IND2MemoryRegionVtbl, IND2MemoryWindowVtbl,
    IND2OverlappedVtbl, IND2ProviderVtbl, IND2QueuePairVtbl, IND2SharedReceiveQueueVtbl, INDCompletionQueueVtbl,
    KAFFINITY, ND2_ADAPTER_INFO, OVERLAPPED, SOCKET_ADDRESS_LIST, Table,
};
use ndkpi::{GUID, SOCKADDR_INET};
pub use version1::{Adapter1, Connector1, Endpoint1, Factory, Listen1, Provider1, Region1};

use crate::{Handle, OverlappedHost};

/// A counted pointer to an interface with the table `T`. Released when it is dropped.
pub struct Com<T: Table> {
    object: NonNull<c_void>,
    table: PhantomData<&'static T>,
}

// SAFETY: the objects of this provider may be called on any thread.
unsafe impl<T: Table> Send for Com<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Table> Sync for Com<T> {}

/// `IND2Provider`.
pub type Provider = Com<IND2ProviderVtbl>;
/// `IND2Adapter`.
pub type Adapter = Com<IND2AdapterVtbl>;
/// `IND2CompletionQueue`.
pub type Queue = Com<IND2CompletionQueueVtbl>;
/// `INDCompletionQueue`.
pub type Queue1 = Com<INDCompletionQueueVtbl>;
/// `IND2QueuePair`.
pub type Qp = Com<IND2QueuePairVtbl>;
/// `IND2SharedReceiveQueue`.
pub type Srq = Com<IND2SharedReceiveQueueVtbl>;
/// `IND2MemoryRegion`.
pub type Region = Com<IND2MemoryRegionVtbl>;
/// `IND2MemoryWindow`.
pub type Window = Com<IND2MemoryWindowVtbl>;
/// `IND2Connector`.
pub type Connector = Com<IND2ConnectorVtbl>;
/// `IND2Listener`.
pub type Listener = Com<IND2ListenerVtbl>;

impl<T: Table> Com<T> {
    /// The interface that `make` stores.
    pub fn make(make: impl FnOnce(*mut *mut c_void) -> HRESULT) -> Result<Self, HRESULT> {
        let mut object = ptr::null_mut();
        let result = make(&raw mut object);
        match NonNull::new(object) {
            Some(object) if result == HRESULT::ND_SUCCESS => Ok(Self { object, table: PhantomData }),
            None if result != HRESULT::ND_SUCCESS => Err(result),
            _ => panic!("{result} and the pointer {object:?}"),
        }
    }

    /// The client's pointer.
    pub const fn as_ptr(&self) -> *mut c_void {
        self.object.as_ptr()
    }

    /// The table.
    pub const fn table(&self) -> &'static T {
        // SAFETY: a COM object begins with a pointer to its table, which lives as long as the program.
        unsafe { self.object.cast::<&'static T>().read() }
    }

    /// `QueryInterface`.
    pub fn query<U: Table>(&self, iid: &GUID) -> Result<Com<U>, HRESULT> {
        // SAFETY: the object is held, and both pointers are valid.
        Com::make(|out| unsafe { (self.table().unknown().QueryInterface)(self.as_ptr(), iid, out) })
    }

    /// `AddRef`.
    pub fn add_ref(&self) -> u32 {
        // SAFETY: the object is held.
        unsafe { (self.table().unknown().AddRef)(self.as_ptr()) }
    }

    /// `Release` of a reference that `add_ref` counted.
    pub fn release(&self) -> u32 {
        // SAFETY: the object is held, by one reference more.
        unsafe { (self.table().unknown().Release)(self.as_ptr()) }
    }
}

impl<T: Table> Drop for Com<T> {
    fn drop(&mut self) {
        // SAFETY: the reference is given back once, and the pointer not used again.
        unsafe { (self.table().unknown().Release)(self.as_ptr()) };
    }
}

/// A request's structure with its event. It must not be dropped while the request is outstanding.
pub struct Client {
    overlapped: Box<OVERLAPPED>,
    event: Option<Handle>,
}

impl Client {
    /// A structure with an event.
    #[must_use]
    pub fn new(platform: &OverlappedHost) -> Self {
        let event = platform.event();
        Self { overlapped: Box::new(OVERLAPPED::new(event.get())), event: Some(event) }
    }

    /// A structure without one.
    #[must_use]
    pub fn without_event() -> Self {
        Self { overlapped: Box::new(OVERLAPPED::new(ptr::null_mut())), event: None }
    }

    /// Where it is.
    #[must_use]
    pub const fn as_ptr(&self) -> *mut OVERLAPPED {
        (&raw const *self.overlapped).cast_mut()
    }

    /// The status in it.
    pub fn status(&self) -> HRESULT {
        self.overlapped.status()
    }

    /// Returns true if its event is set.
    #[must_use]
    pub fn is_signalled(&self) -> bool {
        self.event.as_ref().is_some_and(Handle::is_set)
    }

    /// Its event.
    #[must_use]
    pub const fn event(&self) -> Option<&Handle> {
        self.event.as_ref()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.status().is_pending() && !std::thread::panicking() {
            // A case that fails leaves requests behind. The provider still has the address.
            Box::leak(std::mem::replace(&mut self.overlapped, Box::new(OVERLAPPED::new(ptr::null_mut()))));
        }
    }
}

/// The methods of `IND2Overlapped` or `INDOverlapped`, whichever interface they are reached through.
pub trait Overlapped {
    /// `CancelOverlappedRequests`.
    fn cancel(&self) -> HRESULT;

    /// `GetOverlappedResult`.
    fn outcome(&self, request: &Client, wait: bool) -> HRESULT;
}

macro_rules! overlapped {
    ($($type:ty: $($base:ident).*),+ $(,)?) => {
        $(impl Overlapped for $type {
            fn cancel(&self) -> HRESULT {
                // SAFETY: the object is held.
                unsafe { (self.table()$(.$base)*.CancelOverlappedRequests)(self.as_ptr()) }
            }

            fn outcome(&self, request: &Client, wait: bool) -> HRESULT {
                let method = self.table()$(.$base)*.GetOverlappedResult;
                // SAFETY: the object is held, and the structure valid.
                unsafe { method(self.as_ptr(), request.as_ptr(), i32::from(wait)) }
            }
        })+
    };
}

overlapped!(Queue: base, Srq: base, Region: base, Connector: base, Listener: base, Com<IND2OverlappedVtbl>: );

impl Provider {
    /// `ResolveAddress`.
    pub fn resolve(&self, address: &SOCKADDR_INET) -> Result<u64, HRESULT> {
        let mut id = 0;
        let table = self.table();
        // SAFETY: the object is held, and the pointers are valid.
        let result = unsafe { (table.ResolveAddress)(self.as_ptr(), address.as_ptr(), address.length(), &raw mut id) };
        if result == HRESULT::ND_SUCCESS { Ok(id) } else { Err(result) }
    }

    /// `OpenAdapter`.
    pub fn open(&self, iid: &GUID, adapter: u64) -> Result<Adapter, HRESULT> {
        // SAFETY: the object is held, and the pointers are valid.
        Com::make(|out| unsafe { (self.table().OpenAdapter)(self.as_ptr(), iid, adapter, out) })
    }

    /// `QueryAddressList`.
    pub fn addresses(&self, into: &mut [u64], length: &mut u32) -> HRESULT {
        let list = if into.is_empty() { ptr::null_mut() } else { into.as_mut_ptr().cast::<SOCKET_ADDRESS_LIST>() };
        // SAFETY: the object is held, and the buffer as long as `length` says, or null.
        unsafe { (self.table().QueryAddressList)(self.as_ptr(), list, length) }
    }
}

/// What a queue pair is made with.
#[derive(Clone, Copy)]
pub struct QpSizes {
    /// Receives.
    pub receives: u32,
    /// Initiator requests.
    pub initiates: u32,
    /// Elements of a receive.
    pub receive_sge: u32,
    /// Elements of an initiator request.
    pub initiator_sge: u32,
    /// Inline bytes.
    pub inline: u32,
}

impl Adapter {
    /// `CreateOverlappedFile`.
    pub fn file(&self) -> Result<HANDLE, HRESULT> {
        let mut file = ptr::null_mut();
        // SAFETY: the object is held, and the pointer is valid.
        let result = unsafe { (self.table().CreateOverlappedFile)(self.as_ptr(), &raw mut file) };
        if result == HRESULT::ND_SUCCESS { Ok(file) } else { Err(result) }
    }

    /// `Query`. The version in `info` is the client's.
    pub fn info(&self, info: Option<&mut ND2_ADAPTER_INFO>, length: &mut u32) -> HRESULT {
        let info = info.map_or(ptr::null_mut(), ptr::from_mut);
        // SAFETY: the object is held, and the pointers are valid or null.
        unsafe { (self.table().Query)(self.as_ptr(), info, length) }
    }

    /// `QueryAddressList`.
    pub fn addresses(&self, into: &mut [u64], length: &mut u32) -> HRESULT {
        let list = if into.is_empty() { ptr::null_mut() } else { into.as_mut_ptr().cast::<SOCKET_ADDRESS_LIST>() };
        // SAFETY: the object is held, and the buffer as long as `length` says, or null.
        unsafe { (self.table().QueryAddressList)(self.as_ptr(), list, length) }
    }

    /// `CreateCompletionQueue`.
    pub fn queue(&self, file: HANDLE, depth: u32, affinity: KAFFINITY) -> Result<Queue, HRESULT> {
        let (table, iid) = (self.table(), IID_IND2CompletionQueue);
        // SAFETY: the object is held, and the pointers are valid.
        Com::make(|out| unsafe {
            (table.CreateCompletionQueue)(self.as_ptr(), &raw const iid, file, depth, 0, affinity, out)
        })
    }

    /// `CreateCompletionQueue` of version 1.
    pub fn queue1(&self, file: HANDLE, depth: u32) -> Result<Queue1, HRESULT> {
        let (table, iid) = (self.table(), IID_INDCompletionQueue);
        // SAFETY: the object is held, and the pointers are valid.
        Com::make(|out| unsafe { (table.CreateCompletionQueue)(self.as_ptr(), &raw const iid, file, depth, 0, 0, out) })
    }

    /// `CreateMemoryRegion`.
    pub fn region(&self, file: HANDLE) -> Result<Region, HRESULT> {
        let (table, iid) = (self.table(), IID_IND2MemoryRegion);
        // SAFETY: the object is held, and the pointers are valid.
        Com::make(|out| unsafe { (table.CreateMemoryRegion)(self.as_ptr(), &raw const iid, file, out) })
    }

    /// `CreateMemoryWindow`.
    pub fn window(&self) -> Result<Window, HRESULT> {
        let (table, iid) = (self.table(), IID_IND2MemoryWindow);
        // SAFETY: the object is held, and the pointers are valid.
        Com::make(|out| unsafe { (table.CreateMemoryWindow)(self.as_ptr(), &raw const iid, out) })
    }

    /// `CreateSharedReceiveQueue`.
    pub fn srq(&self, file: HANDLE, depth: u32, sge: u32, threshold: u32) -> Result<Srq, HRESULT> {
        let (table, iid) = (self.table(), IID_IND2SharedReceiveQueue);
        // SAFETY: the object is held, and the pointers are valid.
        Com::make(|out| unsafe {
            (table.CreateSharedReceiveQueue)(self.as_ptr(), &raw const iid, file, depth, sge, threshold, 0, 0, out)
        })
    }

    /// `CreateQueuePair`.
    pub fn qp(
        &self,
        receive: *mut c_void,
        initiator: *mut c_void,
        context: usize,
        sizes: QpSizes,
    ) -> Result<Qp, HRESULT> {
        let (table, iid) = (self.table(), IID_IND2QueuePair);
        let context = ptr::without_provenance_mut(context);
        let QpSizes { receives, initiates, receive_sge, initiator_sge, inline } = sizes;
        // SAFETY: the object is held, the queues are COM objects or null, and the pointers are valid.
        Com::make(|out| unsafe {
            (table.CreateQueuePair)(
                self.as_ptr(),
                &raw const iid,
                receive,
                initiator,
                context,
                receives,
                initiates,
                receive_sge,
                initiator_sge,
                inline,
                out,
            )
        })
    }

    /// `CreateQueuePairWithSrq`.
    pub fn qp_with_srq(&self, queue: &Queue, srq: *mut c_void, context: usize) -> Result<Qp, HRESULT> {
        let (table, iid) = (self.table(), IID_IND2QueuePair);
        let context = ptr::without_provenance_mut(context);
        // SAFETY: the object is held, the queues are COM objects or null, and the pointers are valid.
        Com::make(|out| unsafe {
            (table.CreateQueuePairWithSrq)(
                self.as_ptr(),
                &raw const iid,
                queue.as_ptr(),
                queue.as_ptr(),
                srq,
                context,
                16,
                4,
                0,
                out,
            )
        })
    }

    /// `CreateConnector`.
    pub fn connector(&self, file: HANDLE) -> Result<Connector, HRESULT> {
        let (table, iid) = (self.table(), IID_IND2Connector);
        // SAFETY: the object is held, and the pointers are valid.
        Com::make(|out| unsafe { (table.CreateConnector)(self.as_ptr(), &raw const iid, file, out) })
    }

    /// `CreateListener`.
    pub fn listener(&self, file: HANDLE) -> Result<Listener, HRESULT> {
        let (table, iid) = (self.table(), IID_IND2Listener);
        // SAFETY: the object is held, and the pointers are valid.
        Com::make(|out| unsafe { (table.CreateListener)(self.as_ptr(), &raw const iid, file, out) })
    }
}
