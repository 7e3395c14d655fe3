//! Functions of a shared endpoint (NDKPI 5.9).

use super::{NDK_FN_CLOSE_OBJECT, NDK_FN_QUERY_EXTENSION_INTERFACE};
use crate::{NDK_SHARED_ENDPOINT, NtStatus, SOCKADDR};

/// The table of a shared endpoint (NDKPI 4).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NDK_SHARED_ENDPOINT_DISPATCH {
    /// Closes the shared endpoint.
    pub NdkCloseSharedEndpoint: Option<NDK_FN_CLOSE_OBJECT>,
    /// Asks for an extension.
    pub NdkQueryExtension: Option<NDK_FN_QUERY_EXTENSION_INTERFACE>,
    /// Tells the local address.
    pub NdkGetLocalAddress: Option<NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS>,
}

slots!(NDK_SHARED_ENDPOINT_DISPATCH: NdkCloseSharedEndpoint, NdkQueryExtension, NdkGetLocalAddress);

/// `NdkGetLocalAddress` of a shared endpoint: immediate.
///
/// `*pAddressLength` is the size of the buffer in bytes on entry and the bytes written, or those needed with
/// [`NtStatus::BUFFER_TOO_SMALL`], on return. IRQL <= `DISPATCH_LEVEL` (NDKPI 5.9).
pub type NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS = unsafe extern "system" fn(
    pNdkSharedEndpoint: *mut NDK_SHARED_ENDPOINT,
    pAddress: *mut SOCKADDR,
    pAddressLength: *mut u32,
) -> NtStatus;
