//! `NDK_SHARED_ENDPOINT` (`NDKPI 5.9`, `NDKPI 7.8`).

use core::net::SocketAddr;

use engine::connection::{Owner, SharedEndpoint};
use fallible::Arc;
use ndkpi::{NDK_SHARED_ENDPOINT, NDK_SHARED_ENDPOINT_DISPATCH, NDK_VERSION, NtStatus, SOCKADDR};

use crate::{
    NdkOs,
    adapter::Adapter,
    address,
    cell::Slot,
    device::Device,
    object::{Body, ObjectRef, borrow, close, kind, query_extension},
};

/// A shared endpoint.
pub struct SharedEndpointObject<O: NdkOs> {
    endpoint: Slot<Arc<SharedEndpoint<O>>>,
    adapter: ObjectRef<Adapter<O>>,
}

impl<O: NdkOs> SharedEndpointObject<O> {
    /// Makes a shared endpoint at `local` on `adapter`.
    pub fn create(adapter: &ObjectRef<Adapter<O>>, local: SocketAddr) -> Result<ObjectRef<Self>, NtStatus> {
        let body = Self { endpoint: Slot::empty(), adapter: adapter.clone() };
        let object = ObjectRef::try_new(adapter.version(), body)?;
        // Connectors keep the engine's endpoint, and with it the object (`NDKPI 7.9`).
        let port = adapter.device().port();
        let endpoint = SharedEndpoint::try_new(port, local, Owner { process: None }, object.clone())?;
        // SAFETY: the object is being made: nobody else knows it.
        unsafe { object.endpoint.replace(Some(endpoint)) };
        Ok(object)
    }

    /// The engine's endpoint.
    ///
    /// # Safety
    ///
    /// The object is open as long as the result is used.
    pub unsafe fn engine(&self) -> Option<&Arc<SharedEndpoint<O>>> {
        // SAFETY: the object is open (the caller's promise).
        unsafe { self.endpoint.get() }
    }

    const TABLE: &'static NDK_SHARED_ENDPOINT_DISPATCH = &NDK_SHARED_ENDPOINT_DISPATCH {
        NdkCloseSharedEndpoint: Some(close::<Self>),
        NdkQueryExtension: Some(query_extension),
        NdkGetLocalAddress: Some(get_local_address::<O>),
    };
}

impl<O: NdkOs> Body for SharedEndpointObject<O> {
    kind!(SharedEndpoint, b"NdkE");

    type Public = NDK_SHARED_ENDPOINT;

    fn public(version: NDK_VERSION) -> NDK_SHARED_ENDPOINT {
        NDK_SHARED_ENDPOINT::new(version, Self::TABLE)
    }

    fn device(&self) -> &Arc<Device<O>> {
        self.adapter.device()
    }

    unsafe fn begin_close(&self) {
        // SAFETY: the object is being closed: no other call runs (the caller's promise).
        drop(unsafe { self.endpoint.replace(None) });
    }
}

/// `NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS` (`NDKPI 5.9`).
///
/// # Safety
///
/// `endpoint` is open; `length` is valid for reading and writing, `buffer` for writing the bytes it says.
unsafe extern "system" fn get_local_address<O: NdkOs>(
    endpoint: *mut NDK_SHARED_ENDPOINT,
    buffer: *mut SOCKADDR,
    length: *mut u32,
) -> NtStatus {
    // SAFETY: the caller passes an open endpoint.
    let object = unsafe { borrow::<SharedEndpointObject<O>>(endpoint) };
    let Some(object) = object else { return NtStatus::INVALID_PARAMETER };
    // SAFETY: it is open until the consumer's call returns.
    let endpoint = unsafe { object.engine() };
    let found = endpoint.map(|endpoint| endpoint.local_address()).ok_or(NtStatus::INVALID_PARAMETER);
    // SAFETY: the caller's promises are the same.
    unsafe { address::write(found, buffer, length) }
}
