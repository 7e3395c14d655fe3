//! Posting requests to an `NDK_QP` (`NDKPI 5.7`, `NDKPI 7.3`).
//!
//! A flag that the function does not accept is refused with `STATUS_INVALID_PARAMETER`, except those of `NDKPI 7.3` that an
//! adapter may ignore. Elements are copied before the call returns.

use core::{ffi::c_void, slice};

use engine::qp::{Flags, Sge, Work};
use ndkpi::{NDK_QP, NDK_SGE, NtStatus, op_flags};

use crate::{
    NdkOs,
    object::{Borrowed, borrow},
    qp::QueuePair,
};

/// The consumer's scatter/gather list; `None` if it has entries and no address.
///
/// # Safety
///
/// `list` is null or valid for reading `count` entries until the consumer's call returns.
#[inline]
unsafe fn elements<'a>(list: *const NDK_SGE, count: u32) -> Option<&'a [NDK_SGE]> {
    if count == 0 {
        return Some(&[]);
    }
    if list.is_null() || !list.is_aligned() {
        return None;
    }
    // SAFETY: the list is not null and valid for reading `count` entries (the caller's promise).
    Some(unsafe { slice::from_raw_parts(list, count as usize) })
}

#[inline]
const fn element(entry: &NDK_SGE) -> Sge {
    // A virtual and a logical address fill the same eight bytes; the token tells which it is (`NDKPI 3.9`).
    Sge { address: entry.logical_address().to_bits(), length: entry.Length, token: entry.MemoryRegionToken }
}

/// The bytes an entry of an inline request names.
///
/// # Safety
///
/// The entry's address is valid for reading its length until the consumer's call returns.
const unsafe fn inline_bytes(entry: &NDK_SGE) -> &[u8] {
    let address = entry.virtual_address();
    if address.is_null() || entry.Length == 0 {
        return &[];
    }
    // SAFETY: the address is not null and valid for reading (the caller's promise).
    unsafe { slice::from_raw_parts(address.cast_const().cast::<u8>(), entry.Length as usize) }
}

const fn flags_of(flags: u32) -> Flags {
    Flags {
        silent_success: op_flags::is_silent_success(flags),
        read_fence: op_flags::is_read_fence(flags),
        solicit: op_flags::solicits_event(flags),
        defer: op_flags::is_deferred(flags),
        local_invalidate: op_flags::invalidates_read_sink(flags),
    }
}

/// Posts an initiator request with local bytes.
///
/// # Safety
///
/// `qp` is open and no other post to its initiator queue runs; `list` is valid for reading `count` entries, and for an
/// inline request so are the bytes they name.
#[inline]
unsafe fn initiate<O: NdkOs>(
    qp: *mut NDK_QP,
    context: *mut c_void,
    list: *const NDK_SGE,
    count: u32,
    flags: u32,
    accepted: u32,
    work: Work,
) -> NtStatus {
    // SAFETY: the caller passes an open queue pair.
    let Some(object) = (unsafe { borrow::<QueuePair<O>>(qp) }) else { return NtStatus::INVALID_PARAMETER };
    // SAFETY: the list is valid for reading (the caller's promise).
    let list = unsafe { elements(list, count) };
    let Some(list) = list.filter(|_| op_flags::not_accepted(flags, accepted) == 0) else {
        // SAFETY: no other post to the queue runs (the caller's promise).
        return unsafe { refuse(&object, NtStatus::INVALID_PARAMETER) };
    };
    let (context, how) = (context.expose_provenance(), flags_of(flags));
    if op_flags::is_inline(flags) {
        let parts = list.iter().map(|entry| {
            // SAFETY: for an inline request the bytes are valid for reading (the caller's promise).
            unsafe { inline_bytes(entry) }
        });
        // SAFETY: no other post to the queue runs (the caller's promise).
        return unsafe { object.initiate(|initiator| initiator.post_inline(context, work, how, parts)) };
    }
    // SAFETY: no other post to the queue runs (the caller's promise).
    unsafe { object.initiate(|initiator| initiator.post(context, work, how, list.iter().map(element))) }
}

