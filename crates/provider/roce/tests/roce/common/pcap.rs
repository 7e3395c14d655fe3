//! Captures: the classic format of pcap, little-endian, Ethernet.

use std::path::Path;

/// The frames of a capture.
pub fn frames(file: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let word = |at: usize| u32::from_le_bytes(bytes[at..][..4].try_into().expect("four bytes"));
    assert!([0xA1B2_C3D4, 0xA1B2_3C4D].contains(&word(0)), "{}: not a capture", file.display());
    assert_eq!(word(20), 1, "{}: not of Ethernet", file.display());
    let (mut at, mut frames) = (24, Vec::new());
    while at < bytes.len() {
        let (captured, real) = (word(at + 8) as usize, word(at + 12) as usize);
        assert_eq!(captured, real, "{}: a frame was cut", file.display());
        frames.push(bytes[at + 16..][..captured].to_vec());
        at += 16 + captured;
    }
    frames
}

/// The frames of each capture of `tests/captures`, by the name of its file.
pub fn captures() -> Vec<(String, Vec<Vec<u8>>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures");
    let mut found: Vec<_> = std::fs::read_dir(folder)
        .expect("a folder of captures")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pcap"))
        .map(|path| (path.file_stem().expect("a name").to_string_lossy().into_owned(), frames(&path)))
        .collect();
    found.sort();
    found
}

/// The frames of one capture, with those that lie in VXLAN taken out of it.
pub fn capture(name: &str) -> Vec<Vec<u8>> {
    let (_, frames) = captures().into_iter().find(|(found, _)| found == name).expect("a capture of this name");
    frames
}
