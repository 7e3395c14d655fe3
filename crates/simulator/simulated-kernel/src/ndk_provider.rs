//! What Winsock Kernel opens on an interface that has NDK.

use ndkpi::{NDK_ADAPTER, NDK_VERSION, NtStatus};

/// What answers the opening of NDK adapters on an interface: a miniport's handlers, or what a test has instead.
pub trait NdkProvider: Send + Sync {
    /// Opens an adapter. At `PASSIVE_LEVEL`; the status passes through to the client.
    ///
    /// # Errors
    ///
    /// What the provider says.
    fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus>;

    /// Closes it. At `PASSIVE_LEVEL`; waits until everything that was made of it is closed.
    ///
    /// # Safety
    ///
    /// `adapter` came from [`NdkProvider::open`] of this provider, and is not used after the call.
    unsafe fn close(&self, adapter: *mut NDK_ADAPTER);
}
