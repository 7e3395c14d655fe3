//! When a completion queue calls its consumer back: the decision and its state.
//!
//! [`satisfied`] is the whole rule of `NDKPI 7.1.3` to `7.1.7`, a pure function. [`Notify`] is the state of one queue: the arm,
//! the hold of interrupt moderation, and the callback that runs. It is plain data without locks, clocks or callbacks:
//! [`super::Cq`] keeps it under its lock and follows its answers. Models and tests drive it directly.
//!
//! The *ordinal* of an entry is its number, counted from one. Ordinals may wrap around; [`newer`] compares them.

use super::{CqeOutcome, moderation::Moderation};
use crate::NtStatus;
pub use crate::ring::newer;

/// What an arm waits for, weakest first (`NDKPI 7.1.4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ArmType {
    /// A failure of the queue itself.
    Errors,
    /// A receive whose sender asked for an event, or a failed request.
    Solicited,
    /// Any entry.
    Any,
}

impl ArmType {
    /// The type that a consumer names with `value` (`NDKPI 2.3`); `None` if there is no such type.
    #[must_use]
    pub const fn from_value(value: u32) -> Option<Self> {
        match value {
            0 => Some(Self::Errors),
            1 => Some(Self::Any),
            2 => Some(Self::Solicited),
            _ => None,
        }
    }

    //= NDKPI 7.1.4
    /// The stronger of two arms, neither of which is satisfied (`NDKPI 7.1.4`).
    #[inline]
    #[must_use]
    pub fn merge(first: Option<Self>, second: Self) -> Self {
        first.map_or(second, |first| first.max(second))
    }
}

/// What makes an entry of interest to an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Nothing special: satisfies ANY.
    Plain,
    /// A receive completed by a send with the solicited-event flag: satisfies SOLICITED too.
    Solicited,
    /// A failed request: satisfies SOLICITED too, and is not held back by moderation.
    Failed,
}

impl Class {
    /// The class of a completion, which is [plain](CqeOutcome::is_plain) if and only if its outcome is.
    #[inline]
    #[must_use]
    pub fn of(outcome: CqeOutcome) -> Self {
        match (outcome.status().is_success(), outcome.is_solicited()) {
            (false, _) => Self::Failed,
            (true, true) => Self::Solicited,
            (true, false) => Self::Plain,
        }
    }
}

/// The input of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// The arm, if the queue is armed.
    pub arm: Option<ArmType>,
    /// Ordinal of the newest entry.
    pub newest: u64,
    /// Ordinal of the newest entry that satisfies SOLICITED.
    pub newest_solicited: u64,
    /// Ordinal of the newest entry that the consumer had taken when it armed.
    pub taken: u64,
    /// Ordinal of the newest entry that existed when the last callback began.
    pub last_callback: u64,
    /// The queue has failed, and no callback has said so.
    pub failure_to_report: bool,
}

//= NDKPI 7.1.5
/// The decision: returns true if the arm is satisfied (`NDKPI 7.1.3` to `7.1.7`, `7.1.10`).
///
/// An arm is satisfied if an entry of its class is newer than the last callback and was not taken when the queue was armed, or if
/// the queue has failed and no callback has said so. Entries that existed at the last callback satisfy nothing: this is the *may*
/// case of `NDKPI 7.1.5`, which stays silent here.
#[inline]
#[must_use]
pub const fn satisfied(view: &View) -> bool {
    let Some(arm) = view.arm else { return false };
    let newest = match arm {
        ArmType::Any => view.newest,
        ArmType::Solicited => view.newest_solicited,
        ArmType::Errors => return view.failure_to_report,
    };
    view.failure_to_report || (newer(newest, view.taken) && newer(newest, view.last_callback))
}

/// Why a completion queue has failed (`NDKPI 7.1.10`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CqFailure {
    /// More completions than the queue holds.
    Overrun,
    /// The adapter cannot go on.
    Fatal,
}

impl CqFailure {
    /// The status the consumer's callback gets.
    pub const fn status(self) -> NtStatus {
        match self {
            Self::Overrun => NtStatus::BUFFER_OVERFLOW,
            Self::Fatal => NtStatus::INTERNAL_ERROR,
        }
    }
}

