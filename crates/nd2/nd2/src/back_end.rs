//! What the COM objects of [`com`](crate::com) are in front of: the engine on this machine ([`Engine`](crate::Engine)), or a driver that
//! is reached by control codes.
//!
//! The methods in front look at the client's pointers: whether they are null, which objects they are, and whether those are of the same
//! adapter. What is left is said here in values and references. Errors of the parameters' values are the back end's to find; so is an
//! argument that is no such object (`None`) where the method has an overlapped request, whose end may be where the client hears of it.

use alloc::vec::Vec;
use core::{
    ffi::c_void,
    net::{IpAddr, SocketAddr},
    ptr::NonNull,
};

use engine::{connection::ReadLimits, os::Affinity};
use fallible::Arc;
use ndkpi::NtStatus;

use crate::abi::{HANDLE, HRESULT, ND2_ADAPTER_INFO, ND2_RESULT, ND2_SGE, OVERLAPPED};

/// A back end, and behind `IND2Provider` its adapters. Methods run at `PASSIVE_LEVEL` in the kernel.
pub trait BackEnd: Send + Sync + Sized + 'static {
    /// An open adapter.
    type Adapter: Adapter<Self>;
    /// A file for overlapped requests.
    type File: RequestFile;
    /// A completion queue, of either version of the interface.
    type CompletionQueue: CompletionQueue<Self>;
    /// A shared receive queue.
    type SharedReceiveQueue: SharedReceiveQueue<Self>;
    /// A queue pair.
    type QueuePair: QueuePair<Self>;
    /// A memory region.
    type MemoryRegion: MemoryRegion<Self>;
    /// A memory window.
    type MemoryWindow: MemoryWindow<Self>;
    /// A connector.
    type Connector: Connector<Self>;
    /// A listener.
    type Listener: Listener<Self>;

    /// The addresses of all adapters.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`; what a driver says that is not reached.
    fn addresses(&self) -> Result<Vec<IpAddr>, NtStatus>;

    /// The number of the adapter with this address.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_ADDRESS` if there is none.
    fn resolve(&self, address: IpAddr) -> Result<u64, NtStatus>;

    /// Opens the adapter with this number.
    ///
    /// # Errors
    ///
    /// `ND_INVALID_PARAMETER` if there is none; `ND_NO_MEMORY`, `ND_INSUFFICIENT_RESOURCES`, `ND_DEVICE_REMOVED`.
    fn open(&self, number: u64) -> Result<Arc<Self::Adapter>, HRESULT>;
}

/// How a shared receive queue is made.
#[derive(Clone, Copy, Debug)]
pub struct SharedReceiveQueueSizes {
    /// Receives.
    pub depth: u32,
    /// Elements of one receive.
    pub max_sge: u32,
    /// Below so many receives the requests for notification end. Zero: never.
    pub threshold: u32,
    /// Where they end.
    pub affinity: Affinity,
}

/// The sizes of a queue pair. With a shared receive queue those of receives are zero.
#[derive(Clone, Copy, Debug)]
pub struct QueuePairSizes {
    /// Receives.
    pub receive_depth: u32,
    /// Other requests.
    pub initiator_depth: u32,
    /// Elements of a receive.
    pub max_receive_sge: u32,
    /// Elements of another request.
    pub max_initiator_sge: u32,
    /// Bytes of inline data.
    pub inline_size: u32,
}

