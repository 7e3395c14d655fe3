//! What an image exports, and its table of functions.

use object::{
    pe::{IMAGE_DIRECTORY_ENTRY_EXCEPTION, IMAGE_DIRECTORY_ENTRY_EXPORT},
    read::pe::{ExportTable, ExportTarget},
};

use crate::{error::Error, image::Image};

/// Where an export leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// To an address of the image.
    Address(u32),
    /// To an export of another module: its name without extension, and the export's name, or its number after `#`.
    Forward {
        /// The module.
        module: String,
        /// The export.
        name: String,
    },
}

/// One export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its number.
    pub ordinal: u16,
    /// Where it leads.
    pub target: Target,
}

/// The table of functions for unwinding: `RUNTIME_FUNCTION`s, sorted, each inside of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unwind {
    /// Where the table begins.
    pub address: u32,
    /// How many functions it has.
    pub count: u32,
}

pub fn exports(image: &Image, range: impl Fn(usize) -> Option<(u32, u32)>) -> Result<Vec<Export>, Error> {
    const PART: &str = "export table";
    let Some((address, size)) = range(IMAGE_DIRECTORY_ENTRY_EXPORT) else { return Ok(Vec::new()) };
    let broken = || Error::broken(PART, "a part of it lies outside of the image");
    let data = image.slice(address, size).ok_or_else(broken)?;
    let table = ExportTable::parse(data, address).map_err(|_| broken())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut exports = Vec::new();
    for export in table.exports().map_err(|_| broken())? {
        let target = match export.target {
            ExportTarget::Address(0) => continue,
            ExportTarget::Address(address) if address < image.size() => Target::Address(address),
            ExportTarget::Address(_) => return Err(broken()),
            ExportTarget::ForwardByOrdinal(module, number) => {
                Target::Forward { module: text(module), name: format!("#{number}") }
            }
            ExportTarget::ForwardByName(module, name) => Target::Forward { module: text(module), name: text(name) },
        };
        exports.push(Export { name: export.name.map(text), ordinal: export.ordinal.0, target });
    }
    Ok(exports)
}

impl Unwind {
    /// Bytes of a `RUNTIME_FUNCTION`: begin, end, and the place of how to unwind it.
    pub const ENTRY: u32 = 12;
}

pub fn unwind(image: &Image, range: impl Fn(usize) -> Option<(u32, u32)>) -> Result<Option<Unwind>, Error> {
    const PART: &str = "table of functions";
    let Some((address, size)) = range(IMAGE_DIRECTORY_ENTRY_EXCEPTION) else { return Ok(None) };
    if !size.is_multiple_of(Unwind::ENTRY) || !address.is_multiple_of(4) {
        return Err(Error::broken(PART, "its size or its place is wrong"));
    }
    let table = image.slice(address, size).ok_or(Error::broken(PART, "it lies outside of the image"))?;
    let mut before = 0;
    for entry in table.chunks_exact(Unwind::ENTRY as usize) {
        let word = |index: usize| {
            let bytes = entry[4 * index..].first_chunk().copied().unwrap_or_default();
            u32::from_le_bytes(bytes)
        };
        let (begin, end, how) = (word(0), word(1), word(2));
        if begin < before || end <= begin || end > image.size() {
            return Err(Error::broken(PART, "its functions are out of order, or outside of the image"));
        }
        before = end;
        if !is_unwind_information(image, how) {
            return Err(Error::broken(PART, "how to unwind a function lies outside of the image, or is unknown"));
        }
    }
    Ok(Some(Unwind { address, count: size / Unwind::ENTRY }))
}

/// Looks if there is an `UNWIND_INFO`, all of it: version 1 or 2, its codes, and what follows a handler or a chain.
fn is_unwind_information(image: &Image, place: u32) -> bool {
    const CHAINED: u8 = 4;
    // The lowest bit marks another entry of the table, to which this one leads.
    if place & 1 != 0 {
        return image.slice(place - 1, Unwind::ENTRY).is_some();
    }
    let Some(head) = image.slice(place, 4) else { return false };
    let (version, flags, codes) = (head[0] & 7, head[0] >> 3, u32::from(head[2]));
    let codes = codes.next_multiple_of(2) * 2;
    let more = match flags {
        0 => 0,
        flags if flags & CHAINED != 0 => Unwind::ENTRY,
        _ => 4,
    };
    matches!(version, 1 | 2) && place.is_multiple_of(4) && image.slice(place, 4 + codes + more).is_some()
}
