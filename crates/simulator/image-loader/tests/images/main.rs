//! Images, right and wrong: everything of a right one is found, and a wrong one ends in one line.

mod framework;

use image_loader::{Access, Error, Image, Name, Pdb, Target, routines};
use testing::driver_image::{
    BASE, DATA, DELAYED, DIRECTORIES, EXPORTS, IMPORTS, Made, NAMES, OPTIONAL, PLACES, SECTIONS, TEXT, made,
};

fn image() -> Image {
    Image::parse(&made()).expect("a right image")
}

/// The image with a few bytes changed.
fn changed(offset: usize, bytes: &[u8]) -> Result<Image, Error> {
    let mut made = Made(made());
    made.put(offset, bytes);
    Image::parse(&made.0)
}

#[test]
fn sections_have_their_bytes_and_what_may_be_done_with_them() {
    let image = image();
    let seen: Vec<_> =
        image.sections.iter().map(|section| (section.name.as_str(), section.address, section.size)).collect();
    assert_eq!(seen, [(".text", TEXT, 0x1000), (".rdata", DATA, 0x1000), (".reloc", 0x3000, 0x1000)]);
    assert_eq!(image.access(TEXT), Some(Access { read: true, write: false, execute: true }));
    assert_eq!(image.access(DATA), Some(Access { read: true, write: true, execute: false }));
    assert_eq!(image.access(0), None, "the headers are no section");
    assert!(image.sections[2].discardable && !image.sections[1].discardable);
    assert_eq!(image.slice(TEXT, 3), Some(&[0x31, 0xC0, 0xC3][..]));
    assert_eq!((image.entry, image.base, image.size()), (TEXT, BASE, 0x4000));
}

#[test]
fn imports_have_names_numbers_and_places() {
    let imports = image().imports;
    let seen: Vec<_> =
        imports.iter().map(|one| (one.module.as_str(), one.name.clone(), one.place, one.delayed)).collect();
    let kernel = "ntoskrnl.exe";
    assert_eq!(
        seen,
        [
            (kernel, Name::Name("KeInitializeDpc".to_owned()), PLACES, false),
            (kernel, Name::Ordinal(42), PLACES + 8, false),
            (kernel, Name::Name("KeBugCheckEx".to_owned()), DELAYED + 0x60, true),
        ]
    );
}

#[test]
fn exports_lead_to_code_or_elsewhere() {
    let exports = image().exports;
    assert_eq!(
        (exports[0].name.as_deref(), exports[0].ordinal, &exports[0].target),
        (Some("Entry"), 5, &Target::Address(TEXT))
    );
    let forward = Target::Forward { module: "HAL".to_owned(), name: "KeStallExecutionProcessor".to_owned() };
    let found = |name| image().export(&name).map(|export| export.ordinal);
    assert_eq!(
        [found(Name::Name("Other".to_owned())), found(Name::Ordinal(5)), found(Name::Ordinal(7))],
        [Some(6), Some(5), None]
    );
    assert_eq!((exports[1].name.as_deref(), exports[1].ordinal, &exports[1].target), (Some("Other"), 6, &forward));
}

#[test]
fn what_a_loader_fills_in_is_found() {
    let image = image();
    assert_eq!(image.guard.cookie, Some(DATA + 0x480));
    assert_eq!((image.guard.check, image.guard.dispatch), (Some(DATA + 0x488), Some(DATA + 0x490)));
    let targets = image.guard.targets.expect("a table of call targets");
    assert_eq!((targets.address, targets.count, targets.stride), (DATA + 0x498, 1, 5));
    let unwind = image.unwind.expect("a table of functions");
    assert_eq!((unwind.address, unwind.count), (TEXT + 0x100, 1));
    let pdb = Pdb { guid: *b"0123456789ABCDEF", age: 1, path: "driver.pdb".to_owned() };
    assert_eq!(image.pdb, Some(pdb));
}

#[test]
fn an_image_that_is_moved_has_other_addresses_in_it() {
    let mut image = image();
    assert_eq!(image.relocations, [DATA + 0x358]);
    let cookie = |image: &Image| image.slice(DATA + 0x358, 8).map(<[u8]>::to_vec);
    image.relocate(0x7FF0_0000_0000);
    assert_eq!(cookie(&image), Some((0x7FF0_0000_0000 + u64::from(DATA + 0x480)).to_le_bytes().to_vec()));
    image.relocate(BASE);
    assert_eq!(cookie(&image), Some((BASE + u64::from(DATA + 0x480)).to_le_bytes().to_vec()), "and back");
}

#[test]
fn an_image_of_another_kind_is_told_what_to_do() {
    let words = |outcome: Result<Image, Error>| outcome.expect_err("a wrong image").to_string();
    assert_eq!(words(changed(0x44, &0x14C_u16.to_le_bytes())), "it is for 32-bit x86: build it for x64");
    assert_eq!(words(changed(0x44, &0xAA64_u16.to_le_bytes())), "it is for ARM64: build it for x64");
    assert!(words(changed(OPTIONAL + 68, &3_u16.to_le_bytes())).contains("/SUBSYSTEM:NATIVE"));
    assert!(words(changed(0x56, &0x23_u16.to_le_bytes())).contains("/FIXED"));
    assert!(words(changed(OPTIONAL + 32, &0x200_u32.to_le_bytes())).contains("/ALIGN"));
    assert!(words(changed(OPTIONAL + 56, &0x4000_0000_u32.to_le_bytes())).contains("256 MiB"));
    assert_eq!(changed(0, b"ZM").expect_err("no image"), Error::NotAnImage);
    assert_eq!(changed(0x40, b"LE\0\0").expect_err("no image"), Error::NotAnImage);
}

