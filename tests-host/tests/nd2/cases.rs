//! Every case of the self-test, on a machine of threads and on seeded ones, and its place in the documentation.

use std::{collections::BTreeSet, sync::Mutex, thread};

use nd2::CompletionPolicy::{self, Inline, Mixed, Pending};
use nd2_selftest::{
    BackEnd::{self, Codes, Process},
    NicMode::{self, Deferred, Direct},
    Options, Outcome, Row,
    Schedule::{self, Seeded, Threads},
    cases, run,
};

fn all_pass(rows: &[Row], what: &str) {
    let failed: Vec<_> = rows
        .iter()
        .filter_map(|row| match &row.outcome {
            Outcome::Passed(_) => None,
            Outcome::Failed(seen) => Some(format!("{} ({}): {seen}", row.name, row.place)),
        })
        .collect();
    assert!(failed.is_empty(), "{what}: {failed:#?}");
    assert_eq!(rows.len(), cases().len(), "{what}");
}

/// Runs all cases in each of these ways, two at a time: each uses one processor, or mostly waits.
fn all_pass_in(ways: &[(CompletionPolicy, Schedule, BackEnd, NicMode)]) {
    let next = Mutex::new(ways.iter());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(&(policy, schedule, back_end, nic)) = { next.lock().expect("no panic").next() } {
                    let rows = run(&Options { policy, schedule, back_end, nic, ..Options::default() });
                    all_pass(&rows, &format!("{policy}, {schedule:?}, {back_end:?}, {nic:?}"));
                }
            });
        }
    });
}

/// Each pair of policy, schedule, back end and engine meets once.
#[test]
fn every_case_passes_in_each_pair_of_ways() {
    all_pass_in(&[
        (Pending, Threads, Process, Deferred),
        (Inline, Threads, Process, Direct),
        (Mixed, Threads, Codes, Deferred),
        (Pending, Seeded(1, 60), Codes, Direct),
        (Inline, Seeded(3, 10), Codes, Deferred),
        (Mixed, Seeded(6, 30), Process, Direct),
    ]);
}

#[test]
#[ignore = "cargo test --test nd2 -- --ignored: half a minute"]
fn every_case_passes_in_every_way() {
    let mut ways = Vec::new();
    for (seed, policy) in (7..).zip(CompletionPolicy::ALL) {
        for schedule in [Threads, Seeded(seed, 0), Seeded(seed, 20), Seeded(seed, 60)] {
            ways.extend(
                [Process, Codes]
                    .into_iter()
                    .flat_map(|back_end| [Deferred, Direct].map(|nic| (policy, schedule, back_end, nic))),
            );
        }
    }
    all_pass_in(&ways);
}

#[test]
fn requests_pend_by_default() {
    assert_eq!(nd2::Config::default().policy, CompletionPolicy::Pending);
}

#[test]
fn names_are_unique() {
    let all = cases();
    let names: BTreeSet<_> = all.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), all.len());
}

#[test]
fn the_documentation_lists_every_case_and_no_other() {
    let document = include_str!("../../../docs/nd2.md");
    let themes: BTreeSet<_> = cases().iter().filter_map(|case| case.name.split('.').next()).collect();
    let listed: BTreeSet<_> = document
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| {
            word.split_once('.').is_some_and(|(theme, rule)| {
                themes.contains(theme)
                    && rule
                        .chars()
                        .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_')
            })
        })
        .collect();
    let all = cases();
    let names: BTreeSet<_> = all.iter().map(|case| case.name).collect();
    let missing: Vec<_> = names.difference(&listed).collect();
    let unknown: Vec<_> = listed.difference(&names).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "missing in docs/nd2.md: {missing:?}; no such case: {unknown:?}");
}
