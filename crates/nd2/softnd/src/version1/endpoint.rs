//! `INDEndpoint`.

use std::{ffi::c_void, ptr, sync::Arc};

use nd2::{
    abi::{
        HRESULT, IID_INDEndpoint, IID_SoftQueuePair, IND2MemoryWindowVtbl, INDEndpointVtbl, ND_MR_HANDLE,
        ND_MW_DESCRIPTOR, ND_RESULT, ND_SGE, ND2_SGE, SoftQueuePairVtbl,
        op_flags::{
            ND_OP_FLAG_INLINE, ND_OP_FLAG_READ_FENCE, ND_OP_FLAG_SEND_AND_SOLICIT_EVENT, ND_OP_FLAG_SILENT_SUCCESS,
        },
    },
    com::{Class, borrow, unknown},
};
use ndkpi::GUID;

use crate::version1::{
    adapter::{Core, ENTRIES, unnumbered},
    held::ComRef,
};

/// Flags of every request.
const COMMON: u32 = ND_OP_FLAG_SILENT_SUCCESS | ND_OP_FLAG_READ_FENCE;
/// Flags of sends.
const SEND: u32 = COMMON | ND_OP_FLAG_SEND_AND_SOLICIT_EVENT;
/// An entry of nothing.
const NOTHING: ND2_SGE = ND2_SGE { Buffer: ptr::null_mut(), BufferLength: 0, MemoryRegionToken: 0 };

/// How large an endpoint is: of receives, and of what it initiates.
pub struct Sizes {
    pub depths: [u32; 2],
    pub sge: [u32; 2],
    pub reads: [u32; 2],
}

/// An endpoint. Its requests' contexts are the addresses of the client's results, as a queue of version 1 wants them.
pub struct Endpoint {
    qp: ComRef<SoftQueuePairVtbl>,
    reads: [u32; 2],
    adapter: Arc<Core>,
}

impl Endpoint {
    /// Makes an endpoint that completes receives in the first and everything else in the second queue.
    ///
    /// # Safety
    ///
    /// The queues are null or COM objects.
    pub unsafe fn try_new(adapter: &Arc<Core>, queues: [*mut c_void; 2], sizes: &Sizes) -> Result<Self, HRESULT> {
        let [receive_queue, initiator_queue] = queues;
        let ([receives, requests], [receive_sge, request_sge]) = (sizes.depths, sizes.sge);
        let (create, this, inline) =
            (adapter.adapter.table().base.CreateQueuePair, adapter.adapter.as_ptr(), adapter.info.MaxInlineDataSize);
        let make = |iid, out| {
            // SAFETY: the adapter is held; the queues are null or COM objects (`# Safety`).
            unsafe {
                create(
                    this,
                    iid,
                    receive_queue,
                    initiator_queue,
                    ptr::null_mut(),
                    receives,
                    requests,
                    receive_sge,
                    request_sge,
                    inline,
                    out,
                )
            }
        };
        // SAFETY: the queue pairs beneath have this table.
        let qp = unsafe { ComRef::make(&IID_SoftQueuePair, make) }.map_err(unnumbered)?;
        Ok(Self { qp, reads: sizes.reads, adapter: adapter.clone() })
    }

    /// The queue pair of version 2.
    pub const fn beneath(&self) -> *mut c_void {
        self.qp.as_ptr()
    }

    /// The reads of the peer, and its own, that may be in progress.
    pub const fn reads(&self) -> [u32; 2] {
        self.reads
    }

    /// Bytes that need not be in registered memory.
    pub fn inline_bytes(&self) -> usize {
        self.adapter.info.MaxInlineDataSize as usize
    }

    fn table(&self) -> &SoftQueuePairVtbl {
        self.qp.table()
    }

    /// Has `post` post the client's entries, with the flags of version 2. `allowed` are those of version 1.
    ///
    /// # Safety
    ///
    /// `list` is null or valid for reading `count` entries.
    unsafe fn post(
        &self,
        (list, count): (*const ND_SGE, usize),
        (flags, allowed): (u32, u32),
        post: impl FnOnce(*const ND2_SGE, u32, u32) -> HRESULT,
    ) -> HRESULT {
        if flags & !allowed != 0 {
            return HRESULT::ND_INVALID_PARAMETER;
        }
        let mut entries = [NOTHING; ENTRIES];
        // SAFETY: `list` is null or valid for reading `count` entries (`# Safety`).
        match unsafe { self.adapter.entries(list, count, &mut entries) } {
            Ok((count, is_inline)) => {
                let inline = if is_inline { ND_OP_FLAG_INLINE } else { 0 };
                unnumbered(post(entries.as_ptr(), count, flags | inline))
            }
            Err(result) => result,
        }
    }
}

