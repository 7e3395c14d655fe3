//! The provider's interface as a consumer has it: queried, used, and given back when it is dropped.

use control::{GUID_SOFTNDK, SOFTNDK_INTERFACE, SOFTNDK_INTERFACE_VERSION, interface::SOFTNDK_INTERFACE_SIZE};
use ndkpi::{NDIS_OPEN_NDK_ADAPTER_PARAMETERS, NDK_ADAPTER, NDK_VERSION, NtStatus};
use simulated_kernel::{Device, wdk::GUID};

/// The interface, with the user that the query has counted.
pub struct Interface(SOFTNDK_INTERFACE);

// SAFETY: the interface's functions may be called on any thread.
unsafe impl Send for Interface {}
// SAFETY: several of them at a time, too.
unsafe impl Sync for Interface {}

impl Interface {
    /// Has `query` fill an interface of the identifier that it gets.
    ///
    /// # Errors
    ///
    /// What `query` says.
    pub fn query<E>(query: impl FnOnce(&GUID, *mut SOFTNDK_INTERFACE) -> Result<(), E>) -> Result<Self, E> {
        let kind = GUID_SOFTNDK;
        let kind = GUID { Data1: kind.Data1, Data2: kind.Data2, Data3: kind.Data3, Data4: kind.Data4 };
        let mut interface = SOFTNDK_INTERFACE::EMPTY;
        query(&kind, &raw mut interface)?;
        Ok(Self(interface))
    }

    /// That of the provider's device, of the version that is current.
    ///
    /// # Panics
    ///
    /// If the device does not have it.
    pub fn of(device: &Device) -> Self {
        let interface = Self::query(|kind, place| {
            // SAFETY: the place is that of an interface, which is as long as is said.
            unsafe { device.query_interface(kind, place.cast(), SOFTNDK_INTERFACE_SIZE, SOFTNDK_INTERFACE_VERSION) }
        });
        interface.expect("the provider has its interface")
    }

    /// What the provider has filled in.
    pub const fn raw(&self) -> &SOFTNDK_INTERFACE {
        &self.0
    }

    /// Opens the adapter.
    ///
    /// # Errors
    ///
    /// What the provider says.
    pub fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
        let parameters = NDIS_OPEN_NDK_ADAPTER_PARAMETERS { Version: version, ..Default::default() };
        let mut adapter = std::ptr::null_mut();
        let open = self.raw().OpenNdkAdapter.expect("the provider can be opened");
        // SAFETY: the interface's own function and context, and structures that live until the call returns.
        let status = unsafe { open(self.0.AdapterContext, &raw const parameters, &raw mut adapter) };
        status.ok().map(|()| adapter)
    }

    /// Closes the adapter, and waits until that is done.
    ///
    /// # Safety
    ///
    /// It came from [`Interface::open`] and is not used again.
    pub unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        let close = self.0.CloseNdkAdapter.expect("the provider can be closed");
        // SAFETY: the interface's own function and context; `open` opened the adapter, which is not used again (`# Safety`).
        unsafe { close(self.0.AdapterContext, adapter) };
    }
}

impl Drop for Interface {
    fn drop(&mut self) {
        let dereference = self.0.InterfaceDereference.expect("an interface is counted");
        // SAFETY: the interface's own routine and context, for the user that the query has counted.
        unsafe { dereference(self.0.Context) };
    }
}
