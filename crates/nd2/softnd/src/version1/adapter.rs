//! `INDAdapter`.

use std::{
    ffi::c_void,
    net::{IpAddr, SocketAddr},
    ptr,
    sync::Arc,
};

use nd2::{
    abi::{
        HANDLE, HRESULT, IID_IND2MemoryRegion, IID_IND2MemoryWindow, IID_INDAdapter, IID_INDCompletionQueue,
        IID_INDOverlapped, IND2MemoryRegionVtbl, IND2OverlappedVtbl, INDAdapterVtbl, ND_ADAPTER_INFO1, ND_MR_HANDLE,
        ND_RESULT, ND_SGE, ND_VERSION_1, ND2_ADAPTER_INFO, ND2_SGE, OVERLAPPED, SoftAdapterVtbl, mr_flags,
    },
    com::{Class, Object, borrow},
};
use ndkpi::{GUID, SOCKADDR_INET};

use crate::version1::{
    connector::Connector,
    held::{ComRef, Overlapped, overlapped, short},
    listen::Listen,
    regions::{Region, Regions},
};

/// Everything that a client of version 1 may do with registered memory: what its peers may do, it says when it binds windows.
const RIGHTS: u32 = mr_flags::ND_MR_FLAG_ALLOW_LOCAL_WRITE
    | mr_flags::ND_MR_FLAG_ALLOW_REMOTE_READ
    | mr_flags::ND_MR_FLAG_ALLOW_REMOTE_WRITE
    | mr_flags::ND_MR_FLAG_RDMA_READ_SINK;
/// The same of memory that cannot be written.
const READ_RIGHTS: u32 = mr_flags::ND_MR_FLAG_ALLOW_REMOTE_READ;
/// The most entries of a request.
pub const ENTRIES: usize = 16;

/// An open adapter, as everything made on it refers to it.
pub struct Core {
    pub regions: Regions,
    /// A region that is never registered: what asks for the ends of requests.
    asks: ComRef<IND2MemoryRegionVtbl>,
    file: File,
    pub info: ND2_ADAPTER_INFO,
    ip: IpAddr,
    pub adapter: Arc<ComRef<SoftAdapterVtbl>>,
}

/// The adapter's file. Closed when this is dropped.
struct File {
    handle: HANDLE,
    adapter: Arc<ComRef<SoftAdapterVtbl>>,
}

// SAFETY: a handle may be used by any thread.
unsafe impl Send for File {}
// SAFETY: as for `Send`.
unsafe impl Sync for File {}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the adapter is held.
        let _ = unsafe { (self.adapter.table().CloseOverlappedFile)(self.adapter.as_ptr(), self.handle) };
    }
}

impl Core {
    pub fn file(&self) -> HANDLE {
        self.file.handle
    }

    /// The adapter's address that the client has opened it by, with a port.
    pub fn address(&self, port: u16) -> SOCKADDR_INET {
        SocketAddr::new(self.ip, port).into()
    }

    /// The client's entries as those of version 2: how many, and true if they are to be taken inline, because one of them is in
    /// no registered memory.
    ///
    /// # Errors
    ///
    /// `ND_DATA_OVERRUN` if there are more than any endpoint takes, or one is longer than any request;
    /// `ND_INVALID_PARAMETER` if there should be some and the pointer is null.
    ///
    /// # Safety
    ///
    /// `list` is null or valid for reading `count` entries.
    pub unsafe fn entries(
        &self,
        list: *const ND_SGE,
        count: usize,
        into: &mut [ND2_SGE; ENTRIES],
    ) -> Result<(u32, bool), HRESULT> {
        if count > ENTRIES {
            return Err(HRESULT::ND_DATA_OVERRUN);
        }
        if count > 0 && list.is_null() {
            return Err(HRESULT::ND_INVALID_PARAMETER);
        }
        let mut is_inline = false;
        for (index, entry) in into.iter_mut().take(count).enumerate() {
            // SAFETY: the list has this entry.
            let ND_SGE { pAddr, Length, hMr } = unsafe { list.add(index).read() };
            is_inline |= hMr.0 == 0;
            *entry = ND2_SGE {
                Buffer: pAddr,
                BufferLength: u32::try_from(Length).map_err(|_| HRESULT::ND_DATA_OVERRUN)?,
                MemoryRegionToken: if hMr.0 == 0 { 0 } else { self.regions.token(hMr) },
            };
        }
        Ok((short(count), is_inline))
    }

    fn make_region(&self) -> Result<Region, HRESULT> {
        make_region(&self.adapter, self.file()).map(Arc::new)
    }

