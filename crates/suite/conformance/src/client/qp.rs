//! `NDK_QP` (`NDKPI 5.7`, `NDKPI 7.2`, `NDKPI 7.3`).

use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
};

use ndkpi::{NDK_LOGICAL_ADDRESS, NDK_MR, NDK_MW, NDK_OP_FLAG_INLINE, NDK_QP, NDK_SGE, NtStatus};

use super::{
    life::{Call, Core, Kind, Life, Owned},
    mr::MrCore,
    mw::MwCore,
    session::Session,
};
use crate::case::{Check, Stop};

/// A queue pair.
pub type Qp<'s> = Owned<'s, QpCore<'s>>;

/// A queue pair, as callbacks and other threads see it.
pub struct QpCore<'s> {
    life: Life<'s>,
    /// A thread posts to the queue (`NDKPI 7.3`).
    initiating: AtomicBool,
    receiving: AtomicBool,
}

/// Memory of the peer, by token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The address, in the peer's terms.
    pub address: u64,
    /// The token.
    pub token: u32,
}

/// A fast registration (`NDKPI 7.4`).
#[derive(Clone, Copy, Debug)]
pub struct FastRegistration<'a> {
    /// The pages, in the adapter's space.
    pub pages: &'a [NDK_LOGICAL_ADDRESS],
    /// The first byte inside the first page.
    pub offset: u32,
    /// The number of bytes.
    pub length: usize,
    /// The address of the first byte, as users of the region name it.
    pub base: u64,
    /// `NDK_OP_FLAG_` bits.
    pub flags: u32,
}

impl<'s> Core<'s> for QpCore<'s> {
    type Public = NDK_QP;
    const KIND: Kind = Kind::Qp;

    fn life(&self) -> &Life<'s> {
        &self.life
    }
}

impl<'s> QpCore<'s> {
    pub(super) const fn new(life: Life<'s>) -> Self {
        Self { life, initiating: AtomicBool::new(false), receiving: AtomicBool::new(false) }
    }

