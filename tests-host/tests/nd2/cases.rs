//! Every case of the self-test, on a machine of threads and on seeded ones, and its place in the documentation.

use std::collections::BTreeSet;

use nd2::CompletionPolicy;
use nd2_selftest::{BackEnd, NicMode, Options, Outcome, Row, Schedule, cases, run};

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

#[test]
fn every_case_passes_with_threads_in_every_policy() {
    for policy in CompletionPolicy::ALL {
        all_pass(&run(&Options { policy, ..Options::default() }), policy.name());
    }
}

#[test]
fn every_case_passes_with_the_direct_engine() {
    for schedule in [Schedule::Threads, Schedule::Seeded(3, 30)] {
        let rows = run(&Options { schedule, nic: NicMode::Direct, ..Options::default() });
        all_pass(&rows, &format!("{schedule:?}, direct"));
    }
}

fn through_control_codes(schedule: Schedule, policy: CompletionPolicy) {
    let rows = run(&Options { schedule, policy, back_end: BackEnd::Codes, ..Options::default() });
    all_pass(&rows, &format!("{policy}, {schedule:?}, control codes"));
}

#[test]
fn every_case_passes_through_control_codes_in_every_policy() {
    for (schedule, policy) in [
        (Schedule::Threads, CompletionPolicy::Pending),
        (Schedule::Seeded(7, 20), CompletionPolicy::Inline),
        (Schedule::Seeded(8, 20), CompletionPolicy::Mixed),
    ] {
        through_control_codes(schedule, policy);
    }
}

#[test]
#[ignore = "cargo test --test nd2 -- --ignored: every policy with threads and by a seed, with and without control codes"]
fn every_case_passes_in_every_policy_and_order() {
    for (seed, policy) in (9..).zip(CompletionPolicy::ALL) {
        for schedule in [Schedule::Threads, Schedule::Seeded(seed, 20)] {
            through_control_codes(schedule, policy);
        }
        seeded(policy, &[(seed, 0), (seed + 3, 60)]);
    }
}

/// Seeds, each with its chance that others get in between.
fn seeded(policy: CompletionPolicy, seeds: &[(u64, u8)]) {
    for &(seed, percent) in seeds {
        let schedule = Schedule::Seeded(seed, percent);
        all_pass(&run(&Options { schedule, policy, ..Options::default() }), &format!("{policy}, {schedule:?}"));
    }
}

#[test]
fn every_case_passes_whatever_the_order_when_requests_pend() {
    seeded(CompletionPolicy::Pending, &[(1, 0), (2, 60)]);
}

#[test]
fn every_case_passes_whatever_the_order_when_methods_answer() {
    seeded(CompletionPolicy::Inline, &[(3, 10)]);
}

#[test]
fn every_case_passes_whatever_the_order_when_nobody_knows() {
    seeded(CompletionPolicy::Mixed, &[(6, 30)]);
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