    /// Registers the client's bytes. `set` is called with the handle before the client can hear of the end.
    ///
    /// # Safety
    ///
    /// As `INDAdapter::RegisterMemory`.
    unsafe fn register(
        &self,
        bytes: (*const c_void, usize),
        overlapped: *mut OVERLAPPED,
        set: impl Fn(ND_MR_HANDLE),
    ) -> HRESULT {
        let region = match self.make_region() {
            Ok(region) => region,
            Err(HRESULT::ND_NO_MEMORY) => return HRESULT::ND_INSUFFICIENT_RESOURCES,
            Err(result) => return result,
        };
        let handle = self.regions.add(region.clone());
        set(handle);
        self.regions.registers(handle, overlapped);
        let register = |flags| {
            // SAFETY: the region is held. The bytes stay while they are registered, `overlapped` until the request ends (`# Safety`).
            unsafe { (region.table().Register)(region.as_ptr(), bytes.0, bytes.1, flags, overlapped) }
        };
        let mut result = register(RIGHTS);
        if result == HRESULT::ND_ACCESS_VIOLATION {
            result = register(READ_RIGHTS);
        }
        if result.is_pending() {
            return result;
        }
        self.regions.ended(overlapped, result);
        if result != HRESULT::ND_SUCCESS {
            set(ND_MR_HANDLE(0));
        }
        // Version 1 has one status for what cannot be registered.
        if result == HRESULT::ND_INVALID_PARAMETER { HRESULT::ND_ACCESS_VIOLATION } else { result }
    }
}

fn make_region(adapter: &ComRef<SoftAdapterVtbl>, file: HANDLE) -> Result<ComRef<IND2MemoryRegionVtbl>, HRESULT> {
    let (table, this) = (&adapter.table().base, adapter.as_ptr());
    let make = |iid, out| {
        // SAFETY: the adapter is held, and both pointers are valid.
        unsafe { (table.CreateMemoryRegion)(this, iid, file, out) }
    };
    // SAFETY: regions have this table.
    unsafe { ComRef::make(&IID_IND2MemoryRegion, make) }
}

/// An adapter of version 1.
pub struct Adapter(Arc<Core>);

impl Adapter {
    /// Makes one of an open adapter, with a file of its own.
    pub fn try_new(adapter: ComRef<SoftAdapterVtbl>, ip: IpAddr) -> Result<Self, HRESULT> {
        let adapter = Arc::new(adapter);
        let (table, this) = (&adapter.table().base, adapter.as_ptr());
        let mut info = ND2_ADAPTER_INFO { InfoVersion: 1, ..ND2_ADAPTER_INFO::default() };
        let mut length = short(size_of::<ND2_ADAPTER_INFO>());
        // SAFETY: the adapter is held, and the structure has a place of its size.
        ok(unsafe { (table.Query)(this, &raw mut info, &raw mut length) })?;
        let mut handle = ptr::null_mut();
        // SAFETY: the adapter is held, and the handle has a place.
        ok(unsafe { (table.CreateOverlappedFile)(this, &raw mut handle) })?;
        let file = File { handle, adapter: adapter.clone() };
        let asks = make_region(&adapter, handle)?;
        Ok(Self(Arc::new(Core { regions: Regions::default(), asks, file, info, ip, adapter })))
    }
}

/// Checks that a method has succeeded.
pub const fn ok(result: HRESULT) -> Result<(), HRESULT> {
    if result.0 == HRESULT::ND_SUCCESS.0 { Ok(()) } else { Err(result) }
}

/// A refusal of version 2 that names the parameter, which version 1 has in another place.
pub fn unnumbered(result: HRESULT) -> HRESULT {
    let first = HRESULT::ND_INVALID_PARAMETER_1.0;
    let last = HRESULT::ND_INVALID_PARAMETER_10.0;
    if (first..=last).contains(&result.0) { HRESULT::ND_INVALID_PARAMETER } else { result }
}

impl Class for Adapter {
    type Table = INDAdapterVtbl;

    const TABLE: &'static INDAdapterVtbl = &INDAdapterVtbl {
        base: overlapped::<Self>(),
        GetFileHandle: get_file_handle,
        Query: query,
        Control: control,
        CreateCompletionQueue: create_completion_queue,
        RegisterMemory: register_memory,
        DeregisterMemory: deregister_memory,
        CreateMemoryWindow: create_memory_window,
        CreateConnector: create_connector,
        Listen: listen,
    };
    const INTERFACES: &'static [GUID] = &[IID_INDAdapter, IID_INDOverlapped];
}

