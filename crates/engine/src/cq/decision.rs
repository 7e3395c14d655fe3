//! The decision to call a consumer back, as a pure function, and the shortcuts around it.
//!
//! [`satisfied`] is the whole rule. Each shortcut says when the rule need not be asked, and what has to be true for that. The
//! tests of [`super::notify`] compare each of them with the rule in every state.

use super::Cqe;
use crate::{fault, mistake};

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

    /// The arm that stands after arming `first` and then `second`, neither satisfied (`NDKPI 7.1.4`): the stronger one.
    #[inline]
    #[must_use]
    pub fn merge(first: Option<Self>, second: Self) -> Self {
        mistake!(ArmDowngraded => return second);
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

/// Returns true if ordinal `this` is after `that`.
#[inline]
#[must_use]
pub const fn newer(this: u64, that: u64) -> bool {
    this.wrapping_sub(that).cast_signed() > 0
}

/// All that the decision to notify depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// The arm that stands.
    pub arm: Option<ArmType>,
    /// Ordinal of the newest entry.
    pub newest: u64,
    /// Ordinal of the newest entry that satisfies SOLICITED.
    pub newest_solicited: u64,
    /// Ordinal of the newest entry that the consumer had taken when it armed.
    pub taken: u64,
    /// Ordinal of the newest entry that existed when the last callback began.
    pub last_callback: u64,
    /// The queue has failed and the consumer has not been told.
    pub failure_to_report: bool,
}

/// The decision: returns true if the arm is satisfied (`NDKPI 7.1.3` to `7.1.7`, `7.1.10`).
///
/// An arm is satisfied if an entry of its class is newer than the last callback and was not taken when the queue was armed,
/// or if the queue has failed and no callback has said so. Entries that were all there at the last callback satisfy
/// nothing: the *may* case of `NDKPI 7.1.5` stays silent.
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

/// Shortcut: returns true if no plain entry has a consequence, with this arm standing and a callback held back or not.
///
/// Then plain entries need not even be counted one by one: the [fast push](crate::ring::Producer::fast_push) of a queue that has
/// not failed counts them later.
///
/// To prove: an arm that stands was not satisfied before the entry (it is taken away when it is). A plain entry changes
/// `newest` only, which [`satisfied`] asks for with ANY only. A hold counts every entry (`NDKPI 7.1.6`).
#[inline]
#[must_use]
pub fn ignores_plain(arm: Option<ArmType>, holds: bool) -> bool {
    mistake!(UnarmedCallback => false, else !matches!(arm, Some(ArmType::Any)) && !holds)
}

/// Shortcut: returns true if all of `cqes` are [plain](Class::Plain), with no branch for each of them.
///
/// To prove: an entry is plain if and only if its outcome has no mark.
#[inline]
#[must_use]
pub fn are_plain(cqes: &[Cqe]) -> bool {
    if fault::is_any() {
        return cqes.iter().all(|cqe| cqe.class() == Class::Plain);
    }
    cqes.iter().fold(0, |marks, cqe| marks | cqe.outcome.marks()) == 0
}
