//! The conformance suite, from one driver through the other.

use std::process::Command;

use ndk_interface::{
    report::Line,
    test_control::{Kind, State},
};
use simulated_kernel::Kernel;
use tests_host::decisions::DECISIONS;

use crate::world::{Consumer, Provider, consumer_control, finish, in_a_process_of_its_own, report, start};

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

fn conformance(kernel: &Kernel, seed: u64) -> (u64, u64) {
    let (calls, _) = conformance_with(kernel, seed, 1);
    calls
}

/// Runs the suite with so many adapters. What the run was, and the cases that were skipped.
fn conformance_with(kernel: &Kernel, seed: u64, adapters: usize) -> ((u64, u64), Vec<String>) {
    let provider = Provider::load(kernel).expect("the provider loads");
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
    (calls, skipped)
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

#[test]
fn the_cases_for_two_adapters_run_when_there_are_two() {
    in_a_process_of_its_own("suite::the_cases_for_two_adapters_run_when_there_are_two", || {
        let kernel = Kernel::threads().start();
        let (_, skipped) = conformance_with(&kernel, 4, 2);
        assert_eq!(skipped, FOR_OTHERS, "with two adapters");
        let (_, skipped) = conformance_with(&kernel, 4, 1);
        let for_two: Vec<_> = skipped.iter().filter(|name| !FOR_OTHERS.contains(&name.as_str())).collect();
        assert_eq!(for_two, FOR_TWO, "with one adapter");
    });
}

#[test]
fn the_conformance_suite_passes_through_both_drivers() {
    in_a_process_of_its_own("suite::the_conformance_suite_passes_through_both_drivers", || {
        let kernel = Kernel::threads().start();
        conformance(&kernel, 1);
        assert!(kernel.dpcs_run() > 100, "deferred calls were made: {}", kernel.dpcs_run());
    });
}

#[test]
fn the_conformance_suite_passes_on_one_processor() {
    in_a_process_of_its_own("suite::the_conformance_suite_passes_on_one_processor", || {
        conformance(&Kernel::threads().processors(1).start(), 2);
    });
}

/// Tells the process of a test to carry out the run and to print what it was.
const CHILD: &str = "DRIVERS_REPLAY";

/// A driver's static variables outlive its unload here, so each run has a process of its own.
#[test]
fn the_conformance_suite_passes_with_a_seed_and_replays() {
    if std::env::var_os(CHILD).is_some() {
        println!("the run was {:?}", conformance(&Kernel::seeded(5).start(), 3));
        return;
    }
    let run = || {
        let program = std::env::current_exe().expect("a test knows its own program");
        let name = "suite::the_conformance_suite_passes_with_a_seed_and_replays";
        let output = Command::new(program).args(["--exact", name, "--nocapture"]).env(CHILD, "1").output();
        let output = output.expect("a test can start its own program");
        let words = String::from_utf8_lossy(&output.stdout);
        let line = words.lines().find(|line| line.contains("the run was")).map(ToOwned::to_owned);
        line.unwrap_or_else(|| panic!("{words}{}", String::from_utf8_lossy(&output.stderr)))
    };
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(run);
        (run(), second.join().expect("the second run"))
    });
    assert_eq!(first, second, "the same seed is the same run");
}
