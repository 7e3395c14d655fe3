//! `IND2QueuePair`.

use core::{ffi::c_void, slice};

use ndkpi::{GUID, NtStatus};

use super::{
    Class, borrow,
    memory::{MemoryRegion, MemoryWindow},
    part::{find_on, part},
    unknown,
};
use crate::{
    abi::{
        HRESULT, IID_IND2QueuePair, IID_SoftQueuePair, IND2QueuePairVtbl, ND2_SGE, SoftQueuePairVtbl,
        op_flags::{
            ND_OP_FLAG_ALLOW_READ, ND_OP_FLAG_ALLOW_WRITE, ND_OP_FLAG_INLINE, ND_OP_FLAG_READ_FENCE,
            ND_OP_FLAG_SEND_AND_SOLICIT_EVENT, ND_OP_FLAG_SILENT_SUCCESS,
        },
    },
    back_end::{BackEnd, Part as _, QueuePair as _, Transfer},
};

/// Flags of every request.
const COMMON: u32 = ND_OP_FLAG_SILENT_SUCCESS | ND_OP_FLAG_READ_FENCE;

/// Flags of a send.
const SEND: u32 = COMMON | ND_OP_FLAG_SEND_AND_SOLICIT_EVENT | ND_OP_FLAG_INLINE;

part! {
    /// A queue pair. Its methods may be called on any threads at the same time.
    QueuePair: QueuePair
}

impl<B: BackEnd> Class for QueuePair<B> {
    type Table = SoftQueuePairVtbl;

    const TABLE: &'static SoftQueuePairVtbl = &SoftQueuePairVtbl {
        base: IND2QueuePairVtbl {
            base: unknown::<Self>(),
            Flush: flush::<B>,
            Send: send::<B>,
            Receive: receive::<B>,
            Bind: bind::<B>,
            Invalidate: invalidate::<B>,
            Read: read::<B>,
            Write: write::<B>,
        },
        SendAndInvalidate: send_and_invalidate::<B>,
    };
    const INTERFACES: &'static [GUID] = &[IID_IND2QueuePair, IID_SoftQueuePair];
}

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
    // SAFETY: the list is not null and valid for reading `count` entries (`# Safety`).
    Ok(unsafe { slice::from_raw_parts(list, count as usize) })
}

/// Posts a request that moves bytes, whose flags were checked.
///
/// # Safety
///
/// `this` is such a queue pair; `list` is null or valid for reading `count` entries, and for an inline request so are the bytes they
/// name.
unsafe fn initiate<B: BackEnd>(
    this: *mut c_void,
    context: *mut c_void,
    (list, count): (*const ND2_SGE, u32),
    flags: u32,
    transfer: Transfer,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<QueuePair<B>>(this) };
    // SAFETY: `list` is null or valid for reading `count` entries (`# Safety`).
    let list = unsafe { elements(list, count) };
    // SAFETY: the bytes that the entries of an inline request name are valid for reading (`# Safety`).
    list.and_then(|list| unsafe { object.0.initiate(context, transfer, list, flags) }).into()
}

/// `IND2QueuePair::Flush`.
///
/// # Safety
///
/// `this` is such a queue pair.
unsafe extern "system" fn flush<B: BackEnd>(this: *mut c_void) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<QueuePair<B>>(this) };
    object.0.flush().into()
}

/// `IND2QueuePair::Send`.
///
/// # Safety
///
/// As [`initiate`].
unsafe extern "system" fn send<B: BackEnd>(
    this: *mut c_void,
    context: *mut c_void,
    list: *const ND2_SGE,
    count: u32,
    flags: u32,
) -> HRESULT {
    if flags & !SEND != 0 {
        return HRESULT::ND_INVALID_PARAMETER_4;
    }
    // SAFETY: `this` is such a queue pair, `list` is null or valid for reading `count` entries, and so are the bytes of an inline
    // request (`# Safety`).
    unsafe { initiate::<B>(this, context, (list, count), flags, Transfer::Send { invalidate: None }) }
}