#[test]
fn what_lies_outside_of_the_image_is_found_whatever_names_it() {
    let part = |outcome: Result<Image, Error>| match outcome.expect_err("a wrong image") {
        Error::Broken { part, .. } => part,
        other => panic!("{other:?}"),
    };
    let far = 0x00FF_FFF0_u32.to_le_bytes();
    // The last section's bytes would fit, its page would not.
    assert_eq!(part(changed(OPTIONAL + 56, &0x3FF0_u32.to_le_bytes())), "header");
    assert_eq!(part(changed(OPTIONAL + 16, &DATA.to_le_bytes())), "entry point");
    assert_eq!(part(changed(SECTIONS + 40 + 12, &TEXT.to_le_bytes())), "section table");
    assert_eq!(part(changed(SECTIONS + 20, &far)), "section table");
    assert_eq!(part(changed(DIRECTORIES + 8, &far)), "import table");
    assert_eq!(part(changed(NAMES as usize, &far)), "import table");
    assert_eq!(part(changed(IMPORTS as usize + 16, &far)), "import table");
    assert_eq!(part(changed(IMPORTS as usize + 16, &(PLACES + 1).to_le_bytes())), "import table");
    assert_eq!(part(changed(DELAYED as usize, &[0])), "import table");
    assert_eq!(part(changed(EXPORTS as usize + 0x40, &far)), "export table");
    assert_eq!(part(changed(0x3000, &far)), "relocation table");
    assert_eq!(part(changed(0x3009, &[0x30])), "relocation table");
    assert_eq!(part(changed(TEXT as usize + 0x100 + 8, &far)), "table of functions");
    assert_eq!(part(changed(DATA as usize + 0x358, &[0; 3])), "load configuration");
    assert_eq!(part(changed(DATA as usize + 0x370, &[1])), "load configuration");
    assert_eq!(part(changed(DATA as usize + 0x388, &far)), "load configuration");
}

#[test]
fn an_image_that_is_cut_off_is_refused_wherever_it_is_cut() {
    let whole = made();
    // The last section's last bytes are what the file has to fill it up.
    for length in (0..0x3000).step_by(7).chain(0x2FF0..0x3001) {
        let outcome = Image::parse(&whole[..length]);
        assert!(outcome.is_err(), "{length} bytes of {}", whole.len());
    }
}

/// A number that looks random and is the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        usize::try_from(self.0 >> 33).expect("31 bits") % limit
    }
}

/// The places that decide how an image is read: most changes elsewhere change nothing.
const DECIDING: [(usize, usize); 6] =
    [(0, 0x200), (TEXT as usize + 0x80, 0x90), (DATA as usize, 0x300), (0x2300, 0x200), (0x2500, 0x180), (0x3000, 16)];

/// How many are tried: as the environment says, else so many that the test is quick.
fn rounds() -> usize {
    std::env::var("IMAGE_LOADER_ROUNDS").map_or(10_000, |rounds| rounds.parse().expect("a number of rounds"))
}

#[test]
fn images_changed_at_random_are_read_or_refused_in_one_line() {
    let mut random = Random(1);
    let (mut read, mut refused) = (0, std::collections::BTreeSet::new());
    let rounds = rounds();
    for _ in 0..rounds {
        let mut bytes = made();
        for _ in 0..=random.below(3) {
            let (start, length) = DECIDING[random.below(DECIDING.len())];
            let place = start + random.below(length);
            bytes[place] = match random.below(4) {
                0 => 0,
                1 => 0xFF,
                2 => bytes[place] ^ 1 << random.below(8),
                _ => u8::try_from(random.below(256)).expect("a byte"),
            };
        }
        match Image::parse(&bytes) {
            Ok(mut image) => {
                read += 1;
                image.relocate(0x7000_0000_0000);
            }
            Err(error) => {
                let words = error.to_string();
                assert!(!words.contains('\n') && words.len() < 150, "{words:?}");
                refused.insert(words);
            }
        }
    }
    assert!(read > rounds / 10 && refused.len() > 20, "{read} were read; {} reasons: {refused:#?}", refused.len());
}

#[test]
fn the_kernel_has_other_names_and_plain_functions() {
    use routines::{Found, find};
    assert_eq!(find("ntoskrnl.exe", "KeInitializeDpc"), Some(Found::Simulated));
    assert_eq!(find("HAL.dll", "KeStallExecutionProcessor"), Some(Found::Simulated));
    assert_eq!(find("ntoskrnl", "KeInitializeDpc"), Some(Found::Simulated), "as a forwarder names it");
    assert_eq!(find("NDIS.SYS", "KeInitializeDpc"), None, "another module");
    assert_eq!(find("ntoskrnl.exe", "wcstoul"), Some(Found::Library("wcstoul")));
    assert_eq!(find("ntoskrnl.exe", "PsThreadType"), Some(Found::Variable));
    assert_eq!(find("ntoskrnl.exe", "KeNobodyHasThis"), None);
}
