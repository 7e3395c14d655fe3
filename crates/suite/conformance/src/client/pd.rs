//! `NDK_PD` (`NDKPI 5.3`).

use core::{ffi::c_void, ptr};

use ndkpi::{
    NDK_ADAPTER_INFO, NDK_CQ, NDK_FN_SRQ_NOTIFICATION_CALLBACK, NDK_MR, NDK_MW, NDK_PD, NDK_QP, NDK_SRQ, NtStatus,
};

use super::{
    adapter::Adapter,
    cq::CqCore,
    life::{Core, Kind, Life, Owned},
    mr::{Mr, MrCore},
    mw::{Mw, MwCore},
    qp::{Qp, QpCore},
    request::create,
    session::Session,
    srq::{Srq, SrqCore, SrqHook, srq_notified},
};
use crate::case::{Check, Stop};

/// A protection domain.
pub type Pd<'s> = Owned<'s, PdCore<'s>>;

/// A protection domain, as other threads see it.
pub struct PdCore<'s> {
    life: Life<'s>,
    adapter: Adapter<'s>,
}

/// The sizes of a queue pair (`NDKPI 5.3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpSizes {
    /// The most outstanding receives. Unused with a shared receive queue.
    pub receive_depth: u32,
    /// The most outstanding initiator requests.
    pub initiator_depth: u32,
    /// The most elements of a receive. Unused with a shared receive queue.
    pub receive_sge: u32,
    /// The most elements of an initiator request.
    pub initiator_sge: u32,
    /// The most inline bytes of a request.
    pub inline: u32,
}

impl QpSizes {
    /// As many elements and inline bytes as the adapter allows, the depths as they are.
    #[must_use]
    pub fn within(self, info: &NDK_ADAPTER_INFO) -> Self {
        Self {
            receive_sge: self.receive_sge.min(info.MaxReceiveRequestSge),
            initiator_sge: self.initiator_sge.min(info.MaxInitiatorRequestSge),
            inline: self.inline.min(info.MaxInlineDataSize),
            ..self
        }
    }
}

impl<'s> Core<'s> for PdCore<'s> {
    type Public = NDK_PD;
    const KIND: Kind = Kind::Pd;

    fn life(&self) -> &Life<'s> {
        &self.life
    }
}

impl<'s> PdCore<'s> {
    pub(super) const fn new(life: Life<'s>, adapter: Adapter<'s>) -> Self {
        Self { life, adapter }
    }

    /// The session.
    #[must_use]
    pub const fn session(&self) -> &'s Session<'s> {
        self.life.session()
    }

