//! Images of drivers: any file, or the small right one with bytes changed.

#![no_main]

use image_loader::Image;
use testing::driver_image::made;

/// The right image, changed where the bytes say: an offset in 16 bits, and the byte that comes there.
fn changed(changes: &[u8]) -> Vec<u8> {
    let mut file = made();
    for change in changes.chunks_exact(3) {
        let offset = usize::from(u16::from_le_bytes([change[0], change[1]])) % file.len();
        file[offset] = change[2];
    }
    file
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((kind, rest)) = bytes.split_first() else { return };
    let file = if kind % 2 == 0 { rest.to_vec() } else { changed(rest) };
    if let Ok(mut image) = Image::parse(&file) {
        assert!(image.access(image.entry).is_some_and(|access| access.execute), "an entry point that is no code");
        for section in &image.sections {
            assert!(section.address.checked_add(section.size).is_some_and(|end| end <= image.size()));
        }
        image.relocate(0x1_8000_0000);
    }
});
