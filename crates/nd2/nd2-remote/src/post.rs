//! `IND2QueuePair`.

use std::{ffi::c_void, slice, sync::Arc};

use nd2::{
    abi::{
        HRESULT, IID_IND2QueuePair, IID_SoftQueuePair, IND2QueuePairVtbl, ND2_SGE, SoftQueuePairVtbl,
        op_flags::ND_OP_FLAG_INLINE,
    },
    com::{Class, borrow, find, unknown},
};
use nd2_control::wire::{DATA, ELEMENTS, Reader, Verb};
use ndkpi::{GUID, NtStatus};

use crate::{
    Transport,
    adapter::Core,
    held::{Held, Message},
    memory::{MemoryRegion, MemoryWindow},
};

/// A queue pair.
pub struct QueuePair<T: Transport> {
    pub adapter: Arc<Core<T>>,
    pub held: Held<T>,
}

impl<T: Transport> QueuePair<T> {
    /// The handle of the queue pair behind a client's pointer; zero if it is none of this adapter.
    ///
    /// # Safety
    ///
    /// `unknown` is null or a COM object.
    pub unsafe fn handle_of(adapter: &Arc<Core<T>>, unknown: *mut c_void) -> u64 {
        let handle = |qp: &Self| if Arc::ptr_eq(&qp.adapter, adapter) { qp.held.handle } else { 0 };
        // SAFETY: the caller's promise.
        unsafe { find::<Self, _>(unknown, handle) }.unwrap_or(0)
    }

    fn message(&self, context: *mut c_void) -> Message {
        self.held.message().u64(context.expose_provenance() as u64)
    }
}

/// The client's scatter/gather list.
///
/// # Safety
///
/// `list` is null or valid for reading `count` entries until the client's call returns.
const unsafe fn entries<'a>(list: *const ND2_SGE, count: u32) -> Result<&'a [ND2_SGE], NtStatus> {
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    // SAFETY: the list is not null and valid for reading `count` entries (the caller's promise).
    Ok(unsafe { slice::from_raw_parts(list, count as usize) })
}

/// A message that ends with elements.
///
/// # Errors
///
/// `STATUS_INVALID_PARAMETER` if there should be some and the pointer is null; `STATUS_DATA_OVERRUN` if there are more than any
/// queue pair takes.
///
/// # Safety
///
/// `list` is null or valid for reading `count` entries.
pub unsafe fn elements(message: Message, list: *const ND2_SGE, count: u32) -> Result<Message, NtStatus> {
    // SAFETY: the caller's promise.
    let list = unsafe { entries(list, count) }?;
    if list.len() > ELEMENTS {
        return Err(NtStatus::DATA_OVERRUN);
    }
    let add = |message: Message, entry: &ND2_SGE| {
        message.u64(entry.Buffer.addr() as u64).u32(entry.BufferLength).u32(entry.MemoryRegionToken)
    };
    Ok(list.iter().fold(message, add))
}

/// A message that ends with the bytes that the entries of an inline request name.
///
/// # Errors
///
/// `STATUS_INVALID_BUFFER_SIZE` if there are more than fit, and what [`elements`] says.
///
/// # Safety
///
/// As for [`elements`], and so are the bytes that the entries name.
unsafe fn inline(mut message: Message, list: *const ND2_SGE, count: u32) -> Result<Message, NtStatus> {
    let mut total = 0_usize;
    // SAFETY: the caller's promise.
    for entry in unsafe { entries(list, count) }? {
        if entry.Buffer.is_null() || entry.BufferLength == 0 {
            continue;
        }
        total = total.saturating_add(entry.BufferLength as usize);
        if total > DATA {
            return Err(NtStatus::INVALID_BUFFER_SIZE);
        }
        let bytes = entry.Buffer.cast_const().cast::<u8>();
        // SAFETY: the address is not null and valid for reading (the caller's promise).
        message = message.bytes(unsafe { slice::from_raw_parts(bytes, entry.BufferLength as usize) });
    }
    Ok(message)
}

impl<T: Transport> Class for QueuePair<T> {
    type Table = SoftQueuePairVtbl;

    const TABLE: &'static SoftQueuePairVtbl = &SoftQueuePairVtbl {
        base: IND2QueuePairVtbl {
            base: unknown::<Self>(),
            Flush: flush::<T>,
            Send: send::<T>,
            Receive: receive::<T>,
            Bind: bind::<T>,
            Invalidate: invalidate::<T>,
            Read: read::<T>,
            Write: write::<T>,
        },
        SendAndInvalidate: send_and_invalidate::<T>,
    };
    const INTERFACES: &'static [GUID] = &[IID_IND2QueuePair, IID_SoftQueuePair];
}

/// `IND2QueuePair::Flush`.
///
/// # Safety
///
/// `this` is such a queue pair.
unsafe extern "system" fn flush<T: Transport>(this: *mut c_void) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<QueuePair<T>>(this) };
    object.held.tell(Verb::Flush, &object.held.message())
}

