//! A program that starts, watches and cancels runs.

use control::client::{Event, ProviderDriver, Refusal, TestDriver};
use control::{
    provider_device::{NicMode, Settings},
    test_device::{Kind, Progress, Start, State},
};
use simulated_kernel::Kernel;
use testing::alone::in_a_process_of_its_own;

use crate::world::{Consumer, Provider, consumer_control, provider_control};

pub use crate::transport::ToKernel;

/// What a run has shown.
#[derive(Default)]
struct Seen {
    steps: Vec<(String, String, String)>,
    remarks: Vec<String>,
    progress: Vec<Progress>,
}

impl Seen {
    fn note(&mut self, event: Event<'_>) {
        match event {
            Event::Step(line) => {
                self.steps.push((line.name.to_owned(), line.outcome.to_owned(), line.text.to_owned()));
            }
            Event::Remark(line) => self.remarks.push(line.to_owned()),
            Event::Progress(progress) => self.progress.push(progress),
        }
    }
}

fn with_drivers(kernel: &Kernel, work: impl FnOnce(&TestDriver<ToKernel>)) {
    with_engine(kernel, NicMode::Deferred, work);
}

fn with_engine(kernel: &Kernel, nic: NicMode, work: impl FnOnce(&TestDriver<ToKernel>)) {
    let provider = Provider::load_in(kernel, nic).expect("the provider loads");
    let consumer = Consumer::load(kernel).expect("the consumer loads");
    let driver = TestDriver::new(ToKernel(consumer_control(kernel)));
    work(&driver);
    drop(driver);
    consumer.unload();
    provider.unload();
}

fn start(kind: Kind, seconds: u32) -> Start {
    Start { kind: kind as u32, seconds, seed: 7 }
}

/// What it costs, for each kind of spin lock.
fn a_report_of_locks(text: &str, threads: u32) {
    let parts = text.split("; ").collect::<Vec<_>>();
    let [front, queued, framework, plain] = parts[..] else { panic!("four parts: {text}") };
    assert!(front.ends_with(&format!(" pairs, threads: {threads}")), "{text}");
    for (part, name) in [(queued, "queued"), (framework, "WDF"), (plain, "plain")] {
        let words = part.split(' ').collect::<Vec<_>>();
        assert_eq!((words[0], words[2]), (name, "ns"), "{text}");
        assert!(words[1].parse::<f64>().is_ok_and(|cost| cost > 0.0), "{text}");
        if threads > 1 {
            assert!(words[5].parse::<f64>().is_ok_and(|in_a_row| in_a_row >= 1.0), "{text}");
        }
    }
    assert!(framework.ends_with(" of queued") && plain.ends_with(" of queued"), "{text}");
}

#[test]
fn a_program_reads_and_changes_the_settings() {
    let kernel = Kernel::threads().start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    let driver = ProviderDriver::new(ToKernel(provider_control(&kernel)));
    let before = driver.settings().expect("settings");
    assert_eq!(before, Settings { completion_mode: 3, moderation_granularity: 1000, nic_mode: 0 });
    assert_eq!(driver.set(&Settings { nic_mode: 2, ..before }), Err(Refusal::Invalid));
    assert_eq!(driver.settings(), Ok(before));
    let wanted = Settings { nic_mode: NicMode::Direct as u32, ..before };
    assert_eq!(driver.set(&wanted), Ok(()));
    assert_eq!(driver.settings(), Ok(wanted));
    drop(driver);
    provider.unload();
}

