//! The images that are in memory, or were.

use std::{
    any::Any,
    ptr,
    sync::{Arc, PoisonError, RwLock},
};

use image_loader::{Image, Name, Target, routines::same_module};
use windows_sys::Win32::System::{
    Diagnostics::Debug::{IMAGE_RUNTIME_FUNCTION_ENTRY, RtlDeleteFunctionTable},
    Memory::{MEM_DECOMMIT, VirtualFree},
};

use crate::running::DriverId;

/// An image in memory.
pub struct Mapped {
    pub name: String,
    pub driver: DriverId,
    pub base: usize,
    pub size: usize,
    /// False when the driver has been unloaded.
    pub live: bool,
    /// Addresses, relative to the image, at which a breakpoint lies in place of an instruction that has the first byte beside it.
    pub patched: Vec<(u32, u8)>,
    pub image: Arc<Image>,
    pub functions: usize,
    /// What was made for it.
    pub code: Vec<Arc<Code>>,
}

/// Code that was made for an image, and goes with it.
pub type Code = dyn Any + Send + Sync;

static IMAGES: RwLock<Vec<Mapped>> = RwLock::new(Vec::new());

/// Looks at the image that an address lies in, loaded or unloaded.
pub fn with_image<R>(address: usize, look: impl FnOnce(&Mapped) -> R) -> Option<R> {
    let images = IMAGES.read().unwrap_or_else(PoisonError::into_inner);
    // The newest first: addresses of an unloaded image are not used again, but nothing depends on it.
    images.iter().rev().find(|image| (image.base..image.base + image.size).contains(&address)).map(look)
}

/// An address as image and offset. `None` outside of all images.
pub fn describe(address: usize) -> Option<String> {
    with_image(address, |image| {
        let unloaded = if image.live { "" } else { ", unloaded" };
        format!("{}+{:#x}{unloaded}", image.name, address - image.base)
    })
}

/// An image has come to its place.
pub fn add(image: Mapped) {
    IMAGES.write().unwrap_or_else(PoisonError::into_inner).push(image);
}

/// Keeps code that was made for a driver as long as its image is loaded.
pub fn keep(driver: DriverId, code: Arc<Code>) {
    let mut images = IMAGES.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(image) = images.iter_mut().find(|image| image.driver == driver && image.live) {
        image.code.push(code);
    }
}

/// Takes the image of a driver away, if it has one. Its addresses are not used again, so that a late call of its code is seen.
pub fn unload(driver: DriverId) {
    let mut images = IMAGES.write().unwrap_or_else(PoisonError::into_inner);
    for image in images.iter_mut().filter(|image| image.driver == driver && image.live) {
        image.live = false;
        image.code.clear();
        if image.functions != 0 {
            let table: *const IMAGE_RUNTIME_FUNCTION_ENTRY = ptr::with_exposed_provenance(image.functions);
            // SAFETY: the table that was added when the image was loaded.
            unsafe { RtlDeleteFunctionTable(table) };
        }
        // SAFETY: the pages of the image, whose driver has been unloaded.
        unsafe { VirtualFree(ptr::with_exposed_provenance_mut(image.base), image.size, MEM_DECOMMIT) };
    }
}

/// An export of an image that is loaded, and where the image lies.
pub fn of_image(module: &str, name: &Name) -> Option<(usize, Target)> {
    let images = IMAGES.read().unwrap_or_else(PoisonError::into_inner);
    let image = images.iter().rev().find(|image| image.live && same_module(&image.name, module))?;
    Some((image.base, image.image.export(name)?.target.clone()))
}
