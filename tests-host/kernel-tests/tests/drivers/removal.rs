//! Stop, removal and surprise removal, idle and in the middle of a run.

use std::{
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use control::test_device::{Kind, State};
use ndkpi::NDK_VERSION;
use simulated_kernel::Kernel;

use crate::{
    holder,
    provider_interface::Interface,
    world::{Consumer, Provider, SEEDS, consumer_control, progress, start},
};

#[test]
fn a_device_that_is_stopped_goes_on_afterwards() {
    let kernel = Kernel::threads().start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    assert_eq!(provider.device.stop_and_start(), Ok(()));
    provider.unload();
}

#[test]
fn a_surprise_removal_without_consumers_comes_to_its_end() {
    let kernel = Kernel::threads().start();
    let Provider { driver, device } = Provider::load(&kernel).expect("the provider loads");
    device.surprise_remove();
    driver.unload();
}

#[test]
fn a_surprise_removal_waits_for_a_consumer_that_closes_late() {
    let kernel = Kernel::threads().start();
    let Provider { driver, device } = Provider::load(&kernel).expect("the provider loads");
    let interface = Interface::of(&device);
    let adapter = interface.open(NDK_VERSION::V2_1).expect("an adapter").expose_provenance();
    let has_closed = Arc::new(AtomicBool::new(false));
    let consumer = std::thread::spawn({
        let has_closed = has_closed.clone();
        move || {
            std::thread::sleep(Duration::from_millis(50));
            has_closed.store(true, SeqCst);
            // SAFETY: the adapter was opened by this interface, and is not used again.
            unsafe { interface.close(ptr::with_exposed_provenance_mut(adapter)) };
        }
    });
    device.surprise_remove();
    assert!(has_closed.load(SeqCst), "the adapter was open");
    consumer.join().expect("no panic");
    driver.unload();
}

/// The consumer closes the adapter when it is told that the device goes, and not before: a provider that waits for it earlier
/// waits for ever.
fn while_held(kernel: &Kernel, remove: impl FnOnce(simulated_kernel::Device)) {
    let Provider { driver, device } = Provider::load(kernel).expect("the provider loads");
    let (consumer, its) = holder::load(kernel, &device);
    assert!(holder::holds());
    remove(device);
    assert!(!holder::holds());
    assert!(its.remove().is_ok());
    consumer.unload();
    driver.unload();
}

#[test]
fn a_removal_comes_to_its_end_when_the_consumer_lets_go() {
    while_held(&Kernel::threads().start(), |device| assert!(device.remove().is_ok(), "the consumer lets go"));
}

#[test]
fn a_surprise_removal_comes_to_its_end_when_the_consumer_is_told() {
    for seed in SEEDS {
        while_held(&Kernel::seeded(seed).start(), simulated_kernel::Device::surprise_remove);
    }
}

/// The run would go on for minutes: it ends only because the consumer is told of the removal.
fn in_a_run(kernel: &Kernel, remove: impl FnOnce(simulated_kernel::Device)) {
    let provider = Provider::load(kernel).expect("the provider loads");
    let consumer = Consumer::load(kernel).expect("the consumer loads");
    let file = consumer_control(kernel);
    let begun = start(&file, Kind::Stress, 7);
    assert!(begun.is_success(), "{begun:?}");
    kernel.sleep(3_000);
    remove(provider.device);
    kernel.wait_until(|| progress(&file).state != State::Running as u32);
    assert_eq!(progress(&file).state, State::Cancelled as u32);
    drop(file);
    consumer.unload();
    provider.driver.unload();
}

#[test]
fn a_removal_in_a_run_cancels_the_run_and_comes_to_its_end() {
    in_a_run(&Kernel::threads().start(), |device| assert!(device.remove().is_ok(), "the consumer lets go"));
}

#[test]
fn a_surprise_removal_in_a_run_cancels_the_run_and_comes_to_its_end() {
    in_a_run(&Kernel::threads().start(), simulated_kernel::Device::surprise_remove);
}

#[test]
fn the_consumer_can_be_removed_in_a_run() {
    let kernel = Kernel::threads().start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    let consumer = Consumer::load(&kernel).expect("the consumer loads");
    let file = consumer_control(&kernel);
    assert!(start(&file, Kind::Stress, 3).is_success());
    kernel.sleep(2_000);
    drop(file);
    consumer.unload();
    provider.unload();
}
