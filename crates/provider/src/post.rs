//! Posting requests to an `NDK_QP` (`NDKPI 5.7`, `NDKPI 7.3`).
//!
//! A flag that the function does not accept is refused with `STATUS_INVALID_PARAMETER`, except those of `NDKPI 7.3` that an
//! adapter may ignore. Elements are copied before the call returns.

use core::{ffi::c_void, iter, slice};

use engine::{
    memory::{Bind, FastRegister, Rights},
    qp::{Few, Flags, Initiator, OnePiece, Prepared, Qp, Sge, Work},
};
use fallible::Shared;
use ndkpi::{
    NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED, NDK_LOGICAL_ADDRESS, NDK_MR, NDK_MW, NDK_OBJECT_HEADER,
    NDK_QP, NDK_SGE, NtStatus, op_flags,
};

use crate::{
    NdkOs,
    device::Device,
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
    // SAFETY: the list is not null and valid for reading `count` entries (the caller's promise).
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
    // SAFETY: the address is not null and valid for reading (the caller's promise).
    unsafe { slice::from_raw_parts(address.cast_const().cast::<u8>(), entry.Length as usize) }
}

/// An initiator request with local bytes, and what it needs besides them.
///
/// Types, not variants of [`Work`]: what is done for each is then known at compile time, and its fields stay in registers (counted).
trait Initiate: Copy {
    /// The flags that its function accepts.
    const ACCEPTED: u32;

    /// What is posted.
    fn work(self) -> Work;

    /// Carries it out without posting it, if that can be: see [`Qp::send_alone`].
    fn carry_out_alone<O: NdkOs>(self, qp: &Shared<Qp<O>>, context: usize, flags: Flags, local: impl OnePiece) -> bool;
}

#[derive(Clone, Copy)]
struct Send;

#[derive(Clone, Copy)]
struct SendAndInvalidate {
    token: u32,
}

#[derive(Clone, Copy)]
struct Read {
    address: u64,
    token: u32,
}

#[derive(Clone, Copy)]
struct Write {
    address: u64,
    token: u32,
}

impl Initiate for Send {
    const ACCEPTED: u32 = op_flags::SEND;

    #[inline]
    fn work(self) -> Work {
        Work::Send { invalidate: None }
    }

    #[inline]
    fn carry_out_alone<O: NdkOs>(self, qp: &Shared<Qp<O>>, context: usize, flags: Flags, local: impl OnePiece) -> bool {
        Qp::send_alone(qp, context, flags, local)
    }
}

impl Initiate for SendAndInvalidate {
    const ACCEPTED: u32 = op_flags::SEND;

    #[inline]
    fn work(self) -> Work {
        Work::Send { invalidate: Some(self.token) }
    }

    #[inline]
    fn carry_out_alone<O: NdkOs>(self, _: &Shared<Qp<O>>, _: usize, _: Flags, _: impl OnePiece) -> bool {
        false
    }
}

impl Initiate for Read {
    const ACCEPTED: u32 = op_flags::READ;

    #[inline]
    fn work(self) -> Work {
        Work::Read { address: self.address, token: self.token }
    }

    #[inline]
    fn carry_out_alone<O: NdkOs>(self, qp: &Shared<Qp<O>>, context: usize, flags: Flags, local: impl OnePiece) -> bool {
        Qp::read_alone(qp, context, (self.address, self.token), flags, local)
    }
}

impl Initiate for Write {
    const ACCEPTED: u32 = op_flags::WRITE;

    #[inline]
    fn work(self) -> Work {
        Work::Write { address: self.address, token: self.token }
    }

    #[inline]
    fn carry_out_alone<O: NdkOs>(self, qp: &Shared<Qp<O>>, context: usize, flags: Flags, local: impl OnePiece) -> bool {
        Qp::write_alone(qp, context, (self.address, self.token), flags, local)
    }
}

/// Posts an initiator request with local bytes, or carries it out, if they are in one piece and that can be.
///
/// # Safety
///
/// `qp` is open and no other post to its initiator queue runs; `list` is valid for reading `count` entries, and for an
/// inline request so are the bytes they name.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "measured: the kind of request is then known, and its fields stay in registers"
)]
unsafe fn initiate<O: NdkOs, R: Initiate>(
    qp: *mut NDK_QP,
    context: *mut c_void,
    (list, count): (*const NDK_SGE, u32),
    flags: u32,
    request: R,
) -> NtStatus {
    // SAFETY: the caller passes an open queue pair.
    let Some(object) = (unsafe { borrow::<QueuePair<O>>(qp) }) else { return NtStatus::INVALID_PARAMETER };
    // SAFETY: the list is valid for reading (the caller's promise).
    let list = unsafe { elements(list, count) };
    let Some(list) = list.filter(|_| op_flags::not_accepted(flags, R::ACCEPTED) == 0) else {
        // SAFETY: no other post to the queue runs (the caller's promise).
        return unsafe { refuse(&object, NtStatus::INVALID_PARAMETER) };
    };
    let mut how = Flags::from_bits_truncate(flags);
    if how.contains(Flags::LOCAL_INVALIDATE)
        && !object.device().has(NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED)
    {
        how.remove(Flags::LOCAL_INVALIDATE);
    }
    let context = context.expose_provenance();
    let is_inline = op_flags::is_inline(flags);
    if let [entry] = list {
        if !is_inline {
            // SAFETY: the caller's promises are the same.
            return unsafe { initiate_one(&object, context, element(entry), how, request) };
        }
        // SAFETY: for an inline request the bytes are valid for reading (the caller's promise).
        if let Some(few) = Few::of(unsafe { inline_bytes(entry) }) {
            // SAFETY: the caller's promises are the same.
            return unsafe { initiate_one(&object, context, few, how, request) };
        }
    }
    // SAFETY: the caller's promises are the same.
    unsafe { post_list(&object, context, request.work(), how, list, is_inline) }
}

