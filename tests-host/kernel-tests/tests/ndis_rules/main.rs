//! Simulated NDIS: a miniport driver that keeps its rules works, and one that breaks a rule is caught.
//!
//! Each driver that is wrong runs in a process of its own, which the bug check ends.

#![cfg(unix)]

extern crate wdk_bindings as wdk_sys;

/// Tests of drivers that each break a rule: a module's `does` has one do some work.
macro_rules! wrong {
    ($($name:ident breaks $rule:ident by $work:expr;)+) => {
        $(
            #[test]
            fn $name() {
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || does($work));
            }
        )+
    };
}

mod miniport;

mod data_starts;
mod faults;
mod filters;
mod generic_objects;
mod keywords;
mod kmdf;
mod lifecycle;
mod net_buffers;
mod own;
mod pending;
mod protocols;
mod rw_locks;
mod timers;
mod wrong;

/// Whoever adds a routine to the crate adds it to the simulation: without it, a driver that uses it does not link.
#[test]
fn every_routine_of_ndis_is_simulated() {
    let facts = include_str!("../../../facts/ndis-facts.json");
    let facts: serde_json::Value = serde_json::from_str(facts).expect("the facts are JSON");
    let declared = facts["functions"].as_object().expect("functions").keys();
    let mut declared: Vec<&str> = declared.map(String::as_str).filter(|name| name.starts_with("Ndis")).collect();
    let mut simulated = simulated_kernel::NDIS_ROUTINES.to_vec();
    declared.sort_unstable();
    simulated.sort_unstable();
    assert_eq!(declared, simulated);
}