/// Refuses a post, which sends on its way what was deferred before it (`NDKPI 7.3`).
///
/// # Safety
///
/// As [`QueuePair::initiate`].
unsafe fn refuse<O: NdkOs>(object: &Borrowed<QueuePair<O>>, status: NtStatus) -> NtStatus {
    // SAFETY: the caller's promises are the same.
    unsafe {
        object.initiate(|initiator| {
            initiator.push_deferred();
            Err(status)
        })
    }
}

/// `NDK_FN_SEND`.
///
/// # Safety
///
/// `NDKPI 7.3`: `qp` is open, no other initiator request is being posted on it, the list and for an inline request the
/// bytes are valid for reading.
pub unsafe extern "system" fn send<O: NdkOs>(
    qp: *mut NDK_QP,
    context: *mut c_void,
    list: *const NDK_SGE,
    count: u32,
    flags: u32,
) -> NtStatus {
    let work = Work::Send { invalidate: None };
    // SAFETY: the caller's promises are the same.
    unsafe { initiate::<O>(qp, context, list, count, flags, op_flags::SEND, work) }
}

/// `NDK_FN_SEND_AND_INVALIDATE`. Mind the order: the flags come before the token.
///
/// # Safety
///
/// As [`send`].
pub unsafe extern "system" fn send_and_invalidate<O: NdkOs>(
    qp: *mut NDK_QP,
    context: *mut c_void,
    list: *const NDK_SGE,
    count: u32,
    flags: u32,
    token: u32,
) -> NtStatus {
    let work = Work::Send { invalidate: Some(token) };
    // SAFETY: the caller's promises are the same.
    unsafe { initiate::<O>(qp, context, list, count, flags, op_flags::SEND, work) }
}

/// `NDK_FN_READ`.
///
/// # Safety
///
/// As [`send`].
pub unsafe extern "system" fn read<O: NdkOs>(
    qp: *mut NDK_QP,
    context: *mut c_void,
    list: *const NDK_SGE,
    count: u32,
    address: u64,
    token: u32,
    flags: u32,
) -> NtStatus {
    // SAFETY: the caller's promises are the same.
    unsafe { initiate::<O>(qp, context, list, count, flags, op_flags::READ, Work::Read { address, token }) }
}

/// `NDK_FN_WRITE`.
///
/// # Safety
///
/// As [`send`].
pub unsafe extern "system" fn write<O: NdkOs>(
    qp: *mut NDK_QP,
    context: *mut c_void,
    list: *const NDK_SGE,
    count: u32,
    address: u64,
    token: u32,
    flags: u32,
) -> NtStatus {
    // SAFETY: the caller's promises are the same.
    unsafe { initiate::<O>(qp, context, list, count, flags, op_flags::WRITE, Work::Write { address, token }) }
}

/// `NDK_FN_RECEIVE`.
///
/// # Safety
///
/// `NDKPI 7.3`: `qp` is open, no other receive is being posted on it, the list is valid for reading.
pub unsafe extern "system" fn receive<O: NdkOs>(
    qp: *mut NDK_QP,
    context: *mut c_void,
    list: *const NDK_SGE,
    count: u32,
) -> NtStatus {
    // SAFETY: the caller passes an open queue pair.
    let Some(object) = (unsafe { borrow::<QueuePair<O>>(qp) }) else { return NtStatus::INVALID_PARAMETER };
    // SAFETY: the list is valid for reading (the caller's promise).
    let Some(list) = (unsafe { elements(list, count) }) else { return NtStatus::INVALID_PARAMETER };
    let context = context.expose_provenance();
    // SAFETY: no other receive is being posted (the caller's promise).
    unsafe { object.receive(|receiver| receiver.post(context, list.iter().map(element))) }
}
