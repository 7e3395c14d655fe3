//! Headers and sections: what an image is in memory.

use object::{
    LittleEndian as LE,
    pe::{
        IMAGE_DIRECTORY_ENTRY_BASERELOC, IMAGE_DIRECTORY_ENTRY_TLS, IMAGE_FILE_EXECUTABLE_IMAGE,
        IMAGE_FILE_MACHINE_AMD64, IMAGE_FILE_RELOCS_STRIPPED, IMAGE_REL_BASED_ABSOLUTE, IMAGE_REL_BASED_DIR64,
        IMAGE_SCN_MEM_DISCARDABLE, IMAGE_SCN_MEM_EXECUTE, IMAGE_SCN_MEM_READ, IMAGE_SCN_MEM_WRITE,
        IMAGE_SUBSYSTEM_NATIVE, ImageDataDirectory, ImageDosHeader, ImageNtHeaders64, ImageSectionHeader,
    },
    read::pe::{DataDirectories, ImageNtHeaders, ImageOptionalHeader, RelocationBlockIterator},
};

use crate::{
    debug::{self, Pdb},
    directories::{self, Export, Unwind},
    error::Error,
    guard::{self, Guard},
    imports::{self, Import, Name},
};

/// Bytes of a page, to which sections are aligned.
pub const PAGE: u32 = 4096;
/// No driver has more bytes in memory.
const MOST: u32 = 256 << 20;
/// As many sections Windows accepts.
const MOST_SECTIONS: usize = 96;

/// What may be done with a section's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Its bytes may be read.
    pub read: bool,
    /// Its bytes may be written.
    pub write: bool,
    /// Its bytes may be run.
    pub execute: bool,
}

/// A section. Addresses are relative to the beginning of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name, as far as it is text.
    pub name: String,
    /// Where it begins: a multiple of a page.
    pub address: u32,
    /// Bytes in memory, whole pages.
    pub size: u32,
    /// What may be done with it.
    pub access: Access,
    /// Windows frees it when the driver has been initialised.
    pub discardable: bool,
}

/// A driver image that has been checked, with its bytes as they are in memory. Addresses are relative to its beginning.
#[derive(Clone, Debug)]
pub struct Image {
    /// The address that `bytes` are made for.
    pub base: u64,
    /// The whole image: headers, sections, and what lies between.
    pub bytes: Vec<u8>,
    /// Bytes of the headers.
    pub headers: u32,
    /// Where it is entered.
    pub entry: u32,
    /// The sections in the order of their addresses.
    pub sections: Vec<Section>,
    /// The places of 64-bit addresses that are inside of the image.
    pub relocations: Vec<u32>,
    /// What it imports, in the order of the tables; delayed imports at the end.
    pub imports: Vec<Import>,
    /// What it exports.
    pub exports: Vec<Export>,
    /// Its table of functions, for unwinding.
    pub unwind: Option<Unwind>,
    /// What its load configuration asks the loader to fill in.
    pub guard: Guard,
    /// The debugging information that the linker wrote beside it.
    pub pdb: Option<Pdb>,
}

impl Image {
    /// What it exports under a name or number.
    #[must_use]
    pub fn export(&self, wanted: &Name) -> Option<&Export> {
        self.exports.iter().find(|export| match wanted {
            Name::Name(name) => export.name.as_ref() == Some(name),
            Name::Ordinal(number) => export.ordinal == *number,
        })
    }

    /// Checks an image and lays it out.
    ///
    /// # Errors
    ///
    /// What is wrong with it. Every address, size and count in it is checked before it is used.
    pub fn parse(file: &[u8]) -> Result<Self, Error> {
        let dos = ImageDosHeader::parse(file).map_err(|_| Error::NotAnImage)?;
        let mut offset = u64::from(dos.nt_headers_offset());
        machine_of(file, offset)?;
        let (headers, data) = ImageNtHeaders64::parse(file, &mut offset)
            .map_err(|_| Error::broken("header", "it does not fit the file, or is not PE32+"))?;
        let optional = headers.optional_header();
        check_header(headers)?;
        let size = optional.size_of_image();
        if size > MOST {
            return Err(Error::TooLarge(size));
        }
        let table = headers
            .sections(file, offset)
            .map_err(|_| Error::broken("section table", "it lies outside of the file"))?;
        let length = optional.size_of_headers();
        let mut bytes = vec![0; size as usize];
        let first = file.get(..length as usize).filter(|_| length <= size);
        let first = first.ok_or(Error::broken("header", "it is longer than the file"))?;
        bytes[..first.len()].copy_from_slice(first);
        let mut sections: Vec<Section> = Vec::new();
        if table.iter().count() > MOST_SECTIONS {
            return Err(Error::broken("section table", "there are more than 96 sections"));
        }
        for header in table.iter() {
            let end = sections.last().map_or_else(|| length.next_multiple_of(PAGE), |last| last.address + last.size);
            sections.push(lay_out(header, file, &mut bytes, end)?);
        }
        let mut image = Self {
            base: optional.image_base(),
            bytes,
            headers: length,
            entry: optional.address_of_entry_point(),
            sections,
            relocations: Vec::new(),
            imports: Vec::new(),
            exports: Vec::new(),
            unwind: None,
            guard: Guard::default(),
            pdb: None,
        };
        if !image.access(image.entry).is_some_and(|access| access.execute) {
            return Err(Error::broken("entry point", "it lies in no section of code"));
        }
        image.read_directories(headers, &data)?;
        Ok(image)
    }

