//! Shared receive queues (`NDKPI 5.6`, `NDKPI 7.12`).

use alloc::boxed::Box;
use core::{ffi::c_void, ptr};

use fallible::try_box;
use ndkpi::{NDK_SRQ, NtStatus};

use crate::{
    object::{Node, Object, Parts, slot},
    pd::{Pd, PdParts},
    request::{Kept, Pending, request},
    sge::{Sge, elements},
};

/// The parts of a shared receive queue.
pub struct SrqParts {
    handler: Box<dyn Fn(NtStatus) + Send + Sync>,
    _pd: Object<PdParts>,
}

impl Parts for SrqParts {
    type Raw = NDK_SRQ;
}

/// A shared receive queue: several queue pairs take receives from it.
pub struct Srq {
    pub(crate) object: Object<SrqParts>,
}

impl Pd {
    /// Creates a shared receive queue for `depth` receives of at most `elements` elements. `PASSIVE_LEVEL`.
    ///
    /// `handler` is called at `IRQL <= DISPATCH_LEVEL`: when fewer than `threshold` receives are left after
    /// [`Srq::notify_below`], and with an error status if the queue has failed.
    ///
    /// # Errors
    ///
    /// The provider's status: `STATUS_INVALID_PARAMETER` for sizes above the adapter's limits. An adapter with a `MaxSrqDepth` of
    /// 0 has no shared receive queues.
    pub fn create_srq(
        &self,
        depth: u32,
        elements: u32,
        threshold: u32,
        handler: impl Fn(NtStatus) + Send + Sync + 'static,
    ) -> Result<Srq, NtStatus> {
        let function = slot!(self.object.raw(), NdkCreateSrq)?;
        let parts = SrqParts { handler: try_box(handler)?, _pd: self.object.clone() };
        let object = Object::create(self.adapter(), parts, |node, completion, context, place| {
            // SAFETY: the domain is open, both contexts live until the close or the request has completed, and there is no
            // affinity.
            unsafe {
                function(
                    self.object.raw(),
                    depth,
                    elements,
                    threshold,
                    Some(notified),
                    node.context(),
                    ptr::null(),
                    completion,
                    context,
                    place,
                )
            }
        })?;
        Ok(Srq { object })
    }
}

impl Srq {
    pub(crate) const fn object(&self) -> &Object<SrqParts> {
        &self.object
    }

    /// Posts a receive for whichever queue pair needs it next. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// The provider's status; the request is not posted.
    pub fn receive(&mut self, context: usize, sgl: &[Sge<'_>]) -> Result<(), NtStatus> {
        let raw = self.object.raw();
        let function = slot!(raw, NdkSrqReceive)?;
        let (first, count) = elements(sgl)?;
        // SAFETY: the queue is open, the elements are valid for the call, and nobody else posts to it.
        unsafe { function(raw, ptr::without_provenance_mut(context), first, count) }.ok()
    }

    /// Requests one call of the handler when fewer than `threshold` receives are left, at once if that is already so. `IRQL <=
    /// DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if `threshold` is 0; `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn notify_below(&self, threshold: u32) -> Result<Pending<()>, NtStatus> {
        if threshold == 0 {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let raw = self.object.raw();
        let function = slot!(raw, NdkModifySrq)?;
        request(self.object.adapter(), Kept::default(), (), |(), _, completion, context| {
            // SAFETY: the queue is open, and the context lives until the request has completed.
            unsafe { function(raw, 0, threshold, completion, context) }
        })
    }
}

/// `NDK_FN_SRQ_NOTIFICATION_CALLBACK`.
///
/// # Safety
///
/// `context` is the node of an open shared receive queue.
unsafe extern "system" fn notified(context: *mut c_void, status: NtStatus) {
    // SAFETY: the node of an open queue (`# Safety`), which lives until the close has completed: that waits for this callback.
    let node = unsafe { &*context.cast_const().cast::<Node<SrqParts>>() };
    (node.parts.handler)(status);
}
