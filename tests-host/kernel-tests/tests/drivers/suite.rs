//! The conformance suite, from one driver through the other.

use control::{
    provider_device::{NicMode, QUERY_SETTINGS, SET_SETTINGS, Settings},
    report::Line,
    test_device::{Kind, Progress, State},
};
use simulated_kernel::{Kernel, Value};
use testing::{
    alone::{in_a_process_of_its_own, in_processes_of_their_own},
    decisions::DECISIONS,
};

use crate::world::{Consumer, Provider, consumer_control, finish, provider_control, report, start};

/// The drivers' code answers as the host's does.
fn open_points_are_as_decided(report: &str) {
    let lines: Vec<_> = report.lines().filter_map(Line::parse).collect();
    for (name, decision) in DECISIONS {
        let line = lines.iter().find(|line| line.name == *name).unwrap_or_else(|| panic!("{name} was not run"));
        if line.outcome != "skipped" {
            assert_eq!((line.outcome, line.text), ("observed", *decision), "{name}");
        }
    }
}

/// Runs the suite with so many adapters. What the run was, and the cases that were skipped.
fn conformance_with(kernel: &Kernel, seed: u64, adapters: usize) -> ((u64, u64), Vec<String>) {
    let (calls, skipped, _) = run(kernel, seed, adapters, Provider::load(kernel).expect("the provider loads"));
    (calls, skipped)
}

/// [`conformance_with`] on a provider that is loaded. Also how far the run has come.
fn run(kernel: &Kernel, seed: u64, adapters: usize, provider: Provider) -> ((u64, u64), Vec<String>, Progress) {
    let others: Vec<_> = (1..adapters).map(|_| provider.driver.add_device().expect("one more adapter")).collect();
    let consumer = Consumer::load(kernel).expect("the consumer loads");
    let file = consumer_control(kernel);
    let begun = start(&file, Kind::Conformance, seed);
    assert!(begun.is_success(), "{begun:?}");
    let progress = finish(kernel, &file);
    assert_eq!((progress.state, progress.failed), (State::Finished as u32, 0), "{}", report(&file));
    assert!(progress.passed > 0, "something was run");
    let report = report(&file);
    assert_eq!(progress.done, progress.total, "{report}");
    open_points_are_as_decided(&report);
    let skipped = report.lines().filter_map(Line::parse).filter(|line| line.outcome == "skipped");
    let skipped = skipped.map(|line| line.name.to_owned()).collect();
    drop(file);
    let calls = (kernel.calls(), kernel.trace_hash());
    consumer.unload();
    for other in others {
        assert!(other.remove().is_ok(), "the adapter is removed");
    }
    provider.unload();
    events_are_written(kernel);
    (calls, skipped, progress)
}

/// What the suite does is traced.
fn events_are_written(kernel: &Kernel) {
    let events = kernel.events();
    for name in [
        "Opened",
        "Closed",
        "Connected",
        "Accepted",
        "RequestFailed",
        "Disconnected",
        "ConnectionLost",
        "CompletionQueueFailed",
    ] {
        assert!(events.contains_key(name), "{name}: {events:?}");
    }
}

/// What is skipped however many adapters there are: cases for an adapter without moderation, and for one with short timeouts.
const FOR_OTHERS: [&str; 2] = ["moderation.unsupported", "connect.timeouts"];

/// What wants a second adapter.
const FOR_TWO: [&str; 4] = [
    "qp.queue-of-another-adapter",
    "bad-input.regions-of-another-adapter",
    "bad-input.shared-queue-of-another-domain",
    "bad-input.queue-pair-of-another-adapter",
];

// Each pair of engine, scheduler, number of processors and number of adapters is in one of these runs, in one of `nic` (the direct engine on
// threads, on four processors with two adapters) or in one of `driver_runs`. Every other combination has its turn once a night.

