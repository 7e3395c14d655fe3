//! `ndkctl selftest --driver`: cases in the kernel, each a run of the driver, so that it is known which one is running.

use std::{
    cell::Cell,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use conformance::{Case, Outcome};
use control::{
    case::{Names, StartCase},
    client::{DeviceControl, Event, NetworkInterface, Refusal, TestDriver},
    provider_device::Recording,
    report::Line,
    test_device::SECONDS,
};
use host::note;
use interpose::{adviser::Finding, faults::Plan};

use super::{Finished, Ground, json::AdapterJson};
use crate::{
    adapters::technology,
    args::Selftest,
    driver::{OpenDriver, begun, refused},
    driver_interface::not_cancelled,
    driver_record, fault_plan,
};

/// The longest time between two queries of a run.
const PAUSE: Duration = Duration::from_millis(100);

/// The number of the registry's `Advise` with which findings are reported and nothing is stopped.
const LOG: u32 = 1;

/// The driver `ndktest`, and that of the provider where it has something to do.
pub struct InDriver<'a, T, P: DeviceControl> {
    driver: &'a TestDriver<T>,
    provider: Option<&'a OpenDriver<P>>,
    args: &'a Selftest,
    interrupted: &'a AtomicBool,
    faults: Vec<[u64; 2]>,
    /// What the provider's adviser did before the run, and how often each finding had been made.
    advice_before: Option<(u32, Vec<u32>)>,
}

impl<'a, T: DeviceControl, P: DeviceControl> InDriver<'a, T, P> {
    /// `provider` records, and lets things go wrong.
    pub fn new(
        driver: &'a TestDriver<T>,
        provider: Option<&'a OpenDriver<P>>,
        args: &'a Selftest,
        interrupted: &'a AtomicBool,
    ) -> Self {
        Self { driver, provider, args, interrupted, faults: vec![[0; 2]; args.fault.len()], advice_before: None }
    }

    /// Puts the adviser in front of the adapters of the provider, until this run is over.
    fn advise(&mut self) -> Result<(), String> {
        let Some(opened) = self.provider.filter(|_| self.args.advise && self.advice_before.is_none()) else {
            return Ok(());
        };
        let refused = |refusal| too_old(opened, refusal);
        self.advice_before = Some(opened.driver.advice().map_err(refused)?);
        opened.driver.set_adviser(LOG).map_err(refused)
    }

    /// Prepares the provider's driver for a case: its counters begin anew.
    fn prepare(&mut self, seed: u64) -> Result<(), String> {
        self.advise()?;
        let Some(opened) = self.provider else { return Ok(()) };
        let (driver, refused) = (&opened.driver, |refusal| opened.refused(refusal));
        if !self.args.fault.is_empty() {
            driver.set_fault_plan(&fault_plan::plan(seed, &self.args.fault)?.to_bytes()).map_err(refused)?;
        }
        if self.args.record.is_wanted() {
            let record = &self.args.record;
            driver.record(&Recording { slots: record.slots, keep: record.last.into() }).map_err(refused)?;
        }
        Ok(())
    }

    /// Ends what was prepared for a case.
    fn tidy(&mut self) -> Result<(), String> {
        let Some(opened) = self.provider else { return Ok(()) };
        let (driver, refused) = (&opened.driver, |refusal| opened.refused(refusal));
        if self.args.record.is_wanted() {
            driver.record(&Recording { slots: 0, keep: 0 }).map_err(refused)?;
        }
        if !self.args.fault.is_empty() {
            let (_, counts) = driver.fault_plan().map_err(refused)?;
            for ([calls, made], [more_calls, more_made]) in self.faults.iter_mut().zip(counts) {
                *calls += more_calls;
                *made += more_made;
            }
            driver.set_fault_plan(&Plan::new(0).to_bytes()).map_err(refused)?;
        }
        Ok(())
    }