    /// Its life.
    #[must_use]
    pub const fn life(&self) -> &Life<'s> {
        &self.life
    }

    /// The session.
    #[must_use]
    pub const fn session(&self) -> &'s Session<'s> {
        self.life.session()
    }

    /// Calls `function` with the queue pair. Nothing else posts to the queue meanwhile.
    fn post(&self, queue: &AtomicBool, function: impl FnOnce(&Call<'_, 's>) -> Check<NtStatus>) -> Check<NtStatus> {
        let call = self.life.call()?;
        ensure!(!queue.swap(true, Acquire), "the case posts to one queue twice at a time (NDKPI 7.3)");
        let result = function(&call);
        queue.store(false, Release);
        if result == Ok(NtStatus::PENDING) {
            fail!("a post returned {} (NDKPI 5.0, P3)", NtStatus::PENDING);
        }
        result
    }

    /// `NdkFlush`.
    ///
    /// # Errors
    ///
    /// The queue pair is closed.
    pub fn flush(&self) -> Check {
        let call = self.life.call()?;
        let (qp, function) = slot!(call, NDK_QP, NdkFlush);
        // SAFETY: the queue pair is open.
        unsafe { function(qp) };
        Ok(())
    }

    /// `NdkReceive`.
    ///
    /// # Errors
    ///
    /// The queue pair is closed, or the case posts twice at a time.
    pub fn receive(&self, context: usize, list: &[NDK_SGE]) -> Check<NtStatus> {
        self.post(&self.receiving, |call| {
            let (qp, function) = slot!(call, NDK_QP, NdkReceive);
            let (elements, count) = parts(list);
            // SAFETY: the queue pair is open, no other receive is being posted, the list is valid for the call.
            Ok(unsafe { function(qp, number(context), elements, count) })
        })
    }

    /// `NdkReceive` with entries but no list: against the rules of the call.
    ///
    /// # Errors
    ///
    /// Like [`QpCore::receive`].
    pub fn receive_nowhere(&self, context: usize, count: u32) -> Check<NtStatus> {
        self.post(&self.receiving, |call| {
            let (qp, function) = slot!(call, NDK_QP, NdkReceive);
            // SAFETY: as in `receive`, but for the null pointer, which the provider has to see.
            Ok(unsafe { function(qp, number(context), ptr::null(), count) })
        })
    }

    /// `NdkSend`.
    ///
    /// # Errors
    ///
    /// Like [`QpCore::receive`].
    pub fn send(&self, context: usize, list: &[NDK_SGE], flags: u32) -> Check<NtStatus> {
        not_inline(flags)?;
        // SAFETY: not inline.
        unsafe { self.send_list(context, parts(list), flags) }
    }

    /// `NdkSend` with entries but no list: against the rules of the call.
    ///
    /// # Errors
    ///
    /// Like [`QpCore::receive`].
    pub fn send_nowhere(&self, context: usize, count: u32, flags: u32) -> Check<NtStatus> {
        not_inline(flags)?;
        // SAFETY: not inline; the null pointer is for the provider to see.
        unsafe { self.send_list(context, (ptr::null(), count), flags) }
    }

    /// `NdkSend` with inline data.
    ///
    /// # Errors
    ///
    /// Like [`QpCore::receive`]; the case gives too many pieces.
    pub fn send_inline(&self, context: usize, pieces: &[&[u8]], flags: u32) -> Check<NtStatus> {
        with_inline(pieces, |list| {
            // SAFETY: the list names bytes that are valid for the call.
            unsafe { self.send_list(context, parts(list), flags | NDK_OP_FLAG_INLINE) }
        })
    }

    /// # Safety
    ///
    /// With the inline flag the elements name bytes that are valid for reading.
    unsafe fn send_list(&self, context: usize, list: (*const NDK_SGE, u32), flags: u32) -> Check<NtStatus> {
        self.post(&self.initiating, |call| {
            let (qp, function) = slot!(call, NDK_QP, NdkSend);
            // SAFETY: the queue pair is open, no other request is being posted, the list is valid for the call or null.
            Ok(unsafe { function(qp, number(context), list.0, list.1, flags) })
        })
    }

    /// `NdkSendAndInvalidate`; skips the case if the version has no such slot.
    ///
    /// # Errors
    ///
    /// Like [`QpCore::receive`].
    pub fn send_and_invalidate(&self, context: usize, list: &[NDK_SGE], flags: u32, token: u32) -> Check<NtStatus> {
        not_inline(flags)?;
        // SAFETY: not inline.
        unsafe { self.send_and_invalidate_list(context, list, flags, token) }
    }

    /// `NdkSendAndInvalidate` with inline data.
    ///
    /// # Errors
    ///
    /// Like [`QpCore::receive`]; the case gives too many pieces.
    pub fn send_and_invalidate_inline(
        &self,
        context: usize,
        pieces: &[&[u8]],
        flags: u32,
        token: u32,
    ) -> Check<NtStatus> {
        with_inline(pieces, |list| {
            // SAFETY: the list names bytes that are valid for the call.
            unsafe { self.send_and_invalidate_list(context, list, flags | NDK_OP_FLAG_INLINE, token) }
        })
    }

    /// # Safety
    ///
    /// With the inline flag the elements name bytes that are valid for reading.
    unsafe fn send_and_invalidate_list(
        &self,
        context: usize,
        list: &[NDK_SGE],
        flags: u32,
        token: u32,
    ) -> Check<NtStatus> {
        self.post(&self.initiating, |call| {
            let qp: *mut NDK_QP = call.object();
            // SAFETY: the queue pair is open.
            let function = unsafe { NDK_QP::send_and_invalidate(qp) };
            let function = function.ok_or_else(|| Stop::skipped(format_args!("NdkSendAndInvalidate came with 1.2")))?;
            let (elements, count) = parts(list);
            // SAFETY: the queue pair is open, no other request is being posted, the list is valid for the call.
            Ok(unsafe { function(qp, number(context), elements, count, flags, token) })
        })
    }

    /// `NdkRead`.
    ///
    /// # Errors
    ///
    /// Like [`QpCore::receive`].
    pub fn read(&self, context: usize, list: &[NDK_SGE], remote: Remote, flags: u32) -> Check<NtStatus> {
        not_inline(flags)?;
        self.post(&self.initiating, |call| {
            let (qp, function) = slot!(call, NDK_QP, NdkRead);
            let (elements, count) = parts(list);
            // SAFETY: the queue pair is open, no other request is being posted, the list is valid for the call.
            Ok(unsafe { function(qp, number(context), elements, count, remote.address, remote.token, flags) })
        })
    }

    /// `NdkWrite`.
    ///
    /// # Errors
    ///
    /// Like [`QpCore::receive`].
    pub fn write(&self, context: usize, list: &[NDK_SGE], remote: Remote, flags: u32) -> Check<NtStatus> {
        not_inline(flags)?;
        // SAFETY: not inline.
        unsafe { self.write_list(context, list, remote, flags) }
    }

    /// `NdkWrite` with inline data.
    ///
    /// # Errors
    ///
    /// Like [`QpCore::receive`]; the case gives too many pieces.
    pub fn write_inline(&self, context: usize, pieces: &[&[u8]], remote: Remote, flags: u32) -> Check<NtStatus> {
        with_inline(pieces, |list| {
            // SAFETY: the list names bytes that are valid for the call.
            unsafe { self.write_list(context, list, remote, flags | NDK_OP_FLAG_INLINE) }
        })
    }

    /// # Safety
    ///
    /// With the inline flag the elements name bytes that are valid for reading.
    unsafe fn write_list(&self, context: usize, list: &[NDK_SGE], remote: Remote, flags: u32) -> Check<NtStatus> {
        self.post(&self.initiating, |call| {
            let (qp, function) = slot!(call, NDK_QP, NdkWrite);
            let (elements, count) = parts(list);
            // SAFETY: the queue pair is open, no other request is being posted, the list is valid for the call.
            Ok(unsafe { function(qp, number(context), elements, count, remote.address, remote.token, flags) })
        })
    }

    /// `NdkBind`.
    ///
    /// # Errors
    ///
    /// Like [`QpCore::receive`].
    pub fn bind(
        &self,
        context: usize,
        mr: &MrCore<'_>,
        mw: &MwCore<'_>,
        address: u64,
        length: usize,
        flags: u32,
    ) -> Check<NtStatus> {
        let (mr, mw) = (mr.life().call()?, mw.life().call()?);
        let (region, window): (*mut NDK_MR, *mut NDK_MW) = (mr.object(), mw.object());
        self.post(&self.initiating, |call| {
            let (qp, function) = slot!(call, NDK_QP, NdkBind);
            // SAFETY: the objects are open, no other request is being posted.
            Ok(unsafe { function(qp, number(context), region, window, index(address), length, flags) })
        })
    }

    /// `NdkBind` with objects that may be of other kinds: against the rules of the call.
    ///
    /// # Errors
    ///
    /// Like [`QpCore::receive`].
    pub fn bind_any(&self, context: usize, region: &Life<'_>, window: &Life<'_>) -> Check<NtStatus> {
        let (region, window) = (region.call()?, window.call()?);
        let (region, window): (*mut NDK_MR, *mut NDK_MW) = (region.object(), window.object());
        self.post(&self.initiating, |call| {
            let (qp, function) = slot!(call, NDK_QP, NdkBind);
            // SAFETY: as in `bind`, but for the kinds of the objects, which are open: the provider has to see that.
            Ok(unsafe { function(qp, number(context), region, window, ptr::null_mut(), 0, 0) })
        })
    }

    /// `NdkInvalidate` of an object that may be of another kind: against the rules of the call.
    ///
    /// # Errors
    ///
    /// Like [`QpCore::receive`].
    pub fn invalidate_any(&self, context: usize, object: &Life<'_>) -> Check<NtStatus> {
        self.invalidate(context, &object.call()?, 0)
    }

    /// `NdkFastRegister`.
    ///
    /// # Errors
    ///
    /// Like [`QpCore::receive`].
    pub fn fast_register(&self, context: usize, mr: &MrCore<'_>, new: &FastRegistration<'_>) -> Check<NtStatus> {
        let mr = mr.life().call()?;
        let region: *mut NDK_MR = mr.object();
        let count = u32::try_from(new.pages.len()).unwrap_or(u32::MAX);
        self.post(&self.initiating, |call| {
            let (qp, function) = slot!(call, NDK_QP, NdkFastRegister);
            // SAFETY: the objects are open, no other request is being posted, the pages are valid for the call.
            Ok(unsafe {
                function(
                    qp,
                    number(context),
                    region,
                    count,
                    new.pages.as_ptr(),
                    new.offset,
                    new.length,
                    index(new.base),
                    new.flags,
                )
            })
        })
    }

    /// `NdkInvalidate` of a region.
    ///
    /// # Errors
    ///
    /// Like [`QpCore::receive`].
    pub fn invalidate_mr(&self, context: usize, mr: &MrCore<'_>, flags: u32) -> Check<NtStatus> {
        self.invalidate(context, &mr.life().call()?, flags)
    }

    /// `NdkInvalidate` of a window.
    ///
    /// # Errors
    ///
    /// Like [`QpCore::receive`].
    pub fn invalidate_mw(&self, context: usize, mw: &MwCore<'_>, flags: u32) -> Check<NtStatus> {
        self.invalidate(context, &mw.life().call()?, flags)
    }

    fn invalidate(&self, context: usize, object: &Call<'_, '_>, flags: u32) -> Check<NtStatus> {
        self.post(&self.initiating, |call| {
            let (qp, function) = slot!(call, NDK_QP, NdkInvalidate);
            // SAFETY: the objects are open, no other request is being posted.
            Ok(unsafe { function(qp, number(context), object.header(), flags) })
        })
    }
}

