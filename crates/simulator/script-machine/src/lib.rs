//! The simulated kernel as the machine of a script: what `ndkctl run` and the tests of scripts drive.
//!
//! [`Simulated`] is for drivers of any kind; who makes it says how a driver is loaded ([`Load`]). `images` is that for files,
//! on Windows.

#![cfg(any(unix, all(windows, target_arch = "x86_64")))]

#[cfg(windows)]
pub mod images;
mod running;
mod sockets;

use std::time::Duration;

use ntstatus::NtStatus;
use runner::{
    machine::Machines,
    script::{Image, Settings},
};
use simulated_kernel::{Driver, Kernel, Medium, Value, wdk::NTSTATUS};

pub use crate::running::Running;

/// How long a thread may wait before that is a finding.
const HANG_LIMIT: Duration = Duration::from_secs(30);

/// Loads drivers into a kernel.
pub trait Load: Clone {
    /// Loads a driver with values in its `Parameters` key.
    ///
    /// # Errors
    ///
    /// What its entry says, or that there is no such driver.
    fn load(&self, kernel: &Kernel, image: &Image, values: &[(&str, Value)]) -> Result<Driver, NtStatus>;
}

/// Makes kernels, into which drivers are loaded by `L`.
#[derive(Clone, Debug)]
pub struct Simulated<L>(pub L);

impl<L: Load> Machines for Simulated<L> {
    type Machine = Running<L>;

    fn machine(&self, seed: u64, settings: Settings) -> Running<L> {
        let kernel = if settings.threads { Kernel::threads() } else { Kernel::seeded(seed) };
        let kernel = kernel.processors(settings.processors).preemption(settings.preemption);
        let kernel = kernel.hang_limit(HANG_LIMIT).start();
        if settings.host_datagrams {
            kernel.network().set_medium(Medium::Host);
        }
        Running::new(self.0.clone(), kernel)
    }
}

/// `STATUS_OBJECT_NAME_NOT_FOUND`.
pub const NOT_FOUND: NtStatus = NtStatus::from_bits(0xC000_0034);

/// `STATUS_OBJECT_NAME_COLLISION`.
const TAKEN: NtStatus = NtStatus::from_bits(0xC000_0035);

/// A status of the kernel.
pub const fn status(bits: NTSTATUS) -> NtStatus {
    NtStatus::from_bits(bits.cast_unsigned())
}
