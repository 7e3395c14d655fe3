//! Drivers that are linked into this program. What an image's `file` is called decides which driver it is.
//!
//! `softndk` and `softndknic` share crates, and whose thread or timer something is would be told from these. So a script has one of them.

use ndkpi::NtStatus;
use runner::script::Image;
use script_machine::{Load, NOT_FOUND, status};
use simulated_kernel::{Driver, Entry, Kernel, Value};

/// The drivers of this program, in which the sample consumer is that variant.
#[derive(Clone, Copy)]
pub struct Linked {
    pub consumer: Option<Entry>,
}

impl Linked {
    /// The driver of that file, and the crates that it is made of.
    fn driver(self, image: &Image) -> Option<(Entry, &'static [&'static str])> {
        let stem = image.file.file_stem()?.to_str()?;
        Some(match stem {
            "softndk" => (softndk::driver_entry, &["softndk", "driver_common", "provider", "engine"]),
            "softndknic" => (softndknic::driver_entry, &["softndknic", "driver_common", "provider", "engine", "cable"]),
            "ndktest" => (ndktest::driver_entry, &["ndktest", "conformance"]),
            "talker" => (rigs::talker::entry, &[]),
            "limiter" => (rigs::limiter::entry, &[]),
            "mailbox" => (rigs::mailbox::entry, &[]),
            "consumer" => (self.consumer?, &[]),
            // Of two machines one may have the right one, whatever the other has.
            "right" => (consumer_c::VARIANTS.iter().find(|variant| variant.name == "right")?.entry, &[]),
            _ => return None,
        })
    }
}

impl Load for Linked {
    fn load(&self, kernel: &Kernel, image: &Image, values: &[(&str, Value)]) -> Result<Driver, NtStatus> {
        let (entry, crates) = self.driver(image).ok_or(NOT_FOUND)?;
        if !crates.is_empty() {
            kernel.image(&image.service, crates);
        }
        kernel.load_with(&image.service, entry, values).map_err(status)
    }
}
