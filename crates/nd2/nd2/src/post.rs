//! Posting requests to an `IND2QueuePair`.
//!
//! The flags are not those of NDKPI (`NDSPI 5`): they are translated here.

use core::{ffi::c_void, slice};

use engine::{
    memory::{Bind, Rights},
    qp::{Flags, Payload, Qp, Sge, Work},
};
use ndkpi::NtStatus;

use crate::{
    Platform,
    abi::{
        HRESULT, ND2_SGE,
        op_flags::{
            ND_OP_FLAG_ALLOW_READ, ND_OP_FLAG_ALLOW_WRITE, ND_OP_FLAG_INLINE, ND_OP_FLAG_READ_FENCE,
            ND_OP_FLAG_SEND_AND_SOLICIT_EVENT, ND_OP_FLAG_SILENT_SUCCESS,
        },
    },
    com::borrow,
    mr::MemoryRegion,
    mw::MemoryWindow,
    qp::QueuePair,
};

/// Flags of every request.
const COMMON: u32 = ND_OP_FLAG_SILENT_SUCCESS | ND_OP_FLAG_READ_FENCE;

/// The client's scatter/gather list.
///
/// # Errors
///
/// `STATUS_INVALID_PARAMETER` if it has entries and no address.
///
/// # Safety
///
/// `list` is null or valid for reading `count` entries until the client's call returns.
pub const unsafe fn elements<'a>(list: *const ND2_SGE, count: u32) -> Result<&'a [ND2_SGE], NtStatus> {
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    // SAFETY: the list is not null and valid for reading `count` entries (the caller's promise).
    Ok(unsafe { slice::from_raw_parts(list, count as usize) })
}

/// The engine's form of an SGE.
pub fn element(entry: &ND2_SGE) -> Sge {
    Sge { address: entry.Buffer.addr() as u64, length: entry.BufferLength, token: entry.MemoryRegionToken }
}

/// The bytes that an entry of an inline request names.
///
/// # Safety
///
/// The entry's address is valid for reading its length until the client's call returns.
const unsafe fn inline_bytes(entry: &ND2_SGE) -> &[u8] {
    if entry.Buffer.is_null() || entry.BufferLength == 0 {
        return &[];
    }
    // SAFETY: the address is not null and valid for reading (the caller's promise).
    unsafe { slice::from_raw_parts(entry.Buffer.cast_const().cast::<u8>(), entry.BufferLength as usize) }
}

fn flags_of(flags: u32) -> Flags {
    [
        (ND_OP_FLAG_SILENT_SUCCESS, Flags::SILENT_SUCCESS),
        (ND_OP_FLAG_READ_FENCE, Flags::READ_FENCE),
        (ND_OP_FLAG_SEND_AND_SOLICIT_EVENT, Flags::SOLICIT),
    ]
    .into_iter()
    .filter_map(|(bit, flag)| (flags & bit != 0).then_some(flag))
    .collect()
}

/// Posts a request that moves bytes.
///
/// # Safety
///
/// `list` is null or valid for reading `count` entries, and for an inline request so are the bytes they name.
unsafe fn initiate<P: Platform>(
    object: &QueuePair<P>,
    context: *mut c_void,
    (list, count): (*const ND2_SGE, u32),
    flags: u32,
    work: Work,
) -> Result<(), NtStatus> {
    // SAFETY: the caller's promise.
    let list = unsafe { elements(list, count) }?;
    let (context, how) = (context.expose_provenance(), flags_of(flags));
    let payload = if flags & ND_OP_FLAG_INLINE == 0 {
        Payload::Elements(list.iter().map(element))
    } else {
        Payload::Inline(list.iter().map(|entry| {
            // SAFETY: for an inline request the bytes are valid for reading (the caller's promise).
            unsafe { inline_bytes(entry) }
        }))
    };
    object.initiate(|qp, queue| Qp::post(qp, context, work, how, payload, queue))
}

/// `IND2QueuePair::Send`.
///
/// # Safety
///
/// `this` is such a queue pair; `list` is null or valid for reading `count` entries, and for an inline request so are the
/// bytes they name.
pub unsafe extern "system" fn send<P: Platform>(
    this: *mut c_void,
    context: *mut c_void,
    list: *const ND2_SGE,
    count: u32,
    flags: u32,
) -> HRESULT {
    if flags & !(COMMON | ND_OP_FLAG_SEND_AND_SOLICIT_EVENT | ND_OP_FLAG_INLINE) != 0 {
        return HRESULT::ND_INVALID_PARAMETER_4;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<QueuePair<P>>(this) };
    // SAFETY: the caller's promises are the same.
    unsafe { initiate(&*object, context, (list, count), flags, Work::Send { invalidate: None }) }.into()
}

/// `SoftQueuePair::SendAndInvalidate`: a send that ends the use of a window of the peer.
///
/// # Safety
///
/// As [`send`].
pub unsafe extern "system" fn send_and_invalidate<P: Platform>(
    this: *mut c_void,
    context: *mut c_void,
    list: *const ND2_SGE,
    count: u32,
    token: u32,
    flags: u32,
) -> HRESULT {
    if flags & !(COMMON | ND_OP_FLAG_SEND_AND_SOLICIT_EVENT | ND_OP_FLAG_INLINE) != 0 {
        return HRESULT::ND_INVALID_PARAMETER_5;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<QueuePair<P>>(this) };
    // SAFETY: the caller's promises are the same.
    unsafe { initiate(&*object, context, (list, count), flags, Work::Send { invalidate: Some(token) }) }.into()
}

