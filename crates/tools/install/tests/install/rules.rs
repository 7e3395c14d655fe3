//! What is looked at first, and devices that do not behave.

use install::{Facts, PROVIDER, Processor, Verdict, examine, install, status};

use crate::{Failing, Manners, Model, both, changes, devices, installed, model, try_install, with};

fn facts(change: impl FnOnce(&mut Facts)) -> Manners {
    let mut manners = Manners::default();
    change(&mut manners.facts);
    manners
}

/// One line, with what to do.
#[test]
fn elevation_test_signing_and_the_machine_are_looked_at_first() {
    let other = if Processor::OWN == Some(Processor::Arm64) { Processor::Amd64 } else { Processor::Arm64 };
    for (manners, part) in [
        (facts(|facts| facts.elevated = false), "elevated prompt"),
        (facts(|facts| facts.test_signing = Some(false)), "bcdedit /set testsigning on"),
        (facts(|facts| (facts.test_signing, facts.secure_boot) = (Some(false), Some(true))), "turn Secure Boot off"),
        (facts(|facts| facts.version.2 = 19040), "version 2004"),
        (facts(|facts| facts.processor = Some(other)), other.name()),
    ] {
        let model = Model::new(manners);
        let failed = try_install(&model, &both(1, 10)).expect_err("it is refused");
        let said = failed.to_string();
        assert!(said.contains(part) && said.lines().count() == 1, "{part}: {said}");
        assert_eq!((changes(&model), failed.left), (vec![], vec![]), "{part}");
    }
}

#[test]
fn a_signature_that_the_machine_trusts_needs_no_test_signing() {
    let model = Model::new(facts(|facts| facts.test_signing = Some(false)));
    let wanted = install::Wanted { certificate: None, ..both(1, 10) };
    let plan = install(&model, &wanted).expect("a plan");
    assert_eq!(plan.refusals, []);
}

#[test]
fn a_package_of_another_processor_is_refused() {
    let model = Model::default();
    let mut wanted = both(1, 10);
    wanted.packages[1].1.processors.clear();
    let failed = try_install(&model, &wanted).expect_err("it is refused");
    assert!(failed.to_string().contains("ndktest.inf is not built for"), "{failed}");
}

#[test]
fn a_device_that_is_listed_late_is_waited_for_and_not_made_twice() {
    let model = with(Manners { late: true, ..Manners::default() }, None);
    try_install(&model, &both(1, 10)).expect("it is installed");
    assert_eq!(devices(&model, &PROVIDER), 2);
    try_install(&model, &both(1, 10)).expect("nothing to do");
    assert_eq!(model.device_list().len(), 3);
}

/// The old script made one device after another, as one that fails to start was not listed.
#[test]
fn a_device_that_fails_to_start_is_reported_and_not_made_again() {
    let model = with(Manners { broken: [10].into(), ..Manners::default() }, None);
    let failed = try_install(&model, &both(1, 10)).expect_err("it does not start");
    assert!(failed.reason.contains("problem 10") && failed.remedy.is_some(), "{failed}");
    assert_eq!((failed.left.len(), model.device_list().len(), model.versions(&PROVIDER).len()), (0, 0, 0));
    assert_eq!(model.calls.borrow().iter().filter(|call| **call == "create_device").count(), 2);

    // With --keep everything stays for who wants to look; the next run makes none beside it.
    let plan = install(&model, &both(1, 10)).expect("a plan");
    let keep = install::Options { keep: true, ..install::Options::default() };
    let failed = plan.run(&model, keep, &mut |_| {}).expect_err("it does not start");
    assert_eq!(model.device_list().len(), 2);
    assert!(failed.left.iter().any(|left| left.to_string().contains(r"ROOT\SOFTNDK\0000")), "{failed:?}");
    let plan = install(&model, &both(1, 10)).expect("a plan");
    plan.run(&model, keep, &mut |_| {}).expect_err("it still does not start");
    assert_eq!(model.device_list().len(), 2);
    let told = status(&model).expect("the status");
    let of_provider = &told.iter().find(|one| one.driver == "softndk").expect("the provider").devices[0];
    assert!(of_provider.state.starts_with("problem 10") && of_provider.remedy.is_some(), "{of_provider:?}");
}

