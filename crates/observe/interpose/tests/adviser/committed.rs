//! For each finding a consumer that commits it, and one that comes close and does not.

use std::collections::BTreeSet;

use interpose::adviser::Finding;

use crate::{
    committed_connections, committed_life, committed_memory, committed_posts, committed_queues, consumer::Contexts,
    rows::Row,
};

fn rows() -> impl Iterator<Item = &'static Row> {
    let themes = [
        committed_queues::ROWS,
        committed_posts::ROWS,
        committed_memory::ROWS,
        committed_life::ROWS,
        committed_connections::ROWS,
    ];
    themes.into_iter().flatten()
}

#[test]
fn each_finding_is_made_of_who_commits_it_and_not_of_who_comes_close() {
    let mut wrong = Vec::new();
    for row in rows() {
        let found = (row.commits)();
        if !found.iter().any(|(finding, _)| *finding == row.finding) {
            wrong.push(format!("{}: not found, but {found:?}", row.finding));
        }
        let found = (row.near)();
        if !found.is_empty() {
            wrong.push(format!("{}: of who comes close {found:?}", row.finding));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Of all findings: who comes close is not accused either if completions cannot be told apart.
#[test]
fn nothing_is_found_of_who_comes_close_if_contexts_are_not_distinct() {
    let mut wrong = Vec::new();
    for (contexts, row) in Contexts::ALL.into_iter().flat_map(|contexts| rows().map(move |row| (contexts, row))) {
        let found = contexts.of(row.near);
        if !found.is_empty() {
            wrong.push(format!("{}, {contexts:?}: {found:?}", row.finding));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_finding_is_committed_here() {
    let rows: BTreeSet<_> = rows().map(|row| row.finding).collect();
    let all: BTreeSet<_> = Finding::ALL.iter().copied().collect();
    assert_eq!(rows, all);
}

#[test]
fn numbers_are_given_once_and_in_order() {
    let numbers: Vec<_> = Finding::ALL.iter().map(|finding| finding.number()).collect();
    let expected: Vec<u16> = (1..=u16::try_from(Finding::ALL.len()).expect("few")).collect();
    assert_eq!(numbers, expected);
    assert!(Finding::ALL.iter().all(|finding| Finding::from_number(finding.number()) == Some(*finding)));
    assert_eq!(Finding::from_number(0), None);
}
