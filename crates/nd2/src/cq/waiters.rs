//! Requests for notification that are outstanding on one queue, and which of them an event completes.
//!
//! NDKPI merges arms into one. Here every request stays on its own until the next event, which completes all that were there when
//! it came, in the order of their issue (`NDSPI 2`). The decision is the engine's: this asks it once for each request.
//!
//! - What is an event depends on the queue's type, the strongest that a request is outstanding for: ANY, SOLICITED, ERRORS. So a
//!   request is satisfied by what satisfies another one beside it ("All such requests will be completed by the next completion
//!   event"; a stronger request "changes the notification type").
//! - ERRORS alone is satisfied by a failed request, because errors always satisfy, and by the queue's own failure.
//! - What was there at an event never makes another one: "A completion will cause at most a single triggering".

use alloc::collections::VecDeque;

use engine::cq::{
    Observation,
    notify::{ArmType, View, satisfied},
};
use fallible::AllocError;
use ndkpi::NtStatus;

use crate::abi::notify::{ND_CQ_NOTIFY_ANY, ND_CQ_NOTIFY_ERRORS, ND_CQ_NOTIFY_SOLICITED};
use crate::overlapped::trim;

/// What a request waits for.
///
/// In the order of their strength: what satisfies one satisfies those behind it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Failed requests and failures of the queue.
    Errors,
    /// Receives whose sender asked for an event, and failed requests.
    Solicited,
    /// Any completion.
    Any,
}

impl Kind {
    /// The kind that a client names with `value`.
    #[must_use]
    pub const fn from_value(value: u32) -> Option<Self> {
        match value {
            ND_CQ_NOTIFY_ERRORS => Some(Self::Errors),
            ND_CQ_NOTIFY_ANY => Some(Self::Any),
            ND_CQ_NOTIFY_SOLICITED => Some(Self::Solicited),
            _ => None,
        }
    }

    /// The weakest arm of the engine that is satisfied by all that satisfies this. Failed requests satisfy SOLICITED, and
    /// not the engine's ERRORS.
    const fn arm(self) -> ArmType {
        match self {
            Self::Errors | Self::Solicited => ArmType::Solicited,
            Self::Any => ArmType::Any,
        }
    }
}

struct Waiter<R> {
    kind: Kind,
    /// Ordinal of the newest completion that the client had taken when it issued the request.
    taken: u64,
    request: R,
    /// How the request ends, once that is decided.
    outcome: Option<NtStatus>,
}

/// The requests `R` that are outstanding on one queue, in the order of their issue.
pub struct Waiters<R> {
    list: VecDeque<Waiter<R>>,
    /// Ordinal of the newest completion that there was at the last event.
    last_event: u64,
    limit: usize,
}

impl<R> Waiters<R> {
    /// No requests, and room for `limit`. No completion up to the ordinal `first` makes an event.
    #[must_use]
    pub const fn new(limit: usize, first: u64) -> Self {
        Self { list: VecDeque::new(), last_event: first, limit }
    }

    /// Requests that are outstanding, those included that an event has satisfied and that were not taken out yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns true if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Makes room for one more request.
    ///
    /// # Errors
    ///
    /// [`AllocError`] if there is no memory, or there are as many as there may be.
    pub fn reserve(&mut self) -> Result<(), AllocError> {
        if self.list.len() >= self.limit {
            return Err(AllocError);
        }
        Ok(self.list.try_reserve(1)?)
    }

    fn undecided(&self) -> impl Iterator<Item = &Waiter<R>> {
        self.list.iter().filter(|waiter| waiter.outcome.is_none())
    }

    /// The queue's type: the strongest that a request waits for, or one of the kind `more` if that is given.
    fn kind(&self, more: Option<Kind>) -> Option<Kind> {
        self.undecided().map(|waiter| waiter.kind).chain(more).max()
    }

    /// The arm that the engine's queue needs for the requests that wait, and for one of the kind `more` if that is given.
    #[must_use]
    pub fn arm(&self, more: Option<Kind>) -> Option<ArmType> {
        self.kind(more).map(Kind::arm)
    }

    /// Decides which requests are satisfied by what was `seen` in the queue, and whether one of the kind `new`, issued at this
    /// moment, would be. All that are satisfied belong to one event.
    ///
    /// What the client has taken at this moment is in what was seen.
    #[must_use]
    pub fn decide(&mut self, seen: &Observation, new: Option<Kind>) -> bool {
        let Some(kind) = self.kind(new) else { return false };
        let newest_solicited = match kind {
            // An arm for which nothing but failed requests is of interest.
            Kind::Errors => seen.newest_failed,
            Kind::Solicited | Kind::Any => seen.view.newest_solicited,
        };
        let (arm, last_callback) = (Some(kind.arm()), self.last_event);
        let meets = |taken| {
            satisfied(&View { arm, newest_solicited, taken, last_callback, failure_to_report: false, ..seen.view })
        };
        let mut event = false;
        for waiter in self.list.iter_mut().filter(|waiter| waiter.outcome.is_none()) {
            if meets(waiter.taken) {
                waiter.outcome = Some(NtStatus::SUCCESS);
                event = true;
            }
        }
        let new = new.is_some() && meets(seen.view.taken);
        if event || new {
            self.last_event = seen.view.newest;
        }
        new
    }

    /// Adds a request behind all others: one that has to wait, or one whose end is decided and that is only to be taken out.
    /// There is [room](Waiters::reserve) for it.
    pub fn push(&mut self, kind: Kind, taken: u64, request: R, outcome: Option<NtStatus>) {
        self.list.push_back(Waiter { kind, taken, request, outcome });
    }

    /// Ends all requests that wait with `status`: the queue has failed, or they are cancelled.
    pub fn end(&mut self, status: NtStatus) {
        self.end_those(status, |_| true);
    }

    /// [`Waiters::end`] for the requests that are `which`.
    pub fn end_those(&mut self, status: NtStatus, which: impl Fn(&R) -> bool) {
        for waiter in self.list.iter_mut().filter(|waiter| waiter.outcome.is_none() && which(&waiter.request)) {
            waiter.outcome = Some(status);
        }
    }

    /// Takes out the first request of those whose end is decided.
    pub fn take_ended(&mut self) -> Option<(R, NtStatus)> {
        let place = self.list.iter().position(|waiter| waiter.outcome.is_some())?;
        let waiter = self.list.remove(place)?;
        trim(&mut self.list);
        Some((waiter.request, waiter.outcome?))
    }
}
