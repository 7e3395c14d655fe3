//! `IND2Adapter`.

use core::{ffi::c_void, ptr};

use engine::os::Affinity;
use fallible::Arc;
use ndkpi::GUID;

use super::{
    Class, Object, borrow,
    connector::Connector,
    cq::{CompletionQueue1, CompletionQueue2, FoundQueue, find_queue_on},
    listener::Listener,
    memory::{MemoryRegion, MemoryWindow},
    part::find_on,
    qp::QueuePair,
    srq::SharedReceiveQueue,
    unknown,
};
use crate::{
    abi::{
        HANDLE, HRESULT, IID_IND2Adapter, IID_INDCompletionQueue, IID_SoftAdapter, IND2AdapterVtbl, KAFFINITY,
        ND_VERSION_2, ND2_ADAPTER_INFO, SOCKET_ADDRESS_LIST, SoftAdapterVtbl,
    },
    address,
    back_end::{Adapter as _, BackEnd, QueuePairSizes, SharedReceiveQueueSizes},
};

/// An open adapter.
pub struct Adapter<B: BackEnd>(pub Arc<B::Adapter>);

impl<B: BackEnd> Class for Adapter<B> {
    type Table = SoftAdapterVtbl;

    const TABLE: &'static SoftAdapterVtbl = &SoftAdapterVtbl {
        base: IND2AdapterVtbl {
            base: unknown::<Self>(),
            CreateOverlappedFile: create_overlapped_file::<B>,
            Query: query::<B>,
            QueryAddressList: query_address_list::<B>,
            CreateCompletionQueue: create_completion_queue::<B>,
            CreateMemoryRegion: create_memory_region::<B>,
            CreateMemoryWindow: create_memory_window::<B>,
            CreateSharedReceiveQueue: create_shared_receive_queue::<B>,
            CreateQueuePair: create_queue_pair::<B>,
            CreateQueuePairWithSrq: create_queue_pair_with_srq::<B>,
            CreateConnector: create_connector::<B>,
            CreateListener: create_listener::<B>,
        },
        CloseOverlappedFile: close_overlapped_file::<B>,
    };
    const INTERFACES: &'static [GUID] = &[IID_IND2Adapter, IID_SoftAdapter];
}

/// `IND2Adapter::CreateOverlappedFile`.
///
/// # Safety
///
/// `this` is such an adapter; `file` is null or valid for writing.
unsafe extern "system" fn create_overlapped_file<B: BackEnd>(this: *mut c_void, file: *mut HANDLE) -> HRESULT {
    if file.is_null() {
        return HRESULT::ND_INVALID_PARAMETER;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<B>>(this) };
    let created = object.0.create_file();
    // SAFETY: the pointer is not null.
    unsafe { file.write(*created.as_ref().unwrap_or(&ptr::null_mut())) };
    created.err().unwrap_or(HRESULT::ND_SUCCESS)
}

/// `SoftAdapter::CloseOverlappedFile`: for who has made a file and has no way to close handles.
///
/// # Safety
///
/// `this` is such an adapter.
unsafe extern "system" fn close_overlapped_file<B: BackEnd>(this: *mut c_void, file: HANDLE) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<B>>(this) };
    object.0.close_file(file).into()
}

/// `IND2Adapter::Query`.
///
/// # Safety
///
/// `this` is such an adapter; `length` is null or valid, `info` null or valid for as many bytes.
unsafe extern "system" fn query<B: BackEnd>(
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
    let object = unsafe { borrow::<Adapter<B>>(this) };
    let own = match object.0.info() {
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
unsafe extern "system" fn query_address_list<B: BackEnd>(
    this: *mut c_void,
    list: *mut SOCKET_ADDRESS_LIST,
    length: *mut u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<B>>(this) };
    let own = object.0.addresses();
    // SAFETY: `length` is null or valid, and `list` null or valid for writing as many bytes (`# Safety`).
    own.and_then(|own| unsafe { address::write_list(own.iter().copied(), list, length) }).into()
}

/// Makes something on an adapter, if it has the interface `iid`, and hands it out.
///
/// # Safety
///
/// `this` is an adapter of this class; `iid` is null or valid for reading, `out` null or valid for writing.
unsafe fn create<B: BackEnd, C: Class>(
    this: *mut c_void,
    iid: *const GUID,
    out: *mut *mut c_void,
    make: impl FnOnce(&Arc<B::Adapter>) -> Result<C, HRESULT>,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Adapter<B>>(this) };
    // SAFETY: `iid` is null or valid for reading, and `out` null or valid for writing (`# Safety`).
    unsafe { Object::hand_out(iid, out, || make(&object.0)) }
}

