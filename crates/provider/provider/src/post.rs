//! Posting requests to an `NDK_QP` (`NDKPI 5.7`, `NDKPI 7.3`).
//!
//! A flag that the function does not accept is refused with `STATUS_INVALID_PARAMETER`, except those of `NDKPI 7.3` that an
//! adapter may ignore. Elements are copied before the call returns.

use core::{ffi::c_void, slice};

use engine::{
    memory::{Bind, FastRegister, Rights},
    qp::{Flags, Payload, Qp, Sge, Work},
};
use fallible::Arc;
use ndkpi::{
    NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED, NDK_LOGICAL_ADDRESS, NDK_MR, NDK_MW, NDK_OBJECT_HEADER,
    NDK_OP_FLAG_DEFER, NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE, NDK_OP_FLAG_READ_FENCE,
    NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT, NDK_OP_FLAG_SILENT_SUCCESS, NDK_QP, NDK_SGE, NtStatus, op_flags,
};

use crate::{
    NdkOs,
    borrow::OVERLAP,
    device::Device,
    dispatch,
    mr::MemoryRegion,
    mw::MemoryWindow,
    object::{Body, Borrowed, borrow},
    qp::QueuePair,
};

/// The consumer's scatter/gather list; `None` if it has entries and no address.
///
/// # Safety
///
/// `list` is null or valid for reading `count` entries until the consumer's call returns.
#[inline]
pub unsafe fn elements<'a>(list: *const NDK_SGE, count: u32) -> Option<&'a [NDK_SGE]> {
    if count == 0 {
        return Some(&[]);
    }
    if list.is_null() || !list.is_aligned() {
        return None;
    }
    // SAFETY: the list is not null and valid for reading `count` entries (`# Safety`).
    Some(unsafe { slice::from_raw_parts(list, count as usize) })
}

#[inline]
pub const fn element(entry: &NDK_SGE) -> Sge {
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
    // SAFETY: the address is not null and valid for reading (`# Safety`).
    unsafe { slice::from_raw_parts(address.cast_const().cast::<u8>(), entry.Length as usize) }
}

/// Flags of the engine have the bits of NDKPI: masking is all it takes to translate them.
#[inline]
const fn engine_flags(flags: u32) -> Flags {
    Flags::from_bits_truncate(flags)
}

const _: () = {
    assert!(Flags::SILENT_SUCCESS.bits() == NDK_OP_FLAG_SILENT_SUCCESS);
    assert!(Flags::READ_FENCE.bits() == NDK_OP_FLAG_READ_FENCE);
    assert!(Flags::SOLICIT.bits() == NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT);
    assert!(Flags::DEFER.bits() == NDK_OP_FLAG_DEFER);
    assert!(Flags::LOCAL_INVALIDATE.bits() == NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE);
};

/// Posts a request with local bytes, which `list` names or, for an inline request, are copied from where it says.
///
/// # Safety
///
/// `qp` is open and no other post to its initiator queue runs; `list` is valid for reading `count` entries, and for an
/// inline request so are the bytes they name.
#[inline(always)]
#[expect(clippy::inline_always, reason = "the kind of request is then known at compile time, and stays in registers")]
unsafe fn post<O: NdkOs>(
    qp: *mut NDK_QP,
    context: *mut c_void,
    (list, count): (*const NDK_SGE, u32),
    (given, accepted): (u32, u32),
    work: Work,
) -> Result<(), NtStatus> {
    // SAFETY: the queue pair is open (`# Safety`).
    let object = unsafe { borrow::<QueuePair<O>>(qp) }?;
    let qp = object.engine().map_err(|_| OVERLAP)?;
    // SAFETY: no other post to the queue runs (`# Safety`).
    let queue = unsafe { object.send_queue() };
    // SAFETY: the list is valid for reading (`# Safety`).
    let Some(list) = (unsafe { elements(list, count) }).filter(|_| given & !accepted == 0) else {
        return Qp::refuse(qp, NtStatus::INVALID_PARAMETER, queue);
    };
    // The adapter's limit for reads is one of its own, beside that of the queue pair.
    if matches!(work, Work::Read { .. }) && count > object.device().config().info.MaxReadRequestSge {
        return Qp::refuse(qp, NtStatus::DATA_OVERRUN, queue);
    }
    let mut flags = engine_flags(given);
    if flags.contains(Flags::LOCAL_INVALIDATE)
        && !object.device().has(NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED)
    {
        flags.remove(Flags::LOCAL_INVALIDATE);
    }
    let payload = if op_flags::is_inline(given) {
        Payload::Inline(list.iter().map(|entry| {
            // SAFETY: for an inline request the bytes are valid for reading (`# Safety`).
            unsafe { inline_bytes(entry) }
        }))
    } else {
        Payload::Elements(list.iter().map(element))
    };
    Qp::post(qp, context.expose_provenance(), work, flags, payload, queue)
}

