//! Providers that are wrong on purpose: each is failed by the cases that are about its mistake, and the one without a mistake
//! passes them all. A suite that passes everything proves nothing.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use broken::{all, copy, weave};
use conformance::{
    Case, Outcome, Run, cases,
    host::{Harness, Scheduler, Setup},
};
use engine::switch;
use ndkpi::NDK_VERSION;
use provider::CompletionMode;

/// A seeded machine, so that a mistake shows every time or never.
fn harness() -> Harness {
    let setup = Setup {
        scheduler: Scheduler::Seeded { seed: 0, preemption: 10 },
        tokens: Some(1 << 12),
        completion: CompletionMode::Mixed,
        ..Setup::default()
    };
    Harness::new(setup).with_limit(Duration::from_mins(1))
}

/// A mistake about something that happens at the same time shows in some orders only.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=40;

fn how(seed: u64) -> Run {
    Run { version: NDK_VERSION::new(2, 0), seed, hostile: true }
}

fn case(name: &str) -> &'static Case {
    cases::all().find(|case| case.name == name).unwrap_or_else(|| panic!("there is no case {name}"))
}

/// One test, because a mistake is one of the whole program.
#[test]
fn every_mistake_is_failed_by_the_cases_that_are_about_it() {
    let harness = harness();
    let mut wrong = Vec::new();
    for (_, mistake) in all() {
        for name in mistake.cases {
            let case = case(name);
            let mut found = false;
            for seed in SEEDS {
                let without = harness.run(case, how(seed)).outcome;
                if !matches!(without, Outcome::Passed | Outcome::Observed(_)) {
                    wrong.push(format!("{name} without a mistake: {without}"));
                }
                found |= switch::making(mistake.name, || harness.run(case, how(seed)).outcome.is_failure());
                if found {
                    break;
                }
            }
            if !found {
                wrong.push(format!("{name} has passed with {}", mistake.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_mistake_has_its_places_in_the_sources() {
    let misfits: Vec<_> = all().flat_map(|(_, mistake)| weave::misfits(mistake, copy::source)).collect();
    assert!(misfits.is_empty(), "{}", misfits.join("\n\n"));
}

#[test]
fn every_mistake_has_a_name_of_its_own_and_a_case() {
    let names: BTreeSet<_> = all().map(|(_, mistake)| mistake.name).collect();
    assert_eq!((names.len(), all().count()), (63, 63));
    assert!(all().all(|(_, mistake)| !mistake.cases.is_empty() && !mistake.edits.is_empty()));
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn the_document_lists_every_mistake_with_its_cases() {
    let document = read(&root().join("docs/broken-providers.md"));
    let rows = document.lines().filter(|line| line.starts_with("| `"));
    let expected = all().map(|(_, mistake)| {
        let cases: Vec<_> = mistake.cases.iter().map(|name| format!("`{name}`")).collect();
        format!("| `{}` | {} | {} |", mistake.name, mistake.about, cases.join(", "))
    });
    let (rows, expected): (Vec<_>, Vec<_>) = (rows.collect(), expected.collect());
    assert_eq!(rows, expected, "the table of docs/broken-providers.md has to be\n{}", expected.join("\n"));
}

#[test]
fn nothing_else_is_built_on_the_broken_engine() {
    let manifests = ["crates", "examples", "tests-host"].map(|folder| manifests(&root().join(folder))).concat();
    assert!(manifests.len() > 50, "{} manifests", manifests.len());
    let is_broken =
        |line: &str| line.starts_with("broken =") || line.contains("broken-") || line.contains("tests-host/broken");
    let (broken, others): (Vec<_>, Vec<_>) =
        manifests.into_iter().partition(|path| path.starts_with(root().join("tests-host/broken")));
    assert!(broken.iter().all(|path| read(path).lines().any(is_broken)), "how a dependency looks");
    for path in others {
        assert!(!read(&path).lines().any(is_broken), "{} depends on mistakes", path.display());
    }
}

/// The manifests in a folder and below.
fn manifests(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                return manifests(&path);
            }
            if path.ends_with("Cargo.toml") { vec![path] } else { Vec::new() }
        })
        .collect()
}
