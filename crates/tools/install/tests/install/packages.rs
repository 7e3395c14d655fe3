//! Packages that are there already: none, the same, a rebuilt one, an older and a newer one.

use install::{NDKTEST, NIC, PROVIDER, Step, install, uninstall};

use crate::{
    Failing, Manners, Model, both, bring, carry_out, certificate, changes, devices, files, installed, nic, try_install,
    with,
};

#[test]
fn a_fresh_machine_gets_certificate_packages_and_devices() {
    let model = Model::default();
    let done = try_install(&model, &both(1, 10)).expect("it is installed");
    assert_eq!((devices(&model, &PROVIDER), devices(&model, &NDKTEST)), (2, 1));
    assert_eq!((model.trusted(), done.restart, done.left.len()), (2, false, 0));
    assert_eq!((model.versions(&PROVIDER), model.versions(&NDKTEST)), (vec![1], vec![1]));
}

#[test]
fn what_is_installed_already_is_left_alone() {
    let model = installed(&both(1, 10)).again(Failing::Never);
    let plan = install(&model, &both(1, 10)).expect("a plan");
    assert_eq!(plan.steps, []);
    try_install(&model, &both(1, 10)).expect("nothing to do");
    assert_eq!(changes(&model), Vec::<&str>::new());
}

#[test]
fn a_newer_package_takes_the_place_of_the_old_one_on_the_same_devices() {
    let model = installed(&both(1, 10));
    let before: Vec<_> = model.device_list().into_iter().map(|device| device.instance).collect();
    let wanted = both(2, 20);
    try_install(&model, &wanted).expect("an upgrade");
    let after = model.device_list();
    assert_eq!(after.iter().map(|device| device.instance.clone()).collect::<Vec<_>>(), before);
    assert!(after.iter().all(|device| device.started), "{after:?}");
    assert_eq!(after.iter().filter(|device| device.files == Some(files(&wanted.packages[0].1))).count(), 2);
    assert_eq!((model.versions(&PROVIDER), model.versions(&NDKTEST)), (vec![2], vec![2]), "the old ones are forgotten");
}

/// The driver store goes by the INF: it would keep the files that it has.
#[test]
fn a_rebuilt_package_of_the_same_version_takes_the_place_of_the_old_one() {
    let model = installed(&both(1, 10));
    let wanted = both(1, 30);
    let done = try_install(&model, &wanted).expect("it is installed");
    let list = model.device_list();
    assert!(list.iter().all(|device| device.started), "{list:?}");
    assert_eq!(list.iter().filter(|device| device.files == Some(30)).count(), 2, "{list:?}");
    assert_eq!(list.iter().filter(|device| device.files == Some(31)).count(), 1, "{list:?}");
    assert_eq!(model.versions(&PROVIDER), [1]);
    assert!(done.notices.iter().any(|notice| notice.contains("other files")), "{done:?}");
    assert!(!done.restart && done.left.is_empty(), "{done:?}");
}

#[test]
fn a_rebuilt_driver_that_stays_in_the_kernel_is_said_to_need_a_restart() {
    let manners = Manners { held: true, ..Manners::default() };
    let model = with(manners, Some(&both(1, 10)));
    let done = try_install(&model, &both(1, 30)).expect("it is installed");
    assert!(
        done.restart && done.notices.iter().any(|notice| notice.contains("the old one until a restart")),
        "{done:?}"
    );
}

#[test]
fn an_older_package_is_installed_only_if_that_is_wanted() {
    let model = installed(&both(2, 20)).again(Failing::Never);
    let mut wanted = both(1, 10);
    let failed = try_install(&model, &wanted).expect_err("it is older");
    assert!(failed.to_string().contains("--downgrade"), "{failed}");
    assert_eq!(changes(&model), Vec::<&str>::new());
    wanted.downgrade = true;
    try_install(&model, &wanted).expect("it is wanted");
    assert!(model.device_list().iter().all(|device| device.started && device.files < Some(12)));
    assert_eq!(model.versions(&PROVIDER), [1]);
}

#[test]
fn packages_staged_beside_each_other_become_one() {
    let model = installed(&both(1, 10));
    let newer = both(2, 20);
    bring(&model, &newer);
    install::Machine::stage(&model, &newer.packages[0].1.inf).expect("it is staged");
    assert_eq!(model.versions(&PROVIDER), [1, 2]);
    try_install(&model, &newer).expect("an upgrade");
    assert_eq!(model.versions(&PROVIDER), [2]);
}

#[test]
fn uninstalling_takes_everything_and_doing_it_again_nothing() {
    let model = installed(&both(1, 10));
    try_install(&model, &nic(1, 50)).expect("the NIC too");
    let plan = uninstall(&model, &install::Driver::ALL, Some(&certificate())).expect("a plan");
    let first = plan.steps.iter().find_map(|step| match step {
        Step::RemoveDevice { driver, .. } => Some(driver.name),
        _ => None,
    });
    assert_eq!(first, Some(NDKTEST.name), "who opens others goes first");
    let done = carry_out(&model, &plan).expect("it is uninstalled");
    assert_eq!((model.device_list().len(), model.trusted(), done.left.len()), (0, 0, 0));
    assert!([&PROVIDER, &NDKTEST, &NIC].iter().all(|driver| model.versions(driver).is_empty()));
    let plan = uninstall(&model, &install::Driver::ALL, Some(&certificate())).expect("a plan");
    assert_eq!(plan.steps, []);
}

#[test]
fn a_driver_that_stays_in_the_kernel_is_named() {
    let manners = Manners { held: true, ..Manners::default() };
    let model = with(manners, Some(&both(1, 10)));
    let plan = uninstall(&model, &[&PROVIDER], None).expect("a plan");
    let done = carry_out(&model, &plan).expect("its devices are gone");
    let said: Vec<_> = done.left.iter().map(ToString::to_string).collect();
    assert!(done.restart && said.len() == 1 && said[0].starts_with("softndk is still in the kernel"), "{said:?}");
}
