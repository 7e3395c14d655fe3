//! The loading of driver images.

use wdk_bindings::NTSTATUS;

use crate::{
    drivers::Driver,
    image::{
        map::{self, DriverImage},
        traps,
    },
    kernel::Kernel,
    value::Value,
};

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
