//! `NDK_PD` (`NDKPI 5.3`).

use core::ffi::c_void;

use engine::memory::Domain;
use fallible::Arc;
use ndkpi::{
    BOOLEAN, GROUP_AFFINITY, NDK_CQ, NDK_FN_CREATE_COMPLETION, NDK_FN_SRQ_NOTIFICATION_CALLBACK, NDK_MR, NDK_MW,
    NDK_PD, NDK_PD_DISPATCH, NDK_QP, NDK_SRQ, NDK_VERSION, NtStatus,
};

use crate::{
    NdkOs,
    adapter::Adapter,
    device::Device,
    dispatch,
    mr::MemoryRegion,
    mw::MemoryWindow,
    object::{Body, Borrowed, ObjectRef, borrow, close, kind, query_extension},
    qp::{Cqs, QueuePair, Sizes},
    srq::{SharedReceiveQueue, Wanted},
};

/// A protection domain.
pub struct ProtectionDomain<O: NdkOs> {
    domain: Arc<Domain<O>>,
    adapter: ObjectRef<Adapter<O>>,
}

impl<O: NdkOs> ProtectionDomain<O> {
    /// Makes a protection domain on `adapter`.
    pub fn create(adapter: &ObjectRef<Adapter<O>>) -> Result<ObjectRef<Self>, NtStatus> {
        let device = adapter.device();
        let domain = Domain::try_new(device.memory())?;
        device.pds.take()?;
        // From here on dropping the object gives the place back.
        ObjectRef::try_new(adapter.version(), Self { domain, adapter: adapter.clone() })
    }

    /// The engine's domain.
    pub const fn domain(&self) -> &Arc<Domain<O>> {
        &self.domain
    }

    /// The adapter the domain was made on.
    pub const fn adapter(&self) -> &ObjectRef<Adapter<O>> {
        &self.adapter
    }

    const TABLE: &'static NDK_PD_DISPATCH = &NDK_PD_DISPATCH {
        NdkClosePd: Some(close::<Self>),
        NdkQueryExtension: Some(query_extension),
        NdkCreateMr: Some(create_mr::<O>),
        NdkCreateMw: Some(create_mw::<O>),
        NdkCreateSrq: Some(create_srq::<O>),
        NdkCreateQp: Some(create_qp::<O>),
        NdkCreateQpWithSrq: Some(create_qp_with_srq::<O>),
        NdkGetPrivilegedMemoryRegionToken: Some(get_privileged_memory_region_token::<O>),
    };
}

impl<O: NdkOs> Drop for ProtectionDomain<O> {
    fn drop(&mut self) {
        self.adapter.device().pds.give_back();
    }
}

impl<O: NdkOs> Body for ProtectionDomain<O> {
    kind!(Pd, b"NdkP");

    type Public = NDK_PD;

    fn public(version: NDK_VERSION) -> NDK_PD {
        NDK_PD::new(version, Self::TABLE)
    }

    fn device(&self) -> &Arc<Device<O>> {
        self.adapter.device()
    }

    unsafe fn begin_close(&self) {}
}

/// `NDK_FN_CREATE_QP` (`NDKPI 5.3`).
///
/// # Safety
///
/// `pd` and the queues are open, `out` is valid for writing.
unsafe extern "system" fn create_qp<O: NdkOs>(
    pd: *mut NDK_PD,
    receive_cq: *mut NDK_CQ,
    initiator_cq: *mut NDK_CQ,
    qp_context: *mut c_void,
    receive_depth: u32,
    initiator_depth: u32,
    max_receive_sge: u32,
    max_initiator_sge: u32,
    inline_size: u32,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_QP,
) -> NtStatus {
    let sizes = Sizes { receive_depth, initiator_depth, max_receive_sge, max_initiator_sge, inline_size };
    let create = |pd: &Borrowed<ProtectionDomain<O>>| {
        // SAFETY: the caller passes open queues.
        let cqs = unsafe { Cqs::borrow(receive_cq, initiator_cq) }?;
        QueuePair::create(pd, &cqs, None, qp_context, sizes)
    };
    // SAFETY: `pd` is open, and `out` valid for writing (`# Safety`).
    unsafe { dispatch::create(pd, completion, context, out, create) }
}

