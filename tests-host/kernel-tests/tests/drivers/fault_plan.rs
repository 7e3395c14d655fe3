//! Faults in front of the driver's adapters: off by default, asked for by a control code, each of them seen by a consumer.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use control::provider_device::{FAULT_PLAN_ANSWER_BYTES, FAULT_PLAN_BYTES, QUERY_FAULT_PLAN, SET_FAULT_PLAN};
use interpose::faults::{Delay, Kind, Plan, Rule, Which};
use kernel::KernelRuntime;
use ndk::{Adapter, NtStatus, Offer, QpSizes};
use simulated_kernel::{
    File, Kernel,
    wdk::{STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_PARAMETER},
};

use crate::{
    faulty,
    provider_interface::Interface,
    world::{Provider, provider_control},
};

/// The address of the first adapter.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// The plan in force, and how often its first rule has happened.
fn in_force(file: &File) -> (Plan, u64) {
    let answer = file.control(QUERY_FAULT_PLAN, &[], FAULT_PLAN_ANSWER_BYTES);
    assert!(answer.is_success());
    let (plan, counts) = answer.bytes.split_at(FAULT_PLAN_BYTES);
    let made = counts[8..16].try_into().map(u64::from_le_bytes).expect("eight bytes");
    (Plan::from_bytes(plan).expect("a plan"), made)
}

/// Uses an adapter with this fault in front of it. How that went, and how often the fault has happened.
fn with_fault(kernel: &Kernel, rule: Rule, advise: bool) -> (Result<(), NtStatus>, u64) {
    let parameters = advise.then_some(("Advise", simulated_kernel::Value::Number(1)));
    let provider = Provider::load_with(kernel, parameters.as_slice()).expect("the provider loads");
    let file = provider_control(kernel);
    let plan = Plan::new(1).with(rule).expect("a rule");
    assert!(file.control(SET_FAULT_PLAN, &plan.to_bytes(), 0).is_success());
    let interface = Arc::new(Interface::of(&provider.device));
    let raw = interface.open(ndk::NDK_VERSION::V2_1).expect("it opens");
    let mut outcome = Ok(());
    provider.driver.run(|| {
        let theirs = interface.clone();
        let os = Box::new(KernelRuntime::new(move |adapter| {
            // SAFETY: the adapter came from this interface, and is not used again.
            unsafe { theirs.close(adapter) }
        }));
        // SAFETY: the adapter was just opened, and `os` closes such an adapter.
        let adapter = unsafe { Adapter::from_raw(raw, os) }.expect("information");
        outcome = faulty::use_it(&adapter, ADDRESS);
    });
    let (_, made) = in_force(&file);
    drop((interface, file));
    let Provider { driver, device } = provider;
    assert_eq!(device.has_failed(), rule.kind == Kind::Remove, "plug and play is told of what was pulled");
    // What the system does with a device that has failed.
    if device.has_failed() {
        device.surprise_remove();
    } else {
        assert!(device.remove().is_ok(), "the adapter is removed");
    }
    // Looks for memory, timers and DPCs that are left.
    driver.unload();
    (outcome, made)
}

/// Asks an adapter for a connection with itself, which nobody accepts.
fn connect(adapter: &Adapter) -> Result<(), NtStatus> {
    let (domain, queue) = (adapter.create_pd()?, adapter.create_cq(8)?);
    let qp = domain.create_qp(&queue, &queue, QpSizes::default(), 1)?;
    let here = (ADDRESS, 0).into();
    let acceptor = adapter.acceptor(here)?;
    let there = acceptor.local_address()?;
    adapter.create_connector()?.connect(&qp, here, there, &Offer::default())?.wait().map(drop)
}

