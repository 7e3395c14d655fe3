//! `NDK_QP`: creation, flush, close (`NDKPI 5.3`, `NDKPI 7.2`). [`crate::post`] posts to it.

use core::ffi::c_void;

use engine::qp::{NewQp, Qp, QpParameters, RqProducer, SqProducer};
use fallible::Arc;
use ndkpi::{NDK_CQ, NDK_QP, NDK_QP_DISPATCH, NDK_VERSION, NtStatus};

use crate::{
    NdkOs,
    borrow::{Exclusive, Lender, Slot},
    cq::CompletionQueue,
    device::Device,
    dispatch,
    object::{Body, Borrowed, EngineObject, ObjectRef, borrow, close, kind, query_extension},
    pd::ProtectionDomain,
    post,
    srq::SharedReceiveQueue,
};

/// The sizes that a consumer asks for.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Receives outstanding at most.
    pub receive_depth: u32,
    /// Initiator requests outstanding at most.
    pub initiator_depth: u32,
    /// Elements of a receive at most.
    pub max_receive_sge: u32,
    /// Elements of an initiator request at most.
    pub max_initiator_sge: u32,
    /// Inline bytes of a request at most.
    pub inline_size: u32,
}

/// The completion queues of a new queue pair.
pub struct Cqs<O: NdkOs> {
    receive: Borrowed<CompletionQueue<O>>,
    initiator: Borrowed<CompletionQueue<O>>,
}

impl<O: NdkOs> Cqs<O> {
    /// Borrows the queues that a consumer names.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if one is no completion queue.
    ///
    /// # Safety
    ///
    /// The queues are open as long as the result is used.
    pub unsafe fn borrow(receive: *mut NDK_CQ, initiator: *mut NDK_CQ) -> Result<Self, NtStatus> {
        // SAFETY: the queue is open (`# Safety`).
        let receive = unsafe { borrow(receive) }?;
        // SAFETY: this queue too is open (`# Safety`).
        let initiator = unsafe { borrow(initiator) }?;
        Ok(Self { receive, initiator })
    }
}

/// A queue pair.
pub struct QueuePair<O: NdkOs> {
    send_queue: Exclusive<SqProducer>,
    receive_queue: Exclusive<RqProducer>,
    qp: Slot<Arc<Qp<O>>>,
    pd: ObjectRef<ProtectionDomain<O>>,
    /// The queues it uses close after it (`NDKPI 7.9`).
    _cqs: [ObjectRef<CompletionQueue<O>>; 2],
    srq: Option<ObjectRef<SharedReceiveQueue<O>>>,
}

impl<O: NdkOs> QueuePair<O> {
    /// Makes a queue pair in `pd`.
    pub fn create(
        pd: &ObjectRef<ProtectionDomain<O>>,
        cqs: &Cqs<O>,
        srq: Option<&Borrowed<SharedReceiveQueue<O>>>,
        context: *mut c_void,
        sizes: Sizes,
    ) -> Result<ObjectRef<Self>, NtStatus> {
        let device = pd.device();
        let info = &device.config().info;
        let within_limits = [
            (sizes.receive_depth, info.MaxReceiveQueueDepth),
            (sizes.initiator_depth, info.MaxInitiatorQueueDepth),
            (sizes.max_receive_sge, info.MaxReceiveRequestSge),
            (sizes.max_initiator_sge, info.MaxInitiatorRequestSge),
            (sizes.inline_size, info.MaxInlineDataSize),
        ]
        .iter()
        .all(|(wanted, limit)| wanted <= limit);
        let Cqs { receive, initiator } = cqs;
        let devices = [Some(receive.device()), Some(initiator.device()), srq.map(|srq| srq.device())];
        let same_adapter = devices.into_iter().flatten().all(|other| Arc::ptr_eq(other, device));
        if !within_limits || !same_adapter {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let srq_engine = srq.map(Borrowed::engine).transpose()?;
        device.qps.take()?;
        // From here on, dropping the object gives the place back.
        let body = Self {
            send_queue: Exclusive::empty(),
            receive_queue: Exclusive::empty(),
            qp: Slot::empty(),
            pd: pd.clone(),
            _cqs: [ObjectRef::clone(receive), ObjectRef::clone(initiator)],
            srq: srq.map(|srq| ObjectRef::clone(srq)),
        };
        let object = ObjectRef::try_new(pd.adapter().version(), body)?;
        let parameters = QpParameters {
            receive_depth: sizes.receive_depth,
            initiator_depth: sizes.initiator_depth,
            max_receive_sge: sizes.max_receive_sge,
            max_initiator_sge: sizes.max_initiator_sge,
            max_peer_sge: info.MaxReceiveRequestSge,
            inline_size: sizes.inline_size,
            max_transfer: info.MaxTransferLength,
            context: context.expose_provenance(),
        };
        let NewQp { qp, send_queue, receive_queue } = Qp::try_new(
            device.nic(),
            pd.domain(),
            receive.engine()?,
            initiator.engine()?,
            srq_engine,
            &parameters,
            object.clone(),
        )?;
        // SAFETY: the object is being made: nobody else knows it.
        unsafe {
            object.qp.replace(Some(qp));
            object.send_queue.replace(Some(send_queue));
        }
        if srq.is_none() {
            // SAFETY: nobody else knows the object yet.
            unsafe { object.receive_queue.replace(Some(receive_queue)) };
        }
        Ok(object)
    }

    /// The poster's end of the initiator queue, for a post.
    ///
    /// # Safety
    ///
    /// The object is open, and no other post to its initiator queue runs (`NDKPI 7.3`).
    #[inline]
    pub const unsafe fn send_queue(&self) -> Lender<'_, SqProducer> {
        // SAFETY: no other post to the queue runs (`# Safety`).
        unsafe { self.send_queue.lender() }
    }

