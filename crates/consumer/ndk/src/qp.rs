//! Queue pairs (`NDKPI 5.7`, `NDKPI 7.2`, `NDKPI 7.3`).

use core::{ffi::c_void, ptr};

use ndkpi::{NDK_OP_FLAG_INLINE, NDK_QP, NDK_SGE, NtStatus};

use crate::{
    cq::{CompletionQueue, CqParts},
    fast::FastMr,
    flags::{Access, Flags},
    mr::{Mr, within},
    mw::Mw,
    object::{Object, Parts, slot},
    pd::{Pd, PdParts},
    sge::{Remote, RemoteToken, Sge, elements},
    srq::{Srq, SrqParts},
};

/// What a queue pair was created from; all of it closes after the queue pair.
pub struct QpParts {
    _pd: Object<PdParts>,
    _cqs: [Object<CqParts>; 2],
    _srq: Option<Object<SrqParts>>,
}

impl Parts for QpParts {
    type Raw = NDK_QP;
}

/// The sizes of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpSizes {
    /// The maximum number of receives. Not used with a shared receive queue.
    pub receives: u32,
    /// The maximum number of other requests.
    pub requests: u32,
    /// The maximum number of elements of a receive.
    pub receive_elements: u32,
    /// The maximum number of elements of other requests.
    pub request_elements: u32,
    /// The maximum number of inline bytes of a request.
    pub inline: u32,
}

impl Default for QpSizes {
    /// 16 requests in each queue, one element each, no inline bytes: every adapter supports this.
    fn default() -> Self {
        Self { receives: 16, requests: 16, receive_elements: 1, request_elements: 1, inline: 0 }
    }
}

/// A queue pair, as its two queues. Posts take `&mut`, because a queue takes one post at a time (`NDKPI 7.3`).
///
/// The two can be separated and used by different threads. The queue pair closes when both and its connection have been dropped.
pub struct Qp {
    /// Posts everything except receives.
    pub initiator: Initiator,
    /// Posts receives. Not usable if the queue pair has a shared receive queue.
    pub receiver: Receiver,
}

/// The initiator queue of a queue pair.
pub struct Initiator {
    pub(crate) object: Object<QpParts>,
}

/// The receive queue of a queue pair.
pub struct Receiver {
    pub(crate) object: Object<QpParts>,
}

mod sealed {
    use crate::object::Object;

    /// Something that has a queue pair.
    pub trait HasQp {
        /// The queue pair.
        fn qp(&self) -> &Object<super::QpParts>;
    }

    /// Something that requests can invalidate.
    pub trait HasRegistration {
        /// The object's header, if it belongs to the queue pair's adapter.
        fn header(&self, qp: &Object<super::QpParts>) -> Result<*mut ndkpi::NDK_OBJECT_HEADER, ndkpi::NtStatus>;
    }
}
use sealed::{HasQp, HasRegistration};

/// A [`Qp`] or one of its queues: a connector can connect either.
pub trait QueuePair: HasQp {
    /// Cancels everything in both queues; it completes with `STATUS_CANCELLED`. `IRQL <= DISPATCH_LEVEL`, even during a post.
    fn flush(&self) {
        let raw = self.qp().raw();
        if let Ok(function) = slot!(raw, NdkFlush) {
            // SAFETY: the queue pair is open.
            unsafe { function(raw) };
        }
    }
}

impl HasQp for Qp {
    fn qp(&self) -> &Object<QpParts> {
        &self.initiator.object
    }
}
impl HasQp for Initiator {
    fn qp(&self) -> &Object<QpParts> {
        &self.object
    }
}
impl HasQp for Receiver {
    fn qp(&self) -> &Object<QpParts> {
        &self.object
    }
}
impl QueuePair for Qp {}
impl QueuePair for Initiator {}
impl QueuePair for Receiver {}

impl Pd {
    /// Creates a queue pair whose receives complete to `receives` and all other requests to `requests`, which may be the same
    /// queue. Completions carry `context`. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// The provider's status: `STATUS_INVALID_PARAMETER` for sizes above the adapter's limits, and
    /// for queues of another adapter.
    pub fn create_qp(
        &self,
        receives: &impl CompletionQueue,
        requests: &impl CompletionQueue,
        sizes: QpSizes,
        context: usize,
    ) -> Result<Qp, NtStatus> {
        let function = slot!(self.object.raw(), NdkCreateQp)?;
        let (receives, requests) = (receives.cq(), requests.cq());
        self.object.same_adapter(receives)?;
        self.object.same_adapter(requests)?;
        let parts = QpParts { _pd: self.object.clone(), _cqs: [receives.clone(), requests.clone()], _srq: None };
        let object = Object::create(self.adapter(), parts, |_, completion, request, place| {
            // SAFETY: the domain and the completion queues are open and of one adapter; the context is a number, and that of the
            // request lives until it has completed.
            unsafe {
                function(
                    self.object.raw(),
                    receives.raw(),
                    requests.raw(),
                    number(context),
                    sizes.receives,
                    sizes.requests,
                    sizes.receive_elements,
                    sizes.request_elements,
                    sizes.inline,
                    completion,
                    request,
                    place,
                )
            }
        })?;
        Ok(Qp::of(object))
    }

