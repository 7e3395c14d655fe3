//! What has changed between two runs.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::selftest::json::{EntryJson, ResultsJson};

/// What has changed.
#[derive(Debug, Serialize)]
pub struct Changes {
    pub worse: u32,
    pub better: u32,
    pub other: u32,
    pub same: u32,
    /// Differences between the runs themselves.
    pub notes: Vec<String>,
    pub cases: Vec<Change>,
}

/// What has changed about a case.
#[derive(Debug, Serialize)]
pub struct Change {
    pub name: String,
    pub section: String,
    pub what: What,
    /// Outcome and text, before and now; none if the case was not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub was: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is: Option<String>,
}

/// A kind of change, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Its rule is broken, and was not before.
    Fails,
    /// Nothing is known of its rule any more.
    Inconclusive,
    /// It was not run any more, or skipped.
    NotRun,
    /// Where the documentation leaves something open, the provider does something else.
    ObservedDiffers,
    /// It fails as before, but with other words.
    FailsDifferently,
    /// Its rule holds, and did not before.
    Fixed,
    /// It runs for the first time.
    New,
}

impl What {
    /// Returns true if somebody has to look at it.
    const fn is_worse(self) -> bool {
        matches!(self, Self::Fails | Self::Inconclusive | Self::NotRun | Self::ObservedDiffers)
    }
}

impl std::fmt::Display for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Fails => "fails now",
            Self::Inconclusive => "inconclusive now",
            Self::NotRun => "not run now",
            Self::ObservedDiffers => "does something else now",
            Self::FailsDifferently => "fails differently",
            Self::Fixed => "fixed",
            Self::New => "new",
        })
    }
}

/// How bad an outcome is. Of several runs of a case the worst counts.
fn weight(outcome: &str) -> u8 {
    match outcome {
        "failed" => 4,
        "inconclusive" => 3,
        "observed" => 2,
        "passed" => 1,
        _ => 0,
    }
}

fn is_bad(entry: &EntryJson) -> bool {
    weight(&entry.outcome) >= 3
}

/// The cases of a run by their names, each with its worst entry.
fn worst(run: &ResultsJson) -> BTreeMap<&str, &EntryJson> {
    let mut all = BTreeMap::<&str, &EntryJson>::new();
    for entry in &run.cases {
        let kept = all.entry(&entry.case.name).or_insert(entry);
        if weight(&entry.outcome) > weight(&kept.outcome) {
            *kept = entry;
        }
    }
    all
}

/// What has changed from `old` to `new`.
pub fn compare(old: &ResultsJson, new: &ResultsJson) -> Changes {
    let (before, now) = (worst(old), worst(new));
    let mut changes = Changes { worse: 0, better: 0, other: 0, same: 0, notes: notes(old, new), cases: Vec::new() };
    let names: std::collections::BTreeSet<_> = before.keys().chain(now.keys()).copied().collect();
    for name in names {
        let (was, is) = (before.get(name).copied(), now.get(name).copied());
        let Some(what) = judge(was, is) else {
            changes.same += 1;
            continue;
        };
        match what {
            what if what.is_worse() => changes.worse += 1,
            What::Fixed => changes.better += 1,
            _ => changes.other += 1,
        }
        let section = is.or(was).map(|entry| entry.case.section.clone()).unwrap_or_default();
        changes.cases.push(Change { name: name.to_owned(), section, what, was: was.map(seen), is: is.map(seen) });
    }
    changes.cases.sort_by_key(|change| change.what);
    changes
}

/// The kind of change, if it is one.
fn judge(was: Option<&EntryJson>, is: Option<&EntryJson>) -> Option<What> {
    let Some(is) = is else {
        // What was skipped before says as much as what is gone.
        return was.filter(|was| was.outcome != "skipped").map(|_| What::NotRun);
    };
    let bad_before = was.is_some_and(is_bad);
    match (is.outcome.as_str(), was) {
        ("failed", Some(was)) if was.outcome == "failed" => (was.text != is.text).then_some(What::FailsDifferently),
        ("failed", _) => Some(What::Fails),
        ("inconclusive", Some(was)) if bad_before => (was.text != is.text).then_some(What::FailsDifferently),
        ("inconclusive", _) => Some(What::Inconclusive),
        (_, None) => Some(What::New),
        ("skipped", Some(was)) => (was.outcome != "skipped").then_some(What::NotRun),
        (_, Some(_)) if bad_before => Some(What::Fixed),
        (_, Some(was)) if was.outcome == "skipped" => Some(What::New),
        (outcome, Some(was)) => (outcome != was.outcome || was.text != is.text).then_some(What::ObservedDiffers),
    }
}

fn seen(entry: &EntryJson) -> String {
    if entry.text.is_empty() { entry.outcome.clone() } else { format!("{}: {}", entry.outcome, entry.text) }
}