/// An open adapter.
pub trait Adapter<B: BackEnd>: Send + Sync + Sized + 'static {
    /// Makes a file for overlapped requests. Its handle is the client's to close.
    ///
    /// # Errors
    ///
    /// `ND_NO_MEMORY`, `ND_INSUFFICIENT_RESOURCES`, `ND_DEVICE_REMOVED`.
    fn create_file(&self) -> Result<HANDLE, HRESULT>;

    /// Closes the client's handle of a file. What uses the file keeps it.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_HANDLE` if it is none of this adapter's.
    fn close_file(&self, handle: HANDLE) -> Result<(), NtStatus>;

    /// What the adapter can do.
    ///
    /// # Errors
    ///
    /// `STATUS_DEVICE_REMOVED`.
    fn info(&self) -> Result<ND2_ADAPTER_INFO, NtStatus>;

    /// The adapter's addresses.
    ///
    /// # Errors
    ///
    /// `STATUS_DEVICE_REMOVED`, `STATUS_INSUFFICIENT_RESOURCES`.
    fn addresses(&self) -> Result<Vec<IpAddr>, NtStatus>;

    /// `IND2Adapter::CreateCompletionQueue`.
    ///
    /// # Errors
    ///
    /// As the method.
    fn create_completion_queue(
        this: &Arc<Self>,
        file: HANDLE,
        depth: u32,
        affinity: Affinity,
    ) -> Result<B::CompletionQueue, HRESULT>;

    /// `IND2Adapter::CreateMemoryRegion`.
    ///
    /// # Errors
    ///
    /// As the method.
    fn create_memory_region(this: &Arc<Self>, file: HANDLE) -> Result<B::MemoryRegion, HRESULT>;

    /// `IND2Adapter::CreateMemoryWindow`.
    ///
    /// # Errors
    ///
    /// As the method.
    fn create_memory_window(this: &Arc<Self>) -> Result<B::MemoryWindow, HRESULT>;

    /// `IND2Adapter::CreateSharedReceiveQueue`.
    ///
    /// # Errors
    ///
    /// As the method.
    fn create_shared_receive_queue(
        this: &Arc<Self>,
        file: HANDLE,
        sizes: &SharedReceiveQueueSizes,
    ) -> Result<B::SharedReceiveQueue, HRESULT>;

    /// `IND2Adapter::CreateQueuePair`, and with a shared receive queue `CreateQueuePairWithSrq`. The first queue is for receives. All
    /// three are of this adapter.
    ///
    /// # Errors
    ///
    /// As the method.
    fn create_queue_pair(
        this: &Arc<Self>,
        queues: [&B::CompletionQueue; 2],
        shared: Option<&B::SharedReceiveQueue>,
        context: *mut c_void,
        sizes: &QueuePairSizes,
    ) -> Result<B::QueuePair, HRESULT>;

    /// `IND2Adapter::CreateConnector`.
    ///
    /// # Errors
    ///
    /// As the method.
    fn create_connector(this: &Arc<Self>, file: HANDLE) -> Result<B::Connector, HRESULT>;

    /// `IND2Adapter::CreateListener`.
    ///
    /// # Errors
    ///
    /// As the method.
    fn create_listener(this: &Arc<Self>, file: HANDLE) -> Result<B::Listener, HRESULT>;
}

/// What is made on an adapter.
pub trait Part<B: BackEnd>: Send + Sync + 'static {
    /// The adapter.
    fn adapter(&self) -> &Arc<B::Adapter>;
}

/// A part with overlapped requests. A method that is given a structure answers `STATUS_PENDING` if the end is reported there, and
/// everything else at once.
pub trait Requests<B: BackEnd>: Part<B> {
    /// Where the requests are performed.
    fn file(&self) -> &Arc<B::File>;

    /// Cancels what is outstanding.
    ///
    /// # Errors
    ///
    /// `STATUS_UNSUCCESSFUL` if something cannot be cancelled.
    fn cancel(&self) -> Result<(), NtStatus>;
}

