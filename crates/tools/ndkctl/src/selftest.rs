//! `ndkctl selftest`: the conformance suite on the provider.

use std::{
    fs::File,
    path::Path,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use conformance::host::{Harness, Layer};
use conformance::{Case, Outcome, Run, Tally, cases, selects};
use host::{note, say};
use indicatif::ProgressBar;
use ndkpi::NDK_VERSION;
use provider::Profile;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use serde::Serialize;

use crate::{
    End,
    advise::Advice,
    args::{Locks, Nic, Selftest},
    driver, driver_selftest, fault_plan, faults, markdown,
    output::{align_right, duration, is_wide, labelled, print_json, print_table, progress, table, word},
    record::Latest,
};

/// A case that has run.
pub struct Entry {
    /// The case.
    pub case: &'static Case,
    /// The seed of its random numbers.
    pub seed: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

/// The results of a run.
#[derive(Default)]
pub struct Results {
    /// The cases, in the order in which they ran.
    pub entries: Vec<Entry>,
    /// How many ended with which outcome.
    pub tally: Tally,
    /// The duration of the run.
    pub took: Duration,
    /// The run was interrupted.
    pub interrupted: bool,
}

impl Results {
    /// Counts a case and prints its line above the progress bar; names have `width` columns.
    pub fn add(&mut self, entry: Entry, args: &Selftest, round: u64, bar: &ProgressBar, width: usize) {
        // With many rounds only the first one is shown in full.
        if !args.json && (round == 0 || entry.outcome.is_failure()) {
            bar.suspend(|| print_entry(&entry, width));
        }
        self.tally.count(&entry.outcome);
        self.entries.push(entry);
    }
}

/// Runs the command.
pub fn run(args: &Selftest, interrupted: &Arc<AtomicBool>) -> Result<End, String> {
    let selected: Vec<_> =
        cases::all().filter(|case| args.filter.as_ref().is_none_or(|filter| selects(filter, case))).collect();
    if let (true, Some(filter)) = (selected.is_empty(), &args.filter) {
        let mut themes: Vec<_> = cases::all().map(Case::theme).collect();
        themes.dedup();
        note!("ndkctl selftest: no case matches `{filter}`; themes are {}", themes.join(", "));
        return Ok(End::Refused);
    }
    if args.list {
        return list(args, &selected);
    }
    if args.faults.is_some() {
        return faults::run(args, &selected, interrupted);
    }
    let advice = if args.advise { Some(Advice::new(args.verbose)?) } else { None };
    let faults = if args.fault.is_empty() { None } else { Some(fault_plan::layer(args.seed, &args.fault)?) };
    let results = if args.driver {
        if !cfg!(windows) {
            note!("ndkctl selftest: {}", driver::ELSEWHERE);
            return Ok(End::Refused);
        }
        driver_selftest::execute(&driver::open()?, args, interrupted)?
    } else {
        let layer = advice.as_ref().map(Advice::layer).or_else(|| faults.as_ref().map(|(layer, _)| layer.clone()));
        execute(args, &selected, interrupted, layer)?
    };
    if args.json {
        print_json(&ResultsJson::new(args, &results))?;
    } else {
        summarize(args, &results);
        if let Some(advice) = &advice {
            advice.summarize();
        }
        if let Some((_, tally)) = &faults {
            fault_plan::summarize(args.seed, &args.fault, tally)?;
        }
    }
    if let Some(path) = &args.junit {
        write_junit(path, &results)?;
    }
    Ok(match results {
        Results { interrupted: true, .. } => End::Interrupted,
        Results { tally: Tally { failed: 0, .. }, .. } => End::Good,
        _ => End::Bad,
    })
}

fn execute(
    args: &Selftest,
    selected: &[&'static Case],
    interrupted: &Arc<AtomicBool>,
    layer: Option<Layer>,
) -> Result<Results, String> {
    let version = version(args)?;
    let latest = Latest::default();
    let harness = Harness::new(args.setup()).with_cancel_flag(interrupted.clone()).verbose(args.verbose);
    let harness = match layer.or_else(|| args.record.layer(&latest)) {
        Some(layer) => harness.with_layer(layer),
        None => harness,
    };
    let mut kept = None;
    let started = Instant::now();
    let rounds = u64::from(args.repeat);
    let bar = progress(rounds * selected.len() as u64, "{bar:30} {pos}/{len} {elapsed} {wide_msg}");
    bar.enable_steady_tick(Duration::from_millis(100));
    let width = selected.iter().map(|case| case.name.len()).max().unwrap_or(0);
    let mut results = Results::default();
    'rounds: for round in 0..rounds {
        let seed = args.seed.wrapping_add(round);
        let how = Run { version, seed, hostile: true };
        for case in selected {
            if harness.is_cancelled() {
                break 'rounds;
            }
            bar.set_message(case.name);
            let finished = harness.run(case, how);
            if args.record.is_wanted() && kept.as_ref().is_none_or(|(failed, _)| !failed) {
                kept = latest.file().map(|file| (finished.outcome.is_failure(), file));
            }
            if harness.is_cancelled() {
                break 'rounds;
            }
            bar.inc(1);
            let entry = Entry { case, seed, outcome: finished.outcome, took: finished.took };
            results.add(entry, args, round, &bar, width);
        }
    }
    bar.finish_and_clear();
    if args.record.is_wanted() {
        let (_, file) = kept.ok_or("nothing was recorded: no case has run, or there is no memory (--record-slots)")?;
        args.record.write(&file)?;
    }
    results.took = started.elapsed();
    results.interrupted = harness.is_cancelled();
    Ok(results)
}

/// The version to open adapters with.
fn version(args: &Selftest) -> Result<NDK_VERSION, String> {
    args.machine.profile.version(args.ndkpi)
}

/// Prints the line of a case.
fn print_entry(entry: &Entry, width: usize) {
    let Entry { case, outcome, took, .. } = entry;
    let text = outcome.text();
    let time = duration(*took);
    let line = format!("{:width$}  {:<13}  {}  {time:>8}  {text}", case.name, case.section, word(outcome));
    say!("{}", line.trim_end());
}

fn summarize(args: &Selftest, results: &Results) {
    let failed: Vec<_> = results.entries.iter().filter(|entry| entry.outcome.is_failure()).collect();
    for Entry { case, seed, outcome, .. } in &failed {
        say!();
        say!("{} ({})", case.name, case.section);
        say!("  does      {}", case.does);
        say!("  expected  {}", case.expects);
        say!("  seen      {}", outcome.text());
        if args.driver {
            say!("  again     ndkctl selftest --driver --seed {seed}{}", on(args));
        } else {
            say!("  again     ndkctl selftest --filter {} --seed {seed}{}", case.name, again(args));
        }
    }
    say!();
    if results.interrupted {
        say!("interrupted");
    }
    let Tally { passed, failed, observed, skipped } = results.tally;
    let mut counts =
        table(&["cases", "passed", "failed", "observed", "skipped", "time", "seed", "completion", "NDKPI"]);
    counts.add_row([
        results.tally.total().to_string(),
        passed.to_string(),
        failed.to_string(),
        observed.to_string(),
        skipped.to_string(),
        duration(results.took),
        args.seed.to_string(),
        completion(args),
        version(args).map_or_else(|_| String::new(), |version| format!("{}.x", version.Major)),
    ]);
    (0..5).for_each(|column| align_right(&mut counts, column));
    print_table(&counts);
}

/// The flags that name the interfaces of a run again.
fn on(args: &Selftest) -> String {
    let mut flags = String::new();
    for (flag, name) in [("--interface", &args.interface), ("--peer", &args.peer)] {
        if let Some(name) = name {
            flags = format!("{flags} {flag} \"{name}\"");
        }
    }
    if args.hostile {
        flags.push_str(" --hostile");
    }
    flags
}

/// How requests complete: as the command line says, or as the driver is set.
fn completion(args: &Selftest) -> String {
    if args.driver { "driver".to_owned() } else { format!("{:?}", args.machine.completion).to_lowercase() }
}

/// The flags that repeat a run.
fn again(args: &Selftest) -> String {
    let completion = completion(args);
    let mut flags = format!(" --completion {completion}");
    if let Ok(version) = version(args) {
        flags = format!("{flags} --ndkpi {}", version.Major);
    }
    if args.machine.profile.0 != Profile::Own {
        flags = format!("{flags} --profile {}", args.machine.profile.0.name());
    }
    if args.deterministic {
        flags.push_str(" --deterministic");
    }
    if args.machine.nic == Nic::Direct {
        flags.push_str(" --nic direct");
    }
    if args.machine.locks == Locks::Plain {
        flags.push_str(" --locks plain");
    }
    if args.machine.rotate_tokens {
        flags.push_str(" --rotate-tokens");
    }
    if let Some(processors) = args.machine.processors {
        flags = format!("{flags} --processors {processors}");
    }
    flags
}

#[derive(Serialize)]
struct CaseJson<'a> {
    name: &'a str,
    section: &'a str,
    does: &'a str,
    expects: &'a str,
}

impl CaseJson<'_> {
    const fn new(case: &'static Case) -> Self {
        Self { name: case.name, section: case.section, does: case.does, expects: case.expects }
    }
}

