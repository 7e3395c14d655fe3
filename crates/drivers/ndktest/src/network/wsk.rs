//! A client of Winsock Kernel with NDK's functions.

use alloc::boxed::Box;
use core::{pin::Pin, ptr};

use fallible::Arc;
use kernel::Fixed;
use ndis::{
    NET_IFINDEX, WSK_CLIENT_DISPATCH, WSK_CLIENT_NPI, WSK_PROVIDER_NPI, WSK_REGISTRATION, WSK_VERSION_1_0,
    WskCaptureProviderNPI, WskDeregister, WskRegister, WskReleaseProviderNPI,
};
use ndkpi::{NDK_ADAPTER, NDK_VERSION, NtStatus, WSK_PROVIDER_NDK_DISPATCH, WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH};

/// Milliseconds to wait for Winsock Kernel, which is there soon after the system has started.
const PATIENCE: u32 = 2_000;

static DISPATCH: WSK_CLIENT_DISPATCH =
    WSK_CLIENT_DISPATCH { Version: WSK_VERSION_1_0, Reserved: 0, WskClientEvent: None };

/// The registration, which Winsock Kernel has. Deregistered when dropped.
///
/// # Invariants
///
/// It is registered. Winsock Kernel links it.
struct Registration(Pin<Box<Fixed<WSK_REGISTRATION>>>);

impl Registration {
    fn try_new() -> Result<Self, NtStatus> {
        let zeroed = WSK_REGISTRATION {
            ReservedRegistrationState: 0,
            ReservedRegistrationContext: ptr::null_mut(),
            ReservedRegistrationLock: 0,
        };
        let place = Fixed::try_boxed(zeroed)?;
        let npi = WSK_CLIENT_NPI { ClientContext: ptr::null_mut(), Dispatch: &raw const DISPATCH };
        // SAFETY: at `PASSIVE_LEVEL`; the table is static, and the registration is pinned, and lives until it is deregistered.
        unsafe { WskRegister(&raw const npi, place.as_ref().get()) }.ok()?;
        Ok(Self(place))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: it is registered (invariant), at `PASSIVE_LEVEL`, and not used again.
        unsafe { WskDeregister(self.0.as_ref().get()) };
    }
}

/// The provider of Winsock Kernel, captured. Released when dropped, before the registration goes.
///
/// # Invariants
///
/// The provider is captured.
struct Captured {
    npi: WSK_PROVIDER_NPI,
    registration: Registration,
}

impl Drop for Captured {
    fn drop(&mut self) {
        // SAFETY: it is captured (invariant). Whoever has adapters open has a reference to the client.
        unsafe { WskReleaseProviderNPI(self.registration.0.as_ref().get()) };
    }
}

/// A client of Winsock Kernel. It lives until the last adapter that was opened through it is closed.
pub struct Client {
    captured: Captured,
    functions: WSK_PROVIDER_NDK_DISPATCH,
}

// SAFETY: Winsock Kernel's functions may be called on any thread, and its pointers are only handed back to it.
#[expect(clippy::non_send_fields_in_send_ty, reason = "the pointers are Winsock Kernel's")]
unsafe impl Send for Client {}
// SAFETY: as for `Send`, several at a time.
unsafe impl Sync for Client {}

impl Client {
    /// Registers, captures the provider, and asks it for NDK's functions.
    ///
    /// # Errors
    ///
    /// What Winsock Kernel says; `STATUS_NOT_SUPPORTED` if it has no such functions.
    pub fn try_new() -> Result<Arc<Self>, NtStatus> {
        let registration = Registration::try_new()?;
        let mut npi = WSK_PROVIDER_NPI { Client: ptr::null_mut(), Dispatch: ptr::null() };
        // SAFETY: it is registered, at `PASSIVE_LEVEL`, and the place lives until the call returns.
        unsafe { WskCaptureProviderNPI(registration.0.as_ref().get(), PATIENCE, &raw mut npi) }.ok()?;
        let captured = Captured { npi, registration };
        let functions = captured.functions()?;
        if functions.WskOpenNdkAdapter.is_none() || functions.WskCloseNdkAdapter.is_none() {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        Arc::try_new(Self { captured, functions }).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)
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
        unsafe { open(self.captured.npi.Client, version, index, &raw mut adapter) }.ok()?;
        Ok(adapter)
    }

    /// Closes an adapter. Waits until everything that was made of it is closed.
    ///
    /// # Safety
    ///
    /// `adapter` came from [`Client::open`] of this client and is not used after this call.
    pub unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        if let Some(close) = self.functions.WskCloseNdkAdapter {
            // SAFETY: the provider is captured as long as this client lives; the caller's promise.
            unsafe { close(self.captured.npi.Client, adapter) };
        }
    }
}

impl Captured {
    /// Asks for NDK's functions. The answer is the table itself.
    fn functions(&self) -> Result<WSK_PROVIDER_NDK_DISPATCH, NtStatus> {
        // SAFETY: the provider's table is valid as long as it is captured.
        let control = unsafe { (*self.npi.Dispatch).WskControlClient };
        let control = control.ok_or(NtStatus::NOT_SUPPORTED)?;
        let mut table = WSK_PROVIDER_NDK_DISPATCH::default();
        let (nothing, no_size, no_irp) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: the provider is captured; without an IRP the call completes at once; the place has the size that is said and
        // lives until the call returns.
        let status = unsafe {
            control(
                self.npi.Client,
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
}