/// The state of the callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Callback {
    /// No callback runs, and the DPC is not queued.
    Idle,
    /// The DPC is queued, or about to be, by the caller that was told to.
    Queued,
    /// A callback runs.
    Running,
}

/// A satisfied arm that moderation holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Hold {
    /// Completions since the arm was satisfied, the first included.
    completions: u64,
    /// When the timer was first set.
    since: Option<u64>,
    /// When the timer expires.
    deadline: Option<u64>,
}

/// What the owner of a [`Notify`] has to do, before it releases its lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Action {
    /// Queue the DPC.
    pub queue: bool,
    /// Set the timer to this many microseconds from now, and call [`Notify::hold_for`].
    pub timer: Option<u32>,
}

/// The notification state of one completion queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notify {
    view: View,
    newest_failed: u64,
    failure: Option<CqFailure>,
    /// A callback has to begin as soon as none runs.
    due: bool,
    callback: Callback,
    hold: Option<Hold>,
    moderation: Moderation,
    closed: bool,
}

impl Notify {
    /// A queue that is not armed (`NDKPI 7.1.1`), is not moderated, and whose entries have the ordinals after `first`.
    #[must_use]
    pub const fn new(first: u64) -> Self {
        Self {
            view: View {
                arm: None,
                newest: first,
                newest_solicited: first,
                taken: first,
                last_callback: first,
                failure_to_report: false,
            },
            newest_failed: first,
            failure: None,
            due: false,
            callback: Callback::Idle,
            hold: None,
            moderation: Moderation::OFF,
            closed: false,
        }
    }

    /// The input of the decision.
    #[inline]
    #[must_use]
    pub const fn view(&self) -> View {
        self.view
    }

    /// Ordinal of the newest entry of a failed request, for an interface on which errors satisfy every request for notification
    /// (`NDSPI 2`).
    #[must_use]
    pub const fn newest_failed(&self) -> u64 {
        self.newest_failed
    }

    /// How the queue has failed, if it has.
    #[must_use]
    pub const fn failure(&self) -> Option<CqFailure> {
        self.failure
    }

    /// Shortcut: returns true if plain entries have no consequence until the state changes otherwise, so that it suffices to tell of
    /// them later ([`Notify::ignored_up_to`]). A queue that has failed takes no entries, plain or not.
    ///
    /// Proof obligation: the arm was not satisfied before the entry, or it would be gone. A plain entry changes `newest` only,
    /// which [`satisfied`] looks at for ANY only. A hold counts every entry (`NDKPI 7.1.6`).
    #[inline]
    #[must_use]
    pub fn ignores_plain(&self) -> bool {
        self.view.arm != Some(ArmType::Any) && self.hold.is_none() && self.failure.is_none()
    }

    /// [`Notify::queued`] for all entries up to the ordinal `newest` that were [ignored](Notify::ignores_plain).
    #[inline]
    pub const fn ignored_up_to(&mut self, newest: u64) {
        self.view.newest = newest;
    }

    /// An entry of `class` was queued; `full` is true if it was the last one that fits. Called for every entry, in order.
    pub fn queued(&mut self, class: Class, full: bool) -> Action {
        self.view.newest = self.view.newest.wrapping_add(1);
        if class != Class::Plain {
            self.view.newest_solicited = self.view.newest;
        }
        if class == Class::Failed {
            self.newest_failed = self.view.newest;
        }
        let urgent = class == Class::Failed || full;
        let satisfied = satisfied(&self.view);
        if satisfied {
            self.view.arm = None;
        }
        if let Some(hold) = &mut self.hold {
            // If the entry has satisfied another arm, one callback answers both.
            hold.completions += 1;
            let ends = urgent || self.moderation.counted(hold.completions);
            return if ends { self.make_due() } else { Action::default() };
        }
        if !satisfied || self.due {
            return Action::default();
        }
        if urgent || self.moderation.is_off() {
            return self.make_due();
        }
        self.hold = Some(Hold { completions: 1, since: None, deadline: None });
        Action { queue: false, timer: self.moderation.micros() }
    }

    /// The consumer, which has taken the entries up to `taken`, arms the queue. A closed queue stays unarmed.
    #[inline]
    pub fn arm(&mut self, kind: ArmType, taken: u64) -> Action {
        if self.closed {
            return Action::default();
        }
        self.view.arm = Some(ArmType::merge(self.view.arm, kind));
        self.view.taken = taken;
        self.decide()
    }

