//! An image's file: its sections, the frames of its functions, and what indirect calls can go to.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use object::{
    LittleEndian as LE,
    pe::{IMAGE_DIRECTORY_ENTRY_EXCEPTION, IMAGE_DIRECTORY_ENTRY_IAT, IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG},
    read::pe::PeFile64,
};

/// The bytes of a section that are in the file.
pub struct Part {
    pub begin: u32,
    pub bytes: Vec<u8>,
    pub is_code: bool,
}

/// An image for x86-64. Addresses are relative to where it is loaded.
pub struct Image {
    pub path: PathBuf,
    pub base: u64,
    pub entry: u32,
    pub parts: Vec<Part>,
    /// The addresses of Windows' routines.
    pub imports: Range<u32>,
    exceptions: Range<u32>,
    load_config: u32,
}

/// The functions that have frames.
#[derive(Default)]
pub struct Frames {
    /// Where each ends, and the bytes of its frame.
    pub functions: BTreeMap<u32, (u32, u64)>,
    /// Parts of other functions, and what they are parts of.
    pub parts: BTreeMap<u32, u32>,
}

const MACHINE_X86_64: u16 = 0x8664;
const SECTION_IS_CODE: u32 = 0x20;
/// `UNW_FLAG_CHAININFO`.
const IS_PART: u8 = 4;

impl Image {
    pub fn open(path: &Path) -> Result<Self> {
        let bad = || format!("{}: no image for x86-64", path.display());
        let data = fs::read(path).with_context(|| path.display().to_string())?;
        let file = PeFile64::parse(&*data).with_context(bad)?;
        let headers = file.nt_headers();
        ensure!(headers.file_header.machine.get(LE).0 == MACHINE_X86_64, bad());
        let directory = |index| {
            let (begin, size) = file.data_directories().get(index).with_context(bad)?.address_range();
            anyhow::Ok(begin..begin + size)
        };
        let mut parts = Vec::new();
        for section in file.section_table().iter() {
            let (begin, _) = section.pe_address_range();
            let bytes = section.pe_data(&*data).with_context(bad)?.to_vec();
            parts.push(Part { begin, bytes, is_code: section.characteristics.get(LE).0 & SECTION_IS_CODE != 0 });
        }
        Ok(Self {
            path: path.to_owned(),
            base: headers.optional_header.image_base.get(LE),
            entry: headers.optional_header.address_of_entry_point.get(LE),
            parts,
            imports: directory(IMAGE_DIRECTORY_ENTRY_IAT)?,
            exceptions: directory(IMAGE_DIRECTORY_ENTRY_EXCEPTION)?,
            load_config: directory(IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG)?.start,
        })
    }

    /// The bytes at an address.
    pub fn bytes<const SIZE: usize>(&self, address: u32) -> Result<[u8; SIZE]> {
        let of_part = |part: &Part| {
            let offset = usize::try_from(address.checked_sub(part.begin)?).ok()?;
            part.bytes.get(offset..)?.first_chunk().copied()
        };
        let found = self.parts.iter().find_map(of_part);
        found.with_context(|| format!("{}: there is nothing at {address:#x}", self.path.display()))
    }

    pub fn u32(&self, address: u32) -> Result<u32> {
        Ok(u32::from_le_bytes(self.bytes(address)?))
    }

    fn u64(&self, address: u32) -> Result<u64> {
        Ok(u64::from_le_bytes(self.bytes(address)?))
    }

    /// The functions of the unwind tables.
    pub fn frames(&self) -> Result<Frames> {
        let mut frames = Frames::default();
        for entry in self.exceptions.clone().step_by(12) {
            let (begin, end, unwind) = (self.u32(entry)?, self.u32(entry + 4)?, self.u32(entry + 8)?);
            let [flags, _, count, _] = self.bytes(unwind)?;
            let codes = (0..u32::from(count)).map(|index| Ok(u16::from_le_bytes(self.bytes(unwind + 4 + 2 * index)?)));
            let codes = codes.collect::<Result<Vec<_>>>()?;
            let frame = frame(&codes).with_context(|| format!("{}: {begin:#x}", self.path.display()))?;
            frames.functions.insert(begin, (end, frame));
            if flags >> 3 & IS_PART != 0 {
                let whole = unwind + 4 + 2 * u32::from(count.next_multiple_of(2));
                frames.parts.insert(begin, self.u32(whole)?);
            }
        }
        Ok(frames)
    }

    /// What indirect calls can go to: the table of Control Flow Guard.
    pub fn guard(&self) -> Result<BTreeSet<u32>> {
        let (table, count) = (self.u64(self.load_config + 0x80)?, self.u64(self.load_config + 0x88)?);
        let stride = 4 + (self.u32(self.load_config + 0x90)? >> 28);
        let first = u32::try_from(table.wrapping_sub(self.base))?;
        (0..u32::try_from(count)?).map(|index| self.u32(first + stride * index)).collect()
    }
}

/// The bytes that a function's unwind codes give back.
fn frame(codes: &[u16]) -> Result<u64> {
    let (mut rest, mut bytes) = (codes, 0);
    while let [code, more @ ..] = rest {
        let info = code >> 12;
        let (added, operands) = match (code >> 8 & 15, info, more) {
            (0, ..) => (8, 0),
            (1, 0, [eighths, ..]) => (8 * u64::from(*eighths), 1),
            (1, _, [low, high, ..]) => (u64::from(*low) | u64::from(*high) << 16, 2),
            (2, ..) => (8 * u64::from(info) + 8, 0),
            (3, ..) => (0, 0),
            (4 | 8, ..) => (0, 1),
            (5 | 9, ..) => (0, 2),
            (operation, ..) => bail!("unwind operation {operation} is not known"),
        };
        bytes += added;
        rest = more.get(operands..).context("an unwind code is cut off")?;
    }
    Ok(bytes)
}

#[test]
fn a_frame_is_what_its_unwind_codes_give_back() {
    // Two pushes, 0x28 bytes, a frame register, a saved register at an offset.
    assert_eq!(frame(&[0x3001, 0x5002, 0x4203, 0x0304, 0x6405, 7]).expect("a frame"), 8 + 8 + 0x28);
    assert_eq!(frame(&[0x0104, 0x100]).expect("a frame"), 0x800);
    assert_eq!(frame(&[0x1104, 0x1234, 0x1]).expect("a frame"), 0x1_1234);
    assert!(frame(&[0x0106 | 0x0600]).is_err(), "no such operation");
    assert!(frame(&[0x0104]).is_err(), "without its operand");
}