    fn follow(&self, case: &'static Case, seed: u64) -> Result<Option<Finished>, String> {
        let (interface, peer) = (self.interface(), self.args.peer.as_deref().unwrap_or_default());
        let how = StartCase {
            seed,
            seconds: *SECONDS.end(),
            hostile: self.args.hostile.into(),
            major: self.args.ndkpi.map_or(0, |major| major.version().Major.into()),
            ..StartCase::default()
        };
        let answer = self.driver.start_case(&how, Names { case: case.name, interface, peer }).map_err(older)?;
        begun(self.driver, &answer, interface, peer)?;
        let mut finished = None;
        let show = |event: Event<'_>| match event {
            Event::Step(line) => finished = self::finished(&line),
            Event::Remark(line) if self.args.verbose => note!("{line}"),
            Event::Remark(_) | Event::Progress(_) => {}
        };
        // Most cases take a few milliseconds.
        let pause = Cell::new(Duration::from_millis(1));
        let wait = || {
            thread::sleep(pause.get());
            pause.set((pause.get() * 2).min(PAUSE));
        };
        let last = self.driver.watch(wait, || self.interrupted.load(Relaxed), show);
        let last = last.map_err(|refusal| refused(&refusal))?;
        if self.interrupted.load(Relaxed) {
            return Ok(None);
        }
        not_cancelled(&last)?;
        let none =
            || format!("`{}` has no result: the driver ndktest and this program are of different versions", case.name);
        finished.map(Some).ok_or_else(none)
    }

    fn interface(&self) -> &'a str {
        self.args.interface.as_deref().unwrap_or_default()
    }

    /// The interface of the run as the driver lists it.
    fn listed(&self) -> Option<NetworkInterface> {
        let name = self.interface();
        let mut all = self.driver.interfaces().ok()?.into_iter();
        all.find(|one| {
            one.alias.eq_ignore_ascii_case(name)
                || one.facts.index.to_string() == name
                || one.addresses.iter().any(|address| address.to_string() == name)
        })
    }
}

impl<T: DeviceControl, P: DeviceControl> Ground for InDriver<'_, T, P> {
    fn run(&mut self, case: &'static Case, seed: u64) -> Result<Option<Finished>, String> {
        self.prepare(seed)?;
        let finished = self.follow(case, seed);
        // Also after a case that has not run: nothing goes wrong on purpose afterwards.
        let tidied = self.tidy();
        finished.and_then(|finished| tidied.map(|()| finished))
    }

    fn recording(&mut self) -> Option<Vec<u8>> {
        driver_record::taken(self.provider?).ok().map(|(file, _)| file)
    }

    fn faults(&self) -> &[[u64; 2]] {
        &self.faults
    }

    fn findings(&self) -> Result<Vec<(Finding, u32)>, String> {
        let Some((opened, (_, before))) = self.provider.zip(self.advice_before.as_ref()) else { return Ok(Vec::new()) };
        let (_, now) = opened.driver.advice().map_err(|refusal| too_old(opened, refusal))?;
        let made = (1..).zip(now.iter().zip(before.iter().chain(std::iter::repeat(&0))));
        // One that this program does not know belongs to a later driver: it is left out.
        let known =
            made.filter_map(|(number, (now, before))| Some((Finding::from_number(number)?, now.wrapping_sub(*before))));
        Ok(known.filter(|(_, times)| *times > 0).collect())
    }

    fn adapter(&self) -> Option<AdapterJson> {
        if self.args.interface.is_some() {
            let NetworkInterface { facts, alias, description, .. } = self.listed()?;
            return Some(AdapterJson {
                name: format!("{alias} ({description})"),
                driver: None,
                ndkpi: format!("{}.{}", facts.major, facts.minor),
                vendor: Some(facts.vendor),
                technology: Some(technology(facts.technology)),
            });
        }
        let opened = self.provider?;
        let info = opened.driver.info().ok()?;
        let part = |shift: u32| info.driver_version >> shift & 0x3FF;
        Some(AdapterJson {
            name: "SoftNDK in the kernel".to_owned(),
            driver: Some(format!("{} {}.{}.{}", opened.name.name(), part(20), part(10), part(0))),
            ndkpi: format!("{}.{}", info.ndk_version >> 16, info.ndk_version & 0xFFFF),
            vendor: None,
            technology: None,
        })
    }
}

impl<T, P: DeviceControl> Drop for InDriver<'_, T, P> {
    fn drop(&mut self) {
        if let Some((opened, (before, _))) = self.provider.zip(self.advice_before.as_ref()) {
            // A driver that has gone has no adviser either.
            let _ = opened.driver.set_adviser(*before);
        }
    }
}

/// A refusal by the provider's driver in words, where it may be older than its adviser's control codes.
fn too_old<P>(opened: &OpenDriver<P>, refusal: Refusal) -> String {
    match refusal {
        Refusal::NotSupported => format!(
            "the driver {} does not let programs set its adviser: install the one of this version (ndkctl driver install)",
            opened.name.name()
        ),
        refusal => opened.refused(refusal),
    }
}

/// A refusal in words. A driver that does not know single cases is older than this program.
fn older(refusal: Refusal) -> String {
    match refusal {
        Refusal::NotSupported => {
            "the driver ndktest runs no single cases: install the one of this version (ndkctl driver install)"
                .to_owned()
        }
        refusal => refused(&refusal),
    }
}

