//! A small driver image, made byte by byte, with everything that a loader looks at.

/// Where `.text` begins, relative to the image.
pub const TEXT: u32 = 0x1000;
/// Where `.rdata` begins.
pub const DATA: u32 = 0x2000;
/// The size of the image in memory, and of its file.
pub const SIZE: u32 = 0x4000;
/// The address that it is made for.
pub const BASE: u64 = 0x1_4000_0000;

/// The import descriptors, in `.rdata` as all that follows.
pub const IMPORTS: u32 = DATA;
/// The import lookup table.
pub const NAMES: u32 = DATA + 0x100;
/// The import address table.
pub const PLACES: u32 = DATA + 0x180;
/// The descriptors of delayed imports.
pub const DELAYED: u32 = DATA + 0x200;
/// The load configuration.
pub const CONFIGURATION: u32 = DATA + 0x300;
/// The export directory.
pub const EXPORTS: u32 = DATA + 0x500;
/// The debug directory.
pub const DEBUG: u32 = DATA + 0x600;
/// Where `.reloc` begins.
pub const RELOCATIONS: u32 = 0x3000;
/// The offset of the optional header in the file.
pub const OPTIONAL: usize = 0x40 + 24;
/// The offset of the data directories.
pub const DIRECTORIES: usize = OPTIONAL + 112;
/// The offset of the section headers.
pub const SECTIONS: usize = DIRECTORIES + 16 * 8;

/// An image that is being made: the bytes of its file.
pub struct Made(pub Vec<u8>);

impl Made {
    /// Puts bytes at an offset of the file.
    ///
    /// # Panics
    ///
    /// If the file ends before.
    pub fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Puts bytes where they are in memory: in this file both are the same.
    fn at(&mut self, address: u32, bytes: &[u8]) {
        self.put(address as usize, bytes);
    }

    fn words(&mut self, address: u32, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.at(address, &bytes);
    }

    fn longs(&mut self, address: u32, longs: &[u64]) {
        let bytes: Vec<u8> = longs.iter().flat_map(|long| long.to_le_bytes()).collect();
        self.at(address, &bytes);
    }

    /// Fills a data directory.
    pub fn directory(&mut self, index: usize, address: u32, size: u32) {
        self.put(DIRECTORIES + 8 * index, &address.to_le_bytes());
        self.put(DIRECTORIES + 8 * index + 4, &size.to_le_bytes());
    }
}

/// The image.
#[must_use]
pub fn made() -> Vec<u8> {
    let mut made = Made(vec![0; SIZE as usize]);
    headers(&mut made);
    // A function: xor eax, eax; ret. How to unwind it, and the table.
    made.at(TEXT, &[0x31, 0xC0, 0xC3]);
    made.at(TEXT + 0x80, &[1, 0, 0, 0]);
    made.words(TEXT + 0x100, &[TEXT, TEXT + 3, TEXT + 0x80]);
    made.directory(3, TEXT + 0x100, 12);
    imports(&mut made);
    guards_and_exports(&mut made);
    made.0
}

fn headers(made: &mut Made) {
    made.put(0, b"MZ");
    made.put(0x3C, &0x40_u32.to_le_bytes());
    made.put(0x40, b"PE\0\0");
    // Machine, sections, length of the optional header, characteristics.
    made.put(0x44, &0x8664_u16.to_le_bytes());
    made.put(0x46, &3_u16.to_le_bytes());
    made.put(0x54, &240_u16.to_le_bytes());
    made.put(0x56, &0x22_u16.to_le_bytes());
    made.put(OPTIONAL, &0x20B_u16.to_le_bytes());
    for (offset, value) in [(16, TEXT), (32, 0x1000), (36, 0x200), (56, SIZE), (60, 0x400), (108, 16)] {
        made.put(OPTIONAL + offset, &value.to_le_bytes());
    }
    made.put(OPTIONAL + 24, &BASE.to_le_bytes());
    made.put(OPTIONAL + 68, &1_u16.to_le_bytes());
    for (index, (name, address, flags)) in [
        (b".text\0\0\0", TEXT, 0x6000_0020_u32),
        (b".rdata\0\0", DATA, 0xC000_0040),
        (b".reloc\0\0", RELOCATIONS, 0x4200_0040),
    ]
    .into_iter()
    .enumerate()
    {
        let header = SECTIONS + 40 * index;
        made.put(header, name);
        for (offset, value) in [(8, 0x1000), (12, address), (16, 0x1000), (20, address), (36, flags)] {
            made.put(header + offset, &value.to_le_bytes());
        }
    }
    // One block of one relocation, and one that fills it up.
    made.words(RELOCATIONS, &[DATA, 12]);
    made.at(RELOCATIONS + 8, &(0xA000_u16 | 0x358).to_le_bytes());
    made.directory(5, RELOCATIONS, 12);
}

