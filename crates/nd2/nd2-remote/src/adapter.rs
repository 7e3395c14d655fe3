//! `IND2Adapter`.

use std::{
    ffi::c_void,
    ptr,
    sync::{Arc, Mutex, PoisonError},
};

use nd2::{
    abi::{
        HANDLE, HRESULT, IID_IND2Adapter, IID_INDCompletionQueue, IID_SoftAdapter, IND2AdapterVtbl, KAFFINITY,
        ND_VERSION_2, ND2_ADAPTER_INFO, SOCKET_ADDRESS_LIST, SoftAdapterVtbl,
    },
    address,
    com::{Class, Object, borrow, unknown},
};
use nd2_control::wire::{Reader, Verb};
use ndkpi::{GUID, NtStatus};

use crate::{
    RemoteFile, Transport,
    connection::{Connector, Listener},
    held::{Held, Message},
    memory::{MemoryRegion, MemoryWindow},
    post::QueuePair,
    provider,
    queues::{CompletionQueue1, CompletionQueue2, SharedReceiveQueue, handle_of_queue},
};

/// An open adapter, as everything made on it refers to it.
pub struct Core<T: Transport> {
    pub held: Held<T>,
    number: u64,
    info: ND2_ADAPTER_INFO,
    files: Mutex<Vec<Arc<T::File>>>,
}

/// An open adapter.
pub struct Adapter<T: Transport>(pub Arc<Core<T>>);

impl<T: Transport> Core<T> {
    /// What the adapter can do.
    pub const fn info(&self) -> &ND2_ADAPTER_INFO {
        &self.info
    }

    fn read_info(held: &Held<T>) -> Result<ND2_ADAPTER_INFO, NtStatus> {
        let answer: [u8; 96] = held.ask(Verb::Query, &held.message())?;
        let mut answer = Reader::new(&answer);
        let mut info = ND2_ADAPTER_INFO { InfoVersion: answer.u32()?, ..ND2_ADAPTER_INFO::default() };
        info.VendorId = answer.array().map(u16::from_le_bytes)?;
        info.DeviceId = answer.array().map(u16::from_le_bytes)?;
        info.AdapterId = answer.u64()?;
        info.MaxRegistrationSize = usize::try_from(answer.u64()?).unwrap_or(usize::MAX);
        info.MaxWindowSize = usize::try_from(answer.u64()?).unwrap_or(usize::MAX);
        for field in [
            &mut info.MaxInitiatorSge,
            &mut info.MaxReceiveSge,
            &mut info.MaxReadSge,
            &mut info.MaxTransferLength,
            &mut info.MaxInlineDataSize,
            &mut info.MaxInboundReadLimit,
            &mut info.MaxOutboundReadLimit,
            &mut info.MaxReceiveQueueDepth,
            &mut info.MaxInitiatorQueueDepth,
            &mut info.MaxSharedReceiveQueueDepth,
            &mut info.MaxCompletionQueueDepth,
            &mut info.InlineRequestThreshold,
            &mut info.LargeRequestThreshold,
            &mut info.MaxCallerData,
            &mut info.MaxCalleeData,
            &mut info.AdapterFlags,
        ] {
            *field = answer.u32()?;
        }
        Ok(info)
    }

    /// The file with this handle.
    fn file(&self, handle: HANDLE) -> Result<Arc<T::File>, NtStatus> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let found = files.iter().rev().find(|file| file.handle() == handle && !file.is_closed()).cloned();
        found.ok_or(NtStatus::INVALID_HANDLE)
    }

    /// Closes the client's handle of a file. What uses the file keeps it.
    fn close_file(&self, handle: HANDLE) -> Result<(), NtStatus> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let place = files.iter().position(|file| file.handle() == handle).ok_or(NtStatus::INVALID_HANDLE)?;
        let file = files.swap_remove(place);
        drop(files);
        file.close();
        Ok(())
    }

    fn create_file(&self) -> Result<HANDLE, NtStatus> {
        // The driver knows if the adapter is still there.
        Self::read_info(&self.held)?;
        let file = self.held.transport.open()?;
        let handle = file.handle();
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        // What no object uses, and the client has closed.
        files.retain(|file| Arc::strong_count(file) > 1 || !file.is_closed());
        files.push(Arc::new(file));
        Ok(handle)
    }
}

impl<T: Transport> Adapter<T> {
    pub fn try_new(transport: &T, number: u64) -> Result<Self, NtStatus> {
        let held = Held::make(transport, Verb::Open, &Message::new().u64(number))?;
        let info = Core::read_info(&held)?;
        Ok(Self(Arc::new(Core { held, number, info, files: Mutex::default() })))
    }
}

impl<T: Transport> Class for Adapter<T> {
    type Table = SoftAdapterVtbl;

