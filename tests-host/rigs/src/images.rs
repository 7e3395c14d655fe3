//! The drivers' images, for tests that are built for Windows: files in the folder that `SOFTNDK_IMAGES` names.

use std::{collections::BTreeMap, path::Path, sync::Mutex};

use simulated_kernel::DriverImage;

/// The image of that driver, read and checked once.
pub fn image(driver: &'static str) -> &'static DriverImage {
    static IMAGES: Mutex<BTreeMap<&str, &DriverImage>> = Mutex::new(BTreeMap::new());
    let mut images = IMAGES.lock().expect("a test that has failed ends the process");
    images.entry(driver).or_insert_with(|| {
        let folder = std::env::var_os("SOFTNDK_IMAGES").expect("SOFTNDK_IMAGES names the folder with the images");
        let path = Path::new(&folder).join(driver).with_extension("sys");
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let image = DriverImage::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Box::leak(Box::new(image))
    })
}