/// The completion queues of a queue pair: for receives, and for all other requests.
///
/// # Errors
///
/// One of them is no completion queue of this adapter.
///
/// # Safety
///
/// The queues are null or COM objects.
unsafe fn find_queues<B: BackEnd>(
    adapter: &Arc<B::Adapter>,
    receive: *mut c_void,
    initiator: *mut c_void,
) -> Result<[FoundQueue<B>; 2], HRESULT> {
    // SAFETY: both queues are null or COM objects (`# Safety`).
    let (receive, initiator) = unsafe { (find_queue_on(adapter, receive), find_queue_on(adapter, initiator)) };
    Ok([receive.ok_or(HRESULT::ND_INVALID_PARAMETER_2)?, initiator.ok_or(HRESULT::ND_INVALID_PARAMETER_3)?])
}

/// `IND2Adapter::CreateCompletionQueue`, of either version.
///
/// # Safety
///
/// `this` is such an adapter; `iid` is null or valid for reading, `out` null or valid for writing.
unsafe extern "system" fn create_completion_queue<B: BackEnd>(
    this: *mut c_void,
    iid: *const GUID,
    file: HANDLE,
    depth: u32,
    group: u16,
    affinity: KAFFINITY,
    out: *mut *mut c_void,
) -> HRESULT {
    let affinity = Affinity { group, mask: affinity as u64 };
    let make = |adapter: &Arc<_>| B::Adapter::create_completion_queue(adapter, file, depth, affinity);
    // SAFETY: `iid` is not null, and valid for reading (`# Safety`).
    if !iid.is_null() && unsafe { iid.read() } == IID_INDCompletionQueue {
        // SAFETY: `this` is an adapter of this class, `iid` null or valid for reading, `out` null or valid for writing (`# Safety`).
        return unsafe { create::<B, _>(this, iid, out, |adapter| make(adapter).map(CompletionQueue1::<B>)) };
    }
    // SAFETY: `this` is an adapter of this class, `iid` null or valid for reading, `out` null or valid for writing (`# Safety`).
    unsafe { create::<B, _>(this, iid, out, |adapter| make(adapter).map(CompletionQueue2::<B>)) }
}

/// `IND2Adapter::CreateMemoryRegion`.
///
/// # Safety
///
/// As [`create_completion_queue`].
unsafe extern "system" fn create_memory_region<B: BackEnd>(
    this: *mut c_void,
    iid: *const GUID,
    file: HANDLE,
    out: *mut *mut c_void,
) -> HRESULT {
    let make = |adapter: &Arc<_>| B::Adapter::create_memory_region(adapter, file).map(MemoryRegion::<B>);
    // SAFETY: `this` is an adapter of this class, `iid` null or valid for reading, `out` null or valid for writing (`# Safety`).
    unsafe { create::<B, _>(this, iid, out, make) }
}

/// `IND2Adapter::CreateMemoryWindow`.
///
/// # Safety
///
/// As [`create_completion_queue`].
unsafe extern "system" fn create_memory_window<B: BackEnd>(
    this: *mut c_void,
    iid: *const GUID,
    out: *mut *mut c_void,
) -> HRESULT {
    let make = |adapter: &Arc<_>| B::Adapter::create_memory_window(adapter).map(MemoryWindow::<B>);
    // SAFETY: `this` is an adapter of this class, `iid` null or valid for reading, `out` null or valid for writing (`# Safety`).
    unsafe { create::<B, _>(this, iid, out, make) }
}

