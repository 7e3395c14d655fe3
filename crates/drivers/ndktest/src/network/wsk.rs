//! A client of Winsock Kernel with NDK's functions.

use core::ptr;

use fallible::Arc;
use kernel::WskProvider;
use ndis::NET_IFINDEX;
use ndkpi::{NDK_ADAPTER, NDK_VERSION, NtStatus, WSK_PROVIDER_NDK_DISPATCH, WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH};

/// Milliseconds to wait for Winsock Kernel, which is there soon after the system has started.
const PATIENCE: u32 = 2_000;

/// A client of Winsock Kernel. It lives until the last adapter that was opened through it is closed.
pub struct Client {
    provider: WskProvider,
    functions: WSK_PROVIDER_NDK_DISPATCH,
}

impl Client {
    /// Registers, captures the provider, and asks it for NDK's functions.
    ///
    /// # Errors
    ///
    /// What Winsock Kernel says; `STATUS_NOT_SUPPORTED` if it has no such functions.
    pub fn try_new() -> Result<Arc<Self>, NtStatus> {
        let provider = WskProvider::capture(PATIENCE)?;
        let functions = functions(&provider)?;
        if functions.WskOpenNdkAdapter.is_none() || functions.WskCloseNdkAdapter.is_none() {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        Arc::try_new(Self { provider, functions }).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)
    }

    /// Opens the adapter of an interface.
    ///
    /// # Errors
    ///
    /// What Winsock Kernel or the provider answers.
    pub fn open(&self, version: NDK_VERSION, index: NET_IFINDEX) -> Result<*mut NDK_ADAPTER, NtStatus> {
        let open = self.functions.WskOpenNdkAdapter.ok_or(NtStatus::NOT_SUPPORTED)?;
        let mut adapter = ptr::null_mut();
        // SAFETY: the provider is captured as long as this client lives; at `PASSIVE_LEVEL`, and the place lives until the call
        // returns.
        unsafe { open(self.provider.client(), version, index, &raw mut adapter) }.ok()?;
        Ok(adapter)
    }

    /// Closes an adapter. Waits until everything that was made of it is closed.
    ///
    /// # Safety
    ///
    /// `adapter` came from [`Client::open`] of this client and is not used after this call.
    pub unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        if let Some(close) = self.functions.WskCloseNdkAdapter {
            // SAFETY: the provider is captured as long as this client lives, and `open` opened the adapter (`# Safety`).
            unsafe { close(self.provider.client(), adapter) };
        }
    }
}

/// Asks for NDK's functions. The answer is the table itself.
fn functions(provider: &WskProvider) -> Result<WSK_PROVIDER_NDK_DISPATCH, NtStatus> {
    let control = provider.dispatch().WskControlClient.ok_or(NtStatus::NOT_SUPPORTED)?;
    let mut table = WSK_PROVIDER_NDK_DISPATCH::default();
    let (nothing, no_size, no_irp) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: the provider is captured; without an IRP the call completes at once; the place has the size that is said and
    // lives until the call returns.
    let status = unsafe {
        control(
            provider.client(),
            WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH,
            0,
            nothing,
            size_of::<WSK_PROVIDER_NDK_DISPATCH>(),
            (&raw mut table).cast(),
            no_size,
            no_irp,
        )
    };
    status.ok().map(|()| table)
}
