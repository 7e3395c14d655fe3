//! What is there of the drivers.

use serde::Serialize;

use crate::{Device, Driver, Fault, Machine, Staged, describe::problem};

/// What is there of a driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DriverStatus {
    /// Its name.
    pub driver: &'static str,
    /// Its image is in the kernel.
    pub loaded: bool,
    /// Its packages in the driver store.
    pub packages: Vec<Staged>,
    /// Its devices.
    pub devices: Vec<DeviceStatus>,
}

/// A device, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceStatus {
    /// What Windows says of it.
    #[serde(flatten)]
    pub device: Device,
    /// Its problem in words.
    pub state: String,
    /// What to do about it.
    pub remedy: Option<&'static str>,
}

impl From<Device> for DeviceStatus {
    fn from(device: Device) -> Self {
        let (state, remedy) = match device.problem {
            0 if device.started => ("runs".to_owned(), None),
            0 => ("does not run".to_owned(), Some("`ndkctl driver install` again")),
            code => (format!("problem {code}: {}", problem(code).text), Some(problem(code).remedy)),
        };
        Self { device, state, remedy }
    }
}

/// What is there of each driver.
///
/// # Errors
///
/// The machine could not be looked at.
pub fn status(machine: &impl Machine) -> Result<Vec<DriverStatus>, Fault> {
    let one = |driver: &'static Driver| {
        Ok(DriverStatus {
            driver: driver.name,
            loaded: machine.loaded(driver)?,
            packages: machine.staged(driver)?,
            devices: machine.devices(driver)?.into_iter().map(DeviceStatus::from).collect(),
        })
    };
    Driver::ALL.into_iter().map(one).collect()
}
