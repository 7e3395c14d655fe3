//! Functions and lines of places in images: from PDB files, or from DWARF in the images themselves.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use addr2line::Loader;
use image_loader::Image;
use pdb_addr2line::{ContextPdbData, TypeFormatterFlags, pdb::PDB};
use runner::{Script, report::ImageOffset};

/// Where the debugging information of an image is.
enum Source {
    Pdb(Box<ContextPdbData<'static, 'static, File>>),
    Dwarf(Box<Loader>),
}

/// The debugging information of the images of a script.
pub struct Symbols(Vec<(String, Source)>);

impl Symbols {
    /// Reads it: from the PDB files that were named, which have to belong to the images; from those beside the images; from the images.
    ///
    /// # Errors
    ///
    /// One line about a file that was named and is not what it should be.
    pub fn read(script: &Script, named: &[PathBuf]) -> Result<Self, String> {
        let mut found = Vec::new();
        let mut left: Vec<_> = named.iter().collect();
        for image in script.all_images() {
            // It has been checked before.
            let Some(parsed) = std::fs::read(&image.file).ok().and_then(|bytes| Image::parse(&bytes).ok()) else {
                continue;
            };
            let given = named.iter().find(|path| guid(path).ok() == parsed.pdb.as_ref().map(|pdb| pdb.guid));
            left.retain(|path| Some(*path) != given);
            let source = match given {
                Some(path) => Some(open(path).map_err(|error| format!("{}: {error}", path.display()))?),
                None => beside(&image.file, &parsed).or_else(|| dwarf(&image.file)),
            };
            found.extend(source.map(|source| (image.shown(), source)));
        }
        let Some(path) = left.first() else { return Ok(Self(found)) };
        let why =
            guid(path).err().unwrap_or_else(|| "it belongs to none of the images, or to another build".to_owned());
        Err(format!("{}: {why}", path.display()))
    }

    /// Adds function, file and line to a place.
    pub fn add_to(&self, place: &mut ImageOffset) {
        let Some((_, source)) = self.0.iter().find(|(image, _)| *image == place.image) else { return };
        // A call is before the address that it returns to.
        let address = place.offset.saturating_sub(u32::from(place.is_return));
        match source {
            Source::Pdb(data) => by_pdb(data, address, place),
            Source::Dwarf(loader) => by_dwarf(loader, address, place),
        }
    }
}

/// The identifier of a PDB file, as it lies in an image.
fn guid(path: &Path) -> Result<[u8; 16], String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut pdb = PDB::open(file).map_err(|error| format!("it is no PDB file: {error}"))?;
    let information = pdb.pdb_information().map_err(|error| format!("the PDB file is broken: {error}"))?;
    Ok(information.guid.to_bytes_le())
}

fn open(path: &Path) -> Result<Source, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let pdb = PDB::open(file).map_err(|error| error.to_string())?;
    let data = ContextPdbData::try_from_pdb(pdb).map_err(|error| format!("the PDB file is broken: {error}"))?;
    Ok(Source::Pdb(Box::new(data)))
}

/// The PDB file beside the image that belongs to it.
fn beside(file: &Path, image: &Image) -> Option<Source> {
    let wanted = image.pdb.as_ref()?;
    let name = wanted.path.rsplit(['\\', '/']).next()?;
    let candidates = [file.with_file_name(name), file.with_extension("pdb")];
    let path = candidates.iter().find(|path| guid(path).ok() == Some(wanted.guid))?;
    open(path).ok()
}

/// What the image has in itself, if it has lines.
fn dwarf(file: &Path) -> Option<Source> {
    let loader = Loader::new(file).ok()?;
    loader.get_section_range(b".debug_line").is_some().then(|| Source::Dwarf(Box::new(loader)))
}

fn by_pdb(data: &ContextPdbData<'static, 'static, File>, address: u32, place: &mut ImageOffset) {
    // Whatever is wrong with it only means that nothing is known of the place.
    let flags = TypeFormatterFlags::NAME_ONLY
        | TypeFormatterFlags::NO_ARGUMENTS
        | TypeFormatterFlags::NO_FUNCTION_RETURN
        | TypeFormatterFlags::NO_MEMBER_FUNCTION_STATIC;
    let Ok(context) = data.make_context_with_formatter_flags(flags) else { return };
    let Ok(Some(procedure)) = context.find_frames(address) else { return };
    let Some(frame) = procedure.frames.first() else { return };
    place.function.clone_from(&frame.function);
    place.file = frame.file.as_ref().map(ToString::to_string);
    place.line = frame.line;
}

fn by_dwarf(loader: &Loader, address: u32, place: &mut ImageOffset) {
    let address = loader.relative_address_base() + u64::from(address);
    let frame = loader.find_frames(address).ok().and_then(|mut frames| frames.next().ok().flatten());
    if let Some(frame) = frame {
        place.function = frame.function.as_ref().and_then(|name| Some(name.demangle().ok()?.into_owned()));
        place.file = frame.location.as_ref().and_then(|location| location.file.map(str::to_owned));
        place.line = frame.location.and_then(|location| location.line);
    }
    if place.function.is_none() {
        place.function = loader.find_symbol(address).map(str::to_owned);
    }
}
