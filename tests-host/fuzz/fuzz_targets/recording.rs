//! Recordings with a good header and checksum, and anything between them: read, shown, written as packets.

#![no_main]

use recorder::format::{Header, SLOT_BYTES};
use recording::{Recording, pcapng, seal, timeline};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // As it is: mostly refused.
    let _ = Recording::read(bytes);
    let slots: Vec<[u8; SLOT_BYTES]> =
        bytes.chunks_exact(SLOT_BYTES).filter_map(|slot| slot.try_into().ok()).collect();
    let header = Header { slots: slots.len() as u64, first: 0, lost: 0, processors: 2 };
    if let Ok(recording) = Recording::read(&seal(header.to_bytes().to_vec(), &slots)) {
        let shown = timeline::Timeline::of(&recording);
        let _ = timeline::svg(&shown, &timeline::Options::default());
        let _ = timeline::html(&shown, "fuzz");
        let _ = pcapng(&recording);
    }
});