    /// Like [`Pd::create_qp`] with a shared receive queue. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// The same as [`Pd::create_qp`].
    pub fn create_qp_with_srq(
        &self,
        receives: &impl CompletionQueue,
        requests: &impl CompletionQueue,
        srq: &Srq,
        sizes: QpSizes,
        context: usize,
    ) -> Result<Qp, NtStatus> {
        let function = slot!(self.object.raw(), NdkCreateQpWithSrq)?;
        let (receives, requests, srq) = (receives.cq(), requests.cq(), srq.object());
        self.object.same_adapter(receives)?;
        self.object.same_adapter(requests)?;
        self.object.same_adapter(srq)?;
        let parts =
            QpParts { _pd: self.object.clone(), _cqs: [receives.clone(), requests.clone()], _srq: Some(srq.clone()) };
        let object = Object::create(self.adapter(), parts, |_, completion, request, place| {
            // SAFETY: as in `create_qp`; the shared receive queue is open too.
            unsafe {
                function(
                    self.object.raw(),
                    receives.raw(),
                    requests.raw(),
                    srq.raw(),
                    number(context),
                    sizes.requests,
                    sizes.request_elements,
                    sizes.inline,
                    completion,
                    request,
                    place,
                )
            }
        })?;
        Ok(Qp::of(object))
    }
}

/// A context in the form NDKPI takes. It comes back with the completion and is never used as a pointer.
const fn number(context: usize) -> *mut c_void {
    ptr::without_provenance_mut(context)
}

impl Qp {
    fn of(object: Object<QpParts>) -> Self {
        Self { initiator: Initiator { object: object.clone() }, receiver: Receiver { object } }
    }
}

