//! NDKPI 7.1 as a sequential program, without ordinals, rings or locks.
//!
//! Where the text leaves something open the model says what this provider does (`docs/decisions.md`).

use std::collections::VecDeque;

use engine::cq::{Cqe, notify::ArmType};
use ndkpi::NtStatus;
use testing::arms::merged;

/// "No limit" of interrupt moderation.
const MAXULONG: u32 = u32::MAX;

/// A completion in the queue.
#[derive(Clone, Copy)]
struct Entry {
    completion: Cqe,
    /// It was there when a callback began.
    old: bool,
}

/// Interrupt moderation that is in force.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Moderation {
    /// Microseconds; `None` if only the count governs.
    interval: Option<u64>,
    /// What the consumer asked for.
    count: u32,
}

impl Moderation {
    /// Returns true if so many completions end a hold of a queue with this depth.
    const fn is_counted(self, completions: u64, depth: u32) -> bool {
        let counts = self.count != MAXULONG && (self.count <= depth || self.interval.is_none());
        counts && completions >= self.count as u64
    }
}

/// A callback that moderation holds back.
struct Hold {
    completions: u64,
    /// Since when for a time.
    since: Option<u64>,
    until: Option<u64>,
}

/// A completion queue.
pub struct Model {
    depth: u32,
    max_depth: u32,
    resolution: u32,
    entries: VecDeque<Entry>,
    arm: Option<ArmType>,
    due: bool,
    running: bool,
    moderation: Option<Moderation>,
    hold: Option<Hold>,
    failure: Option<NtStatus>,
    reported: bool,
    calls: usize,
}

/// Returns true if a request failed.
const fn is_failed(completion: &Cqe) -> bool {
    !completion.outcome.status().is_success()
}

fn matches(arm: ArmType, completion: &Cqe) -> bool {
    match arm {
        ArmType::Any => true,
        ArmType::Solicited => completion.outcome.is_solicited() || is_failed(completion),
        ArmType::Errors => false,
    }
}

impl Model {
    pub const fn new(depth: u32, max_depth: u32, resolution: u32) -> Self {
        Self {
            depth,
            max_depth,
            resolution,
            entries: VecDeque::new(),
            arm: None,
            due: false,
            running: false,
            moderation: None,
            hold: None,
            failure: None,
            reported: false,
            calls: 0,
        }
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= self.depth as usize
    }

    pub const fn is_held(&self) -> bool {
        self.hold.is_some()
    }

    pub const fn failure(&self) -> Option<NtStatus> {
        self.failure
    }

    pub const fn calls(&self) -> usize {
        self.calls
    }

    fn let_go(&mut self) {
        self.hold = None;
        self.due = true;
    }

    pub fn push(&mut self, completions: &[Cqe], now: u64) {
        for completion in completions {
            if self.failure.is_some() {
                return;
            }
            if self.is_full() {
                return self.fail(NtStatus::BUFFER_OVERFLOW);
            }
            self.entries.push_back(Entry { completion: *completion, old: false });
            self.notice(completion, now);
        }
    }

    /// A completion has come.
    fn notice(&mut self, completion: &Cqe, now: u64) {
        let at_once = is_failed(completion) || self.is_full();
        let satisfies = self.arm.is_some_and(|arm| matches(arm, completion));
        if satisfies {
            self.arm = None;
        }
        if let Some(hold) = &mut self.hold {
            hold.completions += 1;
            let completions = hold.completions;
            if at_once || self.moderation.is_some_and(|moderation| moderation.is_counted(completions, self.depth)) {
                self.let_go();
            }
        } else if satisfies && !self.due {
            match self.moderation {
                Some(Moderation { interval, .. }) if !at_once => {
                    let until = interval.map(|interval| now + interval);
                    self.hold = Some(Hold { completions: 1, since: interval.map(|_| now), until });
                }
                _ => self.due = true,
            }
        }
    }

    pub fn poll(&mut self, most: usize) -> Vec<Cqe> {
        let count = most.min(self.entries.len());
        self.entries.drain(..count).map(|entry| entry.completion).collect()
    }

    pub fn arm(&mut self, kind: ArmType) {
        let arm = merged(self.arm, kind);
        let to_report = self.failure.is_some() && !self.reported;
        if to_report || self.entries.iter().any(|entry| !entry.old && matches(arm, &entry.completion)) {
            self.arm = None;
            self.let_go();
        } else {
            self.arm = Some(arm);
        }
    }

    pub fn fail(&mut self, status: NtStatus) {
        if self.failure.is_some() {
            return;
        }
        self.failure = Some(status);
        if self.hold.is_some() {
            self.let_go();
        } else if self.arm.take().is_some() {
            self.due = true;
        }
    }

    pub fn resize(&mut self, depth: u32) -> Result<(), NtStatus> {
        if depth == 0 || depth > self.max_depth {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        if self.entries.len() > depth as usize {
            return Err(NtStatus::BUFFER_OVERFLOW);
        }
        self.depth = depth;
        if let Some(hold) = &self.hold {
            let counted = self.moderation.is_some_and(|moderation| moderation.is_counted(hold.completions, depth));
            if counted || self.is_full() {
                self.let_go();
            }
        }
        Ok(())
    }

    pub fn moderate(&mut self, interval: u32, count: u32, now: u64) -> Result<(), NtStatus> {
        let counts = count != MAXULONG && count <= self.depth;
        if interval == MAXULONG && !counts {
            return Err(NtStatus::INVALID_PARAMETER_MIX);
        }
        // What the timer cannot keep is rounded down.
        let rounded = interval / self.resolution * self.resolution;
        let off = count <= 1 || (interval != MAXULONG && rounded == 0);
        self.moderation =
            (!off).then(|| Moderation { interval: (interval != MAXULONG).then_some(u64::from(rounded)), count });
        let (is_full, depth) = (self.is_full(), self.depth);
        let Some(hold) = &mut self.hold else { return Ok(()) };
        match self.moderation {
            Some(moderation) if !is_full && !moderation.is_counted(hold.completions, depth) => {
                hold.until = moderation.interval.map(|interval| *hold.since.get_or_insert(now) + interval);
                if hold.until.is_some_and(|until| until <= now) {
                    self.let_go();
                }
            }
            _ => self.let_go(),
        }
        Ok(())
    }

    /// A callback begins with `status`. Its number.
    pub fn begin(&mut self, status: NtStatus, now: u64) -> usize {
        assert!(!self.running, "a callback inside another");
        let is_over = self.hold.as_ref().is_some_and(|hold| hold.until.is_some_and(|until| until <= now));
        assert!(self.due || is_over, "a callback for nothing, at {now}");
        self.due = false;
        self.hold = None;
        self.running = true;
        self.entries.iter_mut().for_each(|entry| entry.old = true);
        let expected = self.failure.filter(|_| !self.reported).unwrap_or(NtStatus::SUCCESS);
        self.reported |= self.failure.is_some();
        assert_eq!(status, expected, "the status of a callback");
        self.calls += 1;
        self.calls - 1
    }

    pub fn end(&mut self) {
        assert!(std::mem::take(&mut self.running));
    }

    /// Checks that nothing is left to do at `now`: no callback is due, none is held back for longer than its interval.
    pub fn assert_settled(&self, now: u64) {
        assert!(!self.running);
        assert!(!self.due, "a callback was due and did not come");
        let until = self.hold.as_ref().and_then(|hold| hold.until);
        assert!(until.is_none_or(|until| until > now), "a callback was held back until {until:?}; it is {now}");
    }
}