/// [`initiate`] for local bytes in one piece.
///
/// # Safety
///
/// The object is open and no other post to its initiator queue runs.
#[inline(always)]
#[expect(clippy::inline_always, reason = "as for `initiate`")]
unsafe fn initiate_one<O: NdkOs>(
    object: &Borrowed<QueuePair<O>>,
    context: usize,
    local: impl OnePiece,
    flags: Flags,
    request: impl Initiate,
) -> NtStatus {
    if !flags.contains(Flags::DEFER)
        // SAFETY: the object is open (the caller's promise).
        && unsafe { object.engine() }.is_some_and(|qp| request.carry_out_alone(qp, context, flags, local))
    {
        return NtStatus::SUCCESS;
    }
    // SAFETY: the caller's promises are the same.
    unsafe { post(object, |initiator| initiator.prepare_one(context, request.work(), flags, local)) }
}

/// Posts what `prepare` makes with the consumer's end of the initiator queue, which is not in use any more when the post gets its
/// effect.
///
/// # Safety
///
/// The object is open and no other post to its initiator queue runs.
#[inline(always)]
#[expect(clippy::inline_always, reason = "as for `initiate`")]
unsafe fn post<O: NdkOs>(
    object: &Borrowed<QueuePair<O>>,
    prepare: impl FnOnce(&mut Initiator<O>) -> Prepared,
) -> NtStatus {
    // SAFETY: no other post to the queue runs (the caller's promise).
    let Some(mut initiator) = (unsafe { object.initiator() }) else { return object.overlap() };
    let prepared = prepare(&mut initiator);
    drop(initiator);
    // SAFETY: the object is open (the caller's promise).
    unsafe { object.initiate(prepared) }
}

/// Posts a request with local bytes in any number of pieces. Most have one: so the compiler is told which way is rare.
///
/// # Safety
///
/// As [`post`], and for an inline request the bytes are valid for reading that the list names.
#[cold]
unsafe fn post_list<O: NdkOs>(
    object: &Borrowed<QueuePair<O>>,
    context: usize,
    work: Work,
    flags: Flags,
    list: &[NDK_SGE],
    is_inline: bool,
) -> NtStatus {
    let prepare = |initiator: &mut Initiator<O>| {
        if !is_inline {
            return initiator.prepare(context, work, flags, list.iter().map(element));
        }
        let parts = list.iter().map(|entry| {
            // SAFETY: the bytes are valid for reading (the caller's promise).
            unsafe { inline_bytes(entry) }
        });
        initiator.prepare_inline(context, work, flags, parts)
    };
    // SAFETY: the caller's promises are the same.
    unsafe { post(object, prepare) }
}

/// Refuses a post, which sends on its way what was deferred before it (`NDKPI 7.3`).
///
/// # Safety
///
/// As [`QueuePair::initiator`].
#[cold]
unsafe fn refuse<O: NdkOs>(object: &Borrowed<QueuePair<O>>, status: NtStatus) -> NtStatus {
    // SAFETY: the caller's promises are the same.
    unsafe { post(object, |initiator| initiator.refuse(status)) }
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
    // SAFETY: the caller's promises are the same.
    unsafe { initiate::<O, _>(qp, context, (list, count), flags, Send) }
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
    // SAFETY: the caller's promises are the same.
    unsafe { initiate::<O, _>(qp, context, (list, count), flags, SendAndInvalidate { token }) }
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
    // SAFETY: the caller's promises are the same.
    unsafe { initiate::<O, _>(qp, context, (list, count), flags, Read { address, token }) }
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
    unsafe { initiate::<O, _>(qp, context, (list, count), flags, Write { address, token }) }
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
    if object.has_srq() {
        return NtStatus::INVALID_DEVICE_REQUEST;
    }
    let context = context.expose_provenance();
    // SAFETY: no other receive is being posted (the caller's promise).
    let Some(mut receiver) = (unsafe { object.receiver() }) else { return object.overlap() };
    let prepared = receiver.prepare(context, list.iter().map(element));
    drop(receiver);
    // SAFETY: the object is open (the caller's promise).
    unsafe { object.receive(prepared) }
}