    /// The adapter.
    #[must_use]
    pub const fn adapter(&self) -> Adapter<'s> {
        self.adapter
    }

    /// Creates a memory region for fast registrations, or for plain ones.
    ///
    /// # Errors
    ///
    /// It is not created.
    pub fn create_mr(&'s self, fast: bool) -> Check<Mr<'s>> {
        let session = self.session();
        let core = session.keep(MrCore::new(Life::new(session, Kind::Mr, &[&self.life])))?;
        let call = self.life.call()?;
        let (pd, function) = slot!(call, NDK_PD, NdkCreateMr);
        let created = create::<NDK_MR>(session, Some(&self.life), "NdkCreateMr", |completion, context, place| {
            // SAFETY: the domain is open, the context is kept by the session.
            unsafe { function(pd, fast.into(), completion, context, place) }
        })?;
        let object = created.map_err(|status| Stop::status("NdkCreateMr", status))?;
        // SAFETY: the object was just created for this core.
        Ok(unsafe { Owned::adopt(core, object, self.adapter.version()) })
    }

    /// Creates a memory window.
    ///
    /// # Errors
    ///
    /// It is not created.
    pub fn create_mw(&'s self) -> Check<Mw<'s>> {
        let session = self.session();
        let core = session.keep(MwCore::new(Life::new(session, Kind::Mw, &[&self.life])))?;
        let call = self.life.call()?;
        let (pd, function) = slot!(call, NDK_PD, NdkCreateMw);
        let created = create::<NDK_MW>(session, Some(&self.life), "NdkCreateMw", |completion, context, place| {
            // SAFETY: the domain is open, the context is kept by the session.
            unsafe { function(pd, completion, context, place) }
        })?;
        let object = created.map_err(|status| Stop::status("NdkCreateMw", status))?;
        // SAFETY: the object was just created for this core.
        Ok(unsafe { Owned::adopt(core, object, self.adapter.version()) })
    }

    /// Creates a shared receive queue, or says why there is none.
    ///
    /// # Errors
    ///
    /// The provider breaks the rules of create requests.
    pub fn try_create_srq(
        &'s self,
        depth: u32,
        sge: u32,
        threshold: u32,
        hook: Option<SrqHook<'s>>,
        notified: bool,
    ) -> Check<Result<Srq<'s>, NtStatus>> {
        let session = self.session();
        let core = session.keep(SrqCore::new(Life::new(session, Kind::Srq, &[&self.life]), hook))?;
        let call = self.life.call()?;
        let (pd, function) = slot!(call, NDK_PD, NdkCreateSrq);
        let notification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK> = notified.then_some(srq_notified);
        let created = create::<NDK_SRQ>(session, Some(&self.life), "NdkCreateSrq", |completion, context, place| {
            // SAFETY: the domain is open, the contexts are kept by the session.
            unsafe {
                function(
                    pd,
                    depth,
                    sge,
                    threshold,
                    notification,
                    core.context(),
                    ptr::null(),
                    completion,
                    context,
                    place,
                )
            }
        })?;
        // SAFETY: the object was just created for this core.
        Ok(created.map(|object| unsafe { Owned::adopt(core, object, self.adapter.version()) }))
    }

    /// Creates a queue pair, with as many elements and inline bytes as the adapter allows.
    ///
    /// # Errors
    ///
    /// It is not created.
    pub fn create_qp(
        &'s self,
        receive: &'s CqCore<'s>,
        initiator: &'s CqCore<'s>,
        context: usize,
        sizes: QpSizes,
    ) -> Check<Qp<'s>> {
        let created = self.try_create_qp(receive, initiator, context, sizes.within(self.adapter.info()))?;
        created.map_err(|status| Stop::status("NdkCreateQp", status))
    }

    /// Creates a queue pair, or says why there is none.
    ///
    /// # Errors
    ///
    /// The provider breaks the rules of create requests.
    pub fn try_create_qp(
        &'s self,
        receive: &'s CqCore<'s>,
        initiator: &'s CqCore<'s>,
        context: usize,
        sizes: QpSizes,
    ) -> Check<Result<Qp<'s>, NtStatus>> {
        let session = self.session();
        let antecedents = [&self.life, receive.life(), initiator.life()];
        let core = session.keep(QpCore::new(Life::new(session, Kind::Qp, &antecedents)))?;
        let call = self.life.call()?;
        let receive_call = receive.life().call()?;
        let initiator_call = initiator.life().call()?;
        let (receive_cq, initiator_cq): (*mut NDK_CQ, *mut NDK_CQ) = (receive_call.object(), initiator_call.object());
        let (pd, function) = slot!(call, NDK_PD, NdkCreateQp);
        let qp_context: *mut c_void = ptr::without_provenance_mut(context);
        let created = create::<NDK_QP>(session, Some(&self.life), "NdkCreateQp", |completion, context, place| {
            // SAFETY: the domain and the queues are open, the context is kept by the session.
            unsafe {
                function(
                    pd,
                    receive_cq,
                    initiator_cq,
                    qp_context,
                    sizes.receive_depth,
                    sizes.initiator_depth,
                    sizes.receive_sge,
                    sizes.initiator_sge,
                    sizes.inline,
                    completion,
                    context,
                    place,
                )
            }
        })?;
        // SAFETY: the object was just created for this core.
        Ok(created.map(|object| unsafe { Owned::adopt(core, object, self.adapter.version()) }))
    }

    /// Creates a queue pair that takes its receives from a shared queue, or says why there is none.
    ///
    /// # Errors
    ///
    /// The provider breaks the rules of create requests.
    pub fn try_create_qp_with_srq(
        &'s self,
        receive: &'s CqCore<'s>,
        initiator: &'s CqCore<'s>,
        srq: &'s SrqCore<'s>,
        context: usize,
        sizes: QpSizes,
    ) -> Check<Result<Qp<'s>, NtStatus>> {
        let session = self.session();
        let antecedents = [&self.life, receive.life(), initiator.life(), srq.life()];
        let core = session.keep(QpCore::new(Life::new(session, Kind::Qp, &antecedents)))?;
        let call = self.life.call()?;
        let receive_call = receive.life().call()?;
        let initiator_call = initiator.life().call()?;
        let srq_call = srq.life().call()?;
        let (receive_cq, initiator_cq): (*mut NDK_CQ, *mut NDK_CQ) = (receive_call.object(), initiator_call.object());
        let srq: *mut NDK_SRQ = srq_call.object();
        let (pd, function) = slot!(call, NDK_PD, NdkCreateQpWithSrq);
        let qp_context: *mut c_void = ptr::without_provenance_mut(context);
        let created =
            create::<NDK_QP>(session, Some(&self.life), "NdkCreateQpWithSrq", |completion, context, place| {
                // SAFETY: the domain and the queues are open, the context is kept by the session.
                unsafe {
                    function(
                        pd,
                        receive_cq,
                        initiator_cq,
                        srq,
                        qp_context,
                        sizes.initiator_depth,
                        sizes.initiator_sge,
                        sizes.inline,
                        completion,
                        context,
                        place,
                    )
                }
            })?;
        // SAFETY: the object was just created for this core.
        Ok(created.map(|object| unsafe { Owned::adopt(core, object, self.adapter.version()) }))
    }

    /// `NdkGetPrivilegedMemoryRegionToken`.
    ///
    /// # Errors
    ///
    /// The domain is closed.
    pub fn privileged_token(&self) -> Check<u32> {
        let call = self.life.call()?;
        let (pd, function) = slot!(call, NDK_PD, NdkGetPrivilegedMemoryRegionToken);
        let mut token = 0;
        // SAFETY: the domain is open, the token is valid for writing.
        unsafe { function(pd, &raw mut token) };
        Ok(token)
    }
}
