//! The frames of a recording as a capture: those that were really sent and that came in, with all of their bytes.
//!
//! Each wire is an interface, so what an adapter has sent and what of it arrived at another one can be compared. Each packet has its
//! direction, and a comment with the queue pair, what it does, and the request that it belongs to.

use crate::{Frame, Recording, Seen, traffic};

/// Ethernet.
const LINK_TYPE: u16 = 1;
/// Types of blocks.
mod block {
    pub const SECTION: u32 = 0x0A0D_0D0A;
    pub const INTERFACE: u32 = 1;
    pub const PACKET: u32 = 6;
}

/// The recording in the format pcapng; `None` if nothing of it went over a wire.
#[must_use]
pub fn pcapng(recording: &Recording) -> Option<Vec<u8>> {
    let wires = recording.frames.iter().map(|frame| frame.wire).max()?;
    let (begin, _) = recording.times();
    let mut writer = Writer::new();
    (1..=wires.max(1)).for_each(|wire| writer.interface(&format!("wire {wire}")));
    for (frame, seen) in recording.frames.iter().zip(traffic(recording)) {
        writer.packet(frame.time - begin, frame, &seen);
    }
    Some(writer.0)
}

/// Collects the blocks of a file.
struct Writer(Vec<u8>);

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
    /// A file without interfaces.
    fn new() -> Self {
        let mut writer = Self(Vec::new());
        // The order of bytes, version 1.0, a length that is not said.
        let mut section = 0x1A2B_3C4D_u32.to_le_bytes().to_vec();
        section.extend([1, 0, 0, 0]);
        section.extend([0xFF; 8]);
        section.extend(option(4, b"SoftNDK"));
        section.extend(END);
        writer.block(block::SECTION, &section);
        writer
    }

    fn interface(&mut self, name: &str) {
        let mut interface = LINK_TYPE.to_le_bytes().to_vec();
        // Reserved; no limit to the bytes of a packet.
        interface.extend([0, 0]);
        interface.extend(0_u32.to_le_bytes());
        interface.extend(option(2, name.as_bytes()));
        // Times are in units of 10^-7 seconds, as in the recording.
        interface.extend(option(9, &[7]));
        interface.extend(END);
        self.block(block::INTERFACE, &interface);
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

    fn packet(&mut self, time: u64, frame: &Frame, seen: &Seen) {
        // The recorder counts wires from 1.
        let mut body = u32::from(frame.wire.saturating_sub(1)).to_le_bytes().to_vec();
        #[expect(clippy::cast_possible_truncation, reason = "the halves of the time")]
        for half in [(time >> 32) as u32, time as u32] {
            body.extend(half.to_le_bytes());
        }
        body.extend(u32::try_from(frame.bytes.len()).unwrap_or(0).to_le_bytes());
        body.extend(frame.length.to_le_bytes());
        body.extend(&frame.bytes);
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(option(1, seen.text.as_bytes()));
        // Inbound is 1, outbound is 2.
        let direction: u32 = if frame.came_in { 1 } else { 2 };
        body.extend(option(2, &direction.to_le_bytes()));
        body.extend(END);
        self.block(block::PACKET, &body);
    }
}
