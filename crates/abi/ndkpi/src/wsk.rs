//! How a kernel consumer opens an adapter: the NDK part of Winsock Kernel (NDIS-NDK 8).
//!
//! The consumer registers with Winsock Kernel, captures its interface and asks it for a [`WSK_PROVIDER_NDK_DISPATCH`] with
//! [`WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH`]. The general structures of Winsock Kernel are not here.

use crate::{NDK_ADAPTER, NDK_VERSION, NtStatus};

opaque! {
    /// A client of Winsock Kernel, as it identifies itself.
    WSK_CLIENT
}

/// The control code that asks for [`WSK_PROVIDER_NDK_DISPATCH`]: the letters `NDKD`. The output buffer is the table
/// itself, all sixteen bytes of it.
pub const WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH: u32 = u32::from_be_bytes(*b"NDKD");

/// The functions that open and close an adapter (NDIS-NDK 8).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct WSK_PROVIDER_NDK_DISPATCH {
    /// Opens an adapter.
    pub WskOpenNdkAdapter: Option<PFN_WSK_NDK_OPEN_ADAPTER>,
    /// Closes it.
    pub WskCloseNdkAdapter: Option<PFN_WSK_NDK_CLOSE_ADAPTER>,
}

slots!(WSK_PROVIDER_NDK_DISPATCH: WskOpenNdkAdapter, WskCloseNdkAdapter);

/// Opens the adapter of a network interface, given by its index.
///
/// IRQL: `PASSIVE_LEVEL` (NDIS-NDK 8).
pub type PFN_WSK_NDK_OPEN_ADAPTER = unsafe extern "system" fn(
    Client: *mut WSK_CLIENT,
    NdkVersion: NDK_VERSION,
    IfIndex: u32,
    ppNdkAdapter: *mut *mut NDK_ADAPTER,
) -> NtStatus;

/// Closes an adapter and blocks until it is closed, so never from a callback.
///
/// IRQL: `PASSIVE_LEVEL` (NDIS-NDK 8).
pub type PFN_WSK_NDK_CLOSE_ADAPTER = unsafe extern "system" fn(Client: *mut WSK_CLIENT, pNdkAdapter: *mut NDK_ADAPTER);
