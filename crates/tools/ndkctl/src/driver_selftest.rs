//! `ndkctl selftest --driver`: the cases run in the kernel, and are shown as those on the host are.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use conformance::{Case, Outcome, cases, text::Text};
use control::client::{Event, TestDriver, Transport};
use control::network::StartOn;
use control::{
    report::Line,
    test_device::{Kind, SECONDS},
};
use host::note;

use crate::{
    args::Selftest,
    driver::{follow, follow_on},
    driver_interface::not_cancelled,
    output::progress,
    selftest::{Entry, Results},
};

/// Runs the suite in the driver.
///
/// # Errors
///
/// The driver refused or is gone, did not finish the suite, or has a different suite than this program.
pub fn execute<T: Transport>(
    driver: &TestDriver<T>,
    args: &Selftest,
    interrupted: &AtomicBool,
) -> Result<Results, String> {
    let started = Instant::now();
    let mut results = Results::default();
    for round in 0..args.repeat {
        if interrupted.load(Relaxed) {
            break;
        }
        self::round(driver, args, round, interrupted, &mut results)?;
    }
    results.took = started.elapsed();
    results.interrupted = interrupted.load(Relaxed);
    Ok(results)
}

/// Runs the suite once.
fn round<T: Transport>(
    driver: &TestDriver<T>,
    args: &Selftest,
    round: u32,
    interrupted: &AtomicBool,
    results: &mut Results,
) -> Result<(), String> {
    let seed = args.seed.wrapping_add(round.into());
    let width = cases::all().map(|case| case.name.len()).max().unwrap_or(0);
    let bar = progress(0, "{bar:30} {pos}/{len} {elapsed} {wide_msg}");
    let mut unknown = None;
    let show = |event: Event<'_>| match event {
        Event::Step(line) => match entry(&line, seed) {
            Some(entry) => {
                bar.set_message(entry.case.name);
                results.add(entry, args, round.into(), &bar, width);
            }
            None => unknown = Some(line.name.to_owned()),
        },
        Event::Remark(line) if args.verbose => bar.suspend(|| note!("{line}")),
        Event::Remark(_) => {}
        Event::Progress(progress) => {
            bar.set_length(progress.total.into());
            bar.set_position(progress.done.into());
        }
    };
    let (kind, seconds) = (Kind::Conformance, *SECONDS.end());
    let last = match &args.interface {
        None => follow(driver, (kind, seconds, seed), interrupted, show)?,
        Some(interface) => {
            let how = StartOn { kind: kind as u32, seconds, seed, hostile: args.hostile.into(), ..StartOn::default() };
            let peer = args.peer.as_deref().unwrap_or_default();
            follow_on(driver, &how, (interface, peer), interrupted, show)?
        }
    };
    bar.finish_and_clear();
    if let Some(name) = unknown {
        return Err(format!(
            "the driver has run `{name}`, which this program does not know: they are of different versions"
        ));
    }
    if interrupted.load(Relaxed) {
        return Ok(());
    }
    not_cancelled(&last)?;
    if last.done < last.total {
        return Err(format!("only {} of {} cases were run in {} s", last.done, last.total, SECONDS.end()));
    }
    Ok(())
}

/// A step as a case that has run.
fn entry(line: &Line<'_>, seed: u64) -> Option<Entry> {
    let case: &'static Case = cases::all().find(|case| case.name == line.name)?;
    let text = || Text::new(format_args!("{}", line.text));
    let outcome = match line.outcome {
        "passed" => Outcome::Passed,
        "failed" => Outcome::Failed(text()),
        "skipped" => Outcome::Skipped(text()),
        "observed" => Outcome::Observed(text()),
        _ => return None,
    };
    Some(Entry { case, seed, outcome, took: Duration::from_micros(line.micros) })
}

#[cfg(test)]
mod tests {
    use std::{
        cell::{Cell, RefCell},
        sync::atomic::{AtomicBool, Ordering::Relaxed},
    };

    use clap::Parser;
    use conformance::{Outcome, Tally, cases};
    use control::client::{Answer, Refusal, TestDriver, Transport};
    use control::network::{Begun, Problem, START_ON, StartOn};
    use control::test_device::{CANCEL, From, Kind, Progress, QUERY_PROGRESS, QUERY_REPORT, START, Start, State};