    fn read_directories(&mut self, headers: &ImageNtHeaders64, data: &DataDirectories<'_>) -> Result<(), Error> {
        let range = |index: usize| match data.get(index).map(ImageDataDirectory::address_range) {
            Some((0, _) | (_, 0)) | None => None,
            Some(range) => Some(range),
        };
        if range(IMAGE_DIRECTORY_ENTRY_TLS).is_some() {
            return Err(Error::broken("thread-local storage", "a driver cannot have it"));
        }
        let characteristics = headers.file_header().characteristics.get(LE);
        if characteristics.contains(IMAGE_FILE_RELOCS_STRIPPED) {
            return Err(Error::NoRelocations);
        }
        if let Some((address, size)) = range(IMAGE_DIRECTORY_ENTRY_BASERELOC) {
            self.relocations = self.relocations_in(address, size)?;
        }
        self.imports = imports::read(self, range)?;
        self.exports = directories::exports(self, range)?;
        self.unwind = directories::unwind(self, range)?;
        self.guard = guard::read(self, range)?;
        self.pdb = debug::read(self, range);
        Ok(())
    }

    fn relocations_in(&self, address: u32, size: u32) -> Result<Vec<u32>, Error> {
        const PART: &str = "relocation table";
        let table = self.slice(address, size).ok_or(Error::broken(PART, "it lies outside of the image"))?;
        let mut blocks = RelocationBlockIterator::new(table);
        let mut all = Vec::new();
        while let Some(block) = blocks.next().map_err(|_| Error::broken(PART, "a block does not fit it"))? {
            for entry in block {
                match entry.typ {
                    IMAGE_REL_BASED_ABSOLUTE => {}
                    IMAGE_REL_BASED_DIR64 => {
                        if self.slice(entry.virtual_address, 8).is_none() {
                            return Err(Error::broken(PART, "it names a place outside of the image"));
                        }
                        all.push(entry.virtual_address);
                    }
                    _ => return Err(Error::broken(PART, "it has an entry of a kind that x64 does not have")),
                }
            }
        }
        Ok(all)
    }

    /// Moves the image to another address.
    pub fn relocate(&mut self, base: u64) {
        let by = base.wrapping_sub(self.base);
        for &place in &self.relocations {
            if let Some(bytes) = self.bytes.get_mut(place as usize..).and_then(<[u8]>::first_chunk_mut::<8>) {
                *bytes = u64::from_le_bytes(*bytes).wrapping_add(by).to_le_bytes();
            }
        }
        self.base = base;
    }

    /// Bytes in memory.
    #[must_use]
    pub fn size(&self) -> u32 {
        // `SizeOfImage`, which has 32 bits, made it.
        u32::try_from(self.bytes.len()).unwrap_or(u32::MAX)
    }

    /// What may be done at an address. `None` outside of all sections.
    #[must_use]
    pub fn access(&self, address: u32) -> Option<Access> {
        self.section(address).map(|section| section.access)
    }

    /// The section that an address lies in.
    #[must_use]
    pub fn section(&self, address: u32) -> Option<&Section> {
        self.sections.iter().find(|section| address >= section.address && address - section.address < section.size)
    }

