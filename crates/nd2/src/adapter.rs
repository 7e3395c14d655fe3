//! `IND2Adapter`: files for overlapped requests, the adapter's limits, and the creation of everything else.

use alloc::vec::Vec;
use core::{ffi::c_void, ptr};

use engine::{
    connection::Owner,
    memory::Domain,
    os::{Affinity, Os, SpinLock},
};
use fallible::Arc;
use ndkpi::{GUID, NtStatus};

use crate::{
    Account, Charge, Client, Device, Item, OverlappedFile, Platform,
    abi::{
        HANDLE, HRESULT, IID_IND2Adapter, IID_INDCompletionQueue, IID_SoftAdapter, IND2AdapterVtbl, KAFFINITY,
        ND_VERSION_2, ND2_ADAPTER_INFO, SOCKET_ADDRESS_LIST, SoftAdapterVtbl,
    },
    address,
    com::{Class, Object, borrow, unknown},
    connector::Connector,
    cq::{core::Core, v1::CompletionQueue1, v2::CompletionQueue2},
    listener::Listener,
    mr::MemoryRegion,
    mw::MemoryWindow,
    qp,
    srq::SharedReceiveQueue,
};

/// An open adapter, as everything made on it refers to it.
pub struct AdapterCore<P: Platform> {
    device: Arc<Device<P>>,
    /// Registered memory is good for all objects of one open adapter.
    domain: Arc<Domain<P::Os>>,
    client: Client,
    _charges: [Charge; 2],
    files: <P::Os as Os>::Lock<Files<P>>,
}

/// The files of an open adapter.
struct Files<P: Platform> {
    list: Vec<Arc<P::File>>,
    /// Where the next search for closed ones begins.
    next: usize,
}

/// Bytes that every object takes besides what grows with its parameters: the COM object, its core and locks, what the engine has of
/// it, its place in tables, and the headers of all of these.
const OBJECT: u64 = 2048;

/// Bytes that a connection or a listener takes besides that.
pub const CONNECTION: u64 = 4096;

/// How many files are checked when one is made, for those that are closed: a bound, for clients with many of them.
const FILES_LOOKED_AT: usize = 16;

/// An open adapter.
pub struct Adapter<P: Platform>(Arc<AdapterCore<P>>);

impl<P: Platform> AdapterCore<P> {
    pub const fn device(&self) -> &Arc<Device<P>> {
        &self.device
    }

    pub const fn domain(&self) -> &Arc<Domain<P::Os>> {
        &self.domain
    }

    /// Whose connections and listeners are made on it.
    pub const fn owner(&self) -> Owner {
        self.client.owner
    }

    /// What everything that is made on it is charged to.
    pub const fn account(&self) -> Option<&Arc<Account>> {
        self.client.account.as_ref()
    }

    /// Charges the client for memory that one of its objects takes: `bytes`, and what every object takes.
    ///
    /// # Errors
    ///
    /// `STATUS_IMPLEMENTATION_LIMIT`.
    pub fn charge_object(&self, bytes: u64) -> Result<Charge, NtStatus> {
        self.device.charge(self.account(), Item::Memory, OBJECT + bytes)
    }

    /// Charges more for memory that has grown to `bytes`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`: methods that let an object grow know no limits.
    pub fn raise(&self, charge: &Charge, bytes: u64) -> Result<(), NtStatus> {
        charge.raise(OBJECT + bytes).map_err(|exhausted| {
            self.device.platform().limit_reached(exhausted.name, exhausted.most);
            NtStatus::INSUFFICIENT_RESOURCES
        })
    }

    /// The file with this handle.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_HANDLE` if it is none of this adapter's; `STATUS_DEVICE_REMOVED`.
    fn file(&self, handle: HANDLE) -> Result<Arc<P::File>, NtStatus> {
        self.device.check_present()?;
        let found = self.files.with(|files| files.list.iter().rev().find(|file| file.handle() == handle).cloned());
        let file = found.ok_or(NtStatus::INVALID_HANDLE)?;
        file.prepare()?;
        Ok(file)
    }

