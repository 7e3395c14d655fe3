//! Drivers that are files.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use ntstatus::NtStatus;
use runner::{
    Script,
    script::Image,
    worker::{self, Job},
};
use simulated_kernel::{Driver, DriverImage, Kernel, Value};

use crate::{Load, NOT_FOUND, Simulated, status};

/// The images of a script, read and checked once.
#[derive(Clone)]
pub struct Images(Arc<BTreeMap<PathBuf, DriverImage>>);

impl Images {
    /// Reads the images that a script names.
    ///
    /// # Errors
    ///
    /// One line that begins with the path.
    pub fn read(script: &Script) -> Result<Self, String> {
        let mut images = BTreeMap::new();
        for Image { file, .. } in &script.images {
            if !images.contains_key(file) {
                images.insert(file.clone(), parse(file).map_err(|error| format!("{}: {error}", file.display()))?);
            }
        }
        Ok(Self(Arc::new(images)))
    }
}

/// What a worker does: carries out a job with the images that its script names.
///
/// # Errors
///
/// One line about an image that cannot be read.
pub fn work(job: &Job) -> Result<(), String> {
    let images = Images::read(&job.script)?;
    worker::work(job, &Simulated(images));
    Ok(())
}

fn parse(file: &Path) -> Result<DriverImage, String> {
    let bytes = std::fs::read(file).map_err(|error| error.to_string())?;
    DriverImage::parse(&bytes).map_err(|error| error.to_string())
}

impl Load for Images {
    fn load(&self, kernel: &Kernel, image: &Image, values: &[(&str, Value)]) -> Result<Driver, NtStatus> {
        let file = self.0.get(&image.file).ok_or(NOT_FOUND)?;
        kernel.load_image_as(&image.service, &image.shown(), file, values).map_err(status)
    }
}
