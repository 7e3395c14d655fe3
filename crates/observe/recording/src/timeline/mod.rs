//! A recording as a picture: lanes of what happened where, with the reason in words and the rule behind it.
//!
//! There is a lane for each processor, queue pair, completion queue and wire ([`Timeline::of`]). [`svg`] makes a picture of it, [`html`] a
//! page with zoom, search and details that needs nothing else, [`perfetto`] a trace for programs that show traces.

mod calls;
mod cq;
mod findings;
mod groups;
mod html;
mod names;
mod perfetto;
mod qp;
mod rules;
mod svg;
mod wire;
mod words;

pub use html::html;
pub(crate) use names::Names;
pub use perfetto::perfetto;
pub use rules::Rule;
pub use svg::{Options, Scale, escape, svg};

use std::collections::HashMap;

use crate::{Record, Recording};

/// What a lane is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaneKind {
    /// Calls and callbacks on a processor.
    Processor,
    /// Requests of a queue pair.
    QueuePair,
    /// Arms, callbacks and polls of a completion queue.
    CompletionQueue,
    /// Frames of no queue pair: connection managers, neighbours, what cannot be read.
    Wire,
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
    /// What it belongs to: a connection, by its queue pairs, with their completion queues; or what all of its kind are.
    pub group: String,
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
    /// A packet of a message, or data of a READ, that leaves or comes in.
    Packet,
    /// A packet that leaves once more.
    Retry,
    /// An ACK.
    Ack,
    /// A NAK or RNR NAK.
    Nak,
    /// A frame of a connection manager or about neighbours.
    Management,
    /// The adviser has found that the consumer breaks a rule.
    Finding,
}

impl MarkKind {
    /// All of them.
    pub const ALL: [Self; 16] = [
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
        Self::Packet,
        Self::Retry,
        Self::Ack,
        Self::Nak,
        Self::Management,
        Self::Finding,
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
            Self::Packet => "packet",
            Self::Retry => "retry",
            Self::Ack => "ack",
            Self::Nak => "nak",
            Self::Management => "management",
            Self::Finding => "finding",
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
    /// Where each lane is in `lanes`.
    places: HashMap<(LaneKind, u32), usize>,
}

impl Timeline {
    /// The timeline of a recording.
    #[must_use]
    pub fn of(recording: &Recording) -> Self {
        let moments = Moments::of(recording);
        let mut timeline = Self { moments: moments.times.clone(), remark: remark(recording), ..Self::default() };
        // The clocks of processors may differ a little: time goes on all the same.
        let mut latest = 0;
        for moment in &mut timeline.moments {
            latest = latest.max(*moment);
            *moment = latest;
        }
        let names = names::Names::of(recording);
        calls::add(&mut timeline, recording, &moments, &names);
        qp::add(&mut timeline, recording, &moments, &names);
        cq::add(&mut timeline, recording, &moments, &names);
        wire::add(&mut timeline, recording, &moments, &names);
        findings::add(&mut timeline, recording, &moments, &names);
        groups::name(&mut timeline.lanes, recording, &names);
        timeline
    }

    /// The lane of this kind and number, made if it is not there.
    fn lane(&mut self, kind: LaneKind, number: u32, name: impl FnOnce() -> String) -> usize {
        *self.places.entry((kind, number)).or_insert_with(|| {
            self.lanes.push(Lane { kind, number, name: name(), group: String::new() });
            self.lanes.len() - 1
        })
    }

    /// Adds a mark, and returns its index.
    fn mark(&mut self, mark: Mark) -> usize {
        self.marks.push(mark);
        self.marks.len() - 1
    }
}

/// The moments of records, frames and findings, which share one order.
struct Moments {
    times: Vec<u64>,
    /// Of each record.
    records: Vec<usize>,
    /// Of each frame.
    frames: Vec<usize>,
    /// Of each finding.
    findings: Vec<usize>,
}

impl Moments {
    fn of(recording: &Recording) -> Self {
        let (begin, _) = recording.times();
        let room = recording.records.len() + recording.frames.len() + recording.findings.len();
        let mut this =
            Self { times: Vec::with_capacity(room), records: Vec::new(), frames: Vec::new(), findings: Vec::new() };
        let mut frames = recording.frames.iter().map(|frame| (frame.place, frame.time)).peekable();
        let mut findings = recording.findings.iter().map(|found| (found.place, found.time)).peekable();
        for place in 0..=recording.records.len() {
            let is_here = |&(before, _): &(usize, u64)| before <= place;
            loop {
                // Of both that come before this record, what was first.
                let frame = frames.peek().filter(|frame| is_here(frame)).map(|(_, time)| *time);
                let found = findings.peek().filter(|found| is_here(found)).map(|(_, time)| *time);
                let Some(time) = frame.into_iter().chain(found).min() else { break };
                let moments = if frame == Some(time) {
                    frames.next();
                    &mut this.frames
                } else {
                    findings.next();
                    &mut this.findings
                };
                moments.push(this.times.len());
                this.times.push(time - begin);
            }
            if let Some(record) = recording.records.get(place) {
                this.records.push(this.times.len());
                this.times.push(record.time - begin);
            }
        }
        this
    }

    /// The records of a recording, with their moments.
    fn records<'a>(&self, recording: &'a Recording) -> impl Iterator<Item = (usize, &'a Record)> {
        self.records.iter().copied().zip(&recording.records)
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
