//! Every case of the self-test, on a machine of threads and on seeded ones, and its place in the documentation.

use std::collections::BTreeSet;

use nd2_selftest::{Options, Outcome, Row, Schedule, cases, run};

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
fn every_case_passes_with_threads() {
    all_pass(&run(&Options::default()), "threads");
}

#[test]
fn every_case_passes_whatever_the_order() {
    for (seed, percent) in [(1, 0), (2, 10), (3, 30), (4, 60)] {
        let schedule = Schedule::Seeded(seed, percent);
        all_pass(&run(&Options { schedule, ..Options::default() }), &format!("{schedule:?}"));
    }
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
