//! Driver images: files that Windows would load into its kernel, loaded into this one.
//!
//! An image gets memory of its own with each load, so that it begins with the variables that its file has. Its imports lead through
//! thunks, which note whose call it is and where it came from. What its code may only do in a kernel, without calling it, is done for
//! it when the processor refuses it: see [`traps`].

mod code;
mod exports;
mod frames;
mod map;
mod origin;
mod processor_block;
mod scan;
mod shared_data;
mod stubs;
mod traps;

pub use self::{
    code::Writer,
    frames::{stack, walk},
    map::{DriverImage, describe, keep, unload},
    origin::origin,
    traps::install as install_handlers,
};

use wdk_bindings::NTSTATUS;

use crate::{
    context::DriverId,
    kernel::Kernel,
    pnp::{Driver, Value},
};

/// A routine of the kernel by its name, as an import of that driver would get it, for as long as the driver is loaded.
pub fn export(driver: DriverId, name: &str) -> Option<usize> {
    match exports::find("ntoskrnl.exe", name)? {
        exports::Export::Plain(address) => Some(address),
        exports::Export::Routine(address) => {
            let mut writer = Writer::default();
            let thunk = writer.thunk(driver, address);
            let code = writer.finish()?;
            let place = code.at(thunk);
            keep(driver, code);
            Some(place)
        }
    }
}

impl Kernel {
    /// Loads a driver image with values in its `Parameters` key: gives it memory, fills in its imports, and calls its entry.
    ///
    /// # Errors
    ///
    /// What the driver says. Then nothing of it may be left.
    pub fn load_image(
        &self,
        name: &str,
        image: &DriverImage,
        parameters: &[(&str, Value)],
    ) -> Result<Driver, NTSTATUS> {
        self.load_image_as(name, &format!("{name}.sys"), image, parameters)
    }

    /// The same for an image that findings call by another name than its service.
    ///
    /// # Errors
    ///
    /// As [`Kernel::load_image`].
    pub fn load_image_as(
        &self,
        service: &str,
        shown: &str,
        image: &DriverImage,
        parameters: &[(&str, Value)],
    ) -> Result<Driver, NTSTATUS> {
        traps::install();
        self.load_from(service, parameters, |id| map::map(id, shown, image, self.state.seed.unwrap_or(0)))
    }
}