impl Overlapped for Adapter {
    fn overlapped(&self) -> (&IND2OverlappedVtbl, *mut c_void) {
        (&self.0.asks.table().base, self.0.asks.as_ptr())
    }

    fn cancel(&self) -> HRESULT {
        let mut result = HRESULT::ND_SUCCESS;
        for region in self.0.regions.list() {
            // SAFETY: the region is held.
            let cancelled = unsafe { (region.table().base.CancelOverlappedRequests)(region.as_ptr()) };
            if cancelled != HRESULT::ND_SUCCESS {
                result = cancelled;
            }
        }
        result
    }

    fn ended(&self, overlapped: *mut OVERLAPPED, result: HRESULT) {
        self.0.regions.ended(overlapped, result);
    }
}

/// `INDAdapter::GetFileHandle`. The handle is the adapter's.
///
/// # Safety
///
/// `this` is such an adapter.
unsafe extern "system" fn get_file_handle(this: *mut c_void) -> HANDLE {
    // SAFETY: the client calls through the table of an object it holds.
    unsafe { borrow::<Adapter>(this) }.0.file()
}

/// `INDAdapter::Query`.
///
/// # Safety
///
/// `this` is such an adapter; `length` is null or valid, `info` null or valid for as many bytes.
unsafe extern "system" fn query(
    this: *mut c_void,
    version: u32,
    info: *mut ND_ADAPTER_INFO1,
    length: *mut usize,
) -> HRESULT {
    if length.is_null() || version != ND_VERSION_1 {
        return HRESULT::ND_INVALID_PARAMETER;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter>(this) };
    let core = &object.0;
    let mut own = core.info;
    let mut size = short(size_of::<ND2_ADAPTER_INFO>());
    let ask = core.adapter.table().base.Query;
    // SAFETY: the adapter is held, and the structure has a place of its size. The adapter may be gone.
    let asked = unsafe { ask(core.adapter.as_ptr(), &raw mut own, &raw mut size) };
    if asked != HRESULT::ND_SUCCESS {
        return asked;
    }
    let needed = size_of::<ND_ADAPTER_INFO1>();
    // SAFETY: the pointer is not null.
    let room = unsafe { length.replace(needed) };
    if info.is_null() || room < needed {
        return HRESULT::ND_BUFFER_OVERFLOW;
    }
    // SAFETY: the buffer holds the structure.
    unsafe { info.write_unaligned(describe(&own)) };
    HRESULT::ND_SUCCESS
}

/// What an adapter can do, in the words of version 1.
fn describe(own: &ND2_ADAPTER_INFO) -> ND_ADAPTER_INFO1 {
    ND_ADAPTER_INFO1 {
        VendorId: own.VendorId.into(),
        DeviceId: own.DeviceId.into(),
        MaxInboundSge: (own.MaxReceiveSge as usize).min(ENTRIES),
        MaxInboundRequests: own.MaxReceiveQueueDepth as usize,
        MaxInboundLength: own.MaxTransferLength as usize,
        // Of any request: reads may have fewer than the others.
        MaxOutboundSge: (own.MaxInitiatorSge.min(own.MaxReadSge) as usize).min(ENTRIES),
        MaxOutboundRequests: own.MaxInitiatorQueueDepth as usize,
        MaxOutboundLength: own.MaxTransferLength as usize,
        MaxInlineData: own.MaxInlineDataSize as usize,
        MaxInboundReadLimit: own.MaxInboundReadLimit as usize,
        MaxOutboundReadLimit: own.MaxOutboundReadLimit as usize,
        MaxCqEntries: own.MaxCompletionQueueDepth as usize,
        MaxRegistrationSize: own.MaxRegistrationSize,
        MaxWindowSize: own.MaxWindowSize,
        LargeRequestThreshold: own.LargeRequestThreshold as usize,
        MaxCallerData: own.MaxCallerData as usize,
        MaxCalleeData: own.MaxCalleeData as usize,
    }
}

/// `INDAdapter::Control`: what vendors have of their own, and here is nothing.
///
/// # Safety
///
/// `returned` is null or valid for writing.
unsafe extern "system" fn control(
    _: *mut c_void,
    _: u32,
    _: *const c_void,
    _: usize,
    _: *mut c_void,
    _: usize,
    returned: *mut usize,
    _: *mut OVERLAPPED,
) -> HRESULT {
    if !returned.is_null() {
        // SAFETY: the pointer is not null.
        unsafe { returned.write(0) };
    }
    HRESULT::ND_NOT_SUPPORTED
}

