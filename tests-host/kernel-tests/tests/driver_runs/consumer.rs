//! The test as a consumer in the simulated kernel: the conformance suite's client on the provider's interface.
//!
//! Registered memory would need MDLs of the kernel, so this consumer sends and receives nothing but empty messages.

use std::{fmt, net::IpAddr};

use conformance::platform::{ExecutionContext, Family, PinnedMemory, Platform, Shape, Task};
use ndkpi::{NDK_ADAPTER, NDK_VERSION, NtStatus, SOCKADDR_INET};
use simulated_kernel::{Device, Kernel};

use crate::provider_interface::Interface;

/// The provider's interface, and where it was found.
pub struct InKernel<'k> {
    kernel: &'k Kernel,
    interface: Interface,
}

impl<'k> InKernel<'k> {
    /// Asks the provider's device for its interface, which counts this user.
    pub fn query(kernel: &'k Kernel, device: &Device) -> Self {
        Self { kernel, interface: Interface::of(device) }
    }
}

impl Platform for InKernel<'_> {
    fn adapters(&self) -> u32 {
        1
    }

    fn open(&self, _: u32, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
        self.interface.open(version)
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) -> bool {
        // SAFETY: `adapter` came from this interface and is not used after this call (the trait's `# Safety`).
        unsafe { self.interface.close(adapter) };
        true
    }

    fn address(&self, _: u32, family: Family) -> Option<IpAddr> {
        let interface = self.interface.raw();
        let mut room = [SOCKADDR_INET::UNSPECIFIED; 8];
        let mut count = 8;
        let query = interface.QueryNdkAddresses?;
        // SAFETY: the interface's own function and context, and an array of the length that is said.
        let status = unsafe { query(interface.AdapterContext, room.as_mut_ptr(), &raw mut count) };
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

    fn execution_context(&self) -> ExecutionContext {
        ExecutionContext { thread: 0, processor: 0 }
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
