//! What goes over an adapter's wire: every frame, whole, and whose queue pairs it is for.

use fallible::Arc;
use interpose::{InterposeOs, Phase};

use crate::{
    aside::aside,
    format::{MOST_FRAME, tag},
    ring::Ring,
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
        aside(&self.os, &self.ring, self.wire, tag, phase, word, bytes);
    }
}