    const TABLE: &'static SoftAdapterVtbl = &SoftAdapterVtbl {
        base: IND2AdapterVtbl {
            base: unknown::<Self>(),
            CreateOverlappedFile: create_overlapped_file::<T>,
            Query: query::<T>,
            QueryAddressList: query_address_list::<T>,
            CreateCompletionQueue: create_completion_queue::<T>,
            CreateMemoryRegion: create_memory_region::<T>,
            CreateMemoryWindow: create_memory_window::<T>,
            CreateSharedReceiveQueue: create_shared_receive_queue::<T>,
            CreateQueuePair: create_queue_pair::<T>,
            CreateQueuePairWithSrq: create_queue_pair_with_srq::<T>,
            CreateConnector: create_connector::<T>,
            CreateListener: create_listener::<T>,
        },
        CloseOverlappedFile: close_overlapped_file::<T>,
    };
    const INTERFACES: &'static [GUID] = &[IID_IND2Adapter, IID_SoftAdapter];
}

/// `IND2Adapter::CreateOverlappedFile`.
///
/// # Safety
///
/// `this` is such an adapter; `file` is null or valid for writing.
unsafe extern "system" fn create_overlapped_file<T: Transport>(this: *mut c_void, file: *mut HANDLE) -> HRESULT {
    if file.is_null() {
        return HRESULT::ND_INVALID_PARAMETER;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<T>>(this) };
    let created = object.0.create_file();
    // SAFETY: the pointer is not null.
    unsafe { file.write(*created.as_ref().unwrap_or(&ptr::null_mut())) };
    created.map(drop).into()
}

/// `SoftAdapter::CloseOverlappedFile`: for who has made a file and has no way to close handles.
///
/// # Safety
///
/// `this` is such an adapter.
unsafe extern "system" fn close_overlapped_file<T: Transport>(this: *mut c_void, file: HANDLE) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<T>>(this) };
    object.0.close_file(file).into()
}

/// `IND2Adapter::Query`.
///
/// # Safety
///
/// `this` is such an adapter; `length` is null or valid, `info` null or valid for as many bytes.
unsafe extern "system" fn query<T: Transport>(
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
    let object = unsafe { borrow::<Adapter<T>>(this) };
    let own = match Core::read_info(&object.0.held) {
        Ok(own) => own,
        Err(status) => return status.into(),
    };
    // SAFETY: the pointer is not null.
    let room = unsafe { length.replace(SIZE) };
    if info.is_null() || room < SIZE {
        return HRESULT::ND_BUFFER_OVERFLOW;
    }
    // SAFETY: the buffer holds the structure, whose first field the client has set.
    let version = unsafe { info.cast::<u32>().read_unaligned() };
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
unsafe extern "system" fn query_address_list<T: Transport>(
    this: *mut c_void,
    list: *mut SOCKET_ADDRESS_LIST,
    length: *mut u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<T>>(this) };
    let found = Core::read_info(&object.0.held).and_then(|_| provider::addresses(&object.0.held.transport));
    let own = |found: Vec<(u64, std::net::SocketAddr)>| {
        let own = found.iter().filter(|(id, _)| *id == object.0.number).map(|(_, one)| one.ip());
        // SAFETY: the caller's promise.
        unsafe { address::write_list(own, list, length) }
    };
    found.and_then(own).into()
}

/// `IND2Adapter::CreateCompletionQueue`: of version 2, or of version 1 if `iid` says so.
///
/// # Safety
///
/// `this` is such an adapter; `iid` is null or valid for reading, `out` null or valid for writing.
unsafe extern "system" fn create_completion_queue<T: Transport>(
    this: *mut c_void,
    iid: *const GUID,
    file: HANDLE,
    depth: u32,
    group: u16,
    affinity: KAFFINITY,
    out: *mut *mut c_void,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<T>>(this) };
    let core = &object.0;
    let message = || core.held.message().u32(depth).u32(group.into()).u64(affinity as u64);
    let make = || {
        let file = core.file(file)?;
        let held = Held::make(&core.held.transport, Verb::CreateCompletionQueue, &message())?;
        Ok::<_, HRESULT>((core.clone(), file, held))
    };
    // SAFETY: `iid` is not null, and valid for reading (the caller's promise).
    if !iid.is_null() && unsafe { iid.read() } == IID_INDCompletionQueue {
        // SAFETY: the caller's promise.
        return unsafe { Object::hand_out(iid, out, || make().map(CompletionQueue1::new)) };
    }
    // SAFETY: the caller's promise.
    unsafe { Object::hand_out(iid, out, || make().map(CompletionQueue2::new)) }
}

/// `IND2Adapter::CreateMemoryRegion`.
///
/// # Safety
///
/// As [`create_completion_queue`].
unsafe extern "system" fn create_memory_region<T: Transport>(
    this: *mut c_void,
    iid: *const GUID,
    file: HANDLE,
    out: *mut *mut c_void,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<T>>(this) };
    let core = &object.0;
    let make = || {
        let file = core.file(file)?;
        let held = Held::make(&core.held.transport, Verb::CreateRegion, &core.held.message())?;
        Ok(MemoryRegion::new(core.clone(), file, held))
    };
    // SAFETY: the caller's promise.
    unsafe { Object::hand_out(iid, out, make) }
}