/// `SoftQueuePair::SendAndInvalidate`: a send that ends the use of a window of the peer.
///
/// # Safety
///
/// As [`initiate`].
unsafe extern "system" fn send_and_invalidate<B: BackEnd>(
    this: *mut c_void,
    context: *mut c_void,
    list: *const ND2_SGE,
    count: u32,
    token: u32,
    flags: u32,
) -> HRESULT {
    if flags & !SEND != 0 {
        return HRESULT::ND_INVALID_PARAMETER_5;
    }
    // SAFETY: `this` is such a queue pair, `list` is null or valid for reading `count` entries, and so are the bytes of an inline
    // request (`# Safety`).
    unsafe { initiate::<B>(this, context, (list, count), flags, Transfer::Send { invalidate: Some(token) }) }
}

/// `IND2QueuePair::Receive`.
///
/// # Safety
///
/// `this` is such a queue pair; `list` is null or valid for reading `count` entries.
unsafe extern "system" fn receive<B: BackEnd>(
    this: *mut c_void,
    context: *mut c_void,
    list: *const ND2_SGE,
    count: u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<QueuePair<B>>(this) };
    // SAFETY: `list` is null or valid for reading `count` entries (`# Safety`).
    let list = unsafe { elements(list, count) };
    list.and_then(|list| object.0.receive(context, list)).into()
}

/// `IND2QueuePair::Bind`. The window's token is the new one when this returns.
///
/// # Safety
///
/// `this` is such a queue pair; `region` and `window` are null or COM objects.
unsafe extern "system" fn bind<B: BackEnd>(
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
    let object = unsafe { borrow::<QueuePair<B>>(this) };
    let adapter = object.0.adapter();
    // SAFETY: `region` is null or a COM object (`# Safety`).
    let Some(region) = (unsafe { find_on::<MemoryRegion<B>>(adapter, region) }) else {
        return HRESULT::ND_INVALID_PARAMETER_2;
    };
    // SAFETY: `window` is null or a COM object (`# Safety`).
    let Some(window) = (unsafe { find_on::<MemoryWindow<B>>(adapter, window) }) else {
        return HRESULT::ND_INVALID_PARAMETER_3;
    };
    object.0.bind(context, &region.0, &window.0, (buffer.addr() as u64, length as u64), flags).into()
}

/// `IND2QueuePair::Invalidate`.
///
/// # Safety
///
/// `this` is such a queue pair; `window` is null or a COM object.
unsafe extern "system" fn invalidate<B: BackEnd>(
    this: *mut c_void,
    context: *mut c_void,
    window: *mut c_void,
    flags: u32,
) -> HRESULT {
    if flags & !COMMON != 0 {
        return HRESULT::ND_INVALID_PARAMETER_3;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<QueuePair<B>>(this) };
    // SAFETY: `window` is null or a COM object (`# Safety`).
    let Some(window) = (unsafe { find_on::<MemoryWindow<B>>(object.0.adapter(), window) }) else {
        return HRESULT::ND_INVALID_PARAMETER_2;
    };
    object.0.invalidate(context, &window.0, flags).into()
}

/// `IND2QueuePair::Read`.
///
/// # Safety
///
/// As [`receive`].
unsafe extern "system" fn read<B: BackEnd>(
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
    // SAFETY: `initiate` asks for what `receive` asks for (`# Safety`), and no read is inline.
    unsafe { initiate::<B>(this, context, (list, count), flags, Transfer::Read { address, token }) }
}

/// `IND2QueuePair::Write`.
///
/// # Safety
///
/// As [`initiate`].
unsafe extern "system" fn write<B: BackEnd>(
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
    // SAFETY: `this` is such a queue pair, `list` is null or valid for reading `count` entries, and so are the bytes of an inline
    // request (`# Safety`).
    unsafe { initiate::<B>(this, context, (list, count), flags, Transfer::Write { address, token }) }
}
