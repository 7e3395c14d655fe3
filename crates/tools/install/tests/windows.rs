//! This machine, where it has Windows, only looked at: nothing here changes it. Under Wine it says how far Wine goes
//! (`cargo xtask installer`).

#![cfg(windows)]

use install::{
    Certificate, Choice, Driver, Machine, PROVIDER, Package, Pair, Store, Verdict, Wanted, Windows, examine,
};

/// What this Windows does, and what it does not.
fn told<T: std::fmt::Debug>(what: &str, answer: &install::Result<T>) {
    match answer {
        Ok(value) => println!("{what}: {value:?}"),
        Err(fault) => println!("{what}: FAILS: {fault}"),
    }
}

#[test]
fn every_part_of_the_machine_can_be_asked_for() {
    let machine = Windows::new();
    // One that nobody trusts, of a key that nobody has kept.
    let certificate = Certificate { der: include_bytes!("nobody.der").as_slice().into(), path: "none".into() };
    told("facts", &machine.facts());
    for store in Store::ALL {
        told(&format!("certificate in {}", store.name()), &machine.trusts(store, &certificate));
    }
    for driver in Driver::ALL {
        told(&format!("packages of {}", driver.name), &machine.staged(driver));
        told(&format!("devices of {}", driver.name), &machine.devices(driver));
        told(&format!("service of {}", driver.name), &machine.loaded(driver));
    }
    let none = "{00000000-0000-0000-0000-000000000001}";
    told("interface", &machine.interface(none));
    told("waiting for an interface", &machine.await_interface(none, std::time::Duration::ZERO));
    told("alias", &machine.named("no such interface"));
    told("who has 192.168.77.11", &machine.holder([192, 168, 77, 11].into()));
    told("firewall", &machine.firewall());
    let facts = machine.facts().expect("every Windows says what it is");
    assert!(facts.version.0 >= 6 && facts.processor.is_some(), "{facts:?}");
}

/// Notifications of devices. In a test of its own: a Wine without them ends the program.
#[test]
fn a_device_can_be_waited_for() {
    let machine = Windows::new();
    let answer = machine.await_device(&PROVIDER, r"ROOT\SOFTNDK\0000", std::time::Duration::ZERO);
    told("device", &answer);
    assert!(answer.is_ok_and(|device| device.is_none()), "nobody has made one");
}

#[test]
fn the_doctor_examines_this_machine() {
    let checks = examine(&Windows::new());
    for check in &checks {
        println!("{:?} {}: {} ({:?})", check.verdict, check.name, check.found, check.remedy);
    }
    let names: Vec<_> = checks.iter().map(|check| check.name.as_str()).collect();
    for name in ["Windows", "processor", "elevation", "Secure Boot", "test signing", "memory integrity (HVCI)"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    assert!(checks.iter().all(|check| check.verdict == Verdict::Good || !check.found.is_empty()));
}

#[test]
fn a_plan_is_made_and_not_carried_out() {
    let machine = Windows::new();
    let package = Package {
        driver: &PROVIDER,
        inf: r"C:\none\softndk.inf".into(),
        version: install::Version { date: (2026, 1, 1), number: [0, 1, 0, 0] },
        processors: install::Processor::OWN.into_iter().collect(),
        fingerprint: 1,
    };
    let wanted = Wanted {
        packages: vec![(Choice { driver: &PROVIDER, devices: 1 }, package)],
        certificate: None,
        downgrade: false,
    };
    for plan in [install::install(&machine, &wanted), install::pair(&machine, None, &Pair::default())] {
        match plan {
            Ok(plan) => println!("{plan:?}"),
            Err(fault) => println!("no plan: {fault}"),
        }
    }
}