#[test]
fn a_performance_run_measures_each_thing_for_its_share_of_the_time() {
    let (deferred, direct) = (NicMode::Deferred, NicMode::Direct);
    for (kernel, processors, nic) in [
        (Kernel::threads(), 4, deferred),
        (Kernel::threads(), 1, deferred),
        (Kernel::threads(), 4, direct),
        // A second of simulated time is long: one seeded run, with the engine of the drivers.
        (Kernel::seeded(3), 4, deferred),
    ] {
        let kernel = kernel.processors(processors).start();
        with_engine(&kernel, nic, |driver| {
            driver.start(&start(Kind::Performance, 1)).expect("it starts");
            let mut seen = Seen::default();
            let last =
                driver.watch(|| kernel.sleep(10_000), || false, |event| seen.note(event)).expect("it can be watched");
            assert_eq!((last.state, last.kind), (State::Finished as u32, Kind::Performance as u32));
            assert_eq!((last.done, last.total, last.passed, last.failed), (6, 6, 6, 0), "{:?}", seen.steps);
            let names = seen.steps.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>();
            let through = ["round-trip.polled", "round-trip.notified", "rate.sends", "bandwidth.writes"];
            assert_eq!(names, [through.as_slice(), &["lock.alone", "lock.contended"]].concat());
            for (name, outcome, text) in &seen.steps {
                if name == "lock.contended" && processors == 1 {
                    assert_eq!((outcome.as_str(), text.as_str()), ("skipped", "there is one processor"));
                    continue;
                }
                assert_eq!(outcome, "measured", "{name}: {text}");
                let count: u64 = text.split(' ').next().and_then(|word| word.parse().ok()).expect("a number in front");
                assert!(count > 0, "{name}: {text}");
                match name.as_str() {
                    "lock.alone" => a_report_of_locks(text, 1),
                    "lock.contended" => a_report_of_locks(text, 4),
                    _ => {}
                }
            }
        });
    }
}

#[test]
fn the_suite_is_shown_step_by_step_and_as_the_progress_counts() {
    in_a_process_of_its_own("client::the_suite_is_shown_step_by_step_and_as_the_progress_counts", || {
        let kernel = Kernel::threads().start();
        with_drivers(&kernel, |driver| {
            driver.start(&start(Kind::Conformance, 600)).expect("it starts");
            assert_eq!(driver.start(&start(Kind::Conformance, 600)), Err(Refusal::Busy));
            let mut seen = Seen::default();
            let last =
                driver.watch(|| kernel.sleep(10_000), || false, |event| seen.note(event)).expect("it can be watched");
            assert_eq!(last.state, State::Finished as u32);
            assert_eq!(seen.remarks.first().map(String::as_str), Some("seed 0x7"));
            assert_eq!(seen.steps.len(), last.done as usize, "every step has a line");
            let names = seen.steps.iter().map(|(name, ..)| name.as_str());
            assert!(names.eq(conformance::cases::all().map(|case| case.name)), "in the order of the suite");
            let words = ["passed", "failed", "observed", "skipped"];
            assert!(seen.steps.iter().all(|(_, outcome, _)| words.contains(&outcome.as_str())));
            assert!(seen.progress.is_sorted_by_key(|progress| progress.done));
            // Somebody who comes later can read it again.
            let mut again = Seen::default();
            driver.watch(|| (), || false, |event| again.note(event)).expect("it can be watched");
            assert_eq!(again.steps, seen.steps);
        });
    });
}

#[test]
fn a_run_is_cancelled_when_the_program_wants_it() {
    for kind in [Kind::Stress, Kind::Performance] {
        let kernel = Kernel::threads().start();
        with_drivers(&kernel, |driver| {
            driver.start(&start(kind, 3600)).expect("it starts");
            let mut looks = 0;
            let last = driver.watch(|| kernel.sleep(5_000), || true, |_| looks += 1).expect("it can be watched");
            assert_eq!(last.state, State::Cancelled as u32);
            assert!(looks > 0);
            // The next one can be started at once.
            driver.start(&start(Kind::Performance, 3600)).expect("it starts");
            assert_eq!(driver.cancel(), Ok(()));
        });
    }
}

#[test]
fn values_out_of_range_and_a_missing_provider_are_refused() {
    let kernel = Kernel::threads().start();
    with_drivers(&kernel, |driver| {
        assert_eq!(driver.start(&start(Kind::Stress, 0)), Err(Refusal::Invalid));
        assert_eq!(driver.start(&start(Kind::Stress, 3601)), Err(Refusal::Invalid));
        assert_eq!(driver.start(&start(Kind::Agent, 1)), Err(Refusal::Invalid), "an agent is for an interface");
        assert_eq!(driver.start(&Start { kind: 4, seconds: 1, seed: 0 }), Err(Refusal::Invalid));
        assert_eq!(driver.cancel(), Ok(()), "there is none");
        assert_eq!(driver.progress().map(|progress| progress.state), Ok(State::Idle as u32));
    });
    let consumer = Consumer::load(&kernel).expect("the consumer loads");
    let driver = TestDriver::new(ToKernel(consumer_control(&kernel)));
    assert_eq!(driver.start(&start(Kind::Stress, 1)), Err(Refusal::NotReady));
    drop(driver);
    consumer.unload();
}
