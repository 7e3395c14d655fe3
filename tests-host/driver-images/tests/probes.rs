//! What code of an image may do without calling the kernel, and what it may not: a small driver in C (`tests-host/driver-images/probe`).

#![cfg(windows)]

use rigs::images;
use simulated_kernel::{Kernel, Rule, caught, missing_functions};

/// Loads the probe and unloads it, twice: each load begins with the variables of the file.
fn run(kernel: &Kernel, probe: &'static str) {
    for _ in 0..2 {
        let driver = kernel.load_image(probe, images::image(probe), &[]);
        let driver = driver.unwrap_or_else(|status| panic!("{probe}: line {}", status & 0xFFF));
        driver.unload();
    }
}

fn works(probe: &'static str) {
    run(&Kernel::threads().start(), probe);
    for seed in 1..4 {
        run(&Kernel::seeded(seed).start(), probe);
    }
}

#[test]
fn an_image_is_relocated_and_has_its_own_variables() {
    works("probe1");
}

#[test]
fn every_plain_function_is_there() {
    assert_eq!(missing_functions(), [""; 0], "this system does not have them");
}

#[test]
fn the_irql_is_in_cr8() {
    works("probe2");
}

#[test]
fn the_processors_block_is_behind_gs() {
    works("probe3");
}

#[test]
fn the_clocks_are_in_the_shared_data() {
    works("probe4");
}

#[test]
fn structured_exceptions_are_caught_by_the_driver() {
    works("probe5");
}

#[test]
fn what_the_kits_headers_do_without_a_call_works() {
    works("probe13");
}

#[test]
fn an_image_imports_from_another_by_name_number_and_late() {
    for seed in 1..4 {
        let kernel = Kernel::seeded(seed).start();
        let other = kernel.load_image("probe14", images::image("probe14"), &[]).expect("it loads");
        run(&kernel, "probe15");
        other.unload();
    }
}

#[test]
fn two_instances_of_an_image_have_variables_of_their_own() {
    let kernel = Kernel::seeded(1).start();
    // The second one would find what the first one has written.
    let both =
        ["one", "two"].map(|service| kernel.load_image(service, images::image("probe1"), &[]).expect("it loads"));
    for driver in both {
        driver.unload();
    }
}

fn wrong(test: &str, probe: &'static str, rule: Rule) {
    caught(test, rule, || run(&Kernel::seeded(1).start(), probe));
}

#[test]
fn a_privileged_instruction_is_named() {
    wrong("probes::a_privileged_instruction_is_named", "probe6", Rule::PrivilegedInstruction);
}

#[test]
fn an_access_to_nothing_is_named() {
    wrong("probes::an_access_to_nothing_is_named", "probe7", Rule::AccessViolation);
}

#[test]
fn a_missing_import_is_named_when_it_is_called() {
    wrong("probes::a_missing_import_is_named_when_it_is_called", "probe8", Rule::MissingImport);
}

#[test]
fn a_routine_sees_the_irql_that_came_by_the_register() {
    wrong("probes::a_routine_sees_the_irql_that_came_by_the_register", "probe9", Rule::IrqlTooHigh);
}

#[test]
fn an_entry_that_leaves_the_irql_raised_is_named() {
    wrong("probes::an_entry_that_leaves_the_irql_raised_is_named", "probe10", Rule::IrqlNotRestored);
}

#[test]
fn a_field_of_the_processors_block_that_is_not_there_is_named() {
    wrong("probes::a_field_of_the_processors_block_that_is_not_there_is_named", "probe11", Rule::PrivilegedInstruction);
}

#[test]
fn a_call_of_nothing_is_named() {
    wrong("probes::a_call_of_nothing_is_named", "probe12", Rule::AccessViolation);
}
