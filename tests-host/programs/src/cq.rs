//! A completion queue as a sequential program (`NDKPI 7.1`), seen between calls, when nothing is left to do.

use std::collections::{BTreeMap, VecDeque};

use ndkpi::{NDK_CQ_NOTIFY_ANY, NDK_CQ_NOTIFY_ERRORS, NDK_CQ_NOTIFY_SOLICITED, NDK_OPERATION_TYPE, NtStatus};

/// What a completion has to be.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    pub context: usize,
    pub status: NtStatus,
    pub bytes: u32,
    pub kind: NDK_OPERATION_TYPE,
    pub solicited: bool,
    /// On a cable that loses frames: the connection has ended before the peer's answer came, which nobody gives again. Then the first such
    /// request of a queue pair has timed out, and those behind it are cancelled.
    pub may_be_lost: bool,
}

/// A queue of a queue pair: the queue pair, and true for its receives.
pub type Source = (usize, bool);

/// Since when an entry is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Age {
    New,
    /// It came beside a callback, before or after its beginning.
    Maybe,
    /// It was there when a callback began.
    Old,
}

struct Entry {
    expected: Expected,
    age: Age,
}

/// A completion queue.
pub struct Cq {
    pub depth: usize,
    /// Order is kept for each source. Between sources there is none.
    entries: BTreeMap<Source, VecDeque<Entry>>,
    arm: Option<u32>,
    /// The status of its failure, and if a callback has reported it.
    failure: Option<bool>,
    pub callbacks: u32,
    pub errors: u32,
    /// Entries of this step, and if one of them has answered the arm.
    pushed: usize,
    fired: bool,
    /// More than the oracle knows may have happened here.
    pub loose: bool,
    /// Completions that can still be taken of a queue that has overrun.
    pub left: Option<usize>,
    /// Callbacks cannot be counted any more.
    pub uncounted: bool,
    /// An arm that may be answered or not.
    may_fire: Option<u32>,
}

const fn matches(arm: u32, expected: &Expected) -> bool {
    match arm {
        NDK_CQ_NOTIFY_ANY => true,
        NDK_CQ_NOTIFY_SOLICITED => expected.solicited || !expected.status.is_success(),
        _ => false,
    }
}

/// The table of 7.1.4. A type that is none of the three is no arm.
fn merged(first: Option<u32>, second: u32) -> u32 {
    let strength = |kind| match kind {
        NDK_CQ_NOTIFY_ERRORS => 0,
        NDK_CQ_NOTIFY_SOLICITED => 1,
        _ => 2,
    };
    first.filter(|first| strength(*first) > strength(second)).unwrap_or(second)
}

impl Cq {
    pub const fn new(depth: usize) -> Self {
        Self {
            depth,
            entries: BTreeMap::new(),
            arm: None,
            failure: None,
            callbacks: 0,
            errors: 0,
            pushed: 0,
            fired: false,
            loose: false,
            left: None,
            uncounted: false,
            may_fire: None,
        }
    }

    pub fn length(&self) -> usize {
        self.entries.values().map(VecDeque::len).sum()
    }

    /// A completion. Returns false if the queue overruns.
    pub fn push(&mut self, source: Source, expected: Expected) -> bool {
        if self.failure.is_some() {
            return true;
        }
        if self.length() >= self.depth {
            self.overrun();
            return false;
        }
        self.entries.entry(source).or_default().push_back(Entry { expected, age: Age::New });
        self.pushed += 1;
        if self.arm.is_some_and(|arm| matches(arm, &expected)) {
            self.arm = None;
            self.fired = true;
        }
        true
    }

    fn overrun(&mut self) {
        self.failure = Some(false);
        self.left = Some(self.length());
        if self.fired {
            // Its callback may have begun before the failure, or not.
            self.uncounted = true;
        }
        if self.arm.take().is_some() {
            self.report();
        }
    }

    fn report(&mut self) {
        self.failure = Some(true);
        self.callbacks += 1;
        self.errors += 1;
        self.age(Age::Old);
    }

    fn age(&mut self, age: Age) {
        self.entries.values_mut().flatten().for_each(|entry| entry.age = age);
    }

    /// `NdkArmCq`.
    pub fn arm(&mut self, kind: u32) {
        if ![NDK_CQ_NOTIFY_ERRORS, NDK_CQ_NOTIFY_ANY, NDK_CQ_NOTIFY_SOLICITED].contains(&kind) {
            return;
        }
        let arm = merged(self.arm, kind);
        self.arm = None;
        if self.failure == Some(false) {
            return self.report();
        }
        let is_there =
            |age| self.entries.values().flatten().any(|entry| entry.age == age && matches(arm, &entry.expected));
        if is_there(Age::New) {
            self.callbacks += 1;
            self.age(Age::Old);
        } else if is_there(Age::Maybe) {
            self.may_fire = Some(arm);
        } else {
            self.arm = Some(arm);
        }
    }

    /// Everything has been done: compares the callbacks, of which some had errors.
    pub fn settle(&mut self, callbacks: u32, errors: u32) -> Result<(), String> {
        if self.fired {
            self.callbacks += 1;
            let since = if self.pushed > 1 { Age::Maybe } else { Age::Old };
            let is_new = |entry: &&mut Entry| entry.age == Age::New;
            self.entries.values_mut().flatten().filter(is_new).for_each(|entry| entry.age = since);
        }
        if let Some(arm) = self.may_fire.take() {
            if callbacks == self.callbacks + 1 {
                self.callbacks += 1;
                self.age(Age::Old);
            } else {
                self.arm = Some(arm);
            }
        }
        (self.fired, self.pushed) = (false, 0);
        if self.loose || self.uncounted || (callbacks, errors) == (self.callbacks, self.errors) {
            return Ok(());
        }
        Err(format!(
            "{callbacks} callbacks so far, {errors} with errors; should be {} and {}",
            self.callbacks, self.errors
        ))
    }

    /// `NdkResizeCq`.
    pub fn resize(&mut self, depth: usize) -> NtStatus {
        if depth == 0 {
            return NtStatus::INVALID_PARAMETER;
        }
        if self.length() > depth {
            return NtStatus::BUFFER_OVERFLOW;
        }
        self.depth = depth;
        NtStatus::SUCCESS
    }

    /// The answers to what a source has had completed in this step may be lost.
    pub fn lose(&mut self, source: Source) {
        let entries = self.entries.get_mut(&source).into_iter().flatten();
        entries.filter(|entry| entry.age == Age::New).for_each(|entry| entry.expected.may_be_lost = true);
    }

    /// Takes a completion out that a source has to be the next of.
    pub fn take(&mut self, source: Source) -> Option<Expected> {
        self.entries.get_mut(&source)?.pop_front().map(|entry| entry.expected)
    }
}
