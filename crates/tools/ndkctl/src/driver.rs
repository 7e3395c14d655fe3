//! Access to the drivers `ndktest`, `softndk` and `softndknic`.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use clap::{Args, ValueEnum};
use control::{
    client::{DeviceControl, Event, NetworkInterface, ProviderDriver, Refusal, TestDriver},
    network::{Begun, Problem},
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

/// A device that does not exist.
#[cfg(not(windows))]
pub struct Nowhere;

#[cfg(not(windows))]
impl DeviceControl for Nowhere {
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

/// A driver with adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProviderName {
    /// The driver with a device interface of its own
    Softndk,
    /// The NIC
    Softndknic,
}

impl ProviderName {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Softndk => "softndk",
            Self::Softndknic => "softndknic",
        }
    }

    /// Its control device.
    #[cfg(windows)]
    const fn device(self) -> &'static str {
        match self {
            Self::Softndk => control::provider_device::WIN32_NAME,
            Self::Softndknic => control::provider_device::NIC_WIN32_NAME,
        }
    }
}

/// Which driver a command is about.
#[derive(Clone, Copy, Debug, Args)]
pub struct Of {
    /// Ask this driver; if not given, softndk, or softndknic where that is the only one (Windows)
    #[arg(long, value_enum, value_name = "DRIVER")]
    pub of: Option<ProviderName>,
}

/// A driver's control device.
pub struct OpenDriver<T = Provider> {
    pub driver: ProviderDriver<T>,
    pub name: ProviderName,
}

impl<T> OpenDriver<T> {
    /// A refusal in words.
    pub fn refused(&self, refusal: Refusal) -> String {
        refused_by(self.name, refusal)
    }
}

fn refused_by(name: ProviderName, refusal: Refusal) -> String {
    format!("the driver {}: {refusal}", name.name())
}

/// What carries requests to a provider.
#[cfg(windows)]
type Provider = control::client::ControlDevice;
/// What carries requests to a provider.
#[cfg(not(windows))]
type Provider = Nowhere;

#[cfg(windows)]
fn try_open(name: ProviderName) -> Result<Provider, Refusal> {
    control::client::ControlDevice::open(name.device())
}

#[cfg(not(windows))]
const fn try_open(_: ProviderName) -> Result<Provider, Refusal> {
    Err(Refusal::NotThere)
}

/// The first driver that is there.
fn first<T>(
    of: Of,
    open: impl Fn(ProviderName) -> Result<T, Refusal>,
) -> Result<(ProviderName, T), (ProviderName, Refusal)> {
    let all = [ProviderName::Softndk, ProviderName::Softndknic];
    let mut wanted = all.into_iter().filter(|name| of.of.is_none_or(|of| of == *name));
    let found = wanted.find_map(|name| match open(name) {
        Ok(device) => Some(Ok((name, device))),
        Err(Refusal::NotThere) => None,
        Err(refusal) => Some(Err((name, refusal))),
    });
    found.unwrap_or_else(|| Err((of.of.unwrap_or(ProviderName::Softndk), Refusal::NotThere)))
}

/// Opens the control device of a driver.
///
/// # Errors
///
/// The reason, in one line.
pub fn open_provider(of: Of) -> Result<OpenDriver, String> {
    let found = first(of, try_open).map_err(|(name, refusal)| refused_by(name, refusal));
    found.map(|(name, device)| OpenDriver { driver: ProviderDriver::new(device), name })
}

/// Returns the control device of a driver, or `None` if there is no driver and the command shows adapters of its own; and a line
/// for people that says which.
///
/// # Errors
///
/// The driver is there but cannot be opened; the one that is asked for is not there.
pub fn provider_or_host(of: Of) -> Result<(Option<OpenDriver>, String), String> {
    match first(of, try_open) {
        Ok((name, device)) => {
            Ok((Some(OpenDriver { driver: ProviderDriver::new(device), name }), format!("The driver {}:", name.name())))
        }
        Err((_, Refusal::NotThere)) if of.of.is_none() => {
            let line = if cfg!(windows) {
                "No driver is installed. These are adapters of this command, with traffic that it makes:"
            } else {
                "Adapters of this command, with traffic that it makes (on Windows: the driver's):"
            };
            Ok((None, line.to_owned()))
        }
        Err((name, refusal)) => Err(refused_by(name, refusal)),
    }
}

/// The message for a refusal of `ndktest`.
pub fn refused(refusal: &Refusal) -> String {
    format!("the driver ndktest: {refusal}")
}

/// Starts a run of the driver and shows its events until it ends.
///
/// # Errors
///
/// The driver refused, or is gone.
pub fn follow<T: DeviceControl>(
    driver: &TestDriver<T>,
    (kind, seconds, seed): (Kind, u32, u64),
    interrupted: &AtomicBool,
    show: impl FnMut(Event<'_>),
) -> Result<Progress, String> {
    driver.start(&Start { kind: kind as u32, seconds, seed }).map_err(|refusal| refused(&refusal))?;
    watch(driver, interrupted, show)
}

/// Looks that a run was begun.
///
/// # Errors
///
/// Something is wrong with the interfaces: what, in one line.
pub fn begun<T: DeviceControl>(
    driver: &TestDriver<T>,
    begun: &Begun,
    interface: &str,
    peer: &str,
) -> Result<(), String> {
    if begun.problem == Problem::None as u32 {
        return Ok(());
    }
    // Without the list the message is only shorter.
    let all = driver.interfaces().unwrap_or_default();
    driver_interface::problem(begun, interface, peer, &all).map_or(Ok(()), Err)
}

/// The network interfaces that the driver sees.
///
/// # Errors
///
/// The driver refused, or is gone.
pub fn interfaces<T: DeviceControl>(driver: &TestDriver<T>) -> Result<Vec<NetworkInterface>, String> {
    driver.interfaces().map_err(|refusal| refused(&refusal))
}

/// Shows the events of the run that goes on until it ends.
///
/// # Errors
///
/// The driver refused, or is gone.
pub fn watch<T: DeviceControl>(
    driver: &TestDriver<T>,
    interrupted: &AtomicBool,
    show: impl FnMut(Event<'_>),
) -> Result<Progress, String> {
    let watched = driver.watch(|| thread::sleep(PAUSE), || interrupted.load(Relaxed), show);
    watched.map_err(|refusal| refused(&refusal))
}

#[cfg(test)]
mod tests {
    use control::client::Refusal;

    use super::{Of, ProviderName, first};

    #[test]
    fn the_driver_that_is_asked_for_is_opened_and_else_the_one_that_is_there() {
        use ProviderName::{Softndk, Softndknic};
        let opened = |of, there: &'static [ProviderName]| {
            let open = move |name| there.contains(&name).then_some(()).ok_or(Refusal::NotThere);
            first(Of { of }, open).map(|(name, ())| name).map_err(|(name, _)| name)
        };
        assert_eq!(opened(None, &[Softndk, Softndknic]), Ok(Softndk));
        assert_eq!(opened(None, &[Softndknic]), Ok(Softndknic));
        assert_eq!(opened(Some(Softndknic), &[Softndk, Softndknic]), Ok(Softndknic));
        assert_eq!(opened(Some(Softndknic), &[Softndk]), Err(Softndknic));
        assert_eq!(opened(None, &[]), Err(Softndk));
        // One that refuses is not passed over.
        let denied = first(Of { of: None }, |_| Err::<(), _>(Refusal::Denied));
        assert_eq!(denied.err(), Some((Softndk, Refusal::Denied)));
    }
}
