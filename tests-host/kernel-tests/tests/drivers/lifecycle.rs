//! From load to unload.

use control::{
    provider_device::{self, Info, QUERY_INFO},
    test_device::{self, Kind},
};
use engine::memory::MemoryLimits;
use simulated_kernel::{
    Kernel, Value,
    wdk::{STATUS_DEVICE_NOT_READY, STATUS_INSUFFICIENT_RESOURCES, STATUS_OBJECT_NAME_NOT_FOUND},
};

use crate::world::{Consumer, Provider, SEEDS, consumer_control, finish, progress, report, start};

fn load_and_unload(kernel: &Kernel) {
    let provider = Provider::load(kernel).expect("the provider loads");
    let consumer = Consumer::load(kernel).expect("the consumer loads");
    consumer.unload();
    provider.unload();
}

#[test]
fn both_drivers_load_and_unload_and_leave_nothing_behind() {
    load_and_unload(&Kernel::threads().start());
    for seed in SEEDS {
        load_and_unload(&Kernel::seeded(seed).start());
    }
}

#[test]
fn the_device_starts_with_every_value_of_max_tokens() {
    let kernel = Kernel::threads().start();
    let most = MemoryLimits::MAX.tokens;
    // Those below 16 and above the largest are as good as none.
    for value in [0, 16, 1 << 20, most, most + 1, 1 << 21, 1 << 24, u32::MAX] {
        let parameters = [("MaxTokens", Value::Number(value))];
        let provider = Provider::load_with(&kernel, &parameters);
        provider.unwrap_or_else(|status| panic!("MaxTokens {value}: {status:#x}")).unload();
    }
}

#[test]
fn there_are_eight_adapters_at_most_and_a_number_is_given_again() {
    let kernel = Kernel::threads().start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    let mut others: Vec<_> = (1..8).map(|_| provider.driver.add_device().expect("one more adapter")).collect();
    assert_eq!(provider.driver.add_device().err(), Some(STATUS_INSUFFICIENT_RESOURCES), "a ninth");
    assert!(others.remove(3).remove().is_ok());
    others.push(provider.driver.add_device().expect("its number is free"));
    for other in others {
        assert!(other.remove().is_ok());
    }
    provider.unload();
}

/// The framework deletes a control device when its last file is closed, and its name at once.
#[test]
fn devices_come_back_while_programs_hold_the_control_devices_of_those_before_open() {
    const ND: &str = nd2_control::wire::LINK_NAME;
    let kernel = Kernel::threads().start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    let consumer = Consumer::load(&kernel).expect("the consumer loads");
    let Consumer { driver: consumer_driver, device: consumer_device } = consumer;
    let Provider { driver, device } = provider;
    let (mut device, mut consumer_device) = (device, consumer_device);
    let open = |link| kernel.open(link);
    let links = [provider_device::LINK_NAME, ND, test_device::LINK_NAME];
    let mut held = Vec::new();
    for round in 1..4 {
        held.extend(links.map(|link| open(link).unwrap_or_else(|status| panic!("{link}, round {round}: {status:#x}"))));
        assert!(
            consumer_device.remove().is_ok() && device.remove().is_ok(),
            "files of control devices hold up nothing"
        );
        for link in links {
            assert_eq!(open(link).err(), Some(STATUS_OBJECT_NAME_NOT_FOUND), "{link} is gone for who comes now");
        }
        // Who has it open is answered.
        assert_eq!(start(held.last().expect("the consumer's"), Kind::Conformance, 1).status, STATUS_DEVICE_NOT_READY);
        let info = held[0].control(QUERY_INFO, &[], Info::BYTES);
        assert_eq!(Info::from_bytes(&info.bytes).expect("an answer").adapters, 0);
        device = driver.add_device().expect("the adapter comes back");
        consumer_device = consumer_driver.add_device().expect("the consumer comes back");
        let info = held[0].control(QUERY_INFO, &[], Info::BYTES);
        assert_eq!(Info::from_bytes(&info.bytes).expect("an answer").adapters, 1, "it is the driver that answers");
        if round == 2 {
            held.drain(..3).for_each(drop);
        }
    }
    drop(held);
    // The end of an older device has not taken the newer one's name along.
    for link in links {
        drop(open(link).expect("the newest device"));
    }
    assert!(consumer_device.remove().is_ok() && device.remove().is_ok());
    consumer_driver.unload();
    driver.unload();
}

#[test]
fn a_driver_can_be_loaded_again_after_its_unload() {
    let kernel = Kernel::threads().start();
    for _ in 0..3 {
        load_and_unload(&kernel);
    }
}

#[test]
fn the_consumer_finds_the_provider_whichever_comes_first() {
    let kernel = Kernel::threads().start();
    let consumer = Consumer::load(&kernel).expect("the consumer loads");
    let file = consumer_control(&kernel);
    let without = start(&file, Kind::Conformance, 1);
    assert_eq!(without.status, simulated_kernel::wdk::STATUS_DEVICE_NOT_READY);
    let provider = Provider::load(&kernel).expect("the provider loads");
    assert!(start(&file, Kind::Conformance, 1).is_success());
    // It runs; the whole of it is for the tests of the suite.
    kernel.wait_until(|| progress(&file).done > 0);
    assert_eq!(progress(&file).failed, 0, "{}", report(&file));
    assert!(file.control(test_device::CANCEL, &[], 0).is_success());
    finish(&kernel, &file);
    drop(file);
    consumer.unload();
    provider.unload();
}

/// Begins a run, looks that it does something, and ends it.
fn use_what_is_there(kernel: &Kernel) {
    let file = consumer_control(kernel);
    let begun = start(&file, Kind::Conformance, 1);
    assert!(begun.is_success(), "{begun:?}");
    kernel.wait_until(|| progress(&file).done > 0);
    assert_eq!(progress(&file).failed, 0, "{}", report(&file));
    assert!(file.control(test_device::CANCEL, &[], 0).is_success());
    finish(kernel, &file);
}

#[test]
fn the_consumer_goes_on_with_the_adapters_that_are_left() {
    let kernel = Kernel::threads().start();
    let consumer = Consumer::load(&kernel).expect("the consumer loads");
    let Provider { driver, device: first } = Provider::load(&kernel).expect("the provider loads");
    let second = driver.add_device().expect("one more adapter");
    use_what_is_there(&kernel);
    assert!(second.remove().is_ok(), "the one that came last goes");
    use_what_is_there(&kernel);
    let third = driver.add_device().expect("one more adapter");
    assert!(first.remove().is_ok(), "the one that came first goes");
    use_what_is_there(&kernel);
    third.surprise_remove();
    let file = consumer_control(&kernel);
    let without = start(&file, Kind::Conformance, 1);
    assert_eq!(without.status, simulated_kernel::wdk::STATUS_DEVICE_NOT_READY, "there is none");
    drop(file);
    consumer.unload();
    driver.unload();
}