    /// Releases files that nothing uses and whose handles the client has closed.
    fn forget_closed_files(&self) {
        for _ in 0..FILES_LOOKED_AT {
            let file = self.files.with(|files| {
                files.next = if files.next < files.list.len() { files.next } else { 0 };
                files.list.get(files.next).cloned()
            });
            let Some(file) = file else { return };
            // References of the list and of this loop: no object has one.
            let is_over = Arc::references_now(&file) == 2 && file.is_closed();
            // Dropped after the lock is released.
            drop(self.files.with(|files| {
                if is_over && files.list.get(files.next).is_some_and(|found| Arc::ptr_eq(found, &file)) {
                    return Some(files.list.swap_remove(files.next));
                }
                files.next += 1;
                None
            }));
        }
    }

    /// Closes the client's handle of a file. What uses the file keeps it.
    fn close_file(&self, handle: HANDLE) -> Result<(), NtStatus> {
        let found = self.files.with(|files| {
            let place = files.list.iter().position(|file| file.handle() == handle)?;
            Some(files.list.swap_remove(place))
        });
        found.ok_or(NtStatus::INVALID_HANDLE)?.close();
        Ok(())
    }

    fn create_file(&self) -> Result<HANDLE, NtStatus> {
        self.device.check_present()?;
        self.forget_closed_files();
        let file = Arc::try_new(self.device.platform().create_file()?)?;
        let handle = file.handle();
        let replaced = self.files.with(|files| {
            // A handle that comes again was closed by the client. What uses the file keeps it.
            if let Some(old) = files.list.iter_mut().find(|old| old.handle() == handle) {
                return Ok(Some(core::mem::replace(old, file)));
            }
            files.list.try_reserve(1).map_err(fallible::AllocError::from)?;
            files.list.push(file);
            Ok::<_, NtStatus>(None)
        })?;
        drop(replaced);
        Ok(handle)
    }
}

impl<P: Platform> Adapter<P> {
    /// Opens `device` for `client`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`, `STATUS_IMPLEMENTATION_LIMIT`.
    pub fn try_new(device: &Arc<Device<P>>, client: &Client) -> Result<Self, NtStatus> {
        let account = client.account.as_ref();
        let charges = [device.charge(account, Item::Memory, OBJECT)?, device.charge(account, Item::Tokens, 1)?];
        let domain = Domain::try_new(device.memory())?;
        let files = device.platform().os().lock(Files { list: Vec::new(), next: 0 })?;
        let core = AdapterCore { device: device.clone(), domain, client: client.clone(), _charges: charges, files };
        Arc::try_new(core).map(Self).map_err(Into::into)
    }
}

impl<P: Platform> Class for Adapter<P> {
    type Table = SoftAdapterVtbl;

    const TABLE: &'static SoftAdapterVtbl = &SoftAdapterVtbl {
        base: IND2AdapterVtbl {
            base: unknown::<Self>(),
            CreateOverlappedFile: create_overlapped_file::<P>,
            Query: query::<P>,
            QueryAddressList: query_address_list::<P>,
            CreateCompletionQueue: create_completion_queue::<P>,
            CreateMemoryRegion: create_memory_region::<P>,
            CreateMemoryWindow: create_memory_window::<P>,
            CreateSharedReceiveQueue: create_shared_receive_queue::<P>,
            CreateQueuePair: create_queue_pair::<P>,
            CreateQueuePairWithSrq: create_queue_pair_with_srq::<P>,
            CreateConnector: create_connector::<P>,
            CreateListener: create_listener::<P>,
        },
        CloseOverlappedFile: close_overlapped_file::<P>,
    };
    const INTERFACES: &'static [GUID] = &[IID_IND2Adapter, IID_SoftAdapter];
}

/// For methods that tell memory from other resources, which the adapter's limits are.
pub const fn memory_result(status: NtStatus) -> HRESULT {
    match status {
        NtStatus::INSUFFICIENT_RESOURCES => HRESULT::ND_NO_MEMORY,
        NtStatus::IMPLEMENTATION_LIMIT => HRESULT::ND_INSUFFICIENT_RESOURCES,
        status => HRESULT::of(status),
    }
}

