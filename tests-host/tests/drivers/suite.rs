//! The conformance suite, from one driver through the other.

use std::process::Command;

use ndk_interface::test_control::{Kind, State};
use simulated_kernel::Kernel;

use crate::world::{Consumer, Provider, consumer_control, finish, in_a_process_of_its_own, report, start};

fn conformance(kernel: &Kernel, seed: u64) -> (u64, u64) {
    let provider = Provider::load(kernel).expect("the provider loads");
    let consumer = Consumer::load(kernel).expect("the consumer loads");
    let file = consumer_control(kernel);
    let begun = start(&file, Kind::Conformance, seed);
    assert!(begun.is_success(), "{begun:?}");
    let progress = finish(kernel, &file);
    assert_eq!((progress.state, progress.failed), (State::Finished as u32, 0), "{}", report(&file));
    assert!(progress.passed > 0, "something was run");
    assert_eq!(progress.done, progress.total, "{}", report(&file));
    drop(file);
    let calls = (kernel.calls(), kernel.trace_hash());
    consumer.unload();
    provider.unload();
    calls
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