/// Posts a request that moves no bytes.
///
/// # Safety
///
/// `object` is open and no other post to its initiator queue runs.
unsafe fn initiate_local<O: NdkOs>(
    object: &Borrowed<QueuePair<O>>,
    context: *mut c_void,
    flags: u32,
    accepted: u32,
    prepare: impl FnOnce() -> Result<Work, NtStatus>,
) -> NtStatus {
    let context = context.expose_provenance();
    let domain = object.pd().domain();
    let is_valid = op_flags::not_accepted(flags, accepted) == 0;
    // The state of the connection comes first: what is prepared changes tokens.
    let prepare = |initiator: &mut Initiator<O>| match initiator.check(is_valid).and_then(|()| prepare()) {
        Ok(work) => {
            let prepared = initiator.prepare(context, work, Flags::from_bits_truncate(flags), iter::empty());
            if let Work::FastRegister(posted) | Work::Bind(posted) = work
                && prepared.is_refused()
            {
                // The connection has ended in between.
                domain.cancel(posted);
            }
            prepared
        }
        Err(status) => initiator.refuse(status),
    };
    // SAFETY: the caller's promises are the same.
    unsafe { post(object, prepare) }
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
    // SAFETY: the caller passes an open queue pair.
    let Some(object) = (unsafe { borrow::<QueuePair<O>>(qp) }) else { return NtStatus::INVALID_PARAMETER };
    // SAFETY: the caller passes an open region.
    let mr = unsafe { borrow::<MemoryRegion<O>>(mr) };
    // SAFETY: the caller passes an open window.
    let mw = unsafe { borrow::<MemoryWindow<O>>(mw) };
    let prepare = || {
        let (mr, mw) = (mr.ok_or(NtStatus::INVALID_PARAMETER)?, mw.ok_or(NtStatus::INVALID_PARAMETER)?);
        // SAFETY: the region is open until the consumer's call returns.
        let region = unsafe { mr.engine() }.ok_or(NtStatus::INVALID_PARAMETER)?;
        // SAFETY: the window is open until the consumer's call returns.
        let window = unsafe { mw.engine() }.ok_or(NtStatus::INVALID_PARAMETER)?;
        let what = Bind { address: address.addr() as u64, length: length as u64, rights: rights_of(flags) };
        object.pd().domain().prepare_bind(window, region, &what).map(Work::Bind)
    };
    // SAFETY: no other post to the queue runs (the caller's promise).
    unsafe { initiate_local(&object, context, flags, op_flags::BIND, prepare) }
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
    // SAFETY: the caller passes an open queue pair.
    let Some(object) = (unsafe { borrow::<QueuePair<O>>(qp) }) else { return NtStatus::INVALID_PARAMETER };
    // SAFETY: the caller passes an open region.
    let mr = unsafe { borrow::<MemoryRegion<O>>(mr) };
    let prepare = || {
        let mr = mr.ok_or(NtStatus::INVALID_PARAMETER)?;
        // SAFETY: the region is open until the consumer's call returns.
        let region = unsafe { mr.engine() }.ok_or(NtStatus::INVALID_PARAMETER)?;
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
    // SAFETY: no other post to the queue runs (the caller's promise).
    unsafe { initiate_local(&object, context, flags, op_flags::FAST_REGISTER, prepare) }
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
    // SAFETY: the pages are not null and valid for reading (the caller's promise); a logical address is 64 bits.
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
    // SAFETY: the caller passes an open queue pair.
    let Some(object) = (unsafe { borrow::<QueuePair<O>>(qp) }) else { return NtStatus::INVALID_PARAMETER };
    // SAFETY: the caller passes an open region, or something that is none.
    let mr = unsafe { borrow::<MemoryRegion<O>>(target.cast()) };
    // SAFETY: the caller passes an open window, or something that is none.
    let mw = unsafe { borrow::<MemoryWindow<O>>(target.cast()) };
    // A token names nothing in another adapter's table, or something else.
    let is_here = |device: &Shared<Device<O>>| Shared::ptr_eq(device, object.device());
    let prepare = || {
        if !mr.as_ref().is_none_or(|mr| is_here(mr.device())) || !mw.as_ref().is_none_or(|mw| is_here(mw.device())) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let token = if let Some(mr) = mr {
            // SAFETY: the region is open until the consumer's call returns.
            unsafe { mr.engine() }.ok_or(NtStatus::INVALID_PARAMETER)?.invalidation_token()?
        } else {
            let mw = mw.ok_or(NtStatus::INVALID_PARAMETER)?;
            // SAFETY: the window is open until the consumer's call returns.
            unsafe { mw.engine() }.ok_or(NtStatus::INVALID_PARAMETER)?.invalidation_token()
        };
        Ok(Work::Invalidate { token })
    };
    // SAFETY: no other post to the queue runs (the caller's promise).
    unsafe { initiate_local(&object, context, flags, op_flags::INVALIDATE, prepare) }
}