/// For methods that do not: the adapter's limits are resources like others.
pub const fn limit_result(status: NtStatus) -> HRESULT {
    match status {
        NtStatus::IMPLEMENTATION_LIMIT => HRESULT::ND_INSUFFICIENT_RESOURCES,
        status => HRESULT::of(status),
    }
}

/// `IND2Adapter::CreateOverlappedFile`.
///
/// # Safety
///
/// `this` is such an adapter; `file` is null or valid for writing.
unsafe extern "system" fn create_overlapped_file<P: Platform>(this: *mut c_void, file: *mut HANDLE) -> HRESULT {
    if file.is_null() {
        return HRESULT::ND_INVALID_PARAMETER;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<P>>(this) };
    let created = object.0.create_file();
    // SAFETY: the pointer is not null.
    unsafe { file.write(*created.as_ref().unwrap_or(&ptr::null_mut())) };
    created.map_or_else(memory_result, |_| HRESULT::ND_SUCCESS)
}

/// `SoftAdapter::CloseOverlappedFile`: for who has made a file and has no way to close handles.
///
/// # Safety
///
/// `this` is such an adapter.
unsafe extern "system" fn close_overlapped_file<P: Platform>(this: *mut c_void, file: HANDLE) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<P>>(this) };
    object.0.close_file(file).into()
}

/// `IND2Adapter::Query`.
///
/// # Safety
///
/// `this` is such an adapter; `length` is null or valid, `info` null or valid for as many bytes.
unsafe extern "system" fn query<P: Platform>(
    this: *mut c_void,
    info: *mut ND2_ADAPTER_INFO,
    length: *mut u32,
) -> HRESULT {
    #[expect(clippy::cast_possible_truncation, reason = "a small constant")]
    const SIZE: u32 = size_of::<ND2_ADAPTER_INFO>() as u32;
    if length.is_null() {
        return HRESULT::ND_INVALID_PARAMETER;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<P>>(this) };
    if let Err(status) = object.0.device.check_present() {
        return status.into();
    }
    // SAFETY: the pointer is not null.
    let room = unsafe { length.replace(SIZE) };
    if info.is_null() || room < SIZE {
        return HRESULT::ND_BUFFER_OVERFLOW;
    }
    // SAFETY: the buffer holds the structure, whose first field the client has set.
    let version = unsafe { info.cast::<u32>().read_unaligned() };
    let own = object.0.device.config().info;
    // The page says that the version of the structure is 1. The public clients ask for that of the interface.
    if version != own.InfoVersion && version != ND_VERSION_2 {
        return HRESULT::ND_INVALID_PARAMETER;
    }
    // SAFETY: the buffer holds the structure.
    unsafe { info.write_unaligned(ND2_ADAPTER_INFO { InfoVersion: version, ..own }) };
    HRESULT::ND_SUCCESS
}

/// `IND2Adapter::QueryAddressList`.
///
/// # Safety
///
/// `this` is such an adapter; `length` is null or valid, `list` null or valid for writing as many bytes.
unsafe extern "system" fn query_address_list<P: Platform>(
    this: *mut c_void,
    list: *mut SOCKET_ADDRESS_LIST,
    length: *mut u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<P>>(this) };
    if let Err(status) = object.0.device.check_present() {
        return status.into();
    }
    let own = object.0.device.addresses();
    // SAFETY: the caller's promise.
    own.and_then(|own| unsafe { address::write_list(own.iter().copied(), list, length) }).into()
}

