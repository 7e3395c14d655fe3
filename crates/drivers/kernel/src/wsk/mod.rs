//! A driver as a client of Winsock Kernel, and its datagram sockets.

mod socket;

use alloc::boxed::Box;
use core::{pin::Pin, ptr};

use ndis::{
    WSK_CLIENT_DISPATCH, WSK_CLIENT_NPI, WSK_PROVIDER_DISPATCH, WSK_PROVIDER_NPI, WSK_REGISTRATION, WSK_VERSION_1_0,
    WskCaptureProviderNPI, WskDeregister, WskRegister, WskReleaseProviderNPI,
};
use ndkpi::{NtStatus, WSK_CLIENT};

pub use self::socket::{Asking, DatagramSocket};
use crate::Fixed;

static DISPATCH: WSK_CLIENT_DISPATCH =
    WSK_CLIENT_DISPATCH { Version: WSK_VERSION_1_0, Reserved: 0, WskClientEvent: None };

/// A registration, which Winsock Kernel has. Deregistered when dropped, at `PASSIVE_LEVEL`.
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

/// Winsock Kernel, captured. Released when dropped, before the registration goes.
///
/// # Invariants
///
/// The provider is captured.
pub struct WskProvider {
    npi: WSK_PROVIDER_NPI,
    registration: Registration,
}

// SAFETY: Winsock Kernel's functions may be called on any thread, and its pointers are only handed back to it.
#[expect(clippy::non_send_fields_in_send_ty, reason = "the pointers are Winsock Kernel's")]
unsafe impl Send for WskProvider {}
// SAFETY: as for `Send`, several at a time.
unsafe impl Sync for WskProvider {}

impl WskProvider {
    /// Registers, and captures the provider; waits for it so many milliseconds at most, or with `WSK_NO_WAIT` not at all. It is not there
    /// while the system starts. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// What Winsock Kernel says: that it is not ready yet, or that there is no memory.
    pub fn capture(patience: u32) -> Result<Self, NtStatus> {
        let registration = Registration::try_new()?;
        let mut npi = WSK_PROVIDER_NPI { Client: ptr::null_mut(), Dispatch: ptr::null() };
        // SAFETY: it is registered, at `PASSIVE_LEVEL`, and the place lives until the call returns.
        unsafe { WskCaptureProviderNPI(registration.0.as_ref().get(), patience, &raw mut npi) }.ok()?;
        Ok(Self { npi, registration })
    }

    /// The client, as Winsock Kernel names it. What is made by it goes before this does.
    #[must_use]
    pub const fn client(&self) -> *mut WSK_CLIENT {
        self.npi.Client
    }

    /// The provider's functions.
    #[must_use]
    pub const fn dispatch(&self) -> &WSK_PROVIDER_DISPATCH {
        // SAFETY: the table is valid and unchanged as long as the provider is captured (invariant).
        unsafe { &*self.npi.Dispatch }
    }
}

impl Drop for WskProvider {
    fn drop(&mut self) {
        // SAFETY: it is captured (invariant). Who has sockets or adapters of it closes them before.
        unsafe { WskReleaseProviderNPI(self.registration.0.as_ref().get()) };
    }
}