/// Posts a request that moves no bytes. The state of the connection comes first: what `work` does changes tokens.
///
/// # Safety
///
/// `qp` is open and no other post to its initiator queue runs.
unsafe fn post_local<O: NdkOs>(
    qp: *mut NDK_QP,
    context: *mut c_void,
    (flags, accepted): (u32, u32),
    work: impl FnOnce(&QueuePair<O>) -> Result<Work, NtStatus>,
) -> Result<(), NtStatus> {
    // SAFETY: the queue pair is open (`# Safety`).
    let object = unsafe { borrow::<QueuePair<O>>(qp) }?;
    let qp = object.engine().map_err(|_| OVERLAP)?;
    // SAFETY: no other post to the queue runs (`# Safety`).
    let queue = unsafe { object.send_queue() };
    if op_flags::not_accepted(flags, accepted) != 0 {
        return Qp::refuse(qp, NtStatus::INVALID_PARAMETER, queue);
    }
    Qp::post_local(qp, context.expose_provenance(), engine_flags(flags), || work(&object), queue)
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
    // SAFETY: `qp` is open, nobody else posts to its initiator queue, and the list and inline bytes are valid for reading (`# Safety`).
    unsafe { post::<O>(qp, context, (list, count), (flags, op_flags::SEND), Work::Send { invalidate: None }) }.into()
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
    // SAFETY: `qp` is open, nobody else posts to its initiator queue, and the list and inline bytes are valid for reading (`# Safety`).
    unsafe { post::<O>(qp, context, (list, count), (flags, op_flags::SEND), Work::Send { invalidate: Some(token) }) }
        .into()
}

/// `NDK_FN_READ`. The flag that invalidates the sink counts only if the adapter says so (`NDKPI 7.3`).
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
    // SAFETY: `qp` is open, nobody else posts to its initiator queue, and the list and inline bytes are valid for reading (`# Safety`).
    unsafe { post::<O>(qp, context, (list, count), (flags, op_flags::READ), Work::Read { address, token }) }.into()
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
    // SAFETY: `qp` is open, nobody else posts to its initiator queue, and the list and inline bytes are valid for reading (`# Safety`).
    unsafe { post::<O>(qp, context, (list, count), (flags, op_flags::WRITE), Work::Write { address, token }) }.into()
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
    let rule = |object: &Borrowed<QueuePair<O>>| {
        // SAFETY: the list is valid for reading (`# Safety`).
        let list = unsafe { elements(list, count) }.ok_or(NtStatus::INVALID_PARAMETER)?;
        if object.has_srq() {
            return Err(NtStatus::INVALID_DEVICE_REQUEST);
        }
        let qp = object.engine().map_err(|_| OVERLAP)?;
        // SAFETY: no other receive is being posted (`# Safety`).
        let queue = unsafe { object.receive_queue() };
        Qp::post_receive(qp, context.expose_provenance(), list.iter().map(element), queue)
    };
    // SAFETY: the caller passes an open queue pair.
    unsafe { dispatch::with(qp, rule) }.into()
}

fn rights_of(flags: u32) -> Rights {
    let rights = [
        (op_flags::allows_local_write(flags), Rights::LOCAL_WRITE),
        (op_flags::allows_remote_read(flags), Rights::REMOTE_READ),
        (op_flags::allows_remote_write(flags), Rights::REMOTE_WRITE),
        (op_flags::is_read_sink(flags), Rights::READ_SINK),
    ];
    let granted = rights.iter().filter(|(is_granted, _)| *is_granted);
    granted.fold(Rights::LOCAL_READ, |sum, (_, right)| sum.and(*right))
}