/// What is different about the runs, so that their results may differ.
fn notes(old: &ResultsJson, new: &ResultsJson) -> Vec<String> {
    let adapter = |run: &ResultsJson| {
        run.adapter.as_ref().map(|adapter| {
            let driver = adapter.driver.as_deref().unwrap_or("a driver that does not say its version");
            format!("{}, {driver}, NDKPI {}", adapter.name, adapter.ndkpi)
        })
    };
    let facts = |run: &ResultsJson| {
        [
            ("adapter", adapter(run)),
            ("ndkctl", run.program.clone()),
            ("profile", run.profile.clone()),
            ("completion", Some(run.completion.clone())),
            ("seed", Some(run.seed.to_string())),
            ("faults", (!run.faults.is_empty()).then(|| run.faults.join(" "))),
        ]
    };
    let none = || "none".to_owned();
    let both = facts(old).into_iter().zip(facts(new));
    let mut notes: Vec<_> = both
        .filter(|((_, was), (_, is))| was != is)
        .map(|((name, was), (_, is))| {
            format!("{name}: was {}, is {}", was.unwrap_or_else(none), is.unwrap_or_else(none))
        })
        .collect();
    for (run, which) in [(old, "earlier"), (new, "later")] {
        if run.interrupted {
            notes.push(format!("the {which} run was interrupted: cases are missing"));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{What, compare};
    use crate::{schema, selftest::json::ResultsJson};

    /// A run with these cases: name, outcome, text.
    fn run(seed: u32, cases: &[(&str, &str, &str)]) -> ResultsJson {
        let cases = cases.iter().map(|(name, outcome, text)| {
            json!({
                "name": name, "section": "NDKPI 7", "does": "d", "expects": "e", "outcome": outcome, "text": text,
                "micros": 1, "seed": seed,
            })
        });
        let cases: Vec<_> = cases.collect();
        serde_json::from_value(json!({
            "seed": seed, "completion": "mixed", "ndkpi": "2.0", "deterministic": false, "interrupted": false, "passed": 0,
            "failed": 0, "observed": 0, "skipped": 0, "seconds": 1.0, "cases": cases,
        }))
        .expect("results as an earlier version wrote them")
    }

    #[test]
    fn each_kind_of_change_is_told() {
        let old = run(
            1,
            &[
                ("a.breaks", "passed", ""),
                ("a.unknown", "passed", ""),
                ("a.gone", "passed", ""),
                ("a.skipped", "observed", "this"),
                ("a.observed", "observed", "this"),
                ("a.other-words", "failed", "seen 1"),
                ("a.fixed", "failed", "seen 1"),
                ("a.same", "observed", "this"),
                ("a.still", "failed", "seen 1"),
                ("a.never", "skipped", "no flag"),
            ],
        );
        let new = run(
            2,
            &[
                ("a.breaks", "failed", "seen 1"),
                ("a.unknown", "inconclusive", "no adapter"),
                ("a.skipped", "skipped", "no flag"),
                ("a.observed", "observed", "that"),
                ("a.other-words", "failed", "seen 2"),
                ("a.fixed", "passed", ""),
                ("a.new", "passed", ""),
                ("a.new-and-wrong", "failed", "seen 1"),
                ("a.same", "observed", "this"),
                ("a.still", "failed", "seen 1"),
            ],
        );
        let changes = compare(&old, &new);
        let seen: Vec<_> = changes.cases.iter().map(|change| (change.name.as_str(), change.what)).collect();
        assert_eq!(
            seen,
            [
                ("a.breaks", What::Fails),
                ("a.new-and-wrong", What::Fails),
                ("a.unknown", What::Inconclusive),
                ("a.gone", What::NotRun),
                ("a.skipped", What::NotRun),
                ("a.observed", What::ObservedDiffers),
                ("a.other-words", What::FailsDifferently),
                ("a.fixed", What::Fixed),
                ("a.new", What::New),
            ]
        );
        assert_eq!((changes.worse, changes.better, changes.other, changes.same), (6, 1, 2, 3));
        assert_eq!(changes.notes, ["seed: was 1, is 2"]);
        schema::check("report", &serde_json::to_value(&changes).expect("JSON"));
        let same = compare(&old, &old);
        assert_eq!((same.worse, same.same, same.cases.len()), (0, 10, 0));
    }

    #[test]
    fn of_several_runs_of_a_case_the_worst_counts() {
        let old = run(1, &[("a.b", "passed", "")]);
        let new = run(1, &[("a.b", "passed", ""), ("a.b", "failed", "seen"), ("a.b", "passed", "")]);
        assert_eq!(compare(&old, &new).worse, 1);
        assert_eq!(compare(&new, &old).better, 1);
    }
}
