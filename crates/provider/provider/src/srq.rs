//! `NDK_SRQ` (`NDKPI 5.6`, `NDKPI 7.12`).

use core::ffi::c_void;

use engine::{
    os::Affinity,
    qp::{Srq, SrqClient, SrqParameters},
};
use fallible::Arc;
use ndkpi::{
    GROUP_AFFINITY, NDK_FN_REQUEST_COMPLETION, NDK_FN_SRQ_NOTIFICATION_CALLBACK, NDK_SGE, NDK_SRQ, NDK_SRQ_DISPATCH,
    NDK_VERSION, NtStatus,
};

use crate::{
    NdkOs,
    borrow::Slot,
    device::Device,
    dispatch,
    object::{Body, Borrowed, EngineObject, ObjectRef, close, kind, query_extension},
    pd::ProtectionDomain,
    post::{element, elements},
};

/// What a consumer creates a shared receive queue with.
#[derive(Clone, Copy)]
pub struct Wanted {
    /// Receives at most.
    pub depth: u32,
    /// Elements of one receive at most.
    pub max_sge: u32,
    /// The low-water mark.
    pub threshold: u32,
    /// The callback for it.
    pub notification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
    /// The callback's context.
    pub context: *mut c_void,
    /// The processors for the callback.
    pub affinity: Option<GROUP_AFFINITY>,
}

/// A shared receive queue.
pub struct SharedReceiveQueue<O: NdkOs> {
    srq: Slot<Arc<Srq<O>>>,
    pd: ObjectRef<ProtectionDomain<O>>,
}

/// The client of the engine's queue. It keeps the object alive while the queue may call back.
struct Client<O: NdkOs> {
    callback: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
    context: *mut c_void,
    _object: ObjectRef<SharedReceiveQueue<O>>,
}

// SAFETY: the context is handed back to the consumer and not used here; callbacks may come on any thread (`NDKPI 6`).
unsafe impl<O: NdkOs> Send for Client<O> {}
// SAFETY: as for `Send`.
unsafe impl<O: NdkOs> Sync for Client<O> {}

impl<O: NdkOs> SrqClient for Client<O> {
    fn notify(&self, status: NtStatus) {
        if let Some(callback) = self.callback {
            // SAFETY: the consumer's callback, with its context (`NDKPI 6`). The engine calls with no lock held and one at a
            // time.
            unsafe { callback(self.context, status) };
        }
    }
}

impl<O: NdkOs> SharedReceiveQueue<O> {
    /// Makes a shared receive queue in `pd`.
    pub fn create(pd: &ObjectRef<ProtectionDomain<O>>, wanted: &Wanted) -> Result<ObjectRef<Self>, NtStatus> {
        let (device, info) = (pd.device(), &pd.device().config().info);
        if wanted.max_sge > info.MaxReceiveRequestSge {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let parameters = SrqParameters {
            depth: wanted.depth,
            max_depth: info.MaxSrqDepth,
            max_sge: wanted.max_sge,
            max_transfer: info.MaxTransferLength,
            // Without a callback there is nothing to call.
            threshold: wanted.notification.map_or(0, |_| wanted.threshold),
            processor: wanted
                .affinity
                .and_then(|wanted| {
                    device.os().processor_for(Affinity { group: wanted.Group, mask: wanted.Mask as u64 })
                })
                .unwrap_or_else(|| device.os().current_processor()),
        };
        let body = Self { srq: Slot::empty(), pd: pd.clone() };
        ObjectRef::try_new_with(pd.adapter().version(), body, |object| {
            let client = Client { callback: wanted.notification, context: wanted.context, _object: object };
            Srq::try_new(device.os(), pd.domain(), parameters, client)
        })
    }

    const TABLE: &'static NDK_SRQ_DISPATCH = &NDK_SRQ_DISPATCH {
        NdkCloseSrq: Some(close::<Self>),
        NdkQueryExtension: Some(query_extension),
        NdkModifySrq: Some(modify_srq::<O>),
        NdkSrqReceive: Some(srq_receive::<O>),
    };
}

impl<O: NdkOs> Body for SharedReceiveQueue<O> {
    kind!(Srq, b"NdkS");

    type Public = NDK_SRQ;

    fn public(version: NDK_VERSION) -> NDK_SRQ {
        NDK_SRQ::new(version, Self::TABLE)
    }

    fn device(&self) -> &Arc<Device<O>> {
        self.pd.device()
    }

    unsafe fn begin_close(&self) {
        // SAFETY: the object is being closed: no other call runs (`# Safety` of the trait).
        let srq = unsafe { self.srq.replace(None) };
        if let Some(srq) = srq {
            srq.close();
        }
    }
}

impl<O: NdkOs> EngineObject for SharedReceiveQueue<O> {
    type Engine = Srq<O>;

    fn slot(&self) -> &Slot<Arc<Srq<O>>> {
        &self.srq
    }
}

/// `NDK_FN_MODIFY_SRQ` (`NDKPI 5.6`, `NDKPI 7.12`).
///
/// # Safety
///
/// `srq` is open.
unsafe extern "system" fn modify_srq<O: NdkOs>(
    srq: *mut NDK_SRQ,
    depth: u32,
    threshold: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let modify = |object: &Borrowed<SharedReceiveQueue<O>>| Srq::modify(object.engine()?, depth, threshold);
    // SAFETY: the caller passes an open queue.
    unsafe { dispatch::request(srq, completion, context, modify) }
}

/// `NDK_FN_SRQ_RECEIVE` (`NDKPI 5.6`).
///
/// # Safety
///
/// `NDKPI 7.3`: `srq` is open, the list is valid for reading.
unsafe extern "system" fn srq_receive<O: NdkOs>(
    srq: *mut NDK_SRQ,
    context: *mut c_void,
    list: *const NDK_SGE,
    count: u32,
) -> NtStatus {
    let receive = |object: &Borrowed<SharedReceiveQueue<O>>| {
        // SAFETY: the list is valid for reading (`# Safety`).
        let list = unsafe { elements(list, count) }.ok_or(NtStatus::INVALID_PARAMETER)?;
        object.engine()?.post(context.expose_provenance(), list.iter().map(element))
    };
    // SAFETY: the caller passes an open queue.
    unsafe { dispatch::with(srq, receive) }.into()
}