/// `IND2QueuePair::Receive`.
///
/// # Safety
///
/// `this` is such a queue pair; `list` is null or valid for reading `count` entries.
pub unsafe extern "system" fn receive<P: Platform>(
    this: *mut c_void,
    context: *mut c_void,
    list: *const ND2_SGE,
    count: u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<QueuePair<P>>(this) };
    // SAFETY: the caller's promise.
    let list = unsafe { elements(list, count) };
    let context = context.expose_provenance();
    let post =
        |list: &[ND2_SGE]| object.receive(|qp, queue| Qp::post_receive(qp, context, list.iter().map(element), queue));
    list.and_then(post).into()
}

/// `IND2QueuePair::Bind`. The window's token is the new one when this returns.
///
/// # Safety
///
/// `this` is such a queue pair; `region` and `window` are null or COM objects.
pub unsafe extern "system" fn bind<P: Platform>(
    this: *mut c_void,
    context: *mut c_void,
    region: *mut c_void,
    window: *mut c_void,
    buffer: *const c_void,
    length: usize,
    flags: u32,
) -> HRESULT {
    let access = flags & (ND_OP_FLAG_ALLOW_READ | ND_OP_FLAG_ALLOW_WRITE);
    if flags & !(COMMON | access) != 0 || access == 0 {
        return HRESULT::ND_INVALID_PARAMETER_6;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<QueuePair<P>>(this) };
    // SAFETY: the caller's promise.
    let Some(region) = (unsafe { MemoryRegion::<P>::find(object.adapter(), region) }) else {
        return HRESULT::ND_INVALID_PARAMETER_2;
    };
    // SAFETY: the caller's promise.
    let Some(window) = (unsafe { MemoryWindow::<P>::find(object.adapter(), window) }) else {
        return HRESULT::ND_INVALID_PARAMETER_3;
    };
    let read = if access & ND_OP_FLAG_ALLOW_READ == 0 { Rights::LOCAL_READ } else { Rights::REMOTE_READ };
    let write = if access & ND_OP_FLAG_ALLOW_WRITE == 0 { Rights::LOCAL_READ } else { Rights::REMOTE_WRITE };
    let what = Bind { address: buffer.addr() as u64, length: length as u64, rights: read | write };
    let domain = object.adapter().domain();
    let work = || match domain.prepare_bind(&window, &region, &what) {
        // It is not registered: memory that is not valid.
        Err(NtStatus::INVALID_DEVICE_STATE) => Err(NtStatus::ACCESS_VIOLATION),
        prepared => prepared.map(Work::Bind),
    };
    let context = context.expose_provenance();
    object.initiate(|qp, queue| Qp::post_local(qp, context, flags_of(flags), work, queue)).into()
}

/// `IND2QueuePair::Invalidate`.
///
/// # Safety
///
/// `this` is such a queue pair; `window` is null or a COM object.
pub unsafe extern "system" fn invalidate<P: Platform>(
    this: *mut c_void,
    context: *mut c_void,
    window: *mut c_void,
    flags: u32,
) -> HRESULT {
    if flags & !COMMON != 0 {
        return HRESULT::ND_INVALID_PARAMETER_3;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<QueuePair<P>>(this) };
    // SAFETY: the caller's promise.
    let Some(window) = (unsafe { MemoryWindow::<P>::find(object.adapter(), window) }) else {
        return HRESULT::ND_INVALID_PARAMETER_2;
    };
    let work = Work::Invalidate { token: window.invalidation_token() };
    let context = context.expose_provenance();
    object.initiate(|qp, queue| Qp::post_local(qp, context, flags_of(flags), || Ok(work), queue)).into()
}

/// `IND2QueuePair::Read`.
///
/// # Safety
///
/// As [`receive`].
pub unsafe extern "system" fn read<P: Platform>(
    this: *mut c_void,
    context: *mut c_void,
    list: *const ND2_SGE,
    count: u32,
    address: u64,
    token: u32,
    flags: u32,
) -> HRESULT {
    if flags & !COMMON != 0 {
        return HRESULT::ND_INVALID_PARAMETER_6;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<QueuePair<P>>(this) };
    if count > object.adapter().device().config().info.MaxReadSge {
        return HRESULT::ND_DATA_OVERRUN;
    }
    // SAFETY: the caller's promises are the same.
    unsafe { initiate(&*object, context, (list, count), flags, Work::Read { address, token }) }.into()
}

/// `IND2QueuePair::Write`.
///
/// # Safety
///
/// As [`send`].
pub unsafe extern "system" fn write<P: Platform>(
    this: *mut c_void,
    context: *mut c_void,
    list: *const ND2_SGE,
    count: u32,
    address: u64,
    token: u32,
    flags: u32,
) -> HRESULT {
    if flags & !(COMMON | ND_OP_FLAG_INLINE) != 0 {
        return HRESULT::ND_INVALID_PARAMETER_6;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<QueuePair<P>>(this) };
    // SAFETY: the caller's promises are the same.
    unsafe { initiate(&*object, context, (list, count), flags, Work::Write { address, token }) }.into()
}
