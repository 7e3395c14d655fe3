//! `NDK_ADAPTER` (`NDKPI 5.2`).

use core::{ffi::c_void, mem::offset_of, ptr};

use fallible::Arc;
use ndkpi::{
    GROUP_AFFINITY, NDK_ADAPTER, NDK_ADAPTER_DISPATCH, NDK_ADAPTER_INFO, NDK_CONNECTOR, NDK_CQ,
    NDK_FN_CONNECT_EVENT_CALLBACK, NDK_FN_CQ_NOTIFICATION_CALLBACK, NDK_FN_CREATE_COMPLETION, NDK_LISTENER, NDK_PD,
    NDK_SHARED_ENDPOINT, NDK_VERSION, NtStatus, SOCKADDR,
};

use crate::{
    NdkOs, address,
    connector::ConnectorObject,
    cq::CompletionQueue,
    device::Device,
    dispatch,
    lam::{build_lam, release_lam},
    listener::ListenerObject,
    object::{Body, Borrowed, kind, query_extension},
    pd::ProtectionDomain,
    shared_endpoint::SharedEndpointObject,
};

/// An open adapter.
pub struct Adapter<O: NdkOs> {
    device: Arc<Device<O>>,
    version: NDK_VERSION,
    closed: Arc<O::Event>,
}

impl<O: NdkOs> Adapter<O> {
    /// Makes an adapter that sets `closed` when it is freed.
    pub const fn new(device: Arc<Device<O>>, version: NDK_VERSION, closed: Arc<O::Event>) -> Self {
        Self { device, version, closed }
    }

    /// The event that close waits for.
    pub const fn closed(&self) -> &Arc<O::Event> {
        &self.closed
    }

    /// The version in force for this consumer.
    pub const fn version(&self) -> NDK_VERSION {
        self.version
    }

    const TABLE: &'static NDK_ADAPTER_DISPATCH = &NDK_ADAPTER_DISPATCH {
        NdkQueryExtension: Some(query_extension),
        NdkQueryAdapterInfo: Some(query_adapter_info::<O>),
        NdkCreateCq: Some(create_cq::<O>),
        NdkCreatePd: Some(create_pd::<O>),
        NdkCreateSharedEndpoint: Some(create_shared_endpoint::<O>),
        NdkCreateConnector: Some(create_connector::<O>),
        NdkCreateListener: Some(create_listener::<O>),
        NdkBuildLAM: Some(build_lam::<O>),
        NdkReleaseLAM: Some(release_lam::<O>),
    };
}

impl<O: NdkOs> Body for Adapter<O> {
    kind!(Adapter, b"NdkA");

    type Public = NDK_ADAPTER;

    fn public(version: NDK_VERSION) -> NDK_ADAPTER {
        NDK_ADAPTER::new(version, Self::TABLE)
    }

    fn device(&self) -> &Arc<Device<O>> {
        &self.device
    }

    unsafe fn begin_close(&self) {}

    fn gone(&self) -> Option<Arc<O::Event>> {
        Some(self.closed.clone())
    }
}

/// The size of `NDK_ADAPTER_INFO`.
#[expect(clippy::cast_possible_truncation, reason = "a small structure")]
const INFO_SIZE: u32 = size_of::<NDK_ADAPTER_INFO>() as u32;

/// Its size in the headers of before `RdmaTechnology` was added (`NDKPI 3.11`).
#[expect(clippy::cast_possible_truncation, reason = "a small structure")]
const INFO_SIZE_1: u32 = offset_of!(NDK_ADAPTER_INFO, RdmaTechnology) as u32;

/// `NDK_FN_QUERY_ADAPTER_INFO` (`NDKPI 5.2`, `NDKPI 3.11`). `PASSIVE_LEVEL`.
///
/// A consumer of major version 1 may have been compiled when the structure ended before `RdmaTechnology`.
///
/// # Safety
///
/// `adapter` is open; `size` is valid for reading and writing, and `info` for writing the bytes it says.
unsafe extern "system" fn query_adapter_info<O: NdkOs>(
    adapter: *mut NDK_ADAPTER,
    info: *mut NDK_ADAPTER_INFO,
    size: *mut u32,
) -> NtStatus {
    let query = |adapter: &Borrowed<Adapter<O>>| {
        if size.is_null() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        // SAFETY: `size` is valid for reading.
        let given = unsafe { size.read() };
        let written = match given {
            INFO_SIZE.. => Some(INFO_SIZE),
            INFO_SIZE_1.. if adapter.version().Major < 2 => Some(INFO_SIZE_1),
            _ => None,
        };
        let written = written.filter(|_| !info.is_null());
        // SAFETY: `size` is valid for writing.
        unsafe { size.write(written.unwrap_or(INFO_SIZE)) };
        let written = written.ok_or(NtStatus::BUFFER_TOO_SMALL)?;
        let answer = NDK_ADAPTER_INFO { Version: adapter.version(), ..adapter.device().config().info };
        let bytes = ptr::from_ref(&answer).cast::<u8>();
        // SAFETY: `info` is valid for writing `given` bytes, which are no fewer; the answer has as many, and is not the
        // consumer's.
        unsafe { bytes.copy_to_nonoverlapping(info.cast(), written as usize) };
        Ok(())
    };
    // SAFETY: the caller passes an open adapter.
    unsafe { dispatch::with(adapter, query) }.into()
}

