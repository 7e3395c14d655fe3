//! What an image imports.

use object::{
    LittleEndian as LE,
    pe::{IMAGE_DIRECTORY_ENTRY_DELAY_IMPORT, IMAGE_DIRECTORY_ENTRY_IMPORT, ImageNtHeaders64},
    read::pe::{DelayLoadImportTable, Import as Entry, ImportTable, ImportThunkList},
};

use crate::{error::Error, image::Image};

const PART: &str = "import table";
/// No driver imports more; a broken table could name the same ones again and again.
const MOST: usize = 16_384;

/// How an import is named.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// By its name.
    Name(String),
    /// By its number among the exports of its module.
    Ordinal(u16),
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ordinal(number) => write!(f, "#{number}"),
        }
    }
}

/// One import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The module, as the image spells it: `ntoskrnl.exe`.
    pub module: String,
    /// What is wanted of it.
    pub name: Name,
    /// Where its address goes: eight bytes.
    pub place: u32,
    /// Only asked for when it is used first.
    pub delayed: bool,
}

pub fn read(image: &Image, range: impl Fn(usize) -> Option<(u32, u32)>) -> Result<Vec<Import>, Error> {
    let mut imports = Vec::new();
    if let Some((address, _)) = range(IMAGE_DIRECTORY_ENTRY_IMPORT) {
        let table = ImportTable::new(&image.bytes, 0, address);
        let mut descriptors = table.descriptors().map_err(|_| outside())?;
        while let Some(one) = descriptors.next().map_err(|_| outside())? {
            let module = text(table.name(one.name.get(LE)).map_err(|_| outside())?)?;
            let (names, place) = (one.original_first_thunk.get(LE), one.first_thunk.get(LE));
            let names = table.thunks(if names == 0 { place } else { names }).map_err(|_| outside())?;
            add(image, &mut imports, &Descriptor { module, place, delayed: false }, names, |thunk| {
                table.hint_name(thunk)
            })?;
        }
    }
    if let Some((address, _)) = range(IMAGE_DIRECTORY_ENTRY_DELAY_IMPORT) {
        let table = DelayLoadImportTable::new(&image.bytes, 0, address);
        let mut descriptors = table.descriptors().map_err(|_| outside())?;
        while let Some(one) = descriptors.next().map_err(|_| outside())? {
            if one.attributes.get(LE) & 1 == 0 {
                return Err(Error::broken(PART, "a delayed import has absolute addresses"));
            }
            let module = text(table.name(one.dll_name_rva.get(LE)).map_err(|_| outside())?)?;
            let names = table.thunks(one.import_name_table_rva.get(LE)).map_err(|_| outside())?;
            let descriptor = Descriptor { module, place: one.import_address_table_rva.get(LE), delayed: true };
            add(image, &mut imports, &descriptor, names, |thunk| table.hint_name(thunk))?;
        }
    }
    Ok(imports)
}

struct Descriptor {
    module: String,
    place: u32,
    delayed: bool,
}

fn add<'image>(
    image: &Image,
    imports: &mut Vec<Import>,
    descriptor: &Descriptor,
    mut names: ImportThunkList<'_>,
    by_name: impl Fn(u32) -> object::Result<(u16, &'image [u8])>,
) -> Result<(), Error> {
    let mut place = descriptor.place;
    while let Some(thunk) = names.next::<ImageNtHeaders64>().map_err(|_| outside())? {
        let name = match entry(thunk, &by_name)? {
            Entry::Ordinal(number) => Name::Ordinal(number),
            Entry::Name(_, name) => Name::Name(text(name)?),
        };
        let there = image.slice(place, 8).is_some() && image.section(place).is_some();
        if !there || !place.is_multiple_of(8) {
            return Err(Error::broken(PART, "the place of an address lies outside of the image, or is not aligned"));
        }
        if imports.len() == MOST {
            return Err(Error::broken(PART, "it has more than 16384 entries"));
        }
        imports.push(Import { module: descriptor.module.clone(), name, place, delayed: descriptor.delayed });
        place = place.checked_add(8).ok_or_else(outside)?;
    }
    Ok(())
}

fn entry<'image>(
    thunk: object::pe::ImageThunkData64,
    by_name: &impl Fn(u32) -> object::Result<(u16, &'image [u8])>,
) -> Result<Entry<'image>, Error> {
    use object::read::pe::ImageThunkData as _;
    if thunk.is_ordinal() {
        return Ok(Entry::Ordinal(thunk.ordinal()));
    }
    let (hint, name) = by_name(thunk.address()).map_err(|_| outside())?;
    Ok(Entry::Name(hint, name))
}

const fn outside() -> Error {
    Error::broken(PART, "a part of it lies outside of the image")
}

/// A name of printable characters.
fn text(name: &[u8]) -> Result<String, Error> {
    let printable = !name.is_empty() && name.len() <= 512 && name.iter().all(u8::is_ascii_graphic);
    if printable {
        Ok(name.iter().map(|&byte| char::from(byte)).collect())
    } else {
        Err(Error::broken(PART, "a name is empty, too long, or not text"))
    }
}
