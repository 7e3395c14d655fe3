//! The way to the driver `ndktest`.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use control::client::{Event, ProviderDriver, Refusal, TestDriver, Transport};
use control::test_device::{Kind, Progress, Start, State};

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
    let watched = driver.watch(|| thread::sleep(PAUSE), || interrupted.load(Relaxed), show);
    watched.map_err(|refusal| refused(&refusal))
}

/// Looks that nobody but the person at this program has ended a run early.
///
/// # Errors
///
/// The driver has.
pub fn not_cancelled(last: &Progress) -> Result<(), String> {
    if last.state == State::Cancelled as u32 {
        return Err("the run was cancelled: the provider's device or the driver's is going".to_owned());
    }
    Ok(())
}