#[test]
fn an_upgrade_that_does_not_start_goes_back_to_the_driver_that_did() {
    let model = with(Manners { broken: [20].into(), ..Manners::default() }, Some(&both(1, 10)));
    let before = model.state.borrow().clone();
    let failed = try_install(&model, &both(2, 20)).expect_err("it does not start");
    assert_eq!(failed.left, []);
    assert_eq!(model::difference(&before, &model.state.borrow()), [].into());
    assert!(model.device_list().iter().all(|device| device.started));
}

#[test]
fn a_driver_that_windows_does_not_replace_is_no_success() {
    let model = with(Manners { stubborn: true, ..Manners::default() }, Some(&both(1, 10)));
    let failed = try_install(&model, &both(2, 20)).expect_err("the old one stays");
    assert!(failed.reason.contains("has left"), "{failed}");
    assert_eq!(failed.left, []);
}

#[test]
fn a_restart_is_a_success_that_says_so() {
    let model = with(Manners { restart: true, ..Manners::default() }, Some(&both(1, 10)));
    let done = try_install(&model, &both(2, 20)).expect("after a restart");
    assert!(done.restart && done.notices.iter().any(|notice| notice.contains("restart")), "{done:?}");
}

#[test]
fn a_disabled_device_is_left_disabled_and_named() {
    let model = installed(&both(1, 10));
    model.set_problem(r"ROOT\SOFTNDK\0001", 22);
    let told = status(&model).expect("the status");
    let disabled = told.iter().flat_map(|one| &one.devices).find(|one| one.device.problem == 22);
    assert!(disabled.is_some_and(|one| one.state.contains("disabled")), "{told:?}");
}

#[test]
fn the_doctor_finds_each_thing_that_stands_in_the_way() {
    let checks_of = |model: &Model| examine(model);
    let verdict = |model: &Model, name: &str| {
        let checks = checks_of(model);
        let found = checks.iter().find(|check| check.name.contains(name));
        let check = found.unwrap_or_else(|| panic!("{name}: {checks:?}")).clone();
        assert!(
            check.verdict == Verdict::Good
                || check.remedy.is_some()
                || matches!(check.verdict, Verdict::Unknown | Verdict::Skipped),
            "{check:?}"
        );
        check.verdict
    };
    for (manners, name) in [
        (facts(|facts| facts.test_signing = Some(false)), "test signing"),
        (facts(|facts| (facts.test_signing, facts.secure_boot) = (Some(false), Some(true))), "Secure Boot"),
        (facts(|facts| facts.version.2 = 17763), "Windows"),
        (facts(|facts| facts.processor = None), "processor"),
    ] {
        assert_eq!(verdict(&Model::default(), name), Verdict::Good, "{name}");
        assert_eq!(verdict(&Model::new(manners), name), Verdict::Bad, "{name}");
    }
    assert_eq!(verdict(&Model::new(facts(|facts| facts.hvci = Some(true))), "HVCI"), Verdict::Notice);
    assert_eq!(verdict(&Model::new(facts(|facts| facts.elevated = false)), "elevation"), Verdict::Notice);
    assert_eq!(verdict(&Model::new(facts(|facts| facts.secure_boot = None)), "Secure Boot"), Verdict::Unknown);
    assert_eq!(verdict(&Model::default(), "softndk: package"), Verdict::Notice);
    let model = installed(&both(1, 10));
    assert_eq!(verdict(&model, "softndk: package"), Verdict::Good);
    assert_eq!(verdict(&model, r"softndk: ROOT\SOFTNDK\0001"), Verdict::Good);
    model.set_problem(r"ROOT\SOFTNDK\0001", 52);
    assert_eq!(verdict(&model, r"softndk: ROOT\SOFTNDK\0001"), Verdict::Bad);
    assert_eq!(verdict(&model, "network"), Verdict::Skipped);
}

#[test]
fn the_doctor_goes_on_where_a_call_fails() {
    let calls = {
        let model = installed(&both(1, 10)).again(Failing::Never);
        examine(&model);
        model.calls.borrow().len()
    };
    for number in 0..calls {
        let model = installed(&both(1, 10)).again(Failing::Before(number));
        let checks = examine(&model);
        assert_eq!(checks.iter().filter(|check| check.verdict == Verdict::Unknown).count(), 1, "{number}: {checks:?}");
        assert!(checks.iter().filter(|check| check.verdict == Verdict::Good).count() >= 3, "{number}: {checks:?}");
    }
}
