//! What spin locks cost, as far as a run can be asked for it that does not go well.

use control::client::{Event, Refusal, TestDriver};
use control::test_device::{Kind, Progress, Start, State};
use simulated_kernel::{Injection, Kernel, wdk::STATUS_INSUFFICIENT_RESOURCES};
use testing::alone::in_a_process_of_its_own;

use crate::{
    client::ToKernel,
    world::{Consumer, Provider, consumer_control},
};

const SECOND: Start = Start { kind: Kind::Performance as u32, seconds: 1, seed: 1 };

/// Follows a run to its end, and gives what it says of locks: name, outcome and words.
fn watch(kernel: &Kernel, driver: &TestDriver<ToKernel>) -> (Progress, Vec<[String; 3]>) {
    loop {
        let mut lines = Vec::new();
        let note = |event: Event<'_>| match event {
            Event::Step(line) if line.name.starts_with("lock.") => {
                lines.push([line.name, line.outcome, line.text].map(ToOwned::to_owned));
            }
            _ => {}
        };
        // Reading the report may be what fails.
        match driver.watch(|| kernel.sleep(5_000), || false, note) {
            Ok(last) => return (last, lines),
            Err(refusal) => assert_eq!(refusal, Refusal::Other(STATUS_INSUFFICIENT_RESOURCES)),
        }
    }
}

fn with_drivers(work: impl FnOnce(&Kernel, &TestDriver<ToKernel>)) {
    let kernel = Kernel::threads().start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    let consumer = Consumer::load(&kernel).expect("the consumer loads");
    let driver = TestDriver::new(ToKernel(consumer_control(&kernel)));
    work(&kernel, &driver);
    drop(driver);
    consumer.unload();
    provider.unload();
}

/// Locks, threads, memory: whatever cannot be had ends the measurement that wants it, and nothing else.
#[test]
fn what_cannot_be_had_is_said() {
    in_a_process_of_its_own("locks::what_cannot_be_had_is_said", || {
        with_drivers(|kernel, driver| {
            kernel.inject(Injection::EachSite);
            let mut missed = 0;
            // Each run ends at other call sites, until there are none.
            let all_measured = (0..40).any(|_| {
                if driver.start(&SECOND).is_err() {
                    return false;
                }
                let (last, lines) = watch(kernel, driver);
                assert_eq!((last.state, last.done), (State::Finished as u32, 6));
                // Words that there was no memory for are missing.
                let cannot = |text: &str| text.is_empty() || text.starts_with("cannot begin: ");
                missed += lines.iter().filter(|[_, outcome, text]| outcome == "skipped" && cannot(text)).count();
                assert!(lines.iter().all(|[_, _, text]| !text.contains("exclude")), "{lines:?}");
                lines.len() == 2 && lines.iter().all(|[_, outcome, _]| outcome == "measured")
            });
            kernel.inject(Injection::None);
            assert!(all_measured, "in the end there is a run in which nothing fails");
            // The framework's lock, the box, the list of threads, what they share, their own boxes, themselves.
            assert!(missed >= 6, "only {missed} measurements could not begin");
        });
    });
}

/// Also the second thread or the third, for which the first ones then do not wait.
#[test]
fn failures_all_over_hold_nothing_up() {
    with_drivers(|kernel, driver| {
        for period in 29..42 {
            kernel.inject(Injection::Every(period));
            if driver.start(&SECOND).is_ok() {
                let (last, _) = watch(kernel, driver);
                assert_eq!((last.state, last.done), (State::Finished as u32, 6));
            }
        }
        kernel.inject(Injection::None);
    });
}

#[test]
fn a_measurement_of_locks_is_cancelled_and_unloaded() {
    for done in [4, 5] {
        with_drivers(|kernel, driver| {
            driver.start(&SECOND).expect("it starts");
            kernel.wait_until(|| driver.progress().is_ok_and(|progress| progress.done == done));
            driver.cancel().expect("it can be cancelled");
            let (last, lines) = watch(kernel, driver);
            assert_eq!(last.state, State::Cancelled as u32);
            assert!(last.failed == 0 && last.done <= done + 1, "nothing begins any more: {lines:?}");
            driver.start(&SECOND).expect("it starts");
            kernel.wait_until(|| driver.progress().is_ok_and(|progress| progress.done == done));
            // The unload finds it running.
        });
    }
}
