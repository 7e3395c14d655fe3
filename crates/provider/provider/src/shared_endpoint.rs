//! `NDK_SHARED_ENDPOINT` (`NDKPI 5.9`, `NDKPI 7.8`).

use core::net::SocketAddr;

use engine::connection::{Owner, SharedEndpoint};
use fallible::Arc;
use ndkpi::{NDK_SHARED_ENDPOINT, NDK_SHARED_ENDPOINT_DISPATCH, NDK_VERSION, NtStatus, SOCKADDR};

use crate::{
    NdkOs,
    adapter::Adapter,
    address,
    borrow::Slot,
    device::Device,
    dispatch,
    object::{Body, Borrowed, EngineObject, ObjectRef, close, kind, query_extension},
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
        // Connectors keep the engine's endpoint, and with it the object (`NDKPI 7.9`).
        ObjectRef::try_new_with(adapter.version(), body, |object| {
            SharedEndpoint::try_new(adapter.device().port(), local, Owner { process: None }, object)
        })
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
        // SAFETY: the object is being closed: no other call runs (`# Safety` of the trait).
        drop(unsafe { self.endpoint.replace(None) });
    }
}

impl<O: NdkOs> EngineObject for SharedEndpointObject<O> {
    type Engine = SharedEndpoint<O>;

    fn slot(&self) -> &Slot<Arc<SharedEndpoint<O>>> {
        &self.endpoint
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
    let get = |object: &Borrowed<SharedEndpointObject<O>>| object.engine().map(|endpoint| endpoint.local_address());
    // SAFETY: the caller passes an open endpoint.
    let found = unsafe { dispatch::with(endpoint, get) };
    // SAFETY: `length` is valid for reading and writing, `buffer` for writing the bytes it says (`# Safety`).
    unsafe { address::write(found, buffer, length) }
}
