//! Faults: hooks that let happen what NDKPI allows a provider, its adapter and its network, so that a consumer's code for it runs.
//!
//! What there is stands in one table ([`Kind`]), each fault with the section that makes it legitimate. A [`Plan`] says which of
//! them happen, to which calls, which objects and which consumer; chance and delays are determined by its seed and the number of
//! the call. Plans come from other machines and programs as bytes ([`Plan::from_bytes`]).

mod hooks;
mod plan;
mod statuses;
mod table;
mod wire;

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use hooks::{Faults, NoAdapter, Target};
pub use plan::{Delay, LONGEST_DELAY, MOST_RULES, Plan, Rule, Which, Wrong};
pub use statuses::legitimate;
pub use table::{Kind, Page};
pub use wire::PLAN_BYTES;

use crate::Function;

/// A plan, and what has happened by it. Several adapters may have one in common: their calls are counted together.
#[derive(Debug, Default)]
pub struct Tally {
    plan: Plan,
    rules: [Counts; MOST_RULES],
    /// The number of the function that a fault happened to last, plus one.
    last: AtomicU64,
}

/// Of one rule.
#[derive(Debug, Default)]
struct Counts {
    calls: AtomicU64,
    made: AtomicU64,
}

impl Tally {
    /// Nothing has happened by this plan yet.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self { plan, ..Self::default() }
    }

    /// The plan.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Calls to which the rule with this index might have applied.
    #[must_use]
    pub fn calls_of(&self, rule: usize) -> u64 {
        self.rules.get(rule).map_or(0, |counts| counts.calls.load(Relaxed))
    }

    /// How often it did.
    #[must_use]
    pub fn made_of(&self, rule: usize) -> u64 {
        self.rules.get(rule).map_or(0, |counts| counts.made.load(Relaxed))
    }

    /// Calls to which a rule might have applied.
    #[must_use]
    pub fn calls(&self) -> u64 {
        (0..MOST_RULES).map(|rule| self.calls_of(rule)).sum()
    }

    /// Faults that have happened.
    #[must_use]
    pub fn made(&self) -> u64 {
        (0..MOST_RULES).map(|rule| self.made_of(rule)).sum()
    }

    /// The function that a fault happened to last.
    #[must_use]
    pub fn last(&self) -> Option<Function> {
        let index = self.last.load(Relaxed).checked_sub(1)?;
        Function::ALL.get(usize::try_from(index).ok()?).copied()
    }

    /// One more call; its number.
    fn call(&self, rule: usize) -> u64 {
        self.rules.get(rule).map_or(0, |counts| counts.calls.fetch_add(1, Relaxed) + 1)
    }

    /// A fault happens.
    fn make(&self, rule: usize, function: Function) {
        if let Some(counts) = self.rules.get(rule) {
            counts.made.fetch_add(1, Relaxed);
        }
        self.last.store(function as u64 + 1, Relaxed);
    }
}
