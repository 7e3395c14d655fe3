//! The results of a run in JUnit's format.

use std::{fs::File, path::Path};

use conformance::Outcome;
use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestSuite};

use super::{
    json::ResultsJson,
    results::{Entry, Results},
};

/// Writes the results. A theme is a suite, and has what is known of the run as properties.
///
/// # Errors
///
/// One line.
pub fn write(path: &Path, run: &ResultsJson, results: &Results) -> Result<(), String> {
    let mut report = Report::new("NDKPI conformance");
    report.set_time(results.took);
    let mut suites: Vec<TestSuite> = Vec::new();
    for entry in &results.entries {
        let theme = entry.case.theme();
        let position = suites.iter().position(|suite| suite.name.as_str() == theme).unwrap_or_else(|| {
            let mut suite = TestSuite::new(theme);
            for (name, value) in properties(run) {
                suite.add_property(Property::new(name, value));
            }
            suites.push(suite);
            suites.len() - 1
        });
        suites[position].add_test_case(case(entry));
    }
    report.add_test_suites(suites);
    let file = File::create(path).map_err(|error| named(path, &error))?;
    report.serialize(file).map_err(|error| named(path, &error))
}

fn named(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("--junit: {}: {error}", path.display())
}

/// What is known of a run, by names.
pub fn properties(run: &ResultsJson) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    if let Some(adapter) = &run.adapter {
        all.push(("adapter", adapter.name.clone()));
        all.extend(adapter.driver.clone().map(|driver| ("driver", driver)));
        all.push(("NDKPI", adapter.ndkpi.clone()));
        all.extend(adapter.technology.clone().map(|technology| ("technology", technology)));
        all.extend(adapter.vendor.map(|vendor| ("vendor", format!("{vendor:#08x}"))));
    }
    all.extend(run.peer.clone().map(|peer| ("peer", peer)));
    if let Some(host) = &run.host {
        let name = host.name.as_deref().unwrap_or("unnamed");
        all.push(("host", format!("{name}, {} {}, {} processors", host.os, host.arch, host.processors)));
    }
    all.extend(run.program.clone().map(|program| ("ndkctl", program)));
    all.extend(run.profile.clone().map(|profile| ("profile", profile)));
    all.push(("completion", run.completion.clone()));
    all.push(("seed", run.seed.to_string()));
    if !run.faults.is_empty() {
        all.push(("faults", run.faults.join(" ")));
    }
    all
}

fn case(entry: &Entry) -> TestCase {
    let Entry { case, outcome, took, seed } = entry;
    let bad = |kind, seen: &str| {
        let mut status = TestCaseStatus::non_success(kind);
        status.set_message(seen).set_description(format!(
            "{}\ndoes: {}\nexpected: {}\nseen: {seen}\nseed: {seed}",
            case.section, case.does, case.expects
        ));
        status
    };
    let status = match outcome {
        Outcome::Passed | Outcome::Observed(_) => TestCaseStatus::success(),
        Outcome::Skipped(reason) => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(reason.as_str());
            status
        }
        Outcome::Failed(seen) => bad(NonSuccessKind::Failure, seen.as_str()),
        Outcome::Inconclusive(why) => bad(NonSuccessKind::Error, why.as_str()),
    };
    let mut test = TestCase::new(case.name, status);
    test.set_classname(case.theme()).set_time(*took);
    if let Outcome::Observed(text) = outcome {
        test.set_system_out(text.as_str());
    }
    test
}