impl Class for Endpoint {
    type Table = INDEndpointVtbl;

    const TABLE: &'static INDEndpointVtbl = &INDEndpointVtbl {
        base: unknown::<Self>(),
        Flush: flush,
        StartRequestBatch: batch,
        SubmitRequestBatch: batch,
        Send: send,
        SendAndInvalidate: send_and_invalidate,
        Receive: receive,
        Bind: bind,
        Invalidate: invalidate,
        Read: read,
        Write: write,
    };
    const INTERFACES: &'static [GUID] = &[IID_INDEndpoint];
}

/// `INDEndpoint::Flush`.
///
/// # Safety
///
/// `this` is such an endpoint.
unsafe extern "system" fn flush(this: *mut c_void) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Endpoint>(this) };
    // SAFETY: the queue pair is held.
    unsafe { (object.table().base.Flush)(object.beneath()) }
}

/// `INDEndpoint::StartRequestBatch`, `INDEndpoint::SubmitRequestBatch`: requests begin at once, which both pages allow.
const unsafe extern "system" fn batch(_: *mut c_void) {}

/// `INDEndpoint::Send`.
///
/// # Safety
///
/// `this` is such an endpoint; `list` is null or valid for reading `count` entries; `result` is null or valid until the request
/// has completed; entries without a region name bytes that are valid for reading.
unsafe extern "system" fn send(
    this: *mut c_void,
    result: *mut ND_RESULT,
    list: *const ND_SGE,
    count: usize,
    flags: u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Endpoint>(this) };
    let post = |list, count, flags| {
        // SAFETY: the queue pair is held, and the list has as many entries.
        unsafe { (object.table().base.Send)(object.beneath(), result.cast(), list, count, flags) }
    };
    // SAFETY: `list` is null or valid for reading `count` entries (`# Safety`).
    unsafe { object.post((list, count), (flags, SEND), post) }
}

/// `INDEndpoint::SendAndInvalidate`.
///
/// # Safety
///
/// As [`send`]; `window` is null or valid for reading.
unsafe extern "system" fn send_and_invalidate(
    this: *mut c_void,
    result: *mut ND_RESULT,
    list: *const ND_SGE,
    count: usize,
    window: *const ND_MW_DESCRIPTOR,
    flags: u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Endpoint>(this) };
    // SAFETY: `window` is null or valid for reading (`# Safety`).
    let Some((_, token)) = (unsafe { place(window, 0) }) else { return HRESULT::ND_INVALID_PARAMETER };
    let post = |list, count, flags| {
        let method = object.table().SendAndInvalidate;
        // SAFETY: the queue pair is held, and the list has as many entries.
        unsafe { method(object.beneath(), result.cast(), list, count, token, flags) }
    };
    // SAFETY: `list` is null or valid for reading `count` entries (`# Safety`).
    unsafe { object.post((list, count), (flags, SEND), post) }
}

/// `INDEndpoint::Receive`.
///
/// # Safety
///
/// As [`send`].
unsafe extern "system" fn receive(
    this: *mut c_void,
    result: *mut ND_RESULT,
    list: *const ND_SGE,
    count: usize,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Endpoint>(this) };
    let post = |list, count, _| {
        // SAFETY: the queue pair is held, and the list has as many entries.
        unsafe { (object.table().base.Receive)(object.beneath(), result.cast(), list, count) }
    };
    // SAFETY: `list` is null or valid for reading `count` entries (`# Safety`).
    unsafe { object.post((list, count), (0, 0), post) }
}