/// A file for overlapped requests, as far as every back end has it.
pub trait RequestFile: Send + Sync + 'static {
    /// The client's handle.
    fn handle(&self) -> HANDLE;

    /// Returns true if the client has closed its handle.
    fn is_closed(&self) -> bool;

    /// Closes the client's handle, which the client has not closed and does not use any more.
    fn close(&self);

    /// How the request has ended, or `STATUS_PENDING`.
    ///
    /// # Safety
    ///
    /// `overlapped` is valid.
    unsafe fn status(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus;

    /// Waits until the request has ended and returns how. `STATUS_INVALID_PARAMETER` if it has no event to wait for.
    ///
    /// # Safety
    ///
    /// `overlapped` is valid, and its event a handle.
    unsafe fn wait(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus;
}

/// `IND2CompletionQueue`, and with other forms of results `INDCompletionQueue`.
pub trait CompletionQueue<B: BackEnd>: Requests<B> {
    /// Where requests for notification end.
    ///
    /// # Errors
    ///
    /// `STATUS_DEVICE_REMOVED`.
    fn affinity(&self) -> Result<Affinity, NtStatus>;

    /// Sets the depth.
    ///
    /// # Errors
    ///
    /// As `Resize`.
    fn resize(&self, depth: u32) -> Result<(), NtStatus>;

    /// Asks for notification of a kind, which may be none that there is.
    ///
    /// # Safety
    ///
    /// `overlapped` is valid, no request is outstanding on it, and the client keeps it until a request that pends ends.
    unsafe fn notify(&self, kind: u32, overlapped: NonNull<OVERLAPPED>) -> NtStatus;

    /// Takes `most` results at most and gives them to `each`. Returns how many. `each` may be called with a spin lock held.
    fn take(&self, most: usize, each: impl FnMut(ND2_RESULT)) -> usize;
}

/// `IND2SharedReceiveQueue`.
pub trait SharedReceiveQueue<B: BackEnd>: Requests<B> {
    /// Where requests for notification end.
    ///
    /// # Errors
    ///
    /// `STATUS_DEVICE_REMOVED`.
    fn affinity(&self) -> Result<Affinity, NtStatus>;

    /// Sets the depth and the threshold, each unless it is zero.
    ///
    /// # Errors
    ///
    /// As `Modify`.
    fn modify(&self, depth: u32, threshold: u32) -> Result<(), NtStatus>;

    /// Asks for notification.
    ///
    /// # Safety
    ///
    /// As [`CompletionQueue::notify`].
    unsafe fn notify(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus;

    /// Posts a receive.
    ///
    /// # Errors
    ///
    /// As `Receive`.
    fn receive(&self, context: *mut c_void, list: &[ND2_SGE]) -> Result<(), NtStatus>;
}

/// A request that moves bytes, other than a receive.
#[derive(Clone, Copy, Debug)]
pub enum Transfer {
    /// `Send`, and with the token of a window of the peer `SendAndInvalidate`.
    Send {
        /// The token.
        invalidate: Option<u32>,
    },
    /// `Read`.
    Read {
        /// The peer's address.
        address: u64,
        /// The token of the peer's region or window.
        token: u32,
    },
    /// `Write`.
    Write {
        /// The peer's address.
        address: u64,
        /// The token of the peer's region or window.
        token: u32,
    },
}

/// `IND2QueuePair`. The flags were checked: a request has none that it cannot have.
pub trait QueuePair<B: BackEnd>: Part<B> {
    /// Cancels what is posted.
    ///
    /// # Errors
    ///
    /// What a driver says that is not reached.
    fn flush(&self) -> Result<(), NtStatus>;

    /// Posts a request that moves bytes.
    ///
    /// # Errors
    ///
    /// As the method.
    ///
    /// # Safety
    ///
    /// The bytes that the entries of a request with `ND_OP_FLAG_INLINE` name are valid for reading.
    unsafe fn initiate(
        &self,
        context: *mut c_void,
        transfer: Transfer,
        list: &[ND2_SGE],
        flags: u32,
    ) -> Result<(), NtStatus>;

    /// Posts a receive.
    ///
    /// # Errors
    ///
    /// As `Receive`.
    fn receive(&self, context: *mut c_void, list: &[ND2_SGE]) -> Result<(), NtStatus>;

    /// Binds a window to `length` bytes of a region from `address` on. The window's token is the new one when this returns.
    ///
    /// # Errors
    ///
    /// As `Bind`.
    fn bind(
        &self,
        context: *mut c_void,
        region: &B::MemoryRegion,
        window: &B::MemoryWindow,
        bytes: (u64, u64),
        flags: u32,
    ) -> Result<(), NtStatus>;

    /// Ends the use of a window.
    ///
    /// # Errors
    ///
    /// As `Invalidate`.
    fn invalidate(&self, context: *mut c_void, window: &B::MemoryWindow, flags: u32) -> Result<(), NtStatus>;
}

/// `IND2MemoryRegion`.
pub trait MemoryRegion<B: BackEnd>: Requests<B> {
    /// Registers the client's bytes.
    ///
    /// # Safety
    ///
    /// Bytes that are there stay there as long as they are registered; `overlapped` as for [`CompletionQueue::notify`].
    unsafe fn register(&self, bytes: (*const c_void, usize), flags: u32, overlapped: NonNull<OVERLAPPED>) -> NtStatus;

    /// Ends the registration.
    ///
    /// # Safety
    ///
    /// As [`CompletionQueue::notify`].
    unsafe fn deregister(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus;

    /// Zero, which is no token, if it is not registered.
    fn local_token(&self) -> u32;

    /// Zero, which is no token, if it is not registered.
    fn remote_token(&self) -> u32;
}

/// `IND2MemoryWindow`.
pub trait MemoryWindow<B: BackEnd>: Part<B> {
    /// That of the bind posted last; zero, which is no token, before the first.
    fn remote_token(&self) -> u32;
}

/// `IND2Connector`.
pub trait Connector<B: BackEnd>: Requests<B> {
    /// Takes a local address.
    ///
    /// # Errors
    ///
    /// As `Bind`.
    fn bind(&self, address: SocketAddr) -> Result<(), NtStatus>;

    /// Connects `qp`.
    ///
    /// # Safety
    ///
    /// As [`CompletionQueue::notify`].
    unsafe fn connect(
        &self,
        qp: Option<&B::QueuePair>,
        remote: SocketAddr,
        reads: ReadLimits,
        data: &[u8],
        overlapped: NonNull<OVERLAPPED>,
    ) -> NtStatus;

    /// Completes a connect.
    ///
    /// # Safety
    ///
    /// As [`CompletionQueue::notify`].
    unsafe fn complete_connect(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus;

    /// Accepts a connection request with `qp`.
    ///
    /// # Safety
    ///
    /// As [`CompletionQueue::notify`].
    unsafe fn accept(
        &self,
        qp: Option<&B::QueuePair>,
        reads: ReadLimits,
        data: &[u8],
        overlapped: NonNull<OVERLAPPED>,
    ) -> NtStatus;

    /// Rejects a connection request.
    ///
    /// # Errors
    ///
    /// As `Reject`.
    fn reject(&self, data: &[u8]) -> Result<(), NtStatus>;

    /// The limits that the connection has.
    ///
    /// # Errors
    ///
    /// As `GetReadLimits`.
    fn read_limits(&self) -> Result<ReadLimits, NtStatus>;

    /// Copies what fits of the peer's private data. Returns how much there is.
    ///
    /// # Errors
    ///
    /// As `GetPrivateData`.
    fn private_data(&self, into: &mut [u8]) -> Result<usize, NtStatus>;

    /// The address on this side, from `Bind` on.
    ///
    /// # Errors
    ///
    /// As `GetLocalAddress`.
    fn local_address(&self) -> Result<SocketAddr, NtStatus>;

    /// The address on the other side.
    ///
    /// # Errors
    ///
    /// As `GetPeerAddress`.
    fn peer_address(&self) -> Result<SocketAddr, NtStatus>;

    /// Asks to hear of the end of the connection.
    ///
    /// # Safety
    ///
    /// As [`CompletionQueue::notify`].
    unsafe fn notify_disconnect(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus;

    /// Disconnects.
    ///
    /// # Safety
    ///
    /// As [`CompletionQueue::notify`].
    unsafe fn disconnect(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus;
}

/// `IND2Listener`.
pub trait Listener<B: BackEnd>: Requests<B> {
    /// Takes a local address.
    ///
    /// # Errors
    ///
    /// As `Bind`.
    fn bind(&self, address: SocketAddr) -> Result<(), NtStatus>;

    /// Listens.
    ///
    /// # Errors
    ///
    /// As `Listen`.
    fn listen(&self, backlog: u32) -> Result<(), NtStatus>;

    /// The address, from `Bind` on.
    ///
    /// # Errors
    ///
    /// As `GetLocalAddress`.
    fn local_address(&self) -> Result<SocketAddr, NtStatus>;

    /// Gives the next connection request to `connector`.
    ///
    /// # Safety
    ///
    /// As [`CompletionQueue::notify`].
    unsafe fn get_connection_request(
        &self,
        connector: Option<&B::Connector>,
        overlapped: NonNull<OVERLAPPED>,
    ) -> NtStatus;
}