/// `INDAdapter::CreateCompletionQueue`.
///
/// # Safety
///
/// `this` is such an adapter; `out` is null or valid for writing.
unsafe extern "system" fn create_completion_queue(this: *mut c_void, depth: usize, out: *mut *mut c_void) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter>(this) };
    let core = &object.0;
    let (create, adapter, iid) =
        (core.adapter.table().base.CreateCompletionQueue, core.adapter.as_ptr(), IID_INDCompletionQueue);
    // SAFETY: the adapter is held; `out` is null or valid for writing (`# Safety`).
    unnumbered(unsafe { create(adapter, &raw const iid, core.file(), short(depth), 0, 0, out) })
}

/// `INDAdapter::RegisterMemory`.
///
/// # Safety
///
/// `this` is such an adapter; the bytes stay as long as they are registered; no request is outstanding on `overlapped`, which
/// the client keeps until a request that pends ends; `handle` is null or valid for writing until then.
unsafe extern "system" fn register_memory(
    this: *mut c_void,
    buffer: *const c_void,
    length: usize,
    overlapped: *mut OVERLAPPED,
    handle: *mut ND_MR_HANDLE,
) -> HRESULT {
    if overlapped.is_null() || handle.is_null() {
        return HRESULT::ND_INVALID_PARAMETER;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter>(this) };
    let set = |value| {
        // SAFETY: the pointer is not null, and valid until the client hears of the end.
        unsafe { handle.write(value) };
    };
    // SAFETY: bytes that are there stay there as long as they are registered, and no request is outstanding on `overlapped`, which the
    // client keeps (`# Safety`).
    unsafe { object.0.register((buffer, length), overlapped, set) }
}

/// `INDAdapter::DeregisterMemory`.
///
/// # Safety
///
/// `this` is such an adapter; no request is outstanding on `overlapped`, which the client keeps until a request that pends ends.
unsafe extern "system" fn deregister_memory(
    this: *mut c_void,
    handle: ND_MR_HANDLE,
    overlapped: *mut OVERLAPPED,
) -> HRESULT {
    if overlapped.is_null() {
        return HRESULT::ND_INVALID_PARAMETER;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter>(this) };
    let regions = &object.0.regions;
    let Some(region) = regions.get(handle) else { return HRESULT::ND_INVALID_HANDLE };
    regions.deregisters(handle, overlapped);
    // SAFETY: the region is held; nothing is outstanding on `overlapped`, which stays (`# Safety`).
    let result = unsafe { (region.table().Deregister)(region.as_ptr(), overlapped) };
    if !result.is_pending() {
        regions.ended(overlapped, result);
    }
    result
}

/// `INDAdapter::CreateMemoryWindow`. A window has the same identifier in both versions. `result` is not used: what a peer has
/// invalidated, the client learns with the receive.
///
/// # Safety
///
/// `this` is such an adapter; `out` is null or valid for writing.
unsafe extern "system" fn create_memory_window(
    this: *mut c_void,
    _result: *mut ND_RESULT,
    out: *mut *mut c_void,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter>(this) };
    let core = &object.0;
    let (create, iid) = (core.adapter.table().base.CreateMemoryWindow, IID_IND2MemoryWindow);
    // SAFETY: the adapter is held; `out` is null or valid for writing (`# Safety`).
    unsafe { create(core.adapter.as_ptr(), &raw const iid, out) }
}

/// `INDAdapter::CreateConnector`.
///
/// # Safety
///
/// `this` is such an adapter; `out` is null or valid for writing.
unsafe extern "system" fn create_connector(this: *mut c_void, out: *mut *mut c_void) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter>(this) };
    // SAFETY: the identifier is a constant, and `out` is null or valid for writing (`# Safety`).
    unsafe { Object::hand_out(&nd2::abi::IID_INDConnector, out, || Connector::try_new(&object.0)) }
}

/// `INDAdapter::Listen`. The ports are in network byte order.
///
/// # Safety
///
/// `this` is such an adapter; `assigned` and `out` are null or valid for writing.
unsafe extern "system" fn listen(
    this: *mut c_void,
    backlog: usize,
    _protocol: i32,
    port: u16,
    assigned: *mut u16,
    out: *mut *mut c_void,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter>(this) };
    let make = || {
        let (listen, port) = Listen::try_new(&object.0, backlog, u16::from_be(port))?;
        if !assigned.is_null() {
            // SAFETY: the pointer is not null.
            unsafe { assigned.write(port.to_be()) };
        }
        Ok(listen)
    };
    // SAFETY: the identifier is a constant, and `out` is null or valid for writing (`# Safety`).
    unsafe { Object::hand_out(&nd2::abi::IID_INDListen, out, make) }
}
