//! The way to the driver `ndktest`.

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

/// Between two looks at a run.
const PAUSE: Duration = Duration::from_millis(100);

/// Who wants the driver where there is none is told so.
pub const ELSEWHERE: &str = "the drivers run on Windows only (docs/windows-vm.md); `ndkctl selftest` without --driver checks the \
                             provider on any host";

/// Opens the driver's control device.
///
/// # Errors
///
/// Why that is not possible.
#[cfg(windows)]
pub fn open() -> Result<TestDriver<control::client::ControlDevice>, String> {
    let device = control::client::ControlDevice::open(control::test_device::WIN32_NAME);
    device.map(TestDriver::new).map_err(|refusal| refused(&refusal))
}

/// Opens the provider's control device.
///
/// # Errors
///
/// Why that is not possible.
#[cfg(windows)]
pub fn open_provider() -> Result<ProviderDriver<control::client::ControlDevice>, String> {
    let device = control::client::ControlDevice::open(control::provider_device::WIN32_NAME);
    device.map(ProviderDriver::new).map_err(|refusal| format!("the driver softndk: {refusal}"))
}

/// Nothing to be opened.
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

/// The provider's control device where there is one, and nothing where the adapters of this program are to be shown instead; with a
/// line that says which, for people.
///
/// # Errors
///
/// There is a driver, and it cannot be opened.
pub fn provider_or_host() -> Result<(Option<ProviderDriver<Provider>>, &'static str), String> {
    match try_open_provider() {
        Ok(driver) => Ok((Some(driver), "the driver softndk:")),
        Err(Refusal::NotThere) if cfg!(windows) => {
            Ok((None, "no driver softndk is there: adapters of this program, beside its own traffic"))
        }
        Err(Refusal::NotThere) => {
            Ok((None, "adapters of this program, beside its own traffic (on Windows the driver's):"))
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

/// A refusal in words.
fn refused(refusal: &Refusal) -> String {
    format!("the driver ndktest: {refusal}")
}

/// Has the driver run, and shows what it does until it is over.
///
/// # Errors
///
/// The driver has refused, or is gone.
pub fn follow<T: Transport>(
    driver: &TestDriver<T>,
    (kind, seconds, seed): (Kind, u32, u64),
    interrupted: &AtomicBool,
    show: impl FnMut(Event<'_>),
) -> Result<Progress, String> {
    driver.start(&Start { kind: kind as u32, seconds, seed }).map_err(|refusal| refused(&refusal))?;
    watch(driver, interrupted, show)
}

/// As [`follow`], on the adapters of network interfaces.
///
/// # Errors
///
/// The driver has refused, or is gone; what is wrong with the interfaces.
pub fn follow_on<T: Transport>(
    driver: &TestDriver<T>,
    how: &StartOn,
    (interface, peer): (&str, &str),
    interrupted: &AtomicBool,
    show: impl FnMut(Event<'_>),
) -> Result<Progress, String> {
    let begun = driver.start_on(how, interface, peer).map_err(|refusal| refused(&refusal))?;
    if begun.problem != Problem::None as u32 {
        // Without the list the line is shorter.
        let all = driver.interfaces().unwrap_or_default();
        if let Some(problem) = driver_interface::problem(&begun, interface, peer, &all) {
            return Err(problem);
        }
    }
    watch(driver, interrupted, show)
}

/// The network interfaces that the driver finds.
///
/// # Errors
///
/// The driver has refused, or is gone.
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
