//! The file format pcapng: a section, an interface, packets with comments.

/// Ethernet.
const LINK_TYPE: u16 = 1;
/// Bytes of a packet that the file has at most: the longest is one of Ethernet without a tag.
const SNAP_LENGTH: u32 = 1514;

/// Collects the blocks of a file.
pub struct Writer(Vec<u8>);

/// An option of a block: its number, its bytes.
fn option(number: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    let mut bytes = [number.to_le_bytes(), length.to_le_bytes()].concat();
    bytes.extend(&value[..length.into()]);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The end of the options.
const END: [u8; 4] = [0; 4];

impl Writer {
    /// A file without packets.
    pub fn new() -> Self {
        let mut writer = Self(Vec::new());
        // The order of bytes, version 1.0, a length that is not said.
        let mut section = 0x1A2B_3C4D_u32.to_le_bytes().to_vec();
        section.extend([1, 0, 0, 0]);
        section.extend([0xFF; 8]);
        section.extend(option(4, b"SoftNDK"));
        section.extend(END);
        writer.block(0x0A0D_0D0A, &section);
        let mut interface = LINK_TYPE.to_le_bytes().to_vec();
        interface.extend([0, 0]);
        interface.extend(SNAP_LENGTH.to_le_bytes());
        interface.extend(option(2, b"NDK"));
        // Times are in units of 10^-7 seconds, as in the recording.
        interface.extend(option(9, &[7]));
        interface.extend(END);
        writer.block(1, &interface);
        writer
    }

    fn block(&mut self, kind: u32, body: &[u8]) {
        let padded = body.len().next_multiple_of(4);
        let length = u32::try_from(padded + 12).unwrap_or(u32::MAX).to_le_bytes();
        self.0.extend(kind.to_le_bytes());
        self.0.extend(length);
        self.0.extend(body);
        self.0.resize(self.0.len() + padded - body.len(), 0);
        self.0.extend(length);
    }

    /// Adds a packet of which `bytes` are there, and which had `length`.
    pub fn packet(&mut self, time: u64, bytes: &[u8], length: u32, comment: &str) {
        debug_assert!(bytes.len() <= SNAP_LENGTH as usize, "a packet is whole");
        let kept = &bytes[..bytes.len().min(SNAP_LENGTH as usize)];
        let mut body = 0_u32.to_le_bytes().to_vec();
        #[expect(clippy::cast_possible_truncation, reason = "the halves of the time")]
        for half in [(time >> 32) as u32, time as u32] {
            body.extend(half.to_le_bytes());
        }
        body.extend(u32::try_from(kept.len()).unwrap_or(0).to_le_bytes());
        body.extend(length.to_le_bytes());
        body.extend(kept);
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(option(1, comment.as_bytes()));
        body.extend(END);
        self.block(6, &body);
    }

    /// The bytes of the file.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}
