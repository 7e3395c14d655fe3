//! Everything that can fail does, one after the other. The drivers say so, leave nothing behind, and still unload.

use control::{
    provider_device::{self, Info},
    test_device::Kind,
};
use simulated_kernel::{
    Injection, Kernel,
    wdk::{NTSTATUS, STATUS_INSUFFICIENT_RESOURCES},
};
use testing::alone::in_a_process_of_its_own;

use crate::world::{Consumer, Provider, consumer_control, finish, provider_control, report, start};

/// What can be refused is refused with this.
fn check(status: NTSTATUS) {
    assert_eq!(status, STATUS_INSUFFICIENT_RESOURCES, "the status {status:#x} does not say what is wrong");
}

/// Load, use and unload. Whatever fails is taken back, and the rest goes on.
fn scenario(kernel: &Kernel) {
    let provider = match Provider::load(kernel) {
        Ok(provider) => provider,
        Err(status) => return check(status),
    };
    match Consumer::load(kernel) {
        Ok(consumer) => {
            let (ours, theirs) = (provider_control(kernel), consumer_control(kernel));
            assert!(ours.control(provider_device::QUERY_INFO, &[], Info::BYTES).is_success());
            drop((ours, theirs));
            consumer.unload();
        }
        Err(status) => check(status),
    }
    provider.unload();
}

#[test]
fn each_thing_that_can_fail_in_load_and_unload_fails_once() {
    let kernel = Kernel::seeded(1).preemption(0).start();
    let failures = kernel.fail_each(1.., || scenario(&kernel));
    assert!(failures >= 50, "only {failures} things can fail");
    scenario(&kernel);
}

/// Whatever the suite meets: at each call site, of both drivers, the first thing that can fail does. A failure ends its case, so
/// that not every site is reached in the first run.
#[test]
fn each_call_site_that_the_suite_reaches_fails_once() {
    in_a_process_of_its_own("faults::each_call_site_that_the_suite_reaches_fails_once", || {
        // By a seed: a case that fails has waited for something, which takes no time then.
        let kernel = Kernel::seeded(2).start();
        let provider = Provider::load(&kernel).expect("the provider loads");
        let consumer = Consumer::load(&kernel).expect("the consumer loads");
        let file = consumer_control(&kernel);
        kernel.inject(Injection::EachSite);
        let mut runs = 0;
        while runs < 3 {
            let begun = start(&file, Kind::Conformance, 5);
            if begun.is_success() {
                // Cases fail, of course. Nothing else may.
                assert!(finish(&kernel, &file).done > 0, "{}", report(&file));
                runs += 1;
            } else {
                check(begun.status);
            }
        }
        let sites = kernel.faults_injected();
        assert!(sites > 300, "only {sites} call sites were reached");
        kernel.inject(Injection::None);
        drop(file);
        consumer.unload();
        provider.unload();
    });
}

#[test]
fn a_run_of_the_suite_survives_failures_all_over() {
    in_a_process_of_its_own("faults::a_run_of_the_suite_survives_failures_all_over", || {
        let kernel = Kernel::seeded(3).start();
        let provider = Provider::load(&kernel).expect("the provider loads");
        let consumer = Consumer::load(&kernel).expect("the consumer loads");
        let file = consumer_control(&kernel);
        for period in [2, 31, 401] {
            kernel.inject(Injection::Every(period));
            // Cases fail, of course. Nothing else may.
            if start(&file, Kind::Conformance, period).is_success() {
                let progress = finish(&kernel, &file);
                assert!(progress.done > 0, "{}", report(&file));
            }
        }
        kernel.inject(Injection::None);
        drop(file);
        consumer.unload();
        provider.unload();
    });
}
