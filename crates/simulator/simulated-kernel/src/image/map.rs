//! Images in memory: giving them their place, filling in what they import, and taking them away.

use std::{ptr, sync::Arc};

use image_loader::{Access, Error, Image, Import, Name, Target};
use windows_sys::Win32::System::{
    Diagnostics::Debug::{IMAGE_RUNTIME_FUNCTION_ENTRY, RtlAddFunctionTable},
    Memory::{
        MEM_COMMIT, MEM_RESERVE, PAGE_EXECUTE_READ, PAGE_EXECUTE_READWRITE, PAGE_NOACCESS, PAGE_PROTECTION_FLAGS,
        PAGE_READONLY, PAGE_READWRITE, VirtualAlloc, VirtualProtect,
    },
};

use super::{code::Writer, exports, scan};
use crate::{
    context::DriverId,
    drivers::{Brought, Entry},
    report::bug_check,
    rule::Rule,
    sites::images::{self, Mapped, of_image},
};

/// A driver image that has been checked, and can be loaded any number of times.
pub struct DriverImage {
    image: Image,
    /// Instructions that ask for the processor's block by `gs`, which is another one in a process.
    by_gs: Vec<u32>,
}

impl DriverImage {
    /// Checks the bytes of a file.
    ///
    /// # Errors
    ///
    /// What is wrong with the image.
    pub fn parse(file: &[u8]) -> Result<Self, Error> {
        let image = Image::parse(file)?;
        let by_gs = scan::by_gs(&image);
        Ok(Self { image, by_gs })
    }

    /// What was checked.
    #[must_use]
    pub const fn image(&self) -> &Image {
        &self.image
    }
}

const fn protection(access: Access) -> PAGE_PROTECTION_FLAGS {
    match (access.execute, access.write, access.read) {
        (true, true, _) => PAGE_EXECUTE_READWRITE,
        (true, false, _) => PAGE_EXECUTE_READ,
        (false, true, _) => PAGE_READWRITE,
        (false, false, true) => PAGE_READONLY,
        (false, false, false) => PAGE_NOACCESS,
    }
}

/// Gives an image memory and everything it needs to run.
pub fn map(driver: DriverId, name: &str, source: &DriverImage, seed: u64) -> Brought {
    let size = source.image.bytes.len();
    // SAFETY: new addresses of the system's choice, which nobody has.
    let place = unsafe { VirtualAlloc(ptr::null(), size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE) };
    if place.is_null() {
        bug_check(Rule::NotSimulated, format_args!("the host has no memory for the image of {name}"));
    }
    let base = place.expose_provenance();
    let mut image = source.image.clone();
    image.relocate(base as u64);
    let mut writer = Writer::default();
    let fixed = fill_in(&mut image, driver, seed, &mut writer);
    let Some(code) = writer.finish() else {
        bug_check(Rule::NotSimulated, format_args!("the host has no memory for the imports of {name}"));
    };
    for (place, target) in fixed {
        let address = match target {
            Fixup::Thunk(offset) => code.at(offset),
            Fixup::Address(address) => address,
        };
        put(&mut image, place, address as u64);
    }
    let patched = patch(&mut image, &source.by_gs);
    // SAFETY: the new pages have as many bytes, and nobody else knows of them.
    unsafe { place.cast::<u8>().copy_from_nonoverlapping(image.bytes.as_ptr(), size) };
    protect(base, &image);
    let functions = image.unwind.map_or(0, |unwind| {
        let table = base + unwind.address as usize;
        let entries: *const IMAGE_RUNTIME_FUNCTION_ENTRY = ptr::with_exposed_provenance(table);
        // SAFETY: the table lies in the image, was checked, and stays until it is deleted with the image.
        let added = unsafe { RtlAddFunctionTable(entries, unwind.count, base as u64) };
        if added { table } else { 0 }
    });
    let entry: *const () = ptr::with_exposed_provenance(base + image.entry as usize);
    // Only what was checked and listed is looked at from now on.
    image.bytes = Vec::new();
    let in_memory = Mapped {
        name: name.to_owned(),
        driver,
        base,
        size,
        live: true,
        patched,
        image: Arc::new(image),
        functions,
        code: vec![Arc::new(code)],
    };
    images::add(in_memory);
    // SAFETY: the entry of a driver image has this type; that it lies in code of the image was checked.
    let entry = unsafe { std::mem::transmute::<*const (), Entry>(entry) };
    Brought { entry, image: base..base + size }
}