/// `IND2Adapter::CreateCompletionQueue`, of either version.
///
/// # Safety
///
/// `this` is such an adapter; `iid` is null or valid for reading, `out` null or valid for writing.
unsafe extern "system" fn create_completion_queue<P: Platform>(
    this: *mut c_void,
    iid: *const GUID,
    file: HANDLE,
    depth: u32,
    group: u16,
    affinity: KAFFINITY,
    out: *mut *mut c_void,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<P>>(this) };
    let make = || {
        let file = object.0.file(file)?;
        if !(1..=object.0.device.config().info.MaxCompletionQueueDepth).contains(&depth) {
            return Err(HRESULT::ND_INVALID_PARAMETER_3);
        }
        let affinity = Affinity { group, mask: affinity as u64 };
        Core::try_new(&object.0, &file, depth, affinity).map_err(memory_result)
    };
    // SAFETY: `iid` is not null, and valid for reading (the caller's promise).
    if !iid.is_null() && unsafe { iid.read() } == IID_INDCompletionQueue {
        // SAFETY: the caller's promise.
        return unsafe { Object::hand_out(iid, out, || make().map(CompletionQueue1)) };
    }
    // SAFETY: the caller's promise.
    unsafe { Object::hand_out(iid, out, || make().map(CompletionQueue2)) }
}

/// `IND2Adapter::CreateMemoryRegion`.
///
/// # Safety
///
/// As [`create_completion_queue`].
unsafe extern "system" fn create_memory_region<P: Platform>(
    this: *mut c_void,
    iid: *const GUID,
    file: HANDLE,
    out: *mut *mut c_void,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<P>>(this) };
    let make = || MemoryRegion::try_new(&object.0, &object.0.file(file)?).map_err(memory_result);
    // SAFETY: the caller's promise.
    unsafe { Object::hand_out(iid, out, make) }
}

/// `IND2Adapter::CreateMemoryWindow`.
///
/// # Safety
///
/// As [`create_completion_queue`].
unsafe extern "system" fn create_memory_window<P: Platform>(
    this: *mut c_void,
    iid: *const GUID,
    out: *mut *mut c_void,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<P>>(this) };
    // SAFETY: the caller's promise.
    unsafe { Object::hand_out(iid, out, || MemoryWindow::<P>::try_new(&object.0).map_err(limit_result)) }
}

/// `IND2Adapter::CreateSharedReceiveQueue`.
///
/// # Safety
///
/// As [`create_completion_queue`].
unsafe extern "system" fn create_shared_receive_queue<P: Platform>(
    this: *mut c_void,
    iid: *const GUID,
    file: HANDLE,
    depth: u32,
    max_sge: u32,
    threshold: u32,
    group: u16,
    affinity: KAFFINITY,
    out: *mut *mut c_void,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<P>>(this) };
    let make = || {
        let file = object.0.file(file)?;
        let info = &object.0.device.config().info;
        if !(1..=info.MaxSharedReceiveQueueDepth).contains(&depth) {
            return Err(HRESULT::ND_INVALID_PARAMETER_3);
        }
        if max_sge > info.MaxReceiveSge {
            return Err(HRESULT::ND_INVALID_PARAMETER_4);
        }
        let affinity = Affinity { group, mask: affinity as u64 };
        SharedReceiveQueue::try_new(&object.0, &file, depth, max_sge, threshold, affinity).map_err(memory_result)
    };
    // SAFETY: the caller's promise.
    unsafe { Object::hand_out(iid, out, make) }
}

/// `IND2Adapter::CreateQueuePair`.
///
/// # Safety
///
/// As [`create_completion_queue`]; the queues are null or COM objects.
unsafe extern "system" fn create_queue_pair<P: Platform>(
    this: *mut c_void,
    iid: *const GUID,
    receive_queue: *mut c_void,
    initiator_queue: *mut c_void,
    context: *mut c_void,
    receive_depth: u32,
    initiator_depth: u32,
    max_receive_sge: u32,
    max_initiator_sge: u32,
    inline_size: u32,
    out: *mut *mut c_void,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<P>>(this) };
    let make = || {
        // SAFETY: the caller's promise.
        let receive =
            unsafe { qp::find_queue::<P>(&object.0, receive_queue) }.ok_or(HRESULT::ND_INVALID_PARAMETER_2)?;
        // SAFETY: the caller's promise.
        let initiator =
            unsafe { qp::find_queue::<P>(&object.0, initiator_queue) }.ok_or(HRESULT::ND_INVALID_PARAMETER_3)?;
        let info = &object.0.device.config().info;
        check(receive_depth, info.MaxReceiveQueueDepth, HRESULT::ND_INVALID_PARAMETER_5)?;
        check(initiator_depth, info.MaxInitiatorQueueDepth, HRESULT::ND_INVALID_PARAMETER_6)?;
        check(max_receive_sge, info.MaxReceiveSge, HRESULT::ND_INVALID_PARAMETER_7)?;
        check(max_initiator_sge, info.MaxInitiatorSge, HRESULT::ND_INVALID_PARAMETER_8)?;
        check(inline_size, info.MaxInlineDataSize, HRESULT::ND_INVALID_PARAMETER_9)?;
        let sizes = qp::Sizes { receive_depth, initiator_depth, max_receive_sge, max_initiator_sge, inline_size };
        qp::QueuePair::try_new(&object.0, [receive, initiator], None, context, &sizes).map_err(limit_result)
    };
    // SAFETY: the caller's promise.
    unsafe { Object::hand_out(iid, out, make) }
}