    /// The poster's end of the receive queue, for a post.
    ///
    /// # Safety
    ///
    /// The object is open, and no other post to its receive queue runs (`NDKPI 7.3`).
    #[inline]
    pub const unsafe fn receive_queue(&self) -> Lender<'_, RqProducer> {
        // SAFETY: no other post to the queue runs (`# Safety`).
        unsafe { self.receive_queue.lender() }
    }

    /// The protection domain of the queue pair.
    pub const fn pd(&self) -> &ObjectRef<ProtectionDomain<O>> {
        &self.pd
    }

    /// Returns true if receives come from a shared receive queue.
    pub const fn has_srq(&self) -> bool {
        self.srq.is_some()
    }

    const TABLE: &'static NDK_QP_DISPATCH = &NDK_QP_DISPATCH {
        NdkCloseQp: Some(close::<Self>),
        NdkQueryExtension: Some(query_extension),
        NdkFlush: Some(flush::<O>),
        NdkSend: Some(post::send::<O>),
        NdkReceive: Some(post::receive::<O>),
        NdkBind: Some(post::bind::<O>),
        NdkFastRegister: Some(post::fast_register::<O>),
        NdkInvalidate: Some(post::invalidate::<O>),
        NdkRead: Some(post::read::<O>),
        NdkWrite: Some(post::write::<O>),
        NdkSendAndInvalidate: Some(post::send_and_invalidate::<O>),
    };
}

impl<O: NdkOs> Drop for QueuePair<O> {
    fn drop(&mut self) {
        self.pd.device().qps.give_back();
    }
}

impl<O: NdkOs> Body for QueuePair<O> {
    kind!(Qp, b"NdkQ");

    type Public = NDK_QP;

    fn public(version: NDK_VERSION) -> NDK_QP {
        NDK_QP::new(version, Self::TABLE)
    }

    fn device(&self) -> &Arc<Device<O>> {
        self.pd.device()
    }

    unsafe fn begin_close(&self) {
        // SAFETY: the object is being closed: no other call runs (`# Safety` of the trait).
        let (qp, send_queue, receive_queue) =
            unsafe { (self.qp.replace(None), self.send_queue.replace(None), self.receive_queue.replace(None)) };
        if let Some(qp) = qp {
            Qp::close(&qp);
        }
        drop((send_queue, receive_queue));
    }
}

impl<O: NdkOs> EngineObject for QueuePair<O> {
    type Engine = Qp<O>;

    fn slot(&self) -> &Slot<Arc<Qp<O>>> {
        &self.qp
    }
}

/// `NDK_FN_FLUSH` (`NDKPI 5.7`, `NDKPI 7.2`). May run while the consumer posts.
///
/// # Safety
///
/// `qp` is open.
unsafe extern "system" fn flush<O: NdkOs>(qp: *mut NDK_QP) {
    let flush = |object: &Borrowed<QueuePair<O>>| object.engine().map(Qp::flush);
    // SAFETY: the caller passes an open queue pair.
    let _ = unsafe { dispatch::with(qp, flush) };
}