/// Refuses a flag with which the elements would have to be valid for reading.
fn not_inline(flags: u32) -> Check {
    ensure!(flags & NDK_OP_FLAG_INLINE == 0, "the case gives elements with the inline flag");
    Ok(())
}

fn parts(list: &[NDK_SGE]) -> (*const NDK_SGE, u32) {
    let count = u32::try_from(list.len()).unwrap_or(u32::MAX);
    (if list.is_empty() { ptr::null() } else { list.as_ptr() }, count)
}

const fn number(context: usize) -> *mut c_void {
    ptr::without_provenance_mut(context)
}

/// An address that is only compared and subtracted.
#[expect(clippy::cast_possible_truncation, reason = "64-bit only")]
const fn index(address: u64) -> *mut c_void {
    ptr::without_provenance_mut(address as usize)
}

/// Makes elements for bytes of this side. The token is ignored (`NDKPI 7.3`), so it is a wrong one.
fn with_inline(pieces: &[&[u8]], work: impl FnOnce(&[NDK_SGE]) -> Check<NtStatus>) -> Check<NtStatus> {
    const MOST: usize = 32;
    ensure!(pieces.len() <= MOST, "the case gives more than {MOST} inline pieces");
    let mut list = [NDK_SGE::new(ptr::null_mut(), 0, 0); MOST];
    for (element, piece) in list.iter_mut().zip(pieces) {
        let length = u32::try_from(piece.len()).unwrap_or(u32::MAX);
        *element = NDK_SGE::new(piece.as_ptr().cast_mut().cast(), length, 0xBAD0_70CE);
    }
    work(&list[..pieces.len()])
}