fn list(args: &Selftest, selected: &[&'static Case]) -> Result<End, String> {
    if args.markdown {
        say!("{}", markdown::document(selected).trim_end());
    } else if args.json {
        print_json(&selected.iter().map(|case| CaseJson::new(case)).collect::<Vec<_>>())?;
    } else {
        print_cases(selected);
        say!("{} cases", selected.len());
    }
    Ok(End::Good)
}

fn print_cases(selected: &[&'static Case]) {
    if is_wide() {
        let mut table = table(&["case", "section", "does", "expects"]);
        for case in selected {
            table.add_row([case.name, case.section, case.does, case.expects]);
        }
        return print_table(&table);
    }
    for case in selected {
        say!("{} ({})", case.name, case.section);
        say!("{}", labelled(2, &[("does", case.does), ("expects", case.expects)]));
    }
}

#[derive(Serialize)]
struct EntryJson<'a> {
    #[serde(flatten)]
    case: CaseJson<'a>,
    outcome: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    text: &'a str,
    micros: u128,
    seed: u64,
}

#[derive(Serialize)]
struct ResultsJson<'a> {
    seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<&'a str>,
    completion: String,
    ndkpi: String,
    deterministic: bool,
    interrupted: bool,
    passed: u32,
    failed: u32,
    observed: u32,
    skipped: u32,
    seconds: f64,
    cases: Vec<EntryJson<'a>>,
}