/// An adapter that has slept is used as before; what it had going on has ended.
#[test]
fn an_adapter_of_the_driver_ends_its_connections_when_it_sleeps_and_can_be_used_when_it_wakes() {
    for seed in 1..6 {
        let kernel = Kernel::seeded(seed).start();
        let provider = Provider::load(&kernel).expect("the provider loads");
        let interface = Arc::new(Interface::of(&provider.device));
        let raw = interface.open(ndk::NDK_VERSION::V2_1).expect("it opens");
        provider.driver.run(|| {
            let theirs = interface.clone();
            let os = Box::new(KernelRuntime::new(move |adapter| {
                // SAFETY: the adapter came from this interface, and is not used again.
                unsafe { theirs.close(adapter) }
            }));
            // SAFETY: the adapter was just opened, and `os` closes such an adapter.
            let adapter = unsafe { Adapter::from_raw(raw, os) }.expect("information");
            let use_it = || faulty::use_it(&adapter, ADDRESS);
            assert_eq!(use_it(), Ok(()));
            for _ in 0..2 {
                provider.device.sleep();
                assert_eq!(interface.open(ndk::NDK_VERSION::V2_1).err(), Some(NtStatus::NDIS_ADAPTER_NOT_READY));
                assert_eq!(connect(&adapter), Err(NtStatus::HOST_UNREACHABLE), "nothing begins");
                provider.device.wake();
                assert_eq!(use_it(), Ok(()));
            }
        });
        drop(interface);
        provider.unload();
    }
}

#[test]
fn each_fault_is_seen_by_a_consumer_of_the_driver() {
    for (rule, statuses) in faulty::faults() {
        // By a seed, so that it is the same each time.
        let (outcome, made) = with_fault(&Kernel::seeded(5).start(), rule, false);
        faulty::check(rule, statuses, outcome, made);
    }
}

#[test]
fn faults_and_the_adviser_go_together() {
    let late = Rule { delay: Delay::Uniform(0, 500), ..Rule::new(Kind::Late, Which::Every(2)) };
    let (outcome, made) = with_fault(&Kernel::seeded(6).start(), late, true);
    assert_eq!(outcome, Ok(()));
    assert!(made > 0);
}

#[test]
fn without_a_plan_the_tables_are_the_providers_own() {
    let kernel = Kernel::threads().start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    let (file, interface) = (provider_control(&kernel), Interface::of(&provider.device));
    let table = || {
        let adapter = interface.open(ndk::NDK_VERSION::V2_1).expect("it opens");
        // SAFETY: the adapter is open.
        let table = unsafe { (*adapter).Dispatch }.addr();
        // SAFETY: it was opened here, and is not used after this.
        unsafe { interface.close(adapter) };
        table
    };
    let plain = table();
    let plan = Plan::new(0).with(Rule::new(Kind::Refuse, Which::Nth(1))).expect("a rule");
    assert!(file.control(SET_FAULT_PLAN, &plan.to_bytes(), 0).is_success());
    assert_ne!(table(), plain);
    assert!(file.control(SET_FAULT_PLAN, &Plan::new(0).to_bytes(), 0).is_success());
    assert_eq!(table(), plain, "off again");
    drop((interface, file));
    provider.unload();
}

#[test]
fn what_is_no_plan_changes_nothing() {
    let kernel = Kernel::threads().start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    let file = provider_control(&kernel);
    let rule = Rule { delay: Delay::Exponential(50, 5_000), ..Rule::new(Kind::Late, Which::Chance(1_000)) };
    let plan = Plan::new(77).with(rule).expect("a rule");
    let bytes = plan.to_bytes();
    assert!(file.control(SET_FAULT_PLAN, &bytes, 0).is_success());
    for length in [0, 1, 16, FAULT_PLAN_BYTES - 1] {
        assert_eq!(file.control(SET_FAULT_PLAN, &bytes[..length], 0).status, STATUS_BUFFER_TOO_SMALL, "{length}");
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    assert_eq!(file.control(SET_FAULT_PLAN, &longer, 0).status, STATUS_INVALID_PARAMETER);
    assert_eq!(file.control(QUERY_FAULT_PLAN, &[], FAULT_PLAN_ANSWER_BYTES - 1).status, STATUS_BUFFER_TOO_SMALL);
    let (mut now, mut refused, mut number) = (plan, 0, 1_u32);
    for _ in 0..5_000 {
        let mut bytes = now.to_bytes();
        for _ in 0..2 {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let place = number as usize >> 8;
            bytes[place % 64] ^= 1 << (number >> 29);
        }
        let status = file.control(SET_FAULT_PLAN, &bytes, 0).status;
        match Plan::from_bytes(&bytes) {
            Ok(plan) => {
                assert_eq!(status, 0, "{plan:?}");
                now = plan;
            }
            Err(wrong) => {
                refused += 1;
                assert_eq!(status, STATUS_INVALID_PARAMETER, "{wrong}");
            }
        }
        assert_eq!(in_force(&file).0, now);
    }
    assert!(refused > 1_000, "{refused}");
    drop(file);
    provider.unload();
}
