//! From load to unload.

use control::test_device::{self, Kind};
use engine::memory::MemoryLimits;
use simulated_kernel::{Kernel, Value, wdk::STATUS_INSUFFICIENT_RESOURCES};

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
