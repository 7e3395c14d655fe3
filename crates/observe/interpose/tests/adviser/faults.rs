//! Every call that a provider may fail, failed once: the consumer of the conformance suite closes what it has, and nothing is left.
//! And the suite on a provider that is late in everything in which it may be.

use std::collections::BTreeSet;

use conformance::{
    Outcome, Run, cases,
    host::{Scheduler, Setup, run_behind},
};
use host::HostOs;
use interpose::{
    Function,
    faults::{Delay, Faults, Kind, Plan, Rule, Tally, Which, legitimate},
};
use ndkpi::NDK_VERSION;
use provider::CompletionMode;

/// Runs a case with faults. What they did, and how the case has ended.
fn run(name: &str, plan: &Plan) -> (fallible::Arc<Tally>, Outcome) {
    let case = cases::all().find(|case| case.name == name).expect("the case");
    let setup = Setup {
        scheduler: Scheduler::Seeded { seed: 3, preemption: 0 },
        completion: CompletionMode::Mixed,
        tokens: Some(1 << 8),
        ..Setup::default()
    };
    let tally = fallible::Arc::try_new(Tally::new(*plan)).expect("memory");
    let kept = tally.clone();
    let make = move |os: &HostOs| Faults::new(os.clone(), kept.clone());
    let how = Run { version: NDK_VERSION::new(2, 0), seed: 1, hostile: true };
    let outcome = run_behind(setup, case, how, Box::new(make));
    let outcome = outcome.unwrap_or_else(|wrong| panic!("{name}, {plan:?}, last {:?}: {wrong}", tally.last()));
    (tally, outcome)
}

fn one(seed: u64, rule: Rule) -> Plan {
    Plan::new(seed).with(rule).expect("a rule")
}

fn nth(number: u32) -> Plan {
    one(1, Rule::new(Kind::Refuse, Which::Nth(number)))
}

#[test]
fn each_call_that_may_fail_fails_once_and_nothing_is_left() {
    let mut refused = BTreeSet::new();
    for name in ["transfer.bytes-arrive", "window.bind-use-invalidate", "fast.register-use-invalidate"] {
        let (whole, outcome) = run(name, &nth(0));
        assert!(!outcome.is_bad(), "{name}: {outcome}");
        assert_eq!(whole.made(), 0);
        for number in 1..=u32::try_from(whole.calls()).expect("few") {
            let (tally, outcome) = run(name, &nth(number));
            // Who is refused something comes to fewer calls, never past the one that was refused without noticing.
            assert_eq!(tally.made(), 1, "{name}, call {number}");
            let function = tally.last().expect("one was refused");
            refused.insert(function);
            let (status, section) = legitimate(function).expect("it may fail");
            assert!(outcome.is_bad(), "{name}, call {number}: {function:?} was refused with {status} ({section})");
        }
    }
    for function in [Function::CreateCq, Function::CreateQp, Function::RegisterMr, Function::Connect, Function::Send] {
        assert!(refused.contains(&function), "{function:?} was never refused: {refused:?}");
    }
}

#[test]
fn each_request_that_may_fail_later_does_once_and_nothing_is_left() {
    let mut failed = BTreeSet::new();
    let fail = |number| one(1, Rule { delay: Delay::Uniform(0, 500), ..Rule::new(Kind::Fail, Which::Nth(number)) });
    let name = "transfer.bytes-arrive";
    let (whole, outcome) = run(name, &fail(0));
    assert!(!outcome.is_bad(), "{outcome}");
    for number in 1..=u32::try_from(whole.calls()).expect("few") {
        let (tally, outcome) = run(name, &fail(number));
        assert_eq!(tally.made(), 1, "call {number}");
        failed.insert(tally.last().expect("one has failed"));
        assert!(outcome.is_bad(), "call {number}: {:?} has failed", tally.last());
    }
    for function in [Function::Connect, Function::Accept, Function::CompleteConnect, Function::CreateQp] {
        assert!(failed.contains(&function), "{function:?} never failed: {failed:?}");
    }
}

#[test]
fn chance_is_determined_by_its_seed() {
    let plan = |seed, per_million| {
        let rule = Rule::new(Kind::Refuse, Which::Chance(per_million));
        one(seed, Rule { function: Some(Function::CreateMr), ..rule })
    };
    let name = "object.create-and-close";
    let refused = |seed, per_million| run(name, &plan(seed, per_million)).0.calls();
    assert_eq!(refused(1, 100_000), refused(1, 100_000));
    let many: BTreeSet<_> = (0..8).map(|seed| refused(seed, 100_000)).collect();
    assert!(many.len() > 1, "every seed refuses the same call: {many:?}");
    assert_eq!(run(name, &plan(1, 0)).0.made(), 0);
    assert_eq!(run(name, &plan(1, 1_000_000)).0.made(), 1, "the first one, and then the case ends");
}

/// The rules of a provider and a network that are late wherever they may be.
fn late() -> Plan {
    let rule = |kind, per_million| Rule {
        delay: if kind == Kind::Early { Delay::NONE } else { Delay::Exponential(200, 2_000) },
        ..Rule::new(kind, Which::Chance(per_million))
    };
    let rules = [rule(Kind::Late, 400_000), rule(Kind::Early, 500_000), rule(Kind::Event, 300_000)];
    rules.into_iter().fold(Plan::new(7), |plan, rule| plan.with(rule).expect("a rule"))
}

#[test]
fn the_suite_holds_on_a_provider_that_is_late_in_everything() {
    let (mut failed, mut made) = (Vec::new(), 0);
    for case in cases::all() {
        let (tally, outcome) = run(case.name, &late());
        made += tally.made();
        if outcome.is_bad() {
            failed.push(format!("{}: {outcome}", case.name));
        }
    }
    assert!(made > 1000, "{made} faults");
    assert!(failed.is_empty(), "{}\n{}", failed.len(), failed.join("\n"));
}