/// What the loader writes to a place of the image.
enum Fixup {
    /// A thunk, by its offset in the code that is being written.
    Thunk(usize),
    Address(usize),
}

/// Finds everything that the image imports, and what its guards need.
fn fill_in(image: &mut Image, driver: DriverId, seed: u64, writer: &mut Writer) -> Vec<(u32, Fixup)> {
    let mut fixed = Vec::new();
    for import in &image.imports {
        let target = match find(&import.module, &import.name) {
            Some(exports::Export::Routine(address)) => Fixup::Thunk(writer.thunk(driver, address)),
            Some(exports::Export::Plain(address)) => Fixup::Address(address),
            None => Fixup::Thunk(writer.missing(driver, &words(import))),
        };
        fixed.push((import.place, target));
    }
    let guard = image.guard;
    fixed.extend(guard.check.map(|place| (place, Fixup::Thunk(writer.nothing()))));
    fixed.extend(guard.dispatch.map(|place| (place, Fixup::Thunk(writer.dispatch()))));
    if let Some(place) = guard.cookie {
        put(image, place, cookie(seed, driver));
    }
    fixed
}

fn words(import: &Import) -> String {
    format!("{}!{}", import.module, import.name)
}

/// A security cookie: any number that is not the one in the file, whose upper sixteen bits are zero.
fn cookie(seed: u64, driver: DriverId) -> u64 {
    let mixed = (seed ^ (u64::from(driver.0) << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 16) | 1
}

/// The export that an import names: the kernel's, or that of an image that is loaded, to which a forwarder may lead.
fn find(module: &str, name: &Name) -> Option<exports::Export> {
    // Forwarders could go round in circles.
    const MOST_STEPS: usize = 8;
    let (mut module, mut name) = (module.to_owned(), name.clone());
    for _ in 0..MOST_STEPS {
        if let Name::Name(name) = &name
            && let Some(export) = exports::find(&module, name)
        {
            return Some(export);
        }
        match of_image(&module, &name)? {
            (base, Target::Address(address)) => return Some(exports::Export::Plain(base + address as usize)),
            (_, Target::Forward { module: to, name: of }) => {
                module = to;
                name = match of.strip_prefix('#').and_then(|number| number.parse().ok()) {
                    Some(number) => Name::Ordinal(number),
                    None => Name::Name(of),
                };
            }
        }
    }
    None
}

fn put(image: &mut Image, place: u32, value: u64) {
    let bytes = image.bytes.get_mut(place as usize..).and_then(<[u8]>::first_chunk_mut);
    *bytes.unwrap_or_else(|| unreachable!("the image was checked")) = value.to_le_bytes();
}

/// Puts a breakpoint in place of each of these instructions. What was there.
fn patch(image: &mut Image, places: &[u32]) -> Vec<(u32, u8)> {
    const BREAKPOINT: u8 = 0xCC;
    let bytes = &mut image.bytes;
    places.iter().map(|&place| (place, std::mem::replace(&mut bytes[place as usize], BREAKPOINT))).collect()
}

/// Gives each section the protection that it asks for. Headers can be read.
fn protect(base: usize, image: &Image) {
    let set = |address: u32, size: u32, protection: PAGE_PROTECTION_FLAGS| {
        let place = ptr::with_exposed_provenance(base + address as usize);
        let mut before = 0;
        // SAFETY: pages of the image, and a place for what they had.
        unsafe { VirtualProtect(place, size as usize, protection, &raw mut before) };
    };
    set(0, image.size(), PAGE_NOACCESS);
    set(0, image.headers, PAGE_READONLY);
    for section in &image.sections {
        set(section.address, section.size.min(image.size() - section.address), protection(section.access));
    }
}