fn imports(made: &mut Made) {
    let module = DATA + 0x60;
    made.at(module, b"ntoskrnl.exe\0");
    let name = DATA + 0x80;
    made.at(name, b"\x07\0KeInitializeDpc\0");
    made.words(IMPORTS, &[NAMES, 0, 0, module, PLACES]);
    made.longs(NAMES, &[u64::from(name), (1 << 63) + 42, 0]);
    made.directory(1, IMPORTS, 40);
    let delayed = DATA + 0xA0;
    made.at(delayed, b"\x01\0KeBugCheckEx\0");
    made.words(DELAYED, &[1, module, 0, DELAYED + 0x60, DELAYED + 0x80]);
    made.longs(DELAYED + 0x80, &[u64::from(delayed), 0]);
    made.directory(13, DELAYED, 64);
}

fn guards_and_exports(made: &mut Made) {
    made.words(CONFIGURATION, &[0x118]);
    made.longs(CONFIGURATION + 0x58, &[BASE + u64::from(DATA + 0x480)]);
    let table = BASE + u64::from(DATA + 0x498);
    made.longs(
        CONFIGURATION + 0x70,
        &[BASE + u64::from(DATA + 0x488), BASE + u64::from(DATA + 0x490), table, 1, 0x1000_0500],
    );
    made.words(DATA + 0x498, &[TEXT]);
    made.directory(10, CONFIGURATION, 0x118);
    // Two exports: a function, and a forwarder.
    made.words(EXPORTS, &[0, 0, 0, 0, 5, 2, 2, EXPORTS + 0x40, EXPORTS + 0x50, EXPORTS + 0x60]);
    made.words(EXPORTS + 0x40, &[TEXT, EXPORTS + 0x90]);
    made.words(EXPORTS + 0x50, &[EXPORTS + 0x70, EXPORTS + 0x78]);
    made.at(EXPORTS + 0x60, &[0, 0, 1, 0]);
    made.at(EXPORTS + 0x70, b"Entry\0");
    made.at(EXPORTS + 0x78, b"Other\0");
    made.at(EXPORTS + 0x90, b"HAL.KeStallExecutionProcessor\0");
    made.directory(0, EXPORTS, 0xC0);
    made.words(DEBUG + 12, &[2, 35, DEBUG + 0x40]);
    made.at(DEBUG + 0x40, b"RSDS0123456789ABCDEF\x01\0\0\0driver.pdb\0");
    made.directory(6, DEBUG, 28);
}

/// The image as a driver of the framework, version 1.15, with that code.
///
/// It has `WDF_BIND_INFO`, the variable that points to the table at [`FUNCTIONS`], and what points to the variable at [`POINTER`].
///
/// # Panics
///
/// If the code is longer than its section.
#[must_use]
pub fn bound(code: &[u8]) -> Vec<u8> {
    let mut made = Made(made());
    let (name, info) = (DATA + 0x700, DATA + 0x740);
    let wide: Vec<u8> = "KmdfLibrary\0".encode_utf16().flat_map(u16::to_le_bytes).collect();
    made.at(name, &wide);
    made.words(info, &[48]);
    made.longs(info + 8, &[BASE + u64::from(name)]);
    made.words(info + 16, &[1, 15, 0, 444]);
    made.longs(info + 32, &[BASE + u64::from(FUNCTIONS)]);
    made.longs(POINTER, &[BASE + u64::from(FUNCTIONS)]);
    made.words(RELOCATIONS, &[DATA, 16]);
    for (index, place) in (0_u32..).zip([info + 8, info + 32, 0x358 + DATA, POINTER]) {
        let entry = 0xA000 | u16::try_from(place - DATA).expect("a page");
        made.at(RELOCATIONS + 8 + 2 * index, &entry.to_le_bytes());
    }
    made.directory(5, RELOCATIONS, 16);
    // What compilers fill the space between functions with.
    made.at(CODE - 16, &[0xCC; 16]);
    made.at(CODE, code);
    made.0
}

/// Where the code of [`bound`] begins.
pub const CODE: u32 = TEXT + 0x200;
/// The variable of [`bound`] that points to the framework's table.
pub const FUNCTIONS: u32 = DATA + 0x800;
/// What points to [`FUNCTIONS`] in [`bound`], among the data that may be written.
pub const POINTER: u32 = DATA + 0x808;