/// `NDK_FN_BIND` (`NDKPI 7.6`). The window's remote token is the new one when this returns.
///
/// # Safety
///
/// `NDKPI 7.3`: the objects are open, no other initiator request is being posted.
pub unsafe extern "system" fn bind<O: NdkOs>(
    qp: *mut NDK_QP,
    context: *mut c_void,
    mr: *mut NDK_MR,
    mw: *mut NDK_MW,
    address: *mut c_void,
    length: usize,
    flags: u32,
) -> NtStatus {
    // SAFETY: the caller passes an open region.
    let mr = unsafe { borrow::<MemoryRegion<O>>(mr) };
    // SAFETY: the caller passes an open window.
    let mw = unsafe { borrow::<MemoryWindow<O>>(mw) };
    let work = |object: &QueuePair<O>| {
        let (mr, mw) = (mr?, mw?);
        let region = mr.engine()?;
        let window = mw.engine()?;
        let what = Bind { address: address.addr() as u64, length: length as u64, rights: rights_of(flags) };
        object.pd().domain().prepare_bind(window, region, &what).map(Work::Bind)
    };
    // SAFETY: the queue pair is open and no other post to it runs (`# Safety`).
    unsafe { post_local(qp, context, (flags, op_flags::BIND), work) }.into()
}

/// `NDK_FN_FAST_REGISTER` (`NDKPI 7.4`). The region's remote token is the new one when this returns.
///
/// # Safety
///
/// `NDKPI 7.3`: the objects are open, no other initiator request is being posted, the pages are valid for reading.
pub unsafe extern "system" fn fast_register<O: NdkOs>(
    qp: *mut NDK_QP,
    context: *mut c_void,
    mr: *mut NDK_MR,
    page_count: u32,
    pages: *const NDK_LOGICAL_ADDRESS,
    first_byte: u32,
    length: usize,
    base: *mut c_void,
    flags: u32,
) -> NtStatus {
    // SAFETY: the caller passes an open region.
    let mr = unsafe { borrow::<MemoryRegion<O>>(mr) };
    let work = |object: &QueuePair<O>| {
        let mr = mr?;
        let region = mr.engine()?;
        // SAFETY: the pages are valid for reading until the consumer's call returns.
        let pages = unsafe { page_list(pages, page_count) }.ok_or(NtStatus::INVALID_PARAMETER)?;
        let what = FastRegister {
            pages,
            first_byte,
            length: length as u64,
            base: base.addr() as u64,
            rights: rights_of(flags),
        };
        object.pd().domain().prepare_fast_register(region, &what).map(Work::FastRegister)
    };
    // SAFETY: the queue pair is open and no other post to it runs (`# Safety`).
    unsafe { post_local(qp, context, (flags, op_flags::FAST_REGISTER), work) }.into()
}

/// The consumer's page addresses; `None` if there are some and no address.
///
/// # Safety
///
/// `pages` is null or valid for reading `count` entries until the consumer's call returns.
const unsafe fn page_list<'a>(pages: *const NDK_LOGICAL_ADDRESS, count: u32) -> Option<&'a [u64]> {
    const { assert!(size_of::<NDK_LOGICAL_ADDRESS>() == size_of::<u64>()) };
    const { assert!(align_of::<NDK_LOGICAL_ADDRESS>() == align_of::<u64>()) };
    if count == 0 {
        return Some(&[]);
    }
    if pages.is_null() {
        return None;
    }
    // SAFETY: the pages are not null and valid for reading (`# Safety`); a logical address is 64 bits.
    Some(unsafe { slice::from_raw_parts(pages.cast::<u64>(), count as usize) })
}

/// `NDK_FN_INVALIDATE` (`NDKPI 7.6`): of a region for fast registration or a window, never of a registered region.
///
/// # Safety
///
/// `NDKPI 7.3`: the objects are open, no other initiator request is being posted.
pub unsafe extern "system" fn invalidate<O: NdkOs>(
    qp: *mut NDK_QP,
    context: *mut c_void,
    target: *mut NDK_OBJECT_HEADER,
    flags: u32,
) -> NtStatus {
    // SAFETY: the caller passes an open region, or something that is none.
    let mr = unsafe { borrow::<MemoryRegion<O>>(target.cast()) };
    // SAFETY: the caller passes an open window, or something that is none.
    let mw = unsafe { borrow::<MemoryWindow<O>>(target.cast()) };
    let work = |object: &QueuePair<O>| {
        // A token names nothing in another adapter's table, or something else.
        let is_here = |device: &Arc<Device<O>>| Arc::ptr_eq(device, object.device());
        if !mr.as_ref().is_ok_and(|mr| is_here(mr.device())) && !mw.as_ref().is_ok_and(|mw| is_here(mw.device())) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let token =
            if let Ok(mr) = mr { mr.engine()?.invalidation_token()? } else { mw?.engine()?.invalidation_token() };
        Ok(Work::Invalidate { token })
    };
    // SAFETY: the queue pair is open and no other post to it runs (`# Safety`).
    unsafe { post_local(qp, context, (flags, op_flags::INVALIDATE), work) }.into()
}
