//! What the adviser finds, between the records of the calls in which it does.

use fallible::Arc;
use interpose::{InterposeOs, Phase, adviser::Report};

use crate::{aside::aside, format::tag, ring::Ring};

/// Where the adviser stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adviser {
    /// Nearer to the consumer than the recorder: it sees a call before its record is written.
    InFront,
    /// Nearer to the provider, or in the same layer behind the recorder.
    Behind,
}

/// Records the findings of an adviser in a [`Ring`], for its sink.
pub struct Findings<O> {
    os: O,
    ring: Arc<Ring>,
    adviser: Adviser,
}

impl<O: InterposeOs> Findings<O> {
    /// Those of an adviser that stands there, in the ring of the recorder.
    pub const fn new(os: O, ring: Arc<Ring>, adviser: Adviser) -> Self {
        Self { os, ring, adviser }
    }

    /// A finding was made. To be called in the call in which that was, at `IRQL <= DISPATCH_LEVEL`, with any locks held; nothing is
    /// allocated, and nothing waits. Of the words as many are kept as a record has room for: all that a report has.
    pub fn record(&self, report: &Report<'_>) {
        if !self.ring.is_on() {
            return;
        }
        let words = report.seen.as_bytes();
        let [kind, ..] = report.object.kind.0.to_le_bytes();
        let word = u64::from(report.finding.number())
            | u64::from(kind) << 16
            | u64::from(report.function as u8) << 24
            | (words.len() as u64) << 32
            | u64::from(self.adviser == Adviser::InFront) << 63;
        aside(&self.os, &self.ring, 0, tag::FINDING, Phase::Return, word, words);
    }
}