impl<'a> ResultsJson<'a> {
    fn new(args: &'a Selftest, results: &'a Results) -> Self {
        let entry = |entry: &'a Entry| EntryJson {
            case: CaseJson::new(entry.case),
            outcome: entry.outcome.word(),
            text: entry.outcome.text(),
            micros: entry.took.as_micros(),
            seed: entry.seed,
        };
        let Tally { passed, failed, observed, skipped } = results.tally;
        Self {
            seed: args.seed,
            interface: args.interface.as_deref(),
            peer: args.peer.as_deref(),
            completion: completion(args),
            ndkpi: version(args).unwrap_or_default().to_string(),
            deterministic: args.deterministic,
            interrupted: results.interrupted,
            passed,
            failed,
            observed,
            skipped,
            seconds: results.took.as_secs_f64(),
            cases: results.entries.iter().map(entry).collect(),
        }
    }
}

fn write_junit(path: &Path, results: &Results) -> Result<(), String> {
    let mut report = Report::new("NDKPI conformance");
    report.set_time(results.took);
    let mut suites: Vec<TestSuite> = Vec::new();
    for entry in &results.entries {
        let theme = entry.case.theme();
        let position = suites.iter().position(|suite| suite.name.as_str() == theme).unwrap_or_else(|| {
            suites.push(TestSuite::new(theme));
            suites.len() - 1
        });
        suites[position].add_test_case(junit_case(entry));
    }
    report.add_test_suites(suites);
    let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
    report.serialize(file).map_err(|error| format!("{}: {error}", path.display()))
}

fn junit_case(entry: &Entry) -> TestCase {
    let Entry { case, outcome, took, seed } = entry;
    let status = match outcome {
        Outcome::Passed | Outcome::Observed(_) => TestCaseStatus::success(),
        Outcome::Skipped(reason) => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(reason.as_str());
            status
        }
        Outcome::Failed(seen) => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(seen.as_str()).set_description(format!(
                "{}\ndoes: {}\nexpected: {}\nseen: {seen}\nseed: {seed}",
                case.section, case.does, case.expects
            ));
            status
        }
    };
    let mut test = TestCase::new(case.name, status);
    test.set_classname(case.theme()).set_time(*took);
    if let Outcome::Observed(text) = outcome {
        test.set_system_out(text.as_str());
    }
    test
}

#[cfg(test)]
mod tests {
    use conformance::{Case, cases};

    #[test]
    fn names_are_unique_and_have_a_theme() {
        let mut names: Vec<_> = cases::all().map(|case| case.name).collect();
        assert!(names.iter().all(|name| name.split('.').count() == 2), "theme.rule");
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(cases::all().all(|case| !Case::theme(case).is_empty()));
    }
}
