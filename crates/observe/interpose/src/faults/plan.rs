//! Which faults happen when.

use core::fmt;

pub use delay::{Delay, LONGEST_DELAY};
use ndkpi::{NDK_OBJECT_TYPE, NtStatus};

use super::table::Kind;
use crate::{Function, ObjectId};

/// Rules of a plan at most.
pub const MOST_RULES: usize = 8;

/// To which of the calls that a rule is about it applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one with this number, from 1.
    Nth(u32),
    /// Those whose number is a multiple of this, from 1.
    Every(u32),
    /// So many of each million, as the seed says.
    Chance(u32),
}

impl Which {
    fn is_valid(self) -> bool {
        match self {
            Self::Nth(_) => true,
            Self::Every(number) => number != 0,
            Self::Chance(per_million) => per_million <= 1_000_000,
        }
    }
}

/// One rule of a plan: which fault happens, and to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The fault.
    pub kind: Kind,
    /// Only to calls of this function; to all that it [happens to](Kind::happens_to) if there is none.
    pub function: Option<Function>,
    /// Only to objects of this type: those on which the function is called.
    pub object_type: Option<NDK_OBJECT_TYPE>,
    /// Only to the object with this number (`ObjectId::number`).
    pub object: Option<u32>,
    /// Only to this consumer: the number of its open of an adapter, from 1.
    pub consumer: Option<u32>,
    /// To which of these calls.
    pub which: Which,
    /// With this status; with the usual one of the function if there is none.
    pub status: Option<NtStatus>,
    /// So late, if the kind has a delay.
    pub delay: Delay,
}

impl Rule {
    /// A rule for all calls of all objects and consumers, without a delay, and with the usual status.
    #[must_use]
    pub const fn new(kind: Kind, which: Which) -> Self {
        Self {
            kind,
            function: None,
            object_type: None,
            object: None,
            consumer: None,
            which,
            status: None,
            delay: Delay::NONE,
        }
    }

    /// Returns true if it is about this call.
    #[must_use]
    pub fn is_about(&self, function: Function, object: ObjectId, consumer: u32) -> bool {
        self.kind.happens_to(function)
            && self.function.is_none_or(|wanted| wanted == function)
            && self.object_type.is_none_or(|wanted| wanted.0 == object.kind.0)
            && self.object.is_none_or(|wanted| wanted == object.number)
            && self.consumer.is_none_or(|wanted| wanted == consumer)
    }

    /// The status for a function: the one that is wanted if the function has it, else the usual one.
    #[must_use]
    pub fn status_of(&self, function: Function) -> Option<NtStatus> {
        let statuses = self.kind.statuses(function);
        self.status.filter(|wanted| statuses.contains(wanted)).or_else(|| statuses.first().copied())
    }

    /// Looks that the rule can happen at all.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), Wrong> {
        let page = self.kind.page();
        if self.function.is_some_and(|function| !self.kind.happens_to(function)) {
            return Err(Wrong::Function);
        }
        if let Some(status) = self.status {
            let allows = |function: Function| self.kind.statuses(function).contains(&status);
            let one_allows =
                || Function::ALL.iter().any(|&function| self.kind.happens_to(function) && allows(function));
            let is_allowed = self.function.map_or_else(one_allows, allows);
            if !page.has_status || !is_allowed {
                return Err(Wrong::Status);
            }
        }
        if !self.delay.is_valid() || (!page.has_delay && self.delay != Delay::NONE) {
            return Err(Wrong::Delay);
        }
        if self.which.is_valid() { Ok(()) } else { Err(Wrong::Which) }
    }
}

/// What is wrong with a rule or a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The fault does not happen to this function.
    Function,
    /// NDKPI does not allow this status there.
    Status,
    /// The delay is too long, or its ends are the wrong way round, or the fault has none.
    Delay,
    /// No call has such a number, or the chance is above a million.
    Which,
    /// There are too many rules.
    TooMany,
    /// The bytes are no plan of this version.
    Bytes,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Function => "the fault does not happen to this function",
            Self::Status => "NDKPI does not allow this status there",
            Self::Delay => "the fault has no delay, or it is above 10 seconds, or its ends are the wrong way round",
            Self::Which => "numbers of calls count from 1, and a chance is at most 1000000 of a million",
            Self::TooMany => "a plan has at most 8 rules",
            Self::Bytes => "these are not the bytes of a plan of this version",
        })
    }
}

impl core::error::Error for Wrong {}

/// The faults that happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Determines chance and delays.
    pub seed: u64,
    rules: [Option<Rule>; MOST_RULES],
}

impl Plan {
    /// No faults.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, rules: [None; MOST_RULES] }
    }

    /// With one more rule. Of several that are about a call the first one that applies happens.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn with(mut self, rule: Rule) -> Result<Self, Wrong> {
        rule.check()?;
        let place = self.rules.iter_mut().find(|place| place.is_none()).ok_or(Wrong::TooMany)?;
        *place = Some(rule);
        Ok(self)
    }

    /// The rules.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().map_while(Option::as_ref)
    }

    /// Returns true if nothing happens.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rules[0].is_none()
    }
}

/// A number that looks like chance: the finaliser of `SplitMix64`.
pub const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}
