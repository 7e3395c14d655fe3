//! Access to the drivers `ndktest` and `softndk`.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use control::{
    client::{Event, NetworkInterface, ProviderDriver, Refusal, TestDriver, Transport},
    network::{Problem, StartOn},
    test_device::{Kind, Progress, Start},
};

use crate::driver_interface;

/// The time between two queries of a run.
const PAUSE: Duration = Duration::from_millis(100);

/// The message on systems without the drivers.
pub const ELSEWHERE: &str = "the drivers run on Windows only (docs/windows-vm.md); `ndkctl selftest` without --driver tests the \
                             provider on any host";

/// Opens the driver's control device.
///
/// # Errors
///
/// The reason, in one line.
#[cfg(windows)]
pub fn open() -> Result<TestDriver<control::client::ControlDevice>, String> {
    let device = control::client::ControlDevice::open(control::test_device::WIN32_NAME);
    device.map(TestDriver::new).map_err(|refusal| refused(&refusal))
}

/// Opens the provider's control device.
///
/// # Errors
///
/// The reason, in one line.
#[cfg(windows)]
pub fn open_provider() -> Result<ProviderDriver<control::client::ControlDevice>, String> {
    let device = control::client::ControlDevice::open(control::provider_device::WIN32_NAME);
    device.map(ProviderDriver::new).map_err(|refusal| format!("the driver softndk: {refusal}"))
}

/// A device that does not exist.
#[cfg(not(windows))]
pub struct Nowhere;

#[cfg(not(windows))]
impl Transport for Nowhere {
    fn control(&self, _: u32, _: &[u8], _: &mut [u8]) -> Result<control::client::Answer, Refusal> {
        Err(Refusal::NotThere)
    }
}

/// There is no driver here.
///
/// # Errors
///
/// Always.
#[cfg(not(windows))]
pub fn open() -> Result<TestDriver<Nowhere>, String> {
    Err(ELSEWHERE.to_owned())
}

/// There is no provider here.
///
/// # Errors
///
/// Always.
#[cfg(not(windows))]
pub fn open_provider() -> Result<ProviderDriver<Nowhere>, String> {
    Err(ELSEWHERE.to_owned())
}

/// Returns the provider's control device, or `None` if there is no driver and the command shows adapters of its own; and a line
/// for people that says which.
///
/// # Errors
///
/// The driver is there but cannot be opened.
pub fn provider_or_host() -> Result<(Option<ProviderDriver<Provider>>, &'static str), String> {
    match try_open_provider() {
        Ok(driver) => Ok((Some(driver), "The driver softndk:")),
        Err(Refusal::NotThere) if cfg!(windows) => Ok((
            None,
            "The driver softndk is not installed. These are adapters of this command, with traffic that it makes:",
        )),
        Err(Refusal::NotThere) => {
            Ok((None, "Adapters of this command, with traffic that it makes (on Windows: the driver's):"))
        }
        Err(refusal) => Err(format!("the driver softndk: {refusal}")),
    }
}

/// What carries requests to the provider.
#[cfg(windows)]
type Provider = control::client::ControlDevice;
/// What carries requests to the provider.
#[cfg(not(windows))]
type Provider = Nowhere;

#[cfg(windows)]
fn try_open_provider() -> Result<ProviderDriver<Provider>, Refusal> {
    control::client::ControlDevice::open(control::provider_device::WIN32_NAME).map(ProviderDriver::new)
}

#[cfg(not(windows))]
const fn try_open_provider() -> Result<ProviderDriver<Provider>, Refusal> {
    Err(Refusal::NotThere)
}

/// The message for a refusal.
fn refused(refusal: &Refusal) -> String {
    format!("the driver ndktest: {refusal}")
}

/// Starts a run of the driver and shows its events until it ends.
///
/// # Errors
///
/// The driver refused, or is gone.
pub fn follow<T: Transport>(
    driver: &TestDriver<T>,
    (kind, seconds, seed): (Kind, u32, u64),
    interrupted: &AtomicBool,
    show: impl FnMut(Event<'_>),
) -> Result<Progress, String> {
    driver.start(&Start { kind: kind as u32, seconds, seed }).map_err(|refusal| refused(&refusal))?;
    watch(driver, interrupted, show)
}

/// Like [`follow`], on the adapters of network interfaces.
///
/// # Errors
///
/// The driver refused or is gone, or something is wrong with the interfaces.
pub fn follow_on<T: Transport>(
    driver: &TestDriver<T>,
    how: &StartOn,
    (interface, peer): (&str, &str),
    interrupted: &AtomicBool,
    show: impl FnMut(Event<'_>),
) -> Result<Progress, String> {
    let begun = driver.start_on(how, interface, peer).map_err(|refusal| refused(&refusal))?;
    if begun.problem != Problem::None as u32 {
        // Without the list the message is only shorter.
        let all = driver.interfaces().unwrap_or_default();
        if let Some(problem) = driver_interface::problem(&begun, interface, peer, &all) {
            return Err(problem);
        }
    }
    watch(driver, interrupted, show)
}

/// The network interfaces that the driver sees.
///
/// # Errors
///
/// The driver refused, or is gone.
pub fn interfaces<T: Transport>(driver: &TestDriver<T>) -> Result<Vec<NetworkInterface>, String> {
    driver.interfaces().map_err(|refusal| refused(&refusal))
}

fn watch<T: Transport>(
    driver: &TestDriver<T>,
    interrupted: &AtomicBool,
    show: impl FnMut(Event<'_>),
) -> Result<Progress, String> {
    let watched = driver.watch(|| thread::sleep(PAUSE), || interrupted.load(Relaxed), show);
    watched.map_err(|refusal| refused(&refusal))
}
