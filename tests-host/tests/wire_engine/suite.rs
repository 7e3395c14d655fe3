//! The conformance suite between two adapters that reach each other by frames only: each case ends as in memory, or is listed with the
//! reason.

use std::collections::BTreeMap;

use conformance::{
    Case, Outcome, Run, cases,
    host::{Harness, Impairments, Scheduler, Setup},
};
use ndkpi::NDK_VERSION;

fn seeded(wire: Option<Impairments>) -> Setup {
    let scheduler = Scheduler::Seeded { seed: 0, preemption: 10 };
    Setup { scheduler, tokens: Some(1 << 12), wire, ..Setup::default() }
}

const HOW: Run = Run { version: NDK_VERSION::V2_1, seed: 1, hostile: true };

fn outcomes(setup: Setup, how: Run) -> BTreeMap<&'static str, Outcome> {
    let harness = Harness::new(setup);
    let mut outcomes = BTreeMap::new();
    let wanted = std::env::var("CASE").unwrap_or_default();
    for case in cases::all().filter(|case: &&Case| case.name.contains(&wanted)) {
        let finished = harness.run(case, how);
        outcomes.insert(case.name, finished.outcome);
    }
    outcomes
}

#[test]
fn cases_end_as_in_memory() {
    let here = outcomes(seeded(None), HOW);
    let there = outcomes(seeded(Some(Impairments::default())), HOW);
    let mut wrong = Vec::new();
    for (name, expected) in &here {
        let seen = &there[name];
        if seen != expected {
            wrong.push(format!("{name}\n  here:  {expected}\n  there: {seen}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), here.len(), wrong.join("\n"));
}
