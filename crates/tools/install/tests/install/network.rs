//! The two ends of the cable.

use std::net::Ipv4Addr;

use install::{Machine as _, NIC, Pair, Verdict, examine, pair};

use crate::{Failing, Manners, Model, changes, devices, installed, model, nic, try_install, try_pair, with};

const TAKEN: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 12);

fn paired() -> Model {
    let model = Model::default();
    try_pair(&model, Some(&nic(1, 50)), &Pair::default()).expect("a pair");
    model
}

#[test]
fn two_ends_get_names_addresses_neighbours_and_routes() {
    let model = paired();
    assert_eq!(devices(&model, &NIC), 2);
    let mut names = model.aliases();
    names.sort();
    assert_eq!(names, ["SoftNDK 1", "SoftNDK 2"]);
    let checks = examine(&model);
    let of_network = checks.iter().filter(|check| check.name.starts_with("end") || check.name.starts_with("route"));
    assert_eq!(of_network.filter(|check| check.verdict == Verdict::Good).count(), 4, "{checks:?}");
}

#[test]
fn a_pair_that_is_there_is_left_alone() {
    let model = paired().again(Failing::Never);
    for wanted in [None, Some(nic(1, 50))] {
        let plan = pair(&model, wanted.as_ref(), &Pair::default()).expect("a plan");
        assert_eq!((plan.steps, plan.refusals), (vec![], vec![]));
    }
    assert_eq!(changes(&model), Vec::<&str>::new());
}

#[test]
fn without_routes_none_is_set() {
    let model = Model::default();
    let ends = Pair { routes: false, ..Pair::default() };
    try_pair(&model, Some(&nic(1, 50)), &ends).expect("a pair");
    let calls = changes(&model);
    assert!(!calls.contains(&"add_route") && !calls.contains(&"set_neighbour"), "{calls:?}");
}

/// A rerun met names in another order and failed: the end that has a name is the end of this name.
#[test]
fn names_that_are_there_in_another_order_do_not_conflict() {
    let model = paired();
    {
        let list = model.device_list();
        let guid = |number: usize| format!("{{{}}}", list[number].instance);
        model.rename(&guid(0), "between").expect("a name");
        model.rename(&guid(1), "SoftNDK 1").expect("a name");
        model.rename(&guid(0), "SoftNDK 2").expect("a name");
    }
    let swapped = Pair { addresses: [TAKEN, Ipv4Addr::new(192, 168, 77, 11)], ..Pair::default() };
    let plan = pair(&model, None, &swapped).expect("a plan");
    assert_eq!((plan.steps, plan.refusals), (vec![], vec![]));
    // One has the other's name, and the other none of them.
    let model = paired();
    {
        let list = model.device_list();
        model.rename(&format!("{{{}}}", list[1].instance), "Ethernet 9").expect("a name");
        model.rename(&format!("{{{}}}", list[0].instance), "SoftNDK 2").expect("a name");
    }
    try_pair(&model, None, &swapped).expect("a pair");
    let mut names = model.aliases();
    names.sort();
    assert_eq!(names, ["SoftNDK 1", "SoftNDK 2"]);
}

#[test]
fn names_and_addresses_of_others_are_refused_before_anything_is_done() {
    let model = Model::default();
    model.add_foreign("softndk 2", Ipv4Addr::new(10, 0, 0, 1));
    let failed = try_pair(&model, Some(&nic(1, 50)), &Pair::default()).expect_err("the name is taken");
    assert!(failed.to_string().contains("--names"), "{failed}");
    assert_eq!(changes(&model), Vec::<&str>::new());

    let model = Model::default();
    model.add_foreign("Ethernet", TAKEN);
    let before = model.state.borrow().clone();
    let failed = try_pair(&model, Some(&nic(1, 50)), &Pair::default()).expect_err("the address is taken");
    assert!(failed.to_string().contains("192.168.77.12 is an address of Ethernet"), "{failed}");
    assert_eq!((failed.left, model::difference(&before, &model.state.borrow())), (vec![], [].into()));
}

#[test]
fn an_address_that_somebody_else_has_on_the_cable_is_undone() {
    let model = with(Manners { duplicates: [TAKEN].into(), ..Manners::default() }, Some(&nic(1, 50)));
    let before = model.state.borrow().clone();
    let failed = try_pair(&model, None, &Pair::default()).expect_err("it is a duplicate");
    assert!(failed.reason.contains("somebody else"), "{failed}");
    assert_eq!((failed.left, model::difference(&before, &model.state.borrow())), (vec![], [].into()));
}

#[test]
fn an_interface_that_is_bound_late_is_waited_for() {
    let model = with(Manners { slow_stack: true, ..Manners::default() }, None);
    try_pair(&model, Some(&nic(1, 50)), &Pair::default()).expect("a pair");
    let model = with(Manners { no_stack: true, ..Manners::default() }, None);
    let failed = try_pair(&model, Some(&nic(1, 50)), &Pair::default()).expect_err("it never has IPv4");
    assert!(failed.reason.contains("no IPv4") && failed.remedy.is_some(), "{failed}");
    assert_eq!((failed.left, model.device_list().len()), (vec![], 0));
}

#[test]
fn without_two_nics_the_package_is_asked_for() {
    let failed = try_pair(&Model::default(), None, &Pair::default()).expect_err("there are none");
    assert!(failed.to_string().contains("--package"), "{failed}");
}

#[test]
fn ends_that_cannot_be_are_refused() {
    let model = installed(&nic(1, 50));
    let ends = Pair::default();
    let [one, other] = ends.addresses;
    for wrong in [
        Pair { addresses: [one, one], ..ends.clone() },
        Pair { addresses: [one, Ipv4Addr::new(192, 168, 78, 12)], ..ends.clone() },
        Pair { addresses: [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)], ..ends.clone() },
        Pair { names: ["a".to_owned(), "A".to_owned()], ..ends.clone() },
        Pair { names: ["a".to_owned(), " ".to_owned()], ..ends },
    ] {
        let plan = pair(&model, None, &wrong).expect("a plan");
        assert_eq!(plan.refusals.len(), 1, "{wrong:?}");
    }
    let near = Pair { addresses: [one, other], bits: 29, ..Pair::default() };
    assert_eq!(pair(&model, None, &near).expect("a plan").refusals, []);
}

/// A NIC whose driver changes starts anew, and loses what the IP Helper has set.
#[test]
fn an_upgrade_sets_the_pair_up_again() {
    let model = paired();
    try_pair(&model, Some(&nic(2, 60)), &Pair::default()).expect("an upgrade");
    let plan = pair(&model, None, &Pair::default()).expect("a plan");
    assert_eq!(plan.steps, []);
    assert_eq!(model.versions(&NIC), [2]);
    let model = paired();
    let done = try_install(&model, &nic(2, 60)).expect("an upgrade");
    assert!(done.notices.iter().any(|notice| notice.contains("nic pair")), "{done:?}");
}

#[test]
fn a_restart_in_the_middle_is_said() {
    let model = with(Manners { restart: true, ..Manners::default() }, Some(&nic(1, 50)));
    let done = try_pair(&model, Some(&nic(2, 60)), &Pair::default()).expect("after a restart");
    assert!(done.restart, "{done:?}");
}