/// How a case ended, from the driver's report.
fn finished(line: &Line<'_>) -> Option<Finished> {
    Some(Finished { outcome: Outcome::from_word(line.outcome, line.text)?, took: Duration::from_micros(line.micros) })
}

#[cfg(test)]
mod tests {
    use std::{
        cell::{Cell, RefCell},
        sync::atomic::{AtomicBool, Ordering::Relaxed},
    };

    use conformance::{Outcome, Tally, cases};
    use control::{
        case::{START_CASE, StartCase},
        client::{Answer, DeviceControl, ProviderDriver, Refusal, TestDriver},
        network::{Begun, Problem},
        provider_device::{
            Advice, Adviser, FAULT_PLAN_ANSWER_BYTES, QUERY_ADVICE, QUERY_FAULT_PLAN, SET_ADVISER, SET_FAULT_PLAN,
            SET_RECORDING,
        },
        test_device::{CANCEL, From, Kind, Progress, QUERY_PROGRESS, QUERY_REPORT, State},
    };

    use interpose::adviser::Finding;

    use super::InDriver;
    use crate::{
        driver::{OpenDriver, ProviderName},
        selftest::{Results, execute, progress, tests::selftest},
    };

    /// What a driver was asked to run: case, interface, peer, seed, hostile, major version.
    type Asked = (String, String, String, u64, u32, u32);

    /// A driver that has more to tell each time that it is asked how far it is.
    struct Scripted {
        /// What it says of the case: all that is behind its name.
        says: fn(&str) -> String,
        report: RefCell<String>,
        told: Cell<usize>,
        last: State,
        asked: RefCell<Vec<Asked>>,
        /// What it says to that.
        answer: Result<Problem, Refusal>,
        cancelled: Cell<bool>,
        /// Set when the driver is asked how far it is for the n-th time, as if somebody pressed Ctrl-C then.
        interrupts: Option<(&'static AtomicBool, Cell<u32>)>,
    }

    impl Scripted {
        fn new(says: fn(&str) -> String) -> Self {
            Self {
                says,
                report: RefCell::default(),
                told: Cell::new(0),
                last: State::Finished,
                asked: RefCell::default(),
                answer: Ok(Problem::None),
                cancelled: Cell::new(false),
                interrupts: None,
            }
        }
    }

