//! A recording as a picture: lanes of what happened where, with the reason in words and the rule behind it.
//!
//! There is a lane for each processor, queue pair and completion queue ([`Timeline::of`]). [`svg`] makes a picture of it, [`html`] a
//! page with zoom, search and details that needs nothing else.

mod calls;
mod cq;
mod html;
mod names;
mod qp;
mod rules;
mod svg;
mod words;

pub use html::html;
pub(crate) use names::Names;
pub use rules::Rule;
pub use svg::{Options, Scale, escape, svg};

use crate::{Record, Recording};

/// What a lane is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LaneKind {
    /// Calls and callbacks on a processor.
    Processor,
    /// Requests of a queue pair.
    QueuePair,
    /// Arms, callbacks and polls of a completion queue.
    CompletionQueue,
}

/// A row of the picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// What it is about.
    pub kind: LaneKind,
    /// The number of the processor or object.
    pub number: u32,
    /// Its name.
    pub name: String,
}

/// What a mark shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MarkKind {
    /// A call of the consumer.
    Call,
    /// A callback of the provider.
    Callback,
    /// A request, from its post until its completion is taken.
    Request,
    /// A request that was refused, or has failed.
    Failure,
    /// A queue is armed.
    Armed,
    /// An arm of a queue that is armed.
    Merge,
    /// The provider has decided to call back.
    Decision,
    /// A poll that has taken completions.
    Poll,
    /// A poll that has found nothing.
    EmptyPoll,
    /// Moderation, a resize, a flush, a step of a connection.
    Control,
}

impl MarkKind {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Call,
        Self::Callback,
        Self::Request,
        Self::Failure,
        Self::Armed,
        Self::Merge,
        Self::Decision,
        Self::Poll,
        Self::EmptyPoll,
        Self::Control,
    ];

    /// Its name, of one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Callback => "callback",
            Self::Request => "request",
            Self::Failure => "failure",
            Self::Armed => "armed",
            Self::Merge => "merge",
            Self::Decision => "decision",
            Self::Poll => "poll",
            Self::EmptyPoll => "empty-poll",
            Self::Control => "control",
        }
    }
}

/// Something that is shown: at one moment, or over a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The lane, as an index.
    pub lane: usize,
    /// What it shows.
    pub kind: MarkKind,
    /// When it begins: a moment.
    pub from: usize,
    /// When it ends.
    pub to: usize,
    /// A few words for the picture.
    pub label: String,
    /// What happened and why, in sentences.
    pub text: String,
    /// The rule behind it.
    pub rule: Rule,
}

/// An arrow from one lane to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrow {
    /// The mark where it begins.
    pub from: usize,
    /// The mark where it ends.
    pub to: usize,
}

/// A picture to be drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// From top to bottom.
    pub lanes: Vec<Lane>,
    /// In no order that matters.
    pub marks: Vec<Mark>,
    /// From causes to effects.
    pub arrows: Vec<Arrow>,
    /// When each moment is, in units of 100 nanoseconds from the first one. Records of one time are moments of their own, in their order.
    pub moments: Vec<u64>,
    /// What is not in the recording.
    pub remark: String,
}

impl Timeline {
    /// The timeline of a recording.
    #[must_use]
    pub fn of(recording: &Recording) -> Self {
        let (begin, _) = recording.times();
        let mut timeline = Self {
            moments: recording.records.iter().map(|record| record.time - begin).collect(),
            remark: remark(recording),
            ..Self::default()
        };
        // The clocks of processors may differ a little: time goes on all the same.
        let mut latest = 0;
        for moment in &mut timeline.moments {
            latest = latest.max(*moment);
            *moment = latest;
        }
        let names = names::Names::of(recording);
        calls::add(&mut timeline, recording, &names);
        qp::add(&mut timeline, recording, &names);
        cq::add(&mut timeline, recording, &names);
        timeline
    }

    /// The lane of this kind and number, made if it is not there.
    fn lane(&mut self, kind: LaneKind, number: u32, name: impl FnOnce() -> String) -> usize {
        let found = self.lanes.iter().position(|lane| (lane.kind, lane.number) == (kind, number));
        found.unwrap_or_else(|| {
            self.lanes.push(Lane { kind, number, name: name() });
            self.lanes.len() - 1
        })
    }

    /// Adds a mark, and returns its index.
    fn mark(&mut self, mark: Mark) -> usize {
        self.marks.push(mark);
        self.marks.len() - 1
    }
}

/// A request in words.
pub(crate) fn describe(record: &Record) -> String {
    format!("{}, {}", record.function.name(), words::request(&record.arguments))
}

/// What is missing, in words; nothing if all is there.
fn remark(recording: &Recording) -> String {
    let mut parts = Vec::new();
    if recording.first > 0 {
        parts.push(format!("{} slots before the first record were written over", recording.first));
    }
    if recording.lost > 0 {
        parts.push(format!("{} slots were lost", recording.lost));
    }
    if recording.torn > 0 {
        parts.push(format!("{} records are not whole", recording.torn));
    }
    parts.join("; ")
}
