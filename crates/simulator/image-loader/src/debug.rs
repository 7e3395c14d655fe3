//! The debugging information that belongs to an image.

use object::pe::IMAGE_DIRECTORY_ENTRY_DEBUG;

use crate::image::Image;

/// The file with the debugging information, as the linker noted it in the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pdb {
    /// The identifier that the file has too, as its bytes lie in the image.
    pub guid: [u8; 16],
    /// How often the file was written since.
    pub age: u32,
    /// The path on the machine of the linker.
    pub path: String,
}

/// Bytes of an `IMAGE_DEBUG_DIRECTORY`.
const ENTRY: usize = 28;
/// `IMAGE_DEBUG_TYPE_CODEVIEW`.
const CODE_VIEW: u32 = 2;

/// The first entry that names a file. Whatever is wrong with it only means that there is none.
pub fn read(image: &Image, range: impl Fn(usize) -> Option<(u32, u32)>) -> Option<Pdb> {
    let (address, size) = range(IMAGE_DIRECTORY_ENTRY_DEBUG)?;
    let table = image.slice(address, size)?;
    table.chunks_exact(ENTRY).find_map(|entry| {
        let word = |offset: usize| entry.get(offset..)?.first_chunk().map(|&bytes| u32::from_le_bytes(bytes));
        let (kind, size, place) = (word(12)?, word(16)?, word(20)?);
        let data = image.slice(place, size).filter(|_| kind == CODE_VIEW)?;
        let rest = data.strip_prefix(b"RSDS")?;
        let (guid, rest) = rest.split_first_chunk::<16>()?;
        let (age, path) = rest.split_first_chunk::<4>()?;
        let path = path.split(|&byte| byte == 0).next()?;
        Some(Pdb { guid: *guid, age: u32::from_le_bytes(*age), path: String::from_utf8_lossy(path).into_owned() })
    })
}