    impl DeviceControl for &Scripted {
        fn control(&self, code: u32, input: &[u8], output: &mut [u8]) -> Result<Answer, Refusal> {
            let (bytes, more): (Vec<u8>, bool) = match code {
                START_CASE => {
                    let (how, names) = StartCase::parse(input).expect("a start");
                    let asked = (names.case.to_owned(), names.interface.to_owned(), names.peer.to_owned());
                    self.asked.borrow_mut().push((asked.0, asked.1, asked.2, how.seed, how.hostile, how.major));
                    self.told.set(0);
                    *self.report.borrow_mut() = format!("seed 0x5\n{}\t{}\n", names.case, (self.says)(names.case));
                    let problem = self.answer?;
                    let peer = u32::from(problem == Problem::NoRoute);
                    (Begun { problem: problem as u32, peer, ..Begun::default() }.to_bytes().to_vec(), false)
                }
                CANCEL => {
                    self.cancelled.set(true);
                    (Vec::new(), false)
                }
                QUERY_PROGRESS => {
                    if let Some((flag, times)) = &self.interrupts {
                        times.set(times.get().saturating_sub(1));
                        flag.fetch_or(times.get() == 0, Relaxed);
                    }
                    let length = self.report.borrow().len();
                    self.told.set((self.told.get() + 40).min(length));
                    let over = self.told.get() == length || self.cancelled.get();
                    let state = if over { self.last } else { State::Running };
                    let kind = Kind::Conformance as u32;
                    (Progress { state: state as u32, kind, ..Progress::default() }.to_bytes().to_vec(), false)
                }
                QUERY_REPORT => {
                    let from = From::from_bytes(input).expect("an offset").offset as usize;
                    let report = self.report.borrow();
                    let rest = &report.as_bytes()[from.min(self.told.get())..self.told.get()];
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

    /// A provider's driver that only notes what it is asked for.
    #[derive(Default)]
    struct Noting(RefCell<Vec<u32>>);

    impl DeviceControl for Noting {
        fn control(&self, code: u32, _: &[u8], output: &mut [u8]) -> Result<Answer, Refusal> {
            self.0.borrow_mut().push(code);
            if code == QUERY_FAULT_PLAN {
                // Of the first rule: six calls, two faults.
                output[FAULT_PLAN_ANSWER_BYTES - 128] = 6;
                output[FAULT_PLAN_ANSWER_BYTES - 120] = 2;
                return Ok(Answer { length: FAULT_PLAN_ANSWER_BYTES, more: false });
            }
            Ok(Answer { length: 0, more: false })
        }
    }

    fn run(script: &Scripted, words: &[&str], interrupted: &AtomicBool) -> Result<Results, String> {
        let args = selftest(&[&["--driver", "--json", "--filter", &three().join(",")], words].concat());
        let driver = TestDriver::new(script);
        let mut ground = InDriver::<_, Noting>::new(&driver, None, &args, interrupted);
        let chosen = super::super::choice::choose(&args)?;
        execute(&mut ground, &args, &chosen, (Vec::new(), &|_, _| false), &mut progress::Progress::none(), interrupted)
    }

    /// The names of the first three cases.
    fn three() -> [&'static str; 3] {
        let mut all = cases::all().map(|case| case.name);
        [(); 3].map(|()| all.next().expect("three cases"))
    }

    fn good(_: &str) -> String {
        "passed\t7\t".to_owned()
    }

    static NEVER: AtomicBool = AtomicBool::new(false);

    #[test]
    fn each_case_is_a_run_of_the_driver_with_an_outcome_and_a_time() {
        let script = Scripted::new(|case| match three().iter().position(|name| *name == case) {
            Some(0) => "passed\t7\t".to_owned(),
            Some(1) => "failed\t1500\tseen: 2".to_owned(),
            _ => "inconclusive\t1\tno".to_owned(),
        });
        let results = run(&script, &["--seed", "5"], &NEVER).expect("it ran");
        assert_eq!(results.tally, Tally { passed: 1, failed: 1, inconclusive: 1, ..Tally::default() });
        let seen: Vec<_> = results.entries.iter().map(|entry| (entry.case.name, entry.took.as_micros())).collect();
        let [first, second, third] = three();
        assert_eq!(seen, [(first, 7), (second, 1500), (third, 1)]);
        assert!(matches!(&results.entries[1].outcome, Outcome::Failed(text) if text.as_str() == "seen: 2"));
        let asked: Vec<_> = script.asked.borrow().iter().map(|asked| (asked.0.clone(), asked.3)).collect();
        assert_eq!(asked, [(first.to_owned(), 5), (second.to_owned(), 5), (third.to_owned(), 5)]);
    }

    #[test]
    fn interfaces_and_versions_are_named_to_the_driver_and_its_problem_is_said() {
        let script = Scripted::new(good);
        let words = ["--interface", "Ethernet 3", "--peer", "192.0.2.7", "--seed", "5", "--ndkpi", "1"];
        run(&script, &words, &NEVER).expect("it ran");
        let first = script.asked.borrow()[0].clone();
        let expected = (three()[0].to_owned(), "Ethernet 3".to_owned(), "192.0.2.7".to_owned(), 5, 0, 1);
        assert_eq!(first, expected);
        let script = Scripted { answer: Ok(Problem::NoRoute), ..Scripted::new(good) };
        let error = run(&script, &["--interface", "7", "--peer", "9", "--hostile"], &NEVER).err().expect("a problem");
        assert!(error.starts_with("--peer: there is no route from `7` to `9`"), "{error}");
        assert_eq!(script.asked.borrow()[0].4, 1, "it may do what a consumer must not");
    }

    #[test]
    fn every_round_has_another_seed() {
        let script = Scripted::new(|_| "observed\t7\tthis".to_owned());
        let results = run(&script, &["--seed", "9", "--repeat", "3"], &NEVER).expect("it ran");
        assert_eq!(results.tally.observed, 9);
        let seeds: Vec<_> = script.asked.borrow().iter().map(|asked| asked.3).collect();
        assert_eq!(seeds, [9, 9, 9, 10, 10, 10, 11, 11, 11]);
    }

    #[test]
    fn an_interruption_cancels_the_run_and_is_no_error() {
        static INTERRUPTED: AtomicBool = AtomicBool::new(false);
        let long = |_: &str| format!("passed\t7\t{}", "words ".repeat(20));
        let script = Scripted { interrupts: Some((&INTERRUPTED, Cell::new(7))), ..Scripted::new(long) };
        let results = run(&script, &["--repeat", "5"], &INTERRUPTED).expect("no error");
        assert!(results.interrupted && script.cancelled.get());
        assert!(results.entries.len() < 3, "it did not come to its end");
        assert!(script.asked.borrow().len() <= 3, "no further case");
    }

    #[test]
    fn a_case_without_a_result_is_an_error() {
        for (says, last, answer, words) in [
            (good as fn(&str) -> String, State::Cancelled, Ok(Problem::None), "was cancelled"),
            (|_| "absurd\t7\t".to_owned(), State::Finished, Ok(Problem::None), "different versions"),
            (good, State::Finished, Ok(Problem::UnknownCase), "ndkctl driver install"),
            (good, State::Finished, Err(Refusal::NotSupported), "ndkctl driver install"),
            (good, State::Finished, Err(Refusal::Busy), "a run is going on"),
        ] {
            let script = Scripted { last, answer, ..Scripted::new(says) };
            let error = run(&script, &[], &NEVER).err().expect(words);
            assert!(error.contains(words) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn faults_and_recordings_begin_anew_with_each_case() {
        let script = Scripted::new(good);
        let opened = OpenDriver { driver: ProviderDriver::new(Noting::default()), name: ProviderName::Softndk };
        let asked = |words: &[&str]| {
            let args = selftest(&[&["--driver", "--json", "--filter", &three().join(",")], words].concat());
            let driver = TestDriver::new(&script);
            let mut ground = InDriver::new(&driver, Some(&opened), &args, &NEVER);
            let chosen = super::super::choice::choose(&args).expect("cases");
            let ran = execute(
                &mut ground,
                &args,
                &chosen,
                (Vec::new(), &|_, _| false),
                &mut progress::Progress::none(),
                &NEVER,
            );
            (ran.is_ok(), super::Ground::faults(&ground).to_vec(), opened.driver.transport().0.take())
        };
        let (ran, faults, codes) = asked(&["--fault", "early,every=2"]);
        let each = [SET_FAULT_PLAN, QUERY_FAULT_PLAN, SET_FAULT_PLAN];
        assert_eq!((ran, faults, codes), (true, vec![[18, 6]], each.repeat(3)), "and off at the end");
        let (_, _, codes) = asked(&["--record", "/dev/null"]);
        assert_eq!(codes.iter().filter(|code| **code == SET_RECORDING).count(), 6);
    }

    /// A provider's driver with an adviser that counts, and finds `SN0003` twice in each case.
    #[derive(Default)]
    struct Advising {
        modes: RefCell<Vec<u32>>,
        asked: Cell<u32>,
        is_old: bool,
    }

    impl DeviceControl for Advising {
        fn control(&self, code: u32, input: &[u8], output: &mut [u8]) -> Result<Answer, Refusal> {
            match code {
                _ if self.is_old => Err(Refusal::NotSupported),
                SET_ADVISER => {
                    self.modes.borrow_mut().push(Adviser::from_bytes(input).expect("a mode").mode);
                    Ok(Answer { length: 0, more: false })
                }
                QUERY_ADVICE => {
                    self.asked.set(self.asked.get() + 1);
                    let counts = [7, 0, 5 + 2 * (self.asked.get() - 1), 0];
                    let head = Advice { mode: 2, count: 4 }.to_bytes();
                    let answer = head.into_iter().chain(counts.into_iter().flat_map(u32::to_le_bytes));
                    let length = output.iter_mut().zip(answer).map(|(place, byte)| *place = byte).count();
                    Ok(Answer { length, more: false })
                }
                other => panic!("{other:#x}"),
            }
        }
    }

    #[test]
    fn the_adviser_is_put_in_front_and_back_as_it_was() {
        let script = Scripted::new(good);
        let words = ["--driver", "--json", "--advise", "--filter", &three().join(",")];
        let args = selftest(&words);
        let run = |opened: &OpenDriver<Advising>| {
            let driver = TestDriver::new(&script);
            let mut ground = InDriver::new(&driver, Some(opened), &args, &NEVER);
            let chosen = super::super::choice::choose(&args).expect("cases");
            let mut progress = progress::Progress::none();
            execute(&mut ground, &args, &chosen, (Vec::new(), &|_, _| false), &mut progress, &NEVER)
                .and_then(|_| super::Ground::findings(&ground))
        };
        let opened = |is_old| OpenDriver {
            driver: ProviderDriver::new(Advising { is_old, ..Advising::default() }),
            name: ProviderName::Softndk,
        };
        let new = opened(false);
        let findings = run(&new).expect("it ran");
        assert_eq!(findings, [(Finding::NotDrained, 2)], "what was there before does not count");
        assert_eq!(new.driver.transport().modes.take(), [1, 2], "log, and what it was");
        let refused = run(&opened(true)).expect_err("a driver that is too old");
        assert!(refused.contains("install the one of this version") && !refused.contains('\n'), "{refused}");
    }
}