impl Receiver {
    /// Posts a receive. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// The provider's status; the request is not posted.
    pub fn receive(&mut self, context: usize, sgl: &[Sge<'_>]) -> Result<(), NtStatus> {
        let raw = self.object.raw();
        let function = slot!(raw, NdkReceive)?;
        let (first, count) = elements(sgl)?;
        // SAFETY: the queue pair is open, the elements are valid for the call, and nobody else posts to this queue.
        unsafe { function(raw, number(context), first, count) }.ok()
    }
}

/// `IRQL <= DISPATCH_LEVEL` for all of them. An error is the provider's status and means that the request is not posted.
#[expect(clippy::missing_errors_doc, reason = "the same for all: see above")]
impl Initiator {
    /// Posts a send.
    pub fn send(&mut self, context: usize, sgl: &[Sge<'_>], flags: Flags) -> Result<(), NtStatus> {
        let (first, count) = elements(sgl)?;
        self.send_elements(context, first, count, flags.bits())
    }

    /// Posts a send of inline bytes, at most `inline` of the queue pair. The provider copies them during the call.
    pub fn send_inline(&mut self, context: usize, bytes: &[u8], flags: Flags) -> Result<(), NtStatus> {
        let element = inline(bytes)?;
        self.send_elements(context, &raw const element, 1, flags.bits() | NDK_OP_FLAG_INLINE)
    }

    #[expect(clippy::needless_pass_by_ref_mut, reason = "it keeps two posts apart")]
    fn send_elements(&mut self, context: usize, first: *const NDK_SGE, count: u32, flags: u32) -> Result<(), NtStatus> {
        let raw = self.object.raw();
        let function = slot!(raw, NdkSend)?;
        // SAFETY: the queue pair is open, the elements are valid for the call, and nobody else posts to this queue.
        unsafe { function(raw, number(context), first, count, flags) }.ok()
    }

    /// Posts a send that invalidates a token of the peer before the peer gets the message. Before NDKPI 1.2:
    /// `STATUS_NOT_SUPPORTED`.
    ///
    /// The peers must have agreed on this (`NDKPI 7.6`).
    pub fn send_and_invalidate(
        &mut self,
        context: usize,
        sgl: &[Sge<'_>],
        token: RemoteToken,
        flags: Flags,
    ) -> Result<(), NtStatus> {
        let raw = self.object.raw();
        // SAFETY: the queue pair is open.
        let function = unsafe { NDK_QP::send_and_invalidate(raw) }.ok_or(NtStatus::NOT_SUPPORTED)?;
        let (first, count) = elements(sgl)?;
        // SAFETY: as in `send`.
        unsafe { function(raw, number(context), first, count, flags.bits(), token.to_bits()) }.ok()
    }

    /// Posts a write to the peer's memory.
    pub fn write(&mut self, context: usize, sgl: &[Sge<'_>], to: Remote, flags: Flags) -> Result<(), NtStatus> {
        let (first, count) = elements(sgl)?;
        self.write_elements(context, first, count, to, flags.bits())
    }

    /// Posts a write of inline bytes, at most `inline` of the queue pair. The provider copies them during the call.
    pub fn write_inline(&mut self, context: usize, bytes: &[u8], to: Remote, flags: Flags) -> Result<(), NtStatus> {
        let element = inline(bytes)?;
        self.write_elements(context, &raw const element, 1, to, flags.bits() | NDK_OP_FLAG_INLINE)
    }

    #[expect(clippy::needless_pass_by_ref_mut, reason = "it keeps two posts apart")]
    fn write_elements(
        &mut self,
        context: usize,
        first: *const NDK_SGE,
        count: u32,
        to: Remote,
        flags: u32,
    ) -> Result<(), NtStatus> {
        let raw = self.object.raw();
        let function = slot!(raw, NdkWrite)?;
        // SAFETY: as in `send_elements`.
        unsafe { function(raw, number(context), first, count, to.address, to.token.to_bits(), flags) }.ok()
    }

    /// Posts a read of the peer's memory. The elements need `Access::READ_SINK`, unless the adapter's flags say otherwise.
    pub fn read(&mut self, context: usize, sgl: &[Sge<'_>], from: Remote, flags: Flags) -> Result<(), NtStatus> {
        let raw = self.object.raw();
        let function = slot!(raw, NdkRead)?;
        let (first, count) = elements(sgl)?;
        // SAFETY: as in `send`.
        unsafe { function(raw, number(context), first, count, from.address, from.token.to_bits(), flags.bits()) }.ok()
    }

    /// Posts a bind of a window to `length` bytes of a region from `offset` on.
    pub fn bind(
        &mut self,
        context: usize,
        window: &Mw,
        region: &Mr,
        (offset, length): (usize, usize),
        access: Access,
        flags: Flags,
    ) -> Result<(), NtStatus> {
        let raw = self.object.raw();
        let function = slot!(raw, NdkBind)?;
        self.object.same_adapter(window.object())?;
        self.object.same_adapter(region.object())?;
        let address = within(region.memory(), offset, length)?;
        let flags = access.op_flags() | flags.bits();
        let (window, region) = (window.object().raw(), region.object().raw());
        // SAFETY: all three objects are open and of one adapter, and nobody else posts to this queue.
        unsafe { function(raw, number(context), region, window, address.cast(), length, flags) }.ok()
    }

    /// Posts a fast registration of `length` bytes of the region's mapping from `offset` on.
    pub fn fast_register(
        &mut self,
        context: usize,
        region: &FastMr,
        (offset, length): (usize, usize),
        access: Access,
        flags: Flags,
    ) -> Result<(), NtStatus> {
        let raw = self.object.raw();
        let function = slot!(raw, NdkFastRegister)?;
        self.object.same_adapter(region.object())?;
        let part = region.part(offset, length)?;
        let count = u32::try_from(part.pages.len()).map_err(|_| NtStatus::INVALID_PARAMETER)?;
        // SAFETY: both objects are open and of one adapter, the pages are valid for the call and belong to a mapping that
        // stays until the region's close has completed, and nobody else posts to this queue.
        unsafe {
            function(
                raw,
                number(context),
                region.object().raw(),
                count,
                part.pages.as_ptr(),
                part.offset,
                part.length,
                part.base.cast(),
                access.op_flags() | flags.bits(),
            )
        }
        .ok()
    }

    /// Posts an invalidation of a fast registration or of a window.
    pub fn invalidate(&mut self, context: usize, what: &impl Invalidate, flags: Flags) -> Result<(), NtStatus> {
        let raw = self.object.raw();
        let function = slot!(raw, NdkInvalidate)?;
        let header = what.header(&self.object)?;
        // SAFETY: both objects are open and of one adapter, and nobody else posts to this queue.
        unsafe { function(raw, number(context), header, flags.bits()) }.ok()
    }
}

/// The element of an inline request. The provider copies the bytes during the call and ignores the token.
fn inline(bytes: &[u8]) -> Result<NDK_SGE, NtStatus> {
    let length = u32::try_from(bytes.len()).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    Ok(NDK_SGE::new(bytes.as_ptr().cast_mut().cast(), length, 0))
}

/// A [`FastMr`] or an [`Mw`]: requests can invalidate either (`NDKPI 7.6`).
pub trait Invalidate: HasRegistration {}

impl HasRegistration for FastMr {
    fn header(&self, qp: &Object<QpParts>) -> Result<*mut ndkpi::NDK_OBJECT_HEADER, NtStatus> {
        qp.same_adapter(self.object())?;
        Ok(self.object().raw().cast())
    }
}
impl HasRegistration for Mw {
    fn header(&self, qp: &Object<QpParts>) -> Result<*mut ndkpi::NDK_OBJECT_HEADER, NtStatus> {
        qp.same_adapter(self.object())?;
        Ok(self.object().raw().cast())
    }
}
impl Invalidate for FastMr {}
impl Invalidate for Mw {}