    use super::execute;
    use crate::args::{Cli, Command, Selftest};

    /// A driver that has more to tell each time that it is asked how far it is.
    struct Scripted {
        report: String,
        step: usize,
        told: Cell<usize>,
        last: State,
        started: RefCell<Vec<Start>>,
        /// The interfaces that runs were to be started on, with seed and hostility.
        asked: RefCell<Vec<(String, String, u64, u32)>>,
        /// What it says to that.
        problem: Problem,
        cancelled: Cell<bool>,
        /// Set when the driver is asked how far it is, as if somebody pressed Ctrl-C then.
        interrupts: Option<&'static AtomicBool>,
    }

    impl Scripted {
        fn new(report: &str, last: State) -> Self {
            let (told, started) = (Cell::new(0), RefCell::default());
            Self {
                report: report.to_owned(),
                step: 40,
                told,
                last,
                started,
                asked: RefCell::default(),
                problem: Problem::None,
                cancelled: Cell::new(false),
                interrupts: None,
            }
        }

        fn lines(text: &str) -> u32 {
            u32::try_from(text.lines().filter(|line| line.contains('\t')).count()).expect("a short report")
        }
    }

    impl Transport for &Scripted {
        fn control(&self, code: u32, input: &[u8], output: &mut [u8]) -> Result<Answer, Refusal> {
            let (bytes, more): (Vec<u8>, bool) = match code {
                START => {
                    self.started.borrow_mut().push(Start::from_bytes(input).expect("a start"));
                    self.told.set(0);
                    (Vec::new(), false)
                }
                START_ON => {
                    let (how, interface, peer) = StartOn::parse(input).expect("a start");
                    self.asked.borrow_mut().push((interface.to_owned(), peer.to_owned(), how.seed, how.hostile));
                    self.told.set(0);
                    let peer = u32::from(self.problem == Problem::NoRoute);
                    (Begun { problem: self.problem as u32, peer, ..Begun::default() }.to_bytes().to_vec(), false)
                }
                CANCEL => {
                    self.cancelled.set(true);
                    (Vec::new(), false)
                }
                QUERY_PROGRESS => {
                    if let Some(flag) = self.interrupts {
                        flag.store(true, Relaxed);
                    }
                    self.told.set((self.told.get() + self.step).min(self.report.len()));
                    let over = self.told.get() == self.report.len() || self.cancelled.get();
                    let state = if over { self.last } else { State::Running };
                    let (done, total) =
                        (Scripted::lines(&self.report[..self.told.get()]), Scripted::lines(&self.report));
                    let kind = Kind::Conformance as u32;
                    let progress = Progress { state: state as u32, kind, done, total, ..Progress::default() };
                    (progress.to_bytes().to_vec(), false)
                }
                QUERY_REPORT => {
                    let from = From::from_bytes(input).expect("an offset").offset as usize;
                    let rest = &self.report.as_bytes()[from.min(self.told.get())..self.told.get()];
                    // A small driver: what it says arrives in small parts.
                    let part = &rest[..rest.len().min(17)];
                    (part.to_vec(), part.len() < rest.len())
                }
                _ => return Err(Refusal::NotSupported),
            };
            output[..bytes.len()].copy_from_slice(&bytes);
            Ok(Answer { length: bytes.len(), more })
        }
    }

    fn selftest(more: &[&str]) -> Selftest {
        let words = ["ndkctl", "selftest", "--driver", "--json"].iter().chain(more);
        match Cli::try_parse_from(words).expect("a command line").command {
            Command::Selftest(args) => args,
            _ => unreachable!("it says selftest"),
        }
    }