#[test]
#[ignore = "once a night: cargo test -p kernel-tests --test drivers -- --ignored"]
fn the_suite_passes_on_threads_with_two_adapters() {
    in_a_process_of_its_own("suite::the_suite_passes_on_threads_with_two_adapters", || {
        let kernel = Kernel::threads().start();
        let (_, skipped) = conformance_with(&kernel, 4, 2);
        assert_eq!(skipped, FOR_OTHERS);
        assert!(kernel.dpcs_run() > 100, "DPCs were made: {}", kernel.dpcs_run());
    });
}

#[test]
fn the_suite_passes_on_one_processor_with_one_adapter() {
    in_a_process_of_its_own("suite::the_suite_passes_on_one_processor_with_one_adapter", || {
        let (_, skipped) = conformance_with(&Kernel::threads().processors(1).start(), 2, 1);
        let for_two: Vec<_> = skipped.iter().filter(|name| !FOR_OTHERS.contains(&name.as_str())).collect();
        assert_eq!(for_two, FOR_TWO);
    });
}

#[test]
#[ignore = "once a night: cargo test -p kernel-tests --test drivers -- --ignored"]
fn the_suite_passes_on_threads_with_the_direct_engine() {
    in_a_process_of_its_own("suite::the_suite_passes_on_threads_with_the_direct_engine", || {
        let kernel = Kernel::threads().processors(4).start();
        run(&kernel, 5, 1, Provider::load_in(&kernel, NicMode::Direct).expect("the provider loads"));
    });
}

fn behind_the_adviser(kernel: &Kernel) {
    let provider = Provider::load_with(kernel, &[("Advise", Value::Number(1))]).expect("the provider loads");
    run(kernel, 6, 1, provider);
}

#[test]
fn the_suite_passes_behind_the_adviser() {
    in_a_process_of_its_own("suite::the_suite_passes_behind_the_adviser", || {
        behind_the_adviser(&Kernel::seeded(6).start());
    });
}

#[test]
#[ignore = "once a night: cargo test -p kernel-tests --test drivers -- --ignored"]
fn the_suite_passes_on_threads_behind_the_adviser() {
    in_a_process_of_its_own("suite::the_suite_passes_on_threads_behind_the_adviser", || {
        behind_the_adviser(&Kernel::threads().start());
    });
}

#[test]
fn a_seed_is_the_same_run_and_both_engines_count_the_same() {
    let run = |part| {
        let kernel = Kernel::seeded(7).start();
        let provider = Provider::load(&kernel).expect("the provider loads");
        // What is opened from now on has this engine, whatever the registry says.
        let control = provider_control(&kernel);
        let before = Settings::from_bytes(&control.control(QUERY_SETTINGS, &[], Settings::BYTES).bytes);
        let nic = [NicMode::Deferred, NicMode::Deferred, NicMode::Direct][part];
        let wanted = Settings { nic_mode: nic as u32, ..before.expect("an answer of the right size") };
        assert!(control.control(SET_SETTINGS, &wanted.to_bytes(), 0).is_success());
        drop(control);
        let (calls, skipped, progress) = run(&kernel, 4, 2, provider);
        assert_eq!(skipped, FOR_OTHERS);
        assert!(kernel.dpcs_run() > 100, "DPCs were made: {}", kernel.dpcs_run());
        let cases = format!("{:?}", (progress.total, progress.passed, progress.failed, skipped));
        vec![cases, kernel.dpcs_run().to_string(), format!("{calls:?}")]
    };
    let name = "suite::a_seed_is_the_same_run_and_both_engines_count_the_same";
    in_processes_of_their_own(name, run, |[deferred, again, direct]| {
        assert_eq!(deferred, again, "the same seed is the same run");
        assert_eq!(deferred[0], direct[0], "cases, passed, failed and skipped");
        let [deferred, direct] = [deferred, direct].map(|engine| engine[1].parse::<u64>().expect("a number of calls"));
        assert!(direct < deferred * 19 / 20, "posts carry requests out: {direct} of {deferred} calls");
    });
}