/// `IND2Adapter::CreateSharedReceiveQueue`.
///
/// # Safety
///
/// As [`create_completion_queue`].
unsafe extern "system" fn create_shared_receive_queue<B: BackEnd>(
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
    let affinity = Affinity { group, mask: affinity as u64 };
    let sizes = SharedReceiveQueueSizes { depth, max_sge, threshold, affinity };
    let make =
        |adapter: &Arc<_>| B::Adapter::create_shared_receive_queue(adapter, file, &sizes).map(SharedReceiveQueue::<B>);
    // SAFETY: `this` is an adapter of this class, `iid` null or valid for reading, `out` null or valid for writing (`# Safety`).
    unsafe { create::<B, _>(this, iid, out, make) }
}

/// `IND2Adapter::CreateQueuePair`.
///
/// # Safety
///
/// As [`create_completion_queue`]; the queues are null or COM objects.
unsafe extern "system" fn create_queue_pair<B: BackEnd>(
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
    let make = |adapter: &Arc<_>| {
        // SAFETY: both queues are null or COM objects (`# Safety`).
        let [receive, initiator] = unsafe { find_queues::<B>(adapter, receive_queue, initiator_queue) }?;
        let sizes = QueuePairSizes { receive_depth, initiator_depth, max_receive_sge, max_initiator_sge, inline_size };
        B::Adapter::create_queue_pair(adapter, [&*receive, &*initiator], None, context, &sizes).map(QueuePair::<B>)
    };
    // SAFETY: `this` is an adapter of this class, `iid` null or valid for reading, `out` null or valid for writing (`# Safety`).
    unsafe { create::<B, _>(this, iid, out, make) }
}

/// `IND2Adapter::CreateQueuePairWithSrq`.
///
/// # Safety
///
/// As [`create_queue_pair`].
unsafe extern "system" fn create_queue_pair_with_srq<B: BackEnd>(
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
    let make = |adapter: &Arc<_>| {
        // SAFETY: both queues are null or COM objects (`# Safety`).
        let [receive, initiator] = unsafe { find_queues::<B>(adapter, receive_queue, initiator_queue) }?;
        // SAFETY: `shared_receive_queue` is null or a COM object (`# Safety`).
        let shared = unsafe { find_on::<SharedReceiveQueue<B>>(adapter, shared_receive_queue) };
        let shared = shared.ok_or(HRESULT::ND_INVALID_PARAMETER_4)?;
        let sizes =
            QueuePairSizes { receive_depth: 0, initiator_depth, max_receive_sge: 0, max_initiator_sge, inline_size };
        let queues = [&*receive, &*initiator];
        B::Adapter::create_queue_pair(adapter, queues, Some(&shared.0), context, &sizes).map(QueuePair::<B>)
    };
    // SAFETY: `this` is an adapter of this class, `iid` null or valid for reading, `out` null or valid for writing (`# Safety`).
    unsafe { create::<B, _>(this, iid, out, make) }
}

/// `IND2Adapter::CreateConnector`.
///
/// # Safety
///
/// As [`create_completion_queue`].
unsafe extern "system" fn create_connector<B: BackEnd>(
    this: *mut c_void,
    iid: *const GUID,
    file: HANDLE,
    out: *mut *mut c_void,
) -> HRESULT {
    let make = |adapter: &Arc<_>| B::Adapter::create_connector(adapter, file).map(Connector::<B>);
    // SAFETY: `this` is an adapter of this class, `iid` null or valid for reading, `out` null or valid for writing (`# Safety`).
    unsafe { create::<B, _>(this, iid, out, make) }
}

/// `IND2Adapter::CreateListener`.
///
/// # Safety
///
/// As [`create_completion_queue`].
unsafe extern "system" fn create_listener<B: BackEnd>(
    this: *mut c_void,
    iid: *const GUID,
    file: HANDLE,
    out: *mut *mut c_void,
) -> HRESULT {
    let make = |adapter: &Arc<_>| B::Adapter::create_listener(adapter, file).map(Listener::<B>);
    // SAFETY: `this` is an adapter of this class, `iid` null or valid for reading, `out` null or valid for writing (`# Safety`).
    unsafe { create::<B, _>(this, iid, out, make) }
}