    #[test]
    fn interfaces_are_named_to_the_driver_and_its_problem_is_said() {
        let [first, ..] = names();
        let never = AtomicBool::new(false);
        let args = selftest(&["--interface", "Ethernet 3", "--peer", "192.0.2.7", "--seed", "5"]);
        let script = Scripted::new(&format!("{first}\tpassed\t7\t\n"), State::Finished);
        let results = execute(&TestDriver::new(&script), &args, &never).expect("it ran");
        assert_eq!(results.tally.passed, 1);
        let asked = script.asked.borrow().clone();
        assert_eq!(asked, [("Ethernet 3".to_owned(), "192.0.2.7".to_owned(), 5, 0)]);
        let script = Scripted { problem: Problem::NoRoute, ..Scripted::new("", State::Finished) };
        let hostile = selftest(&["--interface", "7", "--peer", "9", "--hostile"]);
        let Err(error) = execute(&TestDriver::new(&script), &hostile, &never) else { panic!("a problem") };
        assert!(error.starts_with("--peer: there is no route from `7` to `9`"), "{error}");
        assert_eq!(script.asked.borrow()[0].3, 1, "it may do what a consumer must not");
    }

    fn names() -> [&'static str; 3] {
        let mut all = cases::all().map(|case| case.name);
        [(); 3].map(|()| all.next().expect("three cases"))
    }

    #[test]
    fn steps_become_cases_with_outcomes_and_times() {
        let [first, second, third] = names();
        let report =
            format!("seed 0x5\n{first}\tpassed\t7\t\n{second}\tfailed\t1500\tseen: 2\n{third}\tskipped\t1\tno\n");
        let script = Scripted::new(&report, State::Finished);
        let never = AtomicBool::new(false);
        let results = execute(&TestDriver::new(&script), &selftest(&["--seed", "5"]), &never).expect("it ran");
        assert_eq!(results.tally, Tally { passed: 1, failed: 1, skipped: 1, observed: 0 });
        let seen: Vec<_> = results.entries.iter().map(|entry| (entry.case.name, entry.took.as_micros())).collect();
        assert_eq!(seen, [(first, 7), (second, 1500), (third, 1)]);
        assert!(matches!(&results.entries[1].outcome, Outcome::Failed(text) if text.as_str() == "seen: 2"));
        assert!(!results.interrupted);
        assert_eq!(script.started.borrow()[0].seed, 5);
    }

    #[test]
    fn every_round_has_another_seed() {
        let [first, ..] = names();
        let script = Scripted::new(&format!("{first}\tobserved\t7\tthis\n"), State::Finished);
        let never = AtomicBool::new(false);
        let args = selftest(&["--seed", "9", "--repeat", "3"]);
        let results = execute(&TestDriver::new(&script), &args, &never).expect("it ran");
        assert_eq!(results.tally.observed, 3);
        assert_eq!(script.started.borrow().iter().map(|start| start.seed).collect::<Vec<_>>(), [9, 10, 11]);
    }

    #[test]
    fn an_interruption_cancels_the_run_and_is_no_error() {
        static INTERRUPTED: AtomicBool = AtomicBool::new(false);
        let [first, second, third] = names();
        let line = |name| format!("{name}\tpassed\t7\t{}\n", "words ".repeat(20));
        let report = [first, second, third].map(line).concat();
        let script = Scripted { interrupts: Some(&INTERRUPTED), ..Scripted::new(&report, State::Cancelled) };
        let driver = TestDriver::new(&script);
        let results = execute(&driver, &selftest(&["--repeat", "5"]), &INTERRUPTED).expect("no error");
        assert!(results.interrupted && script.cancelled.get());
        assert!(results.entries.len() < 3, "it did not come to its end");
        assert_eq!(script.started.borrow().len(), 1, "no further round");
    }

    #[test]
    fn what_is_not_the_whole_suite_is_an_error() {
        let [first, ..] = names();
        let never = AtomicBool::new(false);
        for (report, last, words) in [
            (format!("{first}\tpassed\t7\t\n"), State::Cancelled, "was cancelled"),
            ("no.such-case\tpassed\t7\t\n".to_owned(), State::Finished, "different versions"),
            (format!("{first}\tabsurd\t7\t\n"), State::Finished, "different versions"),
        ] {
            let script = Scripted::new(&report, last);
            let Err(error) = execute(&TestDriver::new(&script), &selftest(&[]), &never) else { panic!("{words}") };
            assert!(error.contains(words), "{error}");
        }
    }
}
