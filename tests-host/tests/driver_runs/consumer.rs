//! The test as a consumer in the simulated kernel: the conformance suite's client on the provider's interface.
//!
//! Registered memory would need MDLs of the kernel, so this consumer sends and receives nothing but empty messages.

use std::{fmt, net::IpAddr, ptr};

use conformance::platform::{Family, PinnedMemory, Place, Platform, Shape, Task};
use control::{SOFTNDK_INTERFACE, SOFTNDK_INTERFACE_VERSION, interface::SOFTNDK_INTERFACE_SIZE};
use ndkpi::{NDIS_OPEN_NDK_ADAPTER_PARAMETERS, NDK_ADAPTER, NDK_VERSION, NtStatus, SOCKADDR_INET};
use simulated_kernel::{Device, Kernel, wdk::GUID};

/// The provider's interface, and where it was found.
pub struct InKernel<'k> {
    kernel: &'k Kernel,
    interface: SOFTNDK_INTERFACE,
}

// SAFETY: the interface's functions may be called on any thread, several at a time.
unsafe impl Sync for InKernel<'_> {}

impl<'k> InKernel<'k> {
    /// Asks the provider's device for its interface, which counts this user.
    pub fn query(kernel: &'k Kernel, device: &Device) -> Self {
        let kind = control::GUID_SOFTNDK;
        let kind = GUID { Data1: kind.Data1, Data2: kind.Data2, Data3: kind.Data3, Data4: kind.Data4 };
        let mut interface = SOFTNDK_INTERFACE::EMPTY;
        let place = (&raw mut interface).cast();
        // SAFETY: the place has the size that is said.
        let status = unsafe { device.query_interface(&kind, place, SOFTNDK_INTERFACE_SIZE, SOFTNDK_INTERFACE_VERSION) };
        assert_eq!(status, Ok(()));
        Self { kernel, interface }
    }
}

impl Drop for InKernel<'_> {
    fn drop(&mut self) {
        if let Some(dereference) = self.interface.InterfaceDereference {
            // SAFETY: the interface's own routine and context, for the user that the query has counted.
            unsafe { dereference(self.interface.Context) };
        }
    }
}

impl Platform for InKernel<'_> {
    fn adapters(&self) -> u32 {
        1
    }

    fn open(&self, _: u32, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
        let parameters = NDIS_OPEN_NDK_ADAPTER_PARAMETERS { Version: version, ..Default::default() };
        let mut adapter = ptr::null_mut();
        let open = self.interface.OpenNdkAdapter.ok_or(NtStatus::NOT_SUPPORTED)?;
        // SAFETY: the interface's own function and context, and structures that live until the call returns.
        let status = unsafe { open(self.interface.AdapterContext, &raw const parameters, &raw mut adapter) };
        status.ok().map(|()| adapter)
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) -> bool {
        let Some(close) = self.interface.CloseNdkAdapter else { return false };
        // SAFETY: the interface's own function and context, and the caller's promise.
        unsafe { close(self.interface.AdapterContext, adapter) };
        true
    }

    fn address(&self, _: u32, family: Family) -> Option<IpAddr> {
        let mut room = [SOCKADDR_INET::UNSPECIFIED; 8];
        let mut count = 8;
        let query = self.interface.QueryNdkAddresses?;
        // SAFETY: the interface's own function and context, and an array of the length that is said.
        let status = unsafe { query(self.interface.AdapterContext, room.as_mut_ptr(), &raw mut count) };
        status.ok().ok()?;
        let mut addresses = room.iter().take(count as usize).filter_map(SOCKADDR_INET::to_socket_addr);
        addresses.find(|address| address.is_ipv4() == (family == Family::V4)).map(|address| address.ip())
    }

    fn memory(&self, _: Shape, _: usize) -> Result<Box<dyn PinnedMemory>, NtStatus> {
        Err(NtStatus::NOT_SUPPORTED)
    }

    fn now(&self) -> u64 {
        self.kernel.now()
    }

    fn wait(&self, limit: u64, until: &dyn Fn() -> bool) -> bool {
        let end = self.kernel.now().saturating_add(limit);
        while !until() {
            if self.kernel.now() >= end {
                return until();
            }
            self.kernel.sleep(100);
        }
        true
    }

    fn dwell(&self, until: &dyn Fn() -> bool) -> bool {
        until()
    }

    fn settle(&self) {
        self.kernel.sleep(2_000);
    }

    fn sleep(&self, micros: u64) {
        self.kernel.sleep(micros);
    }

    fn raised(&self, work: &mut dyn FnMut()) {
        work();
    }

    fn place(&self) -> Place {
        Place { thread: 0, processor: 0 }
    }

    fn processors(&self) -> u32 {
        1
    }

    fn run(&self, _: &mut [&mut dyn Task]) -> Result<(), NtStatus> {
        Err(NtStatus::NOT_SUPPORTED)
    }

    fn log(&self, line: fmt::Arguments<'_>) {
        eprintln!("{line}");
    }
}