    /// Makes a callback due if the arm is satisfied. Moderation does not delay it.
    #[inline]
    fn decide(&mut self) -> Action {
        if !satisfied(&self.view) {
            return Action::default();
        }
        self.view.arm = None;
        self.make_due()
    }

    /// The queue fails. Later failures are ignored.
    pub fn fail(&mut self, failure: CqFailure) -> Action {
        if self.failure.is_some() {
            return Action::default();
        }
        (self.failure, self.view.failure_to_report) = (Some(failure), true);
        if self.hold.is_some() { self.make_due() } else { self.decide() }
    }

    /// Sets the moderation, also for a callback that is held back. `full` is true if the queue is full.
    ///
    /// The time for which the callback was held back so far counts: however often a consumer calls this, no callback is held back
    /// longer than the interval.
    pub fn moderate(&mut self, moderation: Moderation, full: bool, now: u64) -> Action {
        self.moderation = moderation;
        let Some(hold) = &mut self.hold else { return Action::default() };
        hold.deadline = None;
        if full || moderation.counted(hold.completions) {
            return self.make_due();
        }
        let Some(micros) = moderation.micros() else { return Action::default() };
        let elapsed = hold.since.map_or(0, |since| now.saturating_sub(since));
        self.due_in(u64::from(micros).saturating_sub(elapsed))
    }

    /// The queue was resized to `depth`; `full` is true if it is full. No entry can end the hold of a full queue, and a count that
    /// was above the depth may have been reached.
    pub fn resized(&mut self, depth: u32, full: bool) -> Action {
        self.moderation = self.moderation.at_depth(depth);
        let Some(hold) = &self.hold else { return Action::default() };
        if full || self.moderation.counted(hold.completions) { self.make_due() } else { Action::default() }
    }

    //= NDKPI 7.1.6
    /// The timer was set, `now`, to expire after `micros`.
    pub fn hold_for(&mut self, now: u64, micros: u32) {
        if let Some(hold) = &mut self.hold {
            hold.since.get_or_insert(now);
            hold.deadline = Some(now.saturating_add(u64::from(micros)));
        }
    }

    /// The timer has expired. It is set again if that is too early: it was set for an earlier hold, or the timers' clock is ahead
    /// of that of `now`.
    pub fn timer_ran(&mut self, now: u64) -> Action {
        let Some(Hold { deadline: Some(deadline), .. }) = self.hold else { return Action::default() };
        self.due_in(deadline.saturating_sub(now))
    }

    /// Makes a callback due after this many microseconds.
    fn due_in(&mut self, micros: u64) -> Action {
        match u32::try_from(micros) {
            Ok(0) | Err(_) => self.make_due(),
            Ok(left) => Action { queue: false, timer: Some(left) },
        }
    }

    #[inline]
    fn make_due(&mut self) -> Action {
        self.hold = None;
        if self.closed {
            return Action::default();
        }
        self.due = true;
        let queue = self.callback == Callback::Idle;
        if queue {
            self.callback = Callback::Queued;
        }
        Action { queue, timer: None }
    }

    //= NDKPI 7.1.3
    /// Begins a callback and returns its status; `None` if none is due or one runs. The caller calls the consumer, then
    /// [`Notify::end`].
    pub const fn begin(&mut self) -> Option<NtStatus> {
        if matches!(self.callback, Callback::Running) {
            // Its end will find what is due.
            return None;
        }
        if !self.due {
            self.callback = Callback::Idle;
            return None;
        }
        self.due = false;
        self.hold = None;
        self.callback = Callback::Running;
        self.view.last_callback = self.view.newest;
        match self.failure {
            Some(failure) if self.view.failure_to_report => {
                self.view.failure_to_report = false;
                Some(failure.status())
            }
            _ => Some(NtStatus::SUCCESS),
        }
    }

    /// The callback has returned. Returns true if another one is due, which the caller has to begin.
    pub fn end(&mut self) -> bool {
        self.callback = if self.due { Callback::Queued } else { Callback::Idle };
        self.due
    }

    /// Prevents further callbacks.
    pub fn close(&mut self) {
        self.closed = true;
        self.view.arm = None;
        self.due = false;
        self.hold = None;
    }
}
