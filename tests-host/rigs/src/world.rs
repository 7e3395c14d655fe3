//! Both drivers, loaded.

use control::{
    provider_device::{self, NicMode},
    test_device::{self, Kind, Progress, Start, State},
};
use simulated_kernel::{Answer, Device, Driver, File, Kernel, Value, wdk::NTSTATUS};

/// Seeds of the runs that are repeated with several.
pub const SEEDS: std::ops::Range<u64> = 1..9;

/// The provider, loaded, with one adapter.
pub struct Provider {
    pub driver: Driver,
    pub device: Device,
}

/// The consumer, loaded, with its device.
pub struct Consumer {
    pub driver: Driver,
    pub device: Device,
}

/// The provider's code, linked into the test.
#[cfg(unix)]
fn softndk(kernel: &Kernel, parameters: &[(&str, Value)]) -> Result<Driver, NTSTATUS> {
    kernel.image("softndk", &["softndk", "driver_common", "interpose", "provider", "engine", "nd2", "nd2_control"]);
    kernel.load_with("softndk", softndk::driver_entry, parameters)
}

/// The consumer's code, linked into the test.
#[cfg(unix)]
fn ndktest(kernel: &Kernel) -> Result<Driver, NTSTATUS> {
    kernel.image("ndktest", &["ndktest", "conformance"]);
    kernel.load("ndktest", ndktest::driver_entry)
}

/// The provider's image.
#[cfg(windows)]
fn softndk(kernel: &Kernel, parameters: &[(&str, Value)]) -> Result<Driver, NTSTATUS> {
    kernel.load_image("softndk", crate::images::image("softndk"), parameters)
}

/// The consumer's image.
#[cfg(windows)]
fn ndktest(kernel: &Kernel) -> Result<Driver, NTSTATUS> {
    kernel.load_image("ndktest", crate::images::image("ndktest"), &[])
}

/// A driver and its device; the driver is unloaded if it makes none.
fn with_device(driver: Driver) -> Result<(Driver, Device), NTSTATUS> {
    match driver.add_device() {
        Ok(device) => Ok((driver, device)),
        Err(status) => {
            driver.unload();
            Err(status)
        }
    }
}

impl Provider {
    pub fn load(kernel: &Kernel) -> Result<Self, NTSTATUS> {
        Self::load_with(kernel, &[])
    }

    /// Loads the provider with these values in the registry.
    pub fn load_with(kernel: &Kernel, parameters: &[(&str, Value)]) -> Result<Self, NTSTATUS> {
        let (driver, device) = with_device(softndk(kernel, parameters)?)?;
        Ok(Self { driver, device })
    }

    /// Loads the provider with queue pairs of that engine.
    pub fn load_in(kernel: &Kernel, nic: NicMode) -> Result<Self, NTSTATUS> {
        Self::load_with(kernel, &[("NicMode", Value::Number(nic as u32))])
    }

    pub fn unload(self) {
        assert!(self.device.remove().is_ok(), "the adapter is removed");
        self.driver.unload();
    }
}

impl Consumer {
    pub fn load(kernel: &Kernel) -> Result<Self, NTSTATUS> {
        let (driver, device) = with_device(ndktest(kernel)?)?;
        Ok(Self { driver, device })
    }

    pub fn unload(self) {
        assert!(self.device.remove().is_ok(), "the consumer is removed");
        self.driver.unload();
    }
}

/// Opens the provider's control device.
pub fn provider_control(kernel: &Kernel) -> File {
    kernel.open(provider_device::LINK_NAME).expect("the provider has a control device")
}

/// Opens the consumer's control device.
pub fn consumer_control(kernel: &Kernel) -> File {
    kernel.open(test_device::LINK_NAME).expect("the consumer has a control device")
}

/// Starts a run, which goes on for ten minutes unless it is over or ended before.
pub fn start(file: &File, kind: Kind, seed: u64) -> Answer {
    let start = Start { kind: kind as u32, seconds: 600, seed };
    file.control(test_device::START, &start.to_bytes(), 0)
}

/// How far the run is.
pub fn progress(file: &File) -> Progress {
    let answer = file.control(test_device::QUERY_PROGRESS, &[], Progress::BYTES);
    assert!(answer.is_success(), "{answer:?}");
    Progress::from_bytes(&answer.bytes).expect("a progress")
}

/// Waits until the run is over.
pub fn finish(kernel: &Kernel, file: &File) -> Progress {
    loop {
        let progress = progress(file);
        if progress.state != State::Running as u32 {
            return progress;
        }
        kernel.sleep(2_000);
    }
}

/// The report of the run.
pub fn report(file: &File) -> String {
    let mut text = Vec::new();
    loop {
        let from = test_device::From { offset: u32::try_from(text.len()).expect("a short report") };
        let answer = file.control(test_device::QUERY_REPORT, &from.to_bytes(), 4096);
        let more = answer.status == simulated_kernel::wdk::STATUS_BUFFER_OVERFLOW;
        assert!(answer.is_success() || more, "{answer:?}");
        text.extend(answer.bytes);
        if !more {
            return String::from_utf8(text).expect("a report is text");
        }
    }
}
