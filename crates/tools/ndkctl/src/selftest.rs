//! `ndkctl selftest`: the conformance suite on the provider.

mod again;
mod choice;
mod driver;
mod host;
pub mod json;
pub mod junit;
mod progress;
mod results;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use ::host::{note, say};
use clap::Parser as _;
use conformance::{Case, Outcome};
use interpose::adviser::Finding;
use ndkpi::NDK_VERSION;

use self::{
    json::{AdapterJson, CaseJson, ResultsJson},
    progress::Progress,
    results::{Entry, Results},
};
use crate::{
    End,
    advise::{self, Advice},
    args::{Cli, Command, Selftest},
    driver as drivers, fault_plan, faults, markdown,
    output::{bar, duration, is_wide, labelled, print_json, print_table, table},
};

/// How a case ended.
struct Finished {
    outcome: Outcome,
    took: Duration,
}

/// Where cases run.
trait Ground {
    /// Runs a case; none if somebody wanted the run to end.
    ///
    /// # Errors
    ///
    /// One line: no further case can run.
    fn run(&mut self, case: &'static Case, seed: u64) -> Result<Option<Finished>, String>;

    /// The recording of the case that ran last.
    fn recording(&mut self) -> Option<Vec<u8>>;

    /// For each rule of what goes wrong on purpose: calls that it might have applied to, and how often it has happened.
    fn faults(&self) -> &[[u64; 2]];

    /// How often each finding of the adviser was made, without those that were not.
    ///
    /// # Errors
    ///
    /// One line: the driver does not say it.
    fn findings(&self) -> Result<Vec<(Finding, u32)>, String>;

    /// What is tested, as far as it says.
    fn adapter(&self) -> Option<AdapterJson>;
}

/// Runs the command.
///
/// # Errors
///
/// One line.
pub fn run(args: &Selftest, interrupted: &Arc<AtomicBool>) -> Result<End, String> {
    let path = args.progress.clone().unwrap_or_else(progress::default_path);
    if args.resume {
        let (mut progress, broken) = Progress::resume(&path)?;
        let done = broken.done();
        let args = resumed(args, &broken.arguments)?;
        if let (Some(case), false) = (broken.running, args.json) {
            say!(
                "{} was running when the last run ended; it counts as failed, and the run goes on behind it",
                case.name
            );
        }
        let chosen = match choice::choose(&args) {
            Ok(chosen) => chosen,
            Err(why) => return Ok(refuse(&why)),
        };
        let before = broken.entries;
        return carry_out(
            &args,
            &chosen,
            (before, &|case, seed| done.contains(&(case, seed))),
            &mut progress,
            interrupted,
        );
    }
    let chosen = match choice::choose(args) {
        Ok(chosen) => chosen,
        Err(why) => return Ok(refuse(&why)),
    };
    if args.list {
        return list(args, &chosen);
    }
    if args.faults.is_some() {
        return faults::run(args, &chosen, interrupted);
    }
    if args.driver && !cfg!(windows) {
        return Ok(refuse(drivers::ELSEWHERE));
    }
    let mut progress = if args.driver || args.progress.is_some() {
        if let Some(case) = progress::left_running(&path) {
            note!(
                "ndkctl selftest: the last run ended while {case} was running (--resume would have gone on behind it)"
            );
        }
        let arguments: Vec<_> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
        Progress::begin(&path, &arguments)?
    } else {
        Progress::none()
    };
    carry_out(args, &chosen, (Vec::new(), &|_, _| false), &mut progress, interrupted)
}

/// The arguments of a run that is gone on with: its own, and of the new ones those about its output.
fn resumed(args: &Selftest, arguments: &[String]) -> Result<Selftest, String> {
    let words = std::iter::once("ndkctl").chain(arguments.iter().map(String::as_str));
    let Ok(Cli { command: Command::Selftest(before) }) = Cli::try_parse_from(words) else {
        return Err("the progress is of a run with arguments that this program does not have".to_owned());
    };
    Ok(Selftest {
        json: args.json || before.json,
        verbose: args.verbose || before.verbose,
        junit: args.junit.clone().or(before.junit),
        ..before
    })
}

/// Results from before, and whether a case with a seed is one of them.
type Before<'a> = (Vec<Entry>, &'a dyn Fn(&'static str, u64) -> bool);

/// Runs the cases and shows what they have found.
fn carry_out(
    args: &Selftest,
    chosen: &[&'static Case],
    (before, is_done): Before<'_>,
    progress: &mut Progress,
    interrupted: &Arc<AtomicBool>,
) -> Result<End, String> {
    if args.driver && !cfg!(windows) {
        return Ok(refuse(drivers::ELSEWHERE));
    }
    let advice = if args.advise && !args.driver { Some(Advice::new(args.verbose)?) } else { None };
    let (softndk, tester);
    let mut ground: Box<dyn Ground + '_> = if args.driver {
        tester = drivers::open()?;
        softndk = provider(args)?;
        Box::new(driver::InDriver::new(&tester, softndk.as_ref(), args, interrupted))
    } else {
        Box::new(host::Host::new(args, advice.as_ref(), interrupted)?)
    };
    let mut results = execute(&mut *ground, args, chosen, (before, is_done), progress, interrupted)?;
    results.findings = ground.findings()?;
    let run = ResultsJson::new(args, ground.adapter(), &results);
    if args.json {
        print_json(&run)?;
    } else {
        summarize(args, &results);
        if args.advise {
            advise::summarize(&results.findings);
        }
        if !args.fault.is_empty() {
            fault_plan::summarize(args.seed, &args.fault, ground.faults())?;
        }
    }
    if let Some(path) = &args.junit {
        junit::write(path, &run, &results)?;
    }
    Ok(match results.tally {
        _ if results.interrupted => End::Interrupted,
        tally if tally.is_good() => End::Good,
        _ => End::Bad,
    })
}

/// The driver of the provider, if a run in the kernel is about it.
fn provider(args: &Selftest) -> Result<Option<drivers::OpenDriver>, String> {
    let softndk = drivers::Of { of: Some(drivers::ProviderName::Softndk) };
    match drivers::open_provider(softndk) {
        Ok(opened) => Ok(Some(opened)),
        Err(why) if args.record.is_wanted() || !args.fault.is_empty() || args.advise => Err(why),
        // It would only have said its version.
        Err(_) => Ok(None),
    }
}

/// One line for a wrong argument.
fn refuse(why: &str) -> End {
    note!("ndkctl selftest: {why}");
    End::Refused
}

/// Runs cases in rounds, but those that are done already.
fn execute(
    ground: &mut dyn Ground,
    args: &Selftest,
    chosen: &[&'static Case],
    (before, is_done): Before<'_>,
    progress: &mut Progress,
    interrupted: &AtomicBool,
) -> Result<Results, String> {
    let started = Instant::now();
    let mut results = Results::default();
    let rounds = u64::from(args.repeat);
    let bar = bar(rounds * chosen.len() as u64);
    let width = chosen.iter().map(|case| case.name.len()).max().unwrap_or(0);
    for entry in before {
        bar.inc(1);
        results.add(entry, args, &bar, width);
    }
    let mut kept: Option<(bool, &'static str, Vec<u8>)> = None;
    'rounds: for round in 0..rounds {
        let seed = args.seed.wrapping_add(round);
        for &case in chosen {
            if is_done(case.name, seed) {
                continue;
            }
            if interrupted.load(Relaxed) {
                break 'rounds;
            }
            bar.set_message(case.name);
            progress.begun(case, seed)?;
            let finished = match ground.run(case, seed) {
                Ok(finished) => finished,
                Err(why) => {
                    // The case is not to blame for what kept it from running.
                    progress.over(true)?;
                    return Err(why);
                }
            };
            let Some(Finished { outcome, took }) = finished else { break 'rounds };
            if args.record.is_wanted() && kept.as_ref().is_none_or(|(failed, ..)| !failed) {
                kept = ground.recording().map(|file| (outcome.is_bad(), case.name, file)).or(kept);
            }
            let entry = Entry { case, seed, outcome, took };
            progress.ended(&entry)?;
            bar.inc(1);
            results.add(entry, args, &bar, width);
        }
    }
    bar.finish_and_clear();
    results.interrupted = interrupted.load(Relaxed);
    progress.over(results.interrupted)?;
    if args.record.is_wanted() {
        let (_, case, file) =
            kept.ok_or("nothing was recorded: no case has run, or there is no memory (--record-slots)")?;
        args.record.write(&file)?;
        results.recorded = Some(case);
    }
    results.took = started.elapsed();
    Ok(results)
}

/// The version to open adapters with.
fn version(args: &Selftest) -> Result<NDK_VERSION, String> {
    args.machine.profile.version(args.ndkpi)
}

/// How requests complete: as the command line says, or as the driver is set.
fn completion(args: &Selftest) -> String {
    if args.driver { "driver".to_owned() } else { format!("{:?}", args.machine.completion).to_lowercase() }
}

fn summarize(args: &Selftest, results: &Results) {
    for Entry { case, seed, outcome, .. } in results.entries.iter().filter(|entry| entry.outcome.is_bad()) {
        say!();
        say!("{} ({}) {}", case.name, case.section, outcome.word());
        say!("  does      {}", case.does);
        say!("  expected  {}", case.expects);
        say!("  seen      {}", outcome.text());
        say!("  again     {}", again::again(args, case, *seed));
    }
    say!();
    if results.interrupted {
        say!("interrupted");
    }
    say!("{} cases in {}: {}", results.tally.total(), duration(results.took), results.tally);
    let version = version(args).map_or_else(|_| String::new(), |version| format!(", NDKPI {}.x", version.Major));
    say!("seed {}, completion {}{version}", args.seed, completion(args));
}

fn list(args: &Selftest, chosen: &[&'static Case]) -> Result<End, String> {
    if args.markdown {
        say!("{}", markdown::document(chosen).trim_end());
    } else if args.json {
        print_json(&chosen.iter().map(|case| CaseJson::new(case)).collect::<Vec<_>>())?;
    } else {
        print_cases(chosen);
        say!("{} cases", chosen.len());
    }
    Ok(End::Good)
}

fn print_cases(chosen: &[&'static Case]) {
    if is_wide() {
        let mut table = table(&["case", "section", "does", "expects"]);
        for case in chosen {
            table.add_row([case.name, case.section, case.does, case.expects]);
        }
        return print_table(&table);
    }
    for case in chosen {
        say!("{} ({})", case.name, case.section);
        say!("{}", labelled(2, &[("does", case.does), ("expects", case.expects)]));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use conformance::{Case, cases};

    use crate::args::{Cli, Command, Selftest};

    /// The arguments of `ndkctl selftest`.
    pub fn selftest(words: &[&str]) -> Selftest {
        let line = ["ndkctl", "selftest"].iter().chain(words);
        match Cli::try_parse_from(line).expect("a command line").command {
            Command::Selftest(args) => args,
            other => panic!("{other:?}"),
        }
    }

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

    #[test]
    fn a_run_that_is_gone_on_with_keeps_its_arguments() {
        let arguments = ["selftest", "--filter", "arm", "--seed", "7", "--junit", "a.xml"].map(str::to_owned);
        let args = super::resumed(&selftest(&["--resume", "--json"]), &arguments).expect("a run");
        assert_eq!((args.filter.as_deref(), args.seed, args.json), (Some("arm"), 7, true));
        assert_eq!(args.junit.as_deref(), Some(std::path::Path::new("a.xml")));
        let args = super::resumed(&selftest(&["--resume", "--junit", "b.xml"]), &arguments).expect("a run");
        assert_eq!(args.junit.as_deref(), Some(std::path::Path::new("b.xml")));
        assert!(super::resumed(&args, &["ping".to_owned()]).is_err_and(|error| error.contains("arguments")));
    }
}
