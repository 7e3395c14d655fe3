//! Several processors at the same time: processors and system threads are threads of this machine, and nothing decides whose turn it is.
//! A seed cannot show what this does: with one, nobody runs while somebody else holds a spin lock.

use control::{
    client::TestDriver,
    provider_device::NicMode,
    test_device::{Kind, Start, State},
};
use simulated_kernel::Kernel;
use testing::alone::in_a_process_of_its_own;

use crate::{
    transport::ToKernel,
    world::{Consumer, Provider, consumer_control},
};

/// Runs of that kind, each of a second, until somebody has met a lock that another processor held. How many did.
fn run(kind: Kind, processors: u32, nic: NicMode) -> u64 {
    let kernel = Kernel::threads().processors(processors).start();
    let provider = Provider::load_in(&kernel, nic).expect("the provider loads");
    let consumer = Consumer::load(&kernel).expect("the consumer loads");
    let driver = TestDriver::new(ToKernel(consumer_control(&kernel)));
    // Two threads of a machine that has other things to do may not meet for a while.
    for seed in 1..=30 {
        driver.start(&Start { kind: kind as u32, seconds: 1, seed }).expect("it starts");
        let last = driver.watch(|| kernel.sleep(10_000), || false, |_| ()).expect("it can be watched");
        assert_eq!(last.state, State::Finished as u32);
        assert!(last.done > 0 && last.failed == 0, "{} done, {} failed", last.done, last.failed);
        if kernel.lock_waits() > 0 {
            break;
        }
    }
    drop(driver);
    consumer.unload();
    provider.unload();
    kernel.lock_waits()
}

fn under_load(processors: u32) {
    for nic in [NicMode::Deferred, NicMode::Direct] {
        for kind in [Kind::Stress, Kind::Performance] {
            let waits = run(kind, processors, nic);
            println!("{processors} processors, {kind:?}, {nic:?}: {waits} queued locks were held by another processor");
            assert!(waits > 0, "{processors} processors, {kind:?}, {nic:?}: nobody has met anybody");
        }
    }
}

#[test]
fn two_processors_at_once_break_no_rule_under_load() {
    in_a_process_of_its_own("processors::two_processors_at_once_break_no_rule_under_load", || under_load(2));
}

#[test]
fn four_processors_at_once_break_no_rule_under_load() {
    in_a_process_of_its_own("processors::four_processors_at_once_break_no_rule_under_load", || under_load(4));
}