const fn check(value: u32, limit: u32, result: HRESULT) -> Result<(), HRESULT> {
    if value <= limit { Ok(()) } else { Err(result) }
}

/// `IND2Adapter::CreateQueuePairWithSrq`.
///
/// # Safety
///
/// As [`create_queue_pair`].
unsafe extern "system" fn create_queue_pair_with_srq<P: Platform>(
    this: *mut c_void,
    iid: *const GUID,
    receive_queue: *mut c_void,
    initiator_queue: *mut c_void,
    shared_receive_queue: *mut c_void,
    context: *mut c_void,
    initiator_depth: u32,
    max_initiator_sge: u32,
    inline_size: u32,
    out: *mut *mut c_void,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<P>>(this) };
    let make = || {
        // SAFETY: the caller's promise.
        let receive =
            unsafe { qp::find_queue::<P>(&object.0, receive_queue) }.ok_or(HRESULT::ND_INVALID_PARAMETER_2)?;
        // SAFETY: the caller's promise.
        let initiator =
            unsafe { qp::find_queue::<P>(&object.0, initiator_queue) }.ok_or(HRESULT::ND_INVALID_PARAMETER_3)?;
        // SAFETY: the caller's promise.
        let shared = unsafe { SharedReceiveQueue::<P>::find(&object.0, shared_receive_queue) }
            .ok_or(HRESULT::ND_INVALID_PARAMETER_4)?;
        let info = &object.0.device.config().info;
        check(initiator_depth, info.MaxInitiatorQueueDepth, HRESULT::ND_INVALID_PARAMETER_6)?;
        check(max_initiator_sge, info.MaxInitiatorSge, HRESULT::ND_INVALID_PARAMETER_7)?;
        check(inline_size, info.MaxInlineDataSize, HRESULT::ND_INVALID_PARAMETER_8)?;
        let sizes = qp::Sizes { receive_depth: 0, initiator_depth, max_receive_sge: 0, max_initiator_sge, inline_size };
        qp::QueuePair::try_new(&object.0, [receive, initiator], Some(&shared), context, &sizes).map_err(limit_result)
    };
    // SAFETY: the caller's promise.
    unsafe { Object::hand_out(iid, out, make) }
}

/// `IND2Adapter::CreateConnector`.
///
/// # Safety
///
/// As [`create_completion_queue`].
unsafe extern "system" fn create_connector<P: Platform>(
    this: *mut c_void,
    iid: *const GUID,
    file: HANDLE,
    out: *mut *mut c_void,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<P>>(this) };
    let make = || Connector::try_new(&object.0, &object.0.file(file)?).map_err(memory_result);
    // SAFETY: the caller's promise.
    unsafe { Object::hand_out(iid, out, make) }
}

/// `IND2Adapter::CreateListener`.
///
/// # Safety
///
/// As [`create_completion_queue`].
unsafe extern "system" fn create_listener<P: Platform>(
    this: *mut c_void,
    iid: *const GUID,
    file: HANDLE,
    out: *mut *mut c_void,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<P>>(this) };
    let make = || Listener::try_new(&object.0, &object.0.file(file)?).map_err(memory_result);
    // SAFETY: the caller's promise.
    unsafe { Object::hand_out(iid, out, make) }
}