    /// Where functions begin, as the table for unwinding says, in order.
    pub fn functions(&self) -> impl Iterator<Item = u32> + '_ {
        let table = self.unwind.and_then(|unwind| self.slice(unwind.address, unwind.count.checked_mul(Unwind::ENTRY)?));
        let entries = table.unwrap_or_default().chunks_exact(Unwind::ENTRY as usize);
        entries.filter_map(|entry| entry.first_chunk().map(|&bytes| u32::from_le_bytes(bytes)))
    }

    /// A part of the image. `None` if it is not all there.
    #[must_use]
    pub fn slice(&self, address: u32, length: u32) -> Option<&[u8]> {
        self.bytes.get(address as usize..)?.get(..length as usize)
    }

    /// The address, relative to the image, of one that the image's data has.
    #[must_use]
    pub fn relative(&self, address: u64) -> Option<u32> {
        u32::try_from(address.checked_sub(self.base)?).ok().filter(|&address| address < self.size())
    }
}

/// Checks the machine, which is at the same place in headers of every kind.
fn machine_of(file: &[u8], offset: u64) -> Result<(), Error> {
    let start = usize::try_from(offset).map_err(|_| Error::NotAnImage)?;
    let header = file.get(start..).and_then(<[u8]>::first_chunk::<6>).ok_or(Error::NotAnImage)?;
    if header[..4] != *b"PE\0\0" {
        return Err(Error::NotAnImage);
    }
    let machine = u16::from_le_bytes([header[4], header[5]]);
    if machine == IMAGE_FILE_MACHINE_AMD64.0 { Ok(()) } else { Err(Error::Machine(machine)) }
}

fn check_header(headers: &ImageNtHeaders64) -> Result<(), Error> {
    let optional = headers.optional_header();
    if !headers.file_header().characteristics.get(LE).contains(IMAGE_FILE_EXECUTABLE_IMAGE) {
        return Err(Error::broken("header", "it is not marked as executable: the linker has reported errors"));
    }
    if optional.subsystem() != IMAGE_SUBSYSTEM_NATIVE {
        return Err(Error::Subsystem(optional.subsystem().0));
    }
    let (alignment, in_file) = (optional.section_alignment(), optional.file_alignment());
    if alignment < PAGE {
        return Err(Error::Alignment(alignment));
    }
    if !alignment.is_power_of_two() || !in_file.is_power_of_two() || in_file > alignment {
        return Err(Error::broken("header", "its alignments are no powers of two, or contradict each other"));
    }
    if !optional.image_base().is_multiple_of(0x1_0000) {
        return Err(Error::broken("header", "its base is no multiple of 64 KiB"));
    }
    if optional.size_of_image() == 0 || optional.size_of_headers() == 0 {
        return Err(Error::broken("header", "it says that it is empty"));
    }
    // So that the last page of a section lies inside.
    if !optional.size_of_image().is_multiple_of(alignment) {
        return Err(Error::broken("header", "its size is no multiple of its alignment"));
    }
    Ok(())
}

/// Copies a section to its place, at or after `end`.
fn lay_out(header: &ImageSectionHeader, file: &[u8], bytes: &mut [u8], end: u32) -> Result<Section, Error> {
    const PART: &str = "section table";
    let address = header.virtual_address.get(LE);
    let (raw, start) = (header.size_of_raw_data.get(LE), header.pointer_to_raw_data.get(LE));
    let in_memory = match header.virtual_size.get(LE) {
        0 => raw,
        size => size,
    };
    if !address.is_multiple_of(PAGE) {
        return Err(Error::broken(PART, "a section does not begin on a page"));
    }
    if address < end {
        return Err(Error::broken(PART, "sections overlap, or are out of order"));
    }
    let size = in_memory.checked_next_multiple_of(PAGE).ok_or(Error::broken(PART, "a section is too long"))?;
    let target = bytes.get_mut(address as usize..).and_then(|rest| rest.get_mut(..in_memory as usize));
    let target = target.ok_or(Error::broken(PART, "a section lies outside of the image"))?;
    // The file is filled up to its alignment, memory is not.
    let copied = raw.min(in_memory);
    if start != 0 && copied != 0 {
        let source = file.get(start as usize..).and_then(|rest| rest.get(..copied as usize));
        let source = source.ok_or(Error::broken(PART, "a section lies outside of the file: it is cut off"))?;
        target[..source.len()].copy_from_slice(source);
    }
    let flags = header.characteristics.get(LE);
    let access = Access {
        read: flags.contains(IMAGE_SCN_MEM_READ),
        write: flags.contains(IMAGE_SCN_MEM_WRITE),
        execute: flags.contains(IMAGE_SCN_MEM_EXECUTE),
    };
    let name = header.name.iter().take_while(|&&byte| byte != 0).map(|&byte| char::from(byte)).collect();
    Ok(Section { name, address, size, access, discardable: flags.contains(IMAGE_SCN_MEM_DISCARDABLE) })
}
