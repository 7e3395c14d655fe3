//! Installing, undoing and looking, on a model of Windows.

mod failures;
mod model;
mod network;
mod packages;
mod rules;

use install::{
    Choice, Done, Driver, Failed, Machine, NDKTEST, NIC, Options, PROVIDER, Package, Pair, Plan, Wanted, install, pair,
};
use model::{Failing, Manners, Model, certificate, package};

/// The drivers without the NIC, two adapters of the provider.
fn both(minor: u16, fingerprint: u64) -> Wanted {
    let provider = package(&PROVIDER, minor, fingerprint);
    let consumer = package(&NDKTEST, minor, fingerprint + 1);
    let packages =
        vec![(Choice { driver: &PROVIDER, devices: 2 }, provider), (Choice { driver: &NDKTEST, devices: 1 }, consumer)];
    Wanted { packages, certificate: Some(certificate()), downgrade: false }
}

/// The NIC.
fn nic(minor: u16, fingerprint: u64) -> Wanted {
    let packages = vec![(Choice::PAIR, package(&NIC, minor, fingerprint))];
    Wanted { packages, certificate: Some(certificate()), downgrade: false }
}

fn bring(model: &Model, wanted: &Wanted) {
    for (_, package) in &wanted.packages {
        model.bring(package);
    }
}

fn carry_out(model: &Model, plan: &Plan) -> Result<Done, Failed> {
    plan.run(model, Options::default(), &mut |_| {})
}

/// Installs; what cannot be planned has failed too.
fn try_install(model: &Model, wanted: &Wanted) -> Result<Done, Failed> {
    bring(model, wanted);
    carry_out(model, &install(model, wanted).map_err(|fault| unplanned(&fault))?)
}

fn try_pair(model: &Model, wanted: Option<&Wanted>, ends: &Pair) -> Result<Done, Failed> {
    if let Some(wanted) = wanted {
        bring(model, wanted);
    }
    carry_out(model, &pair(model, wanted, ends).map_err(|fault| unplanned(&fault))?)
}

/// A machine that cannot be looked at is not touched either.
fn unplanned(fault: &install::Fault) -> Failed {
    Failed {
        step: "looking first".to_owned(),
        reason: fault.to_string(),
        remedy: None,
        restart: false,
        left: Vec::new(),
    }
}

/// A machine with the drivers.
fn installed(wanted: &Wanted) -> Model {
    let model = Model::default();
    try_install(&model, wanted).expect("it is installed");
    model
}

/// The calls that changed something.
fn changes(model: &Model) -> Vec<&'static str> {
    let calls = model.calls.borrow();
    let changing = [
        "trust",
        "distrust",
        "stage",
        "unstage",
        "create_device",
        "remove_device",
        "bind",
        "rename",
        "set_dad_transmits",
        "add_address",
        "set_neighbour",
        "add_route",
    ];
    calls.iter().copied().filter(|call| changing.contains(call)).collect()
}

fn devices(model: &Model, driver: &Driver) -> usize {
    model.device_list().iter().filter(|device| device.driver == driver && device.started).count()
}

/// A package's file stands for its driver.
fn files(package: &Package) -> u64 {
    package.fingerprint
}

/// A machine with these manners and the drivers of `wanted`.
fn with(manners: Manners, wanted: Option<&Wanted>) -> Model {
    let model = wanted.map_or_else(Model::default, installed);
    Model { manners, ..model.again(Failing::Never) }
}

#[test]
fn a_machine_that_is_only_looked_at_stays_as_it_is() {
    let model = installed(&both(1, 10));
    let before = model.state.borrow().clone();
    let model = model.again(Failing::Never);
    install::examine(&model);
    install::status(&model).expect("the status");
    install(&model, &both(2, 20)).expect("a plan");
    install::uninstall(&model, &Driver::ALL, Some(&certificate())).expect("a plan");
    assert_eq!((changes(&model), &*model.state.borrow()), (vec![], &before));
    assert!(model.loaded(&PROVIDER).expect("an answer"));
}