/// `INDEndpoint::Bind`. The descriptor is for the peer, so its numbers are in network byte order.
///
/// # Safety
///
/// `this` is such an endpoint; `window` is null or a COM object; `descriptor` is null or valid for writing.
unsafe extern "system" fn bind(
    this: *mut c_void,
    result: *mut ND_RESULT,
    region: ND_MR_HANDLE,
    window: *mut c_void,
    buffer: *const c_void,
    length: usize,
    flags: u32,
    descriptor: *mut ND_MW_DESCRIPTOR,
) -> HRESULT {
    if descriptor.is_null() {
        return HRESULT::ND_INVALID_PARAMETER;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Endpoint>(this) };
    let Some(region) = object.adapter.regions.get(region) else { return HRESULT::ND_INVALID_PARAMETER };
    let (method, this) = (object.table().base.Bind, object.beneath());
    // SAFETY: the objects are held, `window` too if it is not null: a COM object (`# Safety`).
    let bound = unsafe { method(this, result.cast(), region.as_ptr(), window, buffer, length, flags) };
    if bound != HRESULT::ND_SUCCESS {
        return unnumbered(bound);
    }
    // SAFETY: the queue pair has taken it, so it is a window of this adapter, whose table begins as this one.
    let token_of = unsafe {
        let table = window.cast::<*const IND2MemoryWindowVtbl>().read();
        (*table).GetRemoteToken
    };
    // SAFETY: the client has the window.
    let token = unsafe { token_of(window) };
    let written = ND_MW_DESCRIPTOR {
        Base: (buffer.addr() as u64).to_be_bytes(),
        Length: (length as u64).to_be_bytes(),
        Token: token.to_be_bytes(),
    };
    // SAFETY: the pointer is not null.
    unsafe { descriptor.write(written) };
    HRESULT::ND_SUCCESS
}

/// `INDEndpoint::Invalidate`.
///
/// # Safety
///
/// `this` is such an endpoint; `window` is null or a COM object.
unsafe extern "system" fn invalidate(
    this: *mut c_void,
    result: *mut ND_RESULT,
    window: *mut c_void,
    flags: u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Endpoint>(this) };
    let method = object.table().base.Invalidate;
    // SAFETY: the queue pair is held; `window` is null or a COM object (`# Safety`).
    unnumbered(unsafe { method(object.beneath(), result.cast(), window, flags) })
}

/// The address in the peer's window, and the window's token.
///
/// # Safety
///
/// `window` is null or valid for reading.
unsafe fn place(window: *const ND_MW_DESCRIPTOR, offset: u64) -> Option<(u64, u32)> {
    if window.is_null() {
        return None;
    }
    // SAFETY: the pointer is not null.
    let window = unsafe { window.read() };
    Some((u64::from_be_bytes(window.Base).wrapping_add(offset), u32::from_be_bytes(window.Token)))
}

/// `INDEndpoint::Read`.
///
/// # Safety
///
/// As [`send_and_invalidate`].
unsafe extern "system" fn read(
    this: *mut c_void,
    result: *mut ND_RESULT,
    list: *const ND_SGE,
    count: usize,
    window: *const ND_MW_DESCRIPTOR,
    offset: u64,
    flags: u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Endpoint>(this) };
    // SAFETY: `window` is null or valid for reading (`# Safety`).
    let Some((address, token)) = (unsafe { place(window, offset) }) else { return HRESULT::ND_INVALID_PARAMETER };
    let post = |list, count, flags: u32| {
        let method = object.table().base.Read;
        // Bytes cannot be read into a request.
        let flags = flags & !ND_OP_FLAG_INLINE;
        // SAFETY: the queue pair is held, and the list has as many entries.
        unsafe { method(object.beneath(), result.cast(), list, count, address, token, flags) }
    };
    // SAFETY: `list` is null or valid for reading `count` entries (`# Safety`).
    unsafe { object.post((list, count), (flags, COMMON), post) }
}

/// `INDEndpoint::Write`.
///
/// # Safety
///
/// As [`send_and_invalidate`].
unsafe extern "system" fn write(
    this: *mut c_void,
    result: *mut ND_RESULT,
    list: *const ND_SGE,
    count: usize,
    window: *const ND_MW_DESCRIPTOR,
    offset: u64,
    flags: u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Endpoint>(this) };
    // SAFETY: `window` is null or valid for reading (`# Safety`).
    let Some((address, token)) = (unsafe { place(window, offset) }) else { return HRESULT::ND_INVALID_PARAMETER };
    let post = |list, count, flags| {
        let method = object.table().base.Write;
        // SAFETY: the queue pair is held, and the list has as many entries.
        unsafe { method(object.beneath(), result.cast(), list, count, address, token, flags) }
    };
    // SAFETY: `list` is null or valid for reading `count` entries (`# Safety`).
    unsafe { object.post((list, count), (flags, COMMON), post) }
}
