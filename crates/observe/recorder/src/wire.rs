//! What goes over an adapter's wire: every frame, whole, and whose queue pairs it is for.

use fallible::Arc;
use interpose::{InterposeOs, Phase};

use crate::{
    format::{FRAME_IN_FIRST, FUNCTION_OF_WIRE, MOST_FRAME, PAYLOAD_WORDS, tag},
    ring::{Anchor, Ring, Writer},
};

/// Records the frames of one adapter's wire in a [`Ring`].
///
/// It stands where frames leave and where they come in, in front of what may lose them. Callable at `IRQL <= DISPATCH_LEVEL`, with any
/// locks held; nothing is allocated, and nothing waits.
pub struct Tap<O> {
    os: O,
    ring: Arc<Ring>,
    wire: u8,
}

/// Which way a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Out,
    In,
}

impl<O: InterposeOs> Tap<O> {
    /// A tap on one more wire.
    #[must_use]
    pub fn new(os: O, ring: Arc<Ring>) -> Self {
        let wire = ring.next_wire();
        Self { os, ring, wire }
    }

    /// A frame leaves. To be called before it can have come anywhere.
    pub fn sent(&self, frame: &[u8]) {
        self.frame(Way::Out, Phase::Call, frame);
    }

    /// A frame has come in. To be called before anything is done about it.
    pub fn received(&self, frame: &[u8]) {
        self.frame(Way::In, Phase::Callback, frame);
    }

    /// The queue pair of the call that goes on in this thread, `NdkConnect` or `NdkAccept`, has this number on the wire.
    pub fn carries(&self, number: u32) {
        self.record(tag::WIRE_NUMBER, Phase::Call, number.into(), &[]);
    }

    fn frame(&self, way: Way, phase: Phase, frame: &[u8]) {
        if self.ring.is_on() {
            let kept = &frame[..frame.len().min(MOST_FRAME)];
            let length = frame.len() as u64 | u64::from(way == Way::In) << 32;
            self.record(tag::FRAME, phase, length, kept);
        }
    }

    fn record(&self, tag: u8, phase: Phase, word: u64, bytes: &[u8]) {
        let place = self.os.stamp(phase);
        let (first, rest) = bytes.split_at(bytes.len().min(FRAME_IN_FIRST));
        let more = rest.len().div_ceil(8 * PAYLOAD_WORDS);
        let Some(room) = self.ring.take(place.processor, 1 + more as u64, || Anchor::now(&self.os)) else { return };
        let thread = place.thread as u64;
        let what = u64::from(FUNCTION_OF_WIRE)
            | u64::from(self.wire) << 8
            | u64::from(tag) << 16
            | (more as u64) << 24
            | u64::from(place.processor & 0xFFFF) << 48;
        let [second, third] = [0, 8].map(|at| word_at(first, at));
        self.ring.put_first(&room, [place.time, (thread ^ thread >> 32) << 32, what, word, second, third, 0]);
        let mut writer = Writer::new(&self.ring, &room);
        for at in (0..rest.len()).step_by(8) {
            writer.put(word_at(rest, at));
        }
    }
}

/// The eight bytes at this place, as far as they are there.
fn word_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    let there = bytes.get(at..).unwrap_or_default();
    let count = there.len().min(8);
    word[..count].copy_from_slice(&there[..count]);
    u64::from_le_bytes(word)
}