/// Sends a request that moves bytes.
///
/// # Safety
///
/// `list` is null or valid for reading `count` entries, and for an inline request so are the bytes they name.
unsafe fn post<T: Transport>(
    object: &QueuePair<T>,
    verb: Verb,
    message: Message,
    (list, count): (*const ND2_SGE, u32),
    is_inline: bool,
) -> HRESULT {
    let message = if is_inline {
        // SAFETY: the caller's promise.
        unsafe { inline(message, list, count) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { elements(message, list, count) }
    };
    message.map_or_else(HRESULT::of, |message| object.held.tell(verb, &message))
}

/// `IND2QueuePair::Send`.
///
/// # Safety
///
/// `this` is such a queue pair; `list` is null or valid for reading `count` entries, and for an inline request so are the
/// bytes they name.
unsafe extern "system" fn send<T: Transport>(
    this: *mut c_void,
    context: *mut c_void,
    list: *const ND2_SGE,
    count: u32,
    flags: u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<QueuePair<T>>(this) };
    let message = object.message(context).u32(flags);
    // SAFETY: the caller's promise.
    unsafe { post(&*object, Verb::Send, message, (list, count), flags & ND_OP_FLAG_INLINE != 0) }
}

/// `SoftQueuePair::SendAndInvalidate`.
///
/// # Safety
///
/// As [`send`].
unsafe extern "system" fn send_and_invalidate<T: Transport>(
    this: *mut c_void,
    context: *mut c_void,
    list: *const ND2_SGE,
    count: u32,
    token: u32,
    flags: u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<QueuePair<T>>(this) };
    let message = object.message(context).u32(token).u32(flags);
    // SAFETY: the caller's promise.
    unsafe { post(&*object, Verb::SendAndInvalidate, message, (list, count), flags & ND_OP_FLAG_INLINE != 0) }
}

/// `IND2QueuePair::Receive`.
///
/// # Safety
///
/// `this` is such a queue pair; `list` is null or valid for reading `count` entries.
unsafe extern "system" fn receive<T: Transport>(
    this: *mut c_void,
    context: *mut c_void,
    list: *const ND2_SGE,
    count: u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<QueuePair<T>>(this) };
    // SAFETY: the caller's promise.
    unsafe { post(&*object, Verb::Receive, object.message(context), (list, count), false) }
}

/// `IND2QueuePair::Bind`. The window's token is the new one when this returns.
///
/// # Safety
///
/// `this` is such a queue pair; `region` and `window` are null or COM objects.
unsafe extern "system" fn bind<T: Transport>(
    this: *mut c_void,
    context: *mut c_void,
    region: *mut c_void,
    window: *mut c_void,
    buffer: *const c_void,
    length: usize,
    flags: u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<QueuePair<T>>(this) };
    // SAFETY: the caller's promise.
    let of_region = unsafe { MemoryRegion::handle_of(&object.adapter, region) };
    // SAFETY: the caller's promise.
    let of_window = unsafe { MemoryWindow::handle_of(&object.adapter, window) };
    let message = object.message(context).u64(of_region).u64(of_window);
    let message = message.u64(buffer.addr() as u64).u64(length as u64).u32(flags);
    object.held.ask::<4>(Verb::Bind, &message).map(drop).into()
}

/// `IND2QueuePair::Invalidate`.
///
/// # Safety
///
/// `this` is such a queue pair; `window` is null or a COM object.
unsafe extern "system" fn invalidate<T: Transport>(
    this: *mut c_void,
    context: *mut c_void,
    window: *mut c_void,
    flags: u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<QueuePair<T>>(this) };
    // SAFETY: the caller's promise.
    let of_window = unsafe { MemoryWindow::handle_of(&object.adapter, window) };
    object.held.tell(Verb::Invalidate, &object.message(context).u64(of_window).u32(flags))
}

/// `IND2QueuePair::Read`.
///
/// # Safety
///
/// As [`receive`].
unsafe extern "system" fn read<T: Transport>(
    this: *mut c_void,
    context: *mut c_void,
    list: *const ND2_SGE,
    count: u32,
    address: u64,
    token: u32,
    flags: u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<QueuePair<T>>(this) };
    let message = object.message(context).u64(address).u32(token).u32(flags);
    // SAFETY: the caller's promise.
    unsafe { post(&*object, Verb::Read, message, (list, count), false) }
}

/// `IND2QueuePair::Write`.
///
/// # Safety
///
/// As [`send`].
unsafe extern "system" fn write<T: Transport>(
    this: *mut c_void,
    context: *mut c_void,
    list: *const ND2_SGE,
    count: u32,
    address: u64,
    token: u32,
    flags: u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<QueuePair<T>>(this) };
    let message = object.message(context).u64(address).u32(token).u32(flags);
    // SAFETY: the caller's promise.
    unsafe { post(&*object, Verb::Write, message, (list, count), flags & ND_OP_FLAG_INLINE != 0) }
}

/// The first number of an answer.
pub fn first(answer: &[u8]) -> u32 {
    Reader::new(answer).u32().unwrap_or(0)
}
