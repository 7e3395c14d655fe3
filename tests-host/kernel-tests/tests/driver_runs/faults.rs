//! Failures that a test of a consumer asks the provider for. These tests link a test build of it.

use control::client::{Event, TestDriver};
use control::{
    provider_device::{self, Faults, INFO_TEST_BUILD, Info},
    test_device::{Kind, Start, State},
};
use simulated_kernel::{
    Answer, File, Kernel,
    wdk::{STATUS_INSUFFICIENT_RESOURCES, STATUS_SUCCESS},
};

use crate::{
    client::ToKernel,
    world::{Consumer, Provider, consumer_control, provider_control},
};

fn set(file: &File, fail_every_allocation: u32, lose_connections: u32) {
    let faults = Faults { fail_every_allocation, lose_connections };
    assert!(file.control(provider_device::SET_FAULTS, &faults.to_bytes(), 0).is_success());
}

/// A number of `NDIS_NDK_PERFORMANCE_COUNTERS`.
fn counter(file: &File, number: usize) -> u64 {
    let Answer { bytes, .. } = file.control(provider_device::QUERY_COUNTERS, &[], 240);
    u64::from_le_bytes(bytes[8 * number..8 * number + 8].try_into().expect("eight bytes"))
}

#[test]
fn a_test_build_says_so() {
    let kernel = Kernel::threads().start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    let file = provider_control(&kernel);
    let info = Info::from_bytes(&file.control(provider_device::QUERY_INFO, &[], Info::BYTES).bytes).expect("an answer");
    assert_eq!(info.flags, INFO_TEST_BUILD);
    drop(file);
    provider.unload();
}

#[test]
fn allocations_fail_until_they_are_to_succeed_again() {
    let kernel = Kernel::threads().start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    let file = provider_control(&kernel);
    let query = || file.control(provider_device::QUERY_CONNECTIONS, &[], 64).status;
    assert_eq!(query(), STATUS_SUCCESS);
    set(&file, 1, 0);
    assert_eq!(query(), STATUS_INSUFFICIENT_RESOURCES);
    set(&file, 2, 0);
    assert_eq!([query(), query(), query()], [STATUS_SUCCESS, STATUS_INSUFFICIENT_RESOURCES, STATUS_SUCCESS]);
    set(&file, 1, 0);
    drop(file);
    // What ends needs no memory.
    provider.unload();
    let provider = Provider::load(&kernel).expect("a driver that is loaded anew fails at nothing");
    provider.unload();
}

#[test]
fn connections_are_lost_and_others_can_be_made() {
    const CONNECTION_ERROR: usize = 3;
    const ACTIVE_CONNECTION: usize = 4;
    let kernel = Kernel::threads().start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    let consumer = Consumer::load(&kernel).expect("the consumer loads");
    let file = provider_control(&kernel);
    let driver = TestDriver::new(ToKernel(consumer_control(&kernel)));
    driver.start(&Start { kind: Kind::Performance as u32, seconds: 3600, seed: 1 }).expect("it starts");
    // The first measurement has a connection, and is to go on for ten minutes.
    kernel.wait_until(|| counter(&file, ACTIVE_CONNECTION) > 0);
    set(&file, 0, 1);
    kernel.wait_until(|| driver.progress().is_ok_and(|progress| progress.failed == 1));
    assert!(counter(&file, CONNECTION_ERROR) > 0);
    // The second one makes a connection of its own.
    kernel.wait_until(|| counter(&file, ACTIVE_CONNECTION) > 0);
    let mut failed = Vec::new();
    let note = |event: Event<'_>| match event {
        Event::Step(line) if line.is_failure() => failed.push(line.name.to_owned()),
        _ => {}
    };
    let last = driver.watch(|| kernel.sleep(5_000), || true, note).expect("it can be watched");
    assert_eq!(last.state, State::Cancelled as u32);
    assert_eq!(failed, ["round-trip.polled"]);
    drop((driver, file));
    consumer.unload();
    provider.unload();
}