/// `NDK_FN_CREATE_CQ` (`NDKPI 5.2`).
///
/// # Safety
///
/// `adapter` is open, `affinity` is null or valid for reading, `out` is valid for writing.
unsafe extern "system" fn create_cq<O: NdkOs>(
    adapter: *mut NDK_ADAPTER,
    depth: u32,
    notification: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
    notification_context: *mut c_void,
    affinity: *const GROUP_AFFINITY,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_CQ,
) -> NtStatus {
    // SAFETY: `affinity` is null or valid for reading. It is copied: it need not outlive the call.
    let affinity = unsafe { affinity.as_ref() }.copied();
    let create = |adapter: &Borrowed<Adapter<O>>| {
        CompletionQueue::create(adapter, depth, notification, notification_context, affinity)
    };
    // SAFETY: `adapter` is open, and `out` valid for writing (`# Safety`).
    unsafe { dispatch::create(adapter, completion, context, out, create) }
}

/// `NDK_FN_CREATE_PD` (`NDKPI 5.2`).
///
/// # Safety
///
/// `adapter` is open, `out` is valid for writing.
unsafe extern "system" fn create_pd<O: NdkOs>(
    adapter: *mut NDK_ADAPTER,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_PD,
) -> NtStatus {
    let create = |adapter: &Borrowed<Adapter<O>>| ProtectionDomain::create(adapter);
    // SAFETY: `adapter` is open, and `out` valid for writing (`# Safety`).
    unsafe { dispatch::create(adapter, completion, context, out, create) }
}

/// `NDK_FN_CREATE_CONNECTOR` (`NDKPI 5.2`).
///
/// # Safety
///
/// `adapter` is open, `out` is valid for writing.
unsafe extern "system" fn create_connector<O: NdkOs>(
    adapter: *mut NDK_ADAPTER,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_CONNECTOR,
) -> NtStatus {
    let create = |adapter: &Borrowed<Adapter<O>>| ConnectorObject::create(adapter);
    // SAFETY: `adapter` is open, and `out` valid for writing (`# Safety`).
    unsafe { dispatch::create(adapter, completion, context, out, create) }
}

/// `NDK_FN_CREATE_LISTENER` (`NDKPI 5.2`). Creating does not listen.
///
/// # Safety
///
/// `adapter` is open, `out` is valid for writing.
unsafe extern "system" fn create_listener<O: NdkOs>(
    adapter: *mut NDK_ADAPTER,
    connect_event: Option<NDK_FN_CONNECT_EVENT_CALLBACK>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_LISTENER,
) -> NtStatus {
    let create = |adapter: &Borrowed<Adapter<O>>| {
        let callback = connect_event.ok_or(NtStatus::INVALID_PARAMETER)?;
        ListenerObject::create(adapter, callback, event_context)
    };
    // SAFETY: `adapter` is open, and `out` valid for writing (`# Safety`).
    unsafe { dispatch::create(adapter, completion, context, out, create) }
}

/// `NDK_FN_CREATE_SHARED_ENDPOINT` (`NDKPI 5.2`).
///
/// # Safety
///
/// `adapter` is open, the address is valid for reading, `out` is valid for writing.
unsafe extern "system" fn create_shared_endpoint<O: NdkOs>(
    adapter: *mut NDK_ADAPTER,
    local: *const SOCKADDR,
    length: u32,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_SHARED_ENDPOINT,
) -> NtStatus {
    let create = |adapter: &Borrowed<Adapter<O>>| {
        // SAFETY: the address is valid for reading.
        let local = unsafe { address::read(local, length) }?;
        SharedEndpointObject::create(adapter, local)
    };
    // SAFETY: `adapter` is open, and `out` valid for writing (`# Safety`).
    unsafe { dispatch::create(adapter, completion, context, out, create) }
}