/// `IND2Adapter::CreateMemoryWindow`.
///
/// # Safety
///
/// As [`create_completion_queue`].
unsafe extern "system" fn create_memory_window<T: Transport>(
    this: *mut c_void,
    iid: *const GUID,
    out: *mut *mut c_void,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<T>>(this) };
    let core = &object.0;
    let make = || {
        let held = Held::make(&core.held.transport, Verb::CreateWindow, &core.held.message())?;
        Ok(MemoryWindow { adapter: core.clone(), held })
    };
    // SAFETY: the caller's promise.
    unsafe { Object::hand_out(iid, out, make) }
}

/// `IND2Adapter::CreateSharedReceiveQueue`.
///
/// # Safety
///
/// As [`create_completion_queue`].
unsafe extern "system" fn create_shared_receive_queue<T: Transport>(
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
    let object = unsafe { borrow::<Adapter<T>>(this) };
    let core = &object.0;
    let make = || {
        let file = core.file(file)?;
        let message = core.held.message().u32(depth).u32(max_sge).u32(threshold);
        let message = message.u32(group.into()).u64(affinity as u64);
        let held = Held::make(&core.held.transport, Verb::CreateSharedReceiveQueue, &message)?;
        Ok(SharedReceiveQueue { adapter: core.clone(), file, held })
    };
    // SAFETY: the caller's promise.
    unsafe { Object::hand_out(iid, out, make) }
}

/// `IND2Adapter::CreateQueuePair`.
///
/// # Safety
///
/// As [`create_completion_queue`]; the queues are null or COM objects.
unsafe extern "system" fn create_queue_pair<T: Transport>(
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
    let object = unsafe { borrow::<Adapter<T>>(this) };
    let core = &object.0;
    let make = || {
        // SAFETY: the caller's promise.
        let receive = unsafe { handle_of_queue(core, receive_queue) };
        // SAFETY: the caller's promise.
        let initiator = unsafe { handle_of_queue(core, initiator_queue) };
        let message = core.held.message().u64(receive).u64(initiator).u64(context.expose_provenance() as u64);
        let message = message.u32(receive_depth).u32(initiator_depth).u32(max_receive_sge);
        let message = message.u32(max_initiator_sge).u32(inline_size);
        let held = Held::make(&core.held.transport, Verb::CreateQueuePair, &message)?;
        Ok(QueuePair { adapter: core.clone(), held })
    };
    // SAFETY: the caller's promise.
    unsafe { Object::hand_out(iid, out, make) }
}

/// `IND2Adapter::CreateQueuePairWithSrq`.
///
/// # Safety
///
/// As [`create_queue_pair`].
unsafe extern "system" fn create_queue_pair_with_srq<T: Transport>(
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
    let object = unsafe { borrow::<Adapter<T>>(this) };
    let core = &object.0;
    let make = || {
        // SAFETY: the caller's promise.
        let receive = unsafe { handle_of_queue(core, receive_queue) };
        // SAFETY: the caller's promise.
        let initiator = unsafe { handle_of_queue(core, initiator_queue) };
        // SAFETY: the caller's promise.
        let shared = unsafe { SharedReceiveQueue::handle_of(core, shared_receive_queue) };
        let message = core.held.message().u64(receive).u64(initiator).u64(shared);
        let message = message.u64(context.expose_provenance() as u64);
        let message = message.u32(initiator_depth).u32(max_initiator_sge).u32(inline_size);
        let held = Held::make(&core.held.transport, Verb::CreateQueuePairWithShared, &message)?;
        Ok(QueuePair { adapter: core.clone(), held })
    };
    // SAFETY: the caller's promise.
    unsafe { Object::hand_out(iid, out, make) }
}

/// `IND2Adapter::CreateConnector`.
///
/// # Safety
///
/// As [`create_completion_queue`].
unsafe extern "system" fn create_connector<T: Transport>(
    this: *mut c_void,
    iid: *const GUID,
    file: HANDLE,
    out: *mut *mut c_void,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<T>>(this) };
    let core = &object.0;
    let make = || {
        let file = core.file(file)?;
        let held = Held::make(&core.held.transport, Verb::CreateConnector, &core.held.message())?;
        Ok(Connector { adapter: core.clone(), file, held })
    };
    // SAFETY: the caller's promise.
    unsafe { Object::hand_out(iid, out, make) }
}

/// `IND2Adapter::CreateListener`.
///
/// # Safety
///
/// As [`create_completion_queue`].
unsafe extern "system" fn create_listener<T: Transport>(
    this: *mut c_void,
    iid: *const GUID,
    file: HANDLE,
    out: *mut *mut c_void,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<T>>(this) };
    let core = &object.0;
    let make = || {
        let file = core.file(file)?;
        let held = Held::make(&core.held.transport, Verb::CreateListener, &core.held.message())?;
        Ok(Listener { adapter: core.clone(), file, held })
    };
    // SAFETY: the caller's promise.
    unsafe { Object::hand_out(iid, out, make) }
}
