//! What NDKPI says of a completion queue's notifications, without an ordinal in it: entries are a list, an arm looks at it.

use engine::cq::notify::{ArmType, Class, CqFailure};
use ndkpi::NtStatus;
use testing::arms::merged;

/// An entry that the consumer has not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub class: Class,
    /// A callback has begun since it was queued.
    pub old: bool,
}

/// What a consumer asked for with `NdkControlCqInterruptModeration`; no limit is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Moderation {
    pub interval: Option<u32>,
    pub count: Option<u32>,
}

impl Moderation {
    pub const OFF: Self = Self { interval: Some(0), count: Some(0) };

    const fn is_off(self) -> bool {
        matches!(self.interval, Some(0)) || matches!(self.count, Some(0 | 1))
    }

    /// Returns true if so many completions end a hold: a count above the depth is none (`NDKPI 7.1.6`), unless it is the only
    /// limit.
    fn counted(self, completions: u32, depth: usize) -> bool {
        self.count.is_some_and(|count| (count as usize <= depth || self.interval.is_none()) && completions >= count)
    }
}

/// A satisfied arm that moderation holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    pub completions: u32,
    /// Since when it waits for a time, if it does or did.
    pub since: Option<u32>,
}

/// How far the failure of the queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    None,
    ToReport(CqFailure),
    Reported(CqFailure),
}

/// The queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Oracle {
    pub entries: Vec<Entry>,
    pub depth: usize,
    pub arm: Option<ArmType>,
    pub failure: Failure,
    pub moderation: Moderation,
    /// An arm is satisfied, and its callback waits for nothing but the one that runs.
    pub due: bool,
    pub hold: Option<Hold>,
    pub running: bool,
    pub closed: bool,
}

/// What satisfies what (the table in `NDKPI 7.1.5`).
pub const fn matches(arm: ArmType, class: Class) -> bool {
    match (arm, class) {
        (ArmType::Any, _) | (ArmType::Solicited, Class::Solicited | Class::Failed) => true,
        (ArmType::Solicited, Class::Plain) | (ArmType::Errors, _) => false,
    }
}

impl Oracle {
    pub const fn new(depth: usize) -> Self {
        Self {
            entries: Vec::new(),
            depth,
            arm: None,
            failure: Failure::None,
            moderation: Moderation::OFF,
            due: false,
            hold: None,
            running: false,
            closed: false,
        }
    }

    pub const fn is_full(&self) -> bool {
        self.entries.len() >= self.depth
    }

    pub const fn failed(&self) -> Option<CqFailure> {
        match self.failure {
            Failure::None => None,
            Failure::ToReport(failure) | Failure::Reported(failure) => Some(failure),
        }
    }

    /// Returns true if an arm of this type would be satisfied at once.
    pub fn would_satisfy(&self, arm: ArmType) -> bool {
        let new = |entry: &Entry| !entry.old && matches(arm, entry.class);
        matches!(self.failure, Failure::ToReport(_)) || self.entries.iter().any(new)
    }

    /// The callback waits for no time and no count any more. Returns true if it has just become so.
    fn make_due(&mut self) -> bool {
        self.hold = None;
        self.arm_is_answered()
    }

    const fn arm_is_answered(&mut self) -> bool {
        let is_new = !self.closed && !self.due;
        self.due |= !self.closed;
        is_new
    }

    /// A completion that fits. Returns true if a callback becomes due by it, like all below.
    pub fn queue(&mut self, class: Class) -> bool {
        self.entries.push(Entry { class, old: false });
        let satisfied = self.arm.is_some_and(|arm| matches(arm, class));
        if satisfied {
            self.arm = None;
        }
        let urgent = class == Class::Failed || self.is_full();
        if let Some(hold) = &mut self.hold {
            hold.completions += 1;
            let ends = self.moderation.counted(hold.completions, self.depth);
            return (urgent || ends) && self.make_due();
        }
        if !satisfied || self.due {
            return false;
        }
        if urgent || self.moderation.is_off() {
            return self.make_due();
        }
        self.hold = Some(Hold { completions: 1, since: None });
        false
    }

    pub fn arm(&mut self, kind: ArmType) -> bool {
        if self.closed {
            return false;
        }
        let arm = merged(self.arm, kind);
        self.arm = Some(arm);
        if !self.would_satisfy(arm) {
            return false;
        }
        self.arm = None;
        self.make_due()
    }

    pub fn fail(&mut self, failure: CqFailure) -> bool {
        if self.failed().is_some() {
            return false;
        }
        self.failure = Failure::ToReport(failure);
        // One callback answers an arm that is held back and says what has happened.
        if self.hold.is_some() {
            return self.make_due();
        }
        self.arm.take().is_some() && self.make_due()
    }

    /// The consumer changes the moderation at the time `now`.
    pub fn moderate(&mut self, moderation: Moderation, now: u32) -> bool {
        self.moderation = moderation;
        let Some(hold) = self.hold else { return false };
        let waited = hold.since.map_or(0, |since| now - since);
        let over = moderation.is_off() || moderation.interval.is_some_and(|interval| waited >= interval);
        (over || self.is_full() || moderation.counted(hold.completions, self.depth)) && self.make_due()
    }

    pub fn resize(&mut self, depth: usize) -> bool {
        self.depth = depth;
        let Some(hold) = self.hold else { return false };
        (self.is_full() || self.moderation.counted(hold.completions, depth)) && self.make_due()
    }

    /// The time of a hold is up.
    pub fn expire(&mut self, now: u32) -> bool {
        let Some(Hold { since: Some(since), .. }) = self.hold else { return false };
        self.moderation.interval.is_some_and(|interval| now - since >= interval) && self.make_due()
    }

    pub fn begin(&mut self) -> Option<NtStatus> {
        if !self.due || self.running {
            return None;
        }
        self.due = false;
        self.running = true;
        self.entries.iter_mut().for_each(|entry| entry.old = true);
        let Failure::ToReport(failure) = self.failure else { return Some(NtStatus::SUCCESS) };
        self.failure = Failure::Reported(failure);
        Some(failure.status())
    }

    pub fn close(&mut self) {
        self.closed = true;
        self.arm = None;
        self.due = false;
        self.hold = None;
    }
}