/// `NDK_FN_CREATE_QP_WITH_SRQ` (`NDKPI 5.3`).
///
/// # Safety
///
/// `pd` and the queues are open, `out` is valid for writing.
unsafe extern "system" fn create_qp_with_srq<O: NdkOs>(
    pd: *mut NDK_PD,
    receive_cq: *mut NDK_CQ,
    initiator_cq: *mut NDK_CQ,
    srq: *mut NDK_SRQ,
    qp_context: *mut c_void,
    initiator_depth: u32,
    max_initiator_sge: u32,
    inline_size: u32,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_QP,
) -> NtStatus {
    let sizes = Sizes { receive_depth: 0, initiator_depth, max_receive_sge: 0, max_initiator_sge, inline_size };
    let create = |pd: &Borrowed<ProtectionDomain<O>>| {
        // SAFETY: the caller passes open queues.
        let cqs = unsafe { Cqs::borrow(receive_cq, initiator_cq) }?;
        // SAFETY: the caller passes an open queue.
        let srq = unsafe { borrow::<SharedReceiveQueue<O>>(srq) }?;
        QueuePair::create(pd, &cqs, Some(&srq), qp_context, sizes)
    };
    // SAFETY: `pd` is open, and `out` valid for writing (`# Safety`).
    unsafe { dispatch::create(pd, completion, context, out, create) }
}

/// `NDK_FN_CREATE_SRQ` (`NDKPI 5.3`).
///
/// # Safety
///
/// `pd` is open, `affinity` is null or valid for reading, `out` is valid for writing.
unsafe extern "system" fn create_srq<O: NdkOs>(
    pd: *mut NDK_PD,
    depth: u32,
    max_sge: u32,
    threshold: u32,
    notification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
    notification_context: *mut c_void,
    affinity: *const GROUP_AFFINITY,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_SRQ,
) -> NtStatus {
    // SAFETY: `affinity` is null or valid for reading. It is copied: it need not outlive the call.
    let affinity = unsafe { affinity.as_ref() }.copied();
    let wanted = Wanted { depth, max_sge, threshold, notification, context: notification_context, affinity };
    let create = |pd: &Borrowed<ProtectionDomain<O>>| SharedReceiveQueue::create(pd, &wanted);
    // SAFETY: `pd` is open, and `out` valid for writing (`# Safety`).
    unsafe { dispatch::create(pd, completion, context, out, create) }
}

/// `NDK_FN_CREATE_MR` (`NDKPI 5.3`).
///
/// # Safety
///
/// `pd` is open, `out` is valid for writing.
unsafe extern "system" fn create_mr<O: NdkOs>(
    pd: *mut NDK_PD,
    fast_register: BOOLEAN,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_MR,
) -> NtStatus {
    let create = |pd: &Borrowed<ProtectionDomain<O>>| MemoryRegion::create(pd, fast_register != 0);
    // SAFETY: `pd` is open, and `out` valid for writing (`# Safety`).
    unsafe { dispatch::create(pd, completion, context, out, create) }
}

/// `NDK_FN_CREATE_MW` (`NDKPI 5.3`).
///
/// # Safety
///
/// `pd` is open, `out` is valid for writing.
unsafe extern "system" fn create_mw<O: NdkOs>(
    pd: *mut NDK_PD,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_MW,
) -> NtStatus {
    let create = |pd: &Borrowed<ProtectionDomain<O>>| MemoryWindow::create(pd);
    // SAFETY: `pd` is open, and `out` valid for writing (`# Safety`).
    unsafe { dispatch::create(pd, completion, context, out, create) }
}

/// `NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN` (`NDKPI 5.3`, `NDKPI 7.5`).
///
/// # Safety
///
/// `pd` is open, `token` is null or valid for writing.
unsafe extern "system" fn get_privileged_memory_region_token<O: NdkOs>(pd: *mut NDK_PD, token: *mut u32) {
    let get = |pd: &Borrowed<ProtectionDomain<O>>| Ok(pd.domain.privileged_token());
    // SAFETY: the caller passes an open domain.
    let found = unsafe { dispatch::with(pd, get) };
    if let Ok(found) = found
        && !token.is_null()
    {
        // SAFETY: `token` is valid for writing.
        unsafe { token.write(found) };
    }
}
