//! The conformance suite, from `ndktest` over Winsock Kernel, through the miniport.

use std::iter;

use control::{
    client::{Event, TestDriver},
    network::{Problem, Reason, StartOn},
    test_device::{Kind, Progress, State},
};
use ndkpi::OID_NDK_STATISTICS;
use simulated_kernel::{Kernel, Value};
use testing::alone::{in_a_process_of_its_own, in_processes_of_their_own};

use crate::{
    machine::{add, configure, load_with, statistics},
    transport::ToKernel,
    world::{Consumer, Provider, consumer_control},
};

const SEED: u64 = 5;

/// What became of the cases.
type Steps = Vec<(String, String)>;

fn watch(kernel: &Kernel, driver: &TestDriver<ToKernel>) -> (Progress, Steps) {
    let mut steps = Vec::new();
    let last = driver.watch(
        || kernel.sleep(2_000),
        || false,
        |event| {
            if let Event::Step(line) = event {
                steps.push((line.name.to_owned(), line.outcome.to_owned()));
                if line.is_failure() {
                    eprintln!("{}: {}", line.name, line.text);
                }
            }
        },
    );
    (last.expect("the driver is there"), steps)
}

/// The suite through the miniport, between its two ends.
fn through_the_miniport(kernel: &Kernel, nic_mode: u32) -> (Progress, Steps) {
    let driver = load_with(kernel, &[("NicMode", Value::Number(nic_mode))]).expect("the miniport loads");
    let (one, other) = (add(&driver, &[]), add(&driver, &[]));
    configure(kernel, [&one, &other]);
    let consumer = Consumer::load(kernel).expect("the consumer loads");
    let program = TestDriver::new(ToKernel(consumer_control(kernel)));
    let start = StartOn { kind: Kind::Conformance as u32, seconds: 600, seed: SEED, hostile: 1, ..StartOn::default() };
    let begun = program.start_on(&start, &one.if_index().to_string(), &other.if_index().to_string());
    let begun = begun.expect("an answer");
    assert_eq!((begun.problem, begun.index), (Problem::None as u32, one.if_index()));
    let (last, steps) = watch(kernel, &program);
    assert_eq!((last.state, last.reason), (State::Finished as u32, Reason::None as u32));
    assert_eq!(kernel.network().open_ndk_adapters(), 0);
    // RDMA is in the general statistics, and there were no frames.
    let counted = statistics(&one);
    assert!(counted.ifHCOutUcastOctets > 0 && counted.ifHCInUcastPkts > 0, "{counted:?}");
    assert_eq!(one.query(OID_NDK_STATISTICS, 0xF8).bytes.len(), 0xF8);
    drop(program);
    consumer.unload();
    one.remove();
    other.remove();
    driver.unload();
    (last, steps)
}

/// The suite over the private interface of `softndk`, with two adapters.
fn over_the_private_interface(kernel: &Kernel) -> (Progress, Steps) {
    let provider = Provider::load(kernel).expect("the provider loads");
    let second = provider.driver.add_device().expect("one more adapter");
    let consumer = Consumer::load(kernel).expect("the consumer loads");
    let program = TestDriver::new(ToKernel(consumer_control(kernel)));
    let start = control::test_device::Start { kind: Kind::Conformance as u32, seconds: 600, seed: SEED };
    program.start(&start).expect("it starts");
    let seen = watch(kernel, &program);
    drop(program);
    consumer.unload();
    assert!(second.remove().is_ok(), "the adapter is removed");
    provider.unload();
    seen
}

/// How many cases the suite has, as its document lists them: for code that is linked, and for images.
fn cases() -> u32 {
    let document = include_str!("../../../../docs/conformance.md");
    // Other tables are of options.
    let rows = document.lines().filter(|line| line.starts_with("| `") && !line.starts_with("| `--"));
    u32::try_from(rows.count()).expect("hundreds")
}

fn counts((progress, _): &(Progress, Steps)) -> (u32, u32, u32, u32) {
    (progress.state, progress.total, progress.passed, progress.failed)
}

#[test]
fn the_suite_counts_the_same_through_the_miniport_as_over_the_private_interface() {
    let run = |part| {
        let kernel = Kernel::seeded(7).start();
        let seen = match part {
            0 => over_the_private_interface(&kernel),
            _ => through_the_miniport(&kernel, u32::from(part == 2)),
        };
        assert!(seen.0.total == cases() && seen.0.failed == 0, "{:?}", seen.0);
        let steps = seen.1.iter().map(|(name, outcome)| format!("{name}: {outcome}"));
        iter::once(format!("{:?}", counts(&seen))).chain(steps).collect()
    };
    in_processes_of_their_own(
        "suite::the_suite_counts_the_same_through_the_miniport_as_over_the_private_interface",
        run,
        |[private, deferred, direct]| {
            for (engine, through) in [("deferred", deferred), ("direct", direct)] {
                assert_eq!(through.len(), private.len(), "engine {engine}");
                let others: Vec<_> = through.iter().zip(&private).filter(|(ours, theirs)| ours != theirs).collect();
                assert!(others.is_empty(), "each case ends as it did, engine {engine}: {others:?}");
            }
        },
    );
}

#[test]
fn the_suite_passes_through_the_miniport_on_threads() {
    in_a_process_of_its_own("suite::the_suite_passes_through_the_miniport_on_threads", || {
        // The other engine is on threads through `softndk`, and through this miniport with a seed.
        let (last, _) = through_the_miniport(&Kernel::threads().processors(4).start(), 1);
        assert_eq!(last.failed, 0);
    });
}

/// An image begins anew with each load, so that one process is enough for many seeds. `cargo xtask images` says which.
#[cfg(windows)]
#[test]
fn the_suite_counts_the_same_with_every_seed_finder_and_engine() {
    let name = "suite::the_suite_counts_the_same_with_every_seed_finder_and_engine";
    in_a_process_of_its_own(name, || {
        let seeds = std::env::var("SOFTNDK_SEEDS").unwrap_or_else(|_| "1..3".to_owned());
        let (first, last) = seeds.split_once("..").expect("seeds as 1..100");
        let (first, last): (u64, u64) = (first.parse().expect("a seed"), last.parse().expect("a seed"));
        let expected = counts(&over_the_private_interface(&Kernel::seeded(7).start()));
        assert_eq!((expected.1, expected.3), (cases(), 0), "cases, and those that have failed");
        for seed in first..=last {
            let kernel = Kernel::seeded(seed).start();
            let seen = match seed % 3 {
                0 => over_the_private_interface(&kernel),
                engine => through_the_miniport(&kernel, u32::try_from(engine - 1).expect("one or two")),
            };
            assert_eq!(counts(&seen), expected, "seed {seed}");
        }
    });
}

#[cfg(windows)]
#[test]
fn a_seed_is_the_same_run_in_the_same_process() {
    in_a_process_of_its_own("suite::a_seed_is_the_same_run_in_the_same_process", || {
        let run = |seed| {
            let kernel = Kernel::seeded(seed).start();
            let _ = through_the_miniport(&kernel, 1);
            (kernel.calls(), kernel.trace_hash())
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3).1, run(4).1, "another seed is another run");
    });
}
