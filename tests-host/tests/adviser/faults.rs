//! Every call that a provider may fail, failed once: the consumer of the conformance suite closes what it has, and nothing is left.

use std::collections::BTreeSet;

use conformance::{
    Run, cases,
    host::{Scheduler, Setup, run_behind},
};
use host::HostOs;
use interpose::{
    Function,
    faults::{Faults, Plan, Tally, Which, legitimate},
};
use ndkpi::NDK_VERSION;
use provider::CompletionMode;

/// Runs a case with faults. What they did, and how the case has ended.
fn run(name: &str, plan: Plan) -> (fallible::Arc<Tally>, conformance::Outcome) {
    let case = cases::all().find(|case| case.name == name).expect("the case");
    let setup = Setup {
        scheduler: Scheduler::Seeded { seed: 3, preemption: 0 },
        completion: CompletionMode::Mixed,
        tokens: Some(1 << 8),
        ..Setup::default()
    };
    let tally = fallible::Arc::try_new(Tally::default()).expect("memory");
    let kept = tally.clone();
    let make = move |os: &HostOs| Faults::new(os.clone(), plan, kept.clone());
    let how = Run { version: NDK_VERSION::new(2, 0), seed: 1, hostile: true };
    let outcome = run_behind(setup, case, how, Box::new(make));
    let outcome = outcome.unwrap_or_else(|wrong| panic!("{name}, {plan:?}, {:?} was refused: {wrong}", tally.last()));
    (tally, outcome)
}

#[test]
fn each_call_that_may_fail_fails_once_and_nothing_is_left() {
    let mut refused = BTreeSet::new();
    for name in ["transfer.bytes-arrive", "window.bind-use-invalidate", "fast.register-use-invalidate"] {
        let (whole, outcome) = run(name, Plan { function: None, which: Which::Nth(0) });
        assert!(!outcome.is_failure(), "{name}: {outcome}");
        assert_eq!(whole.refused(), 0);
        for nth in 1..=whole.calls() {
            let (tally, outcome) = run(name, Plan { function: None, which: Which::Nth(nth) });
            // Who is refused something comes to fewer calls, never past the one that was refused without noticing.
            assert_eq!(tally.refused(), 1, "{name}, call {nth}");
            let function = tally.last().expect("one was refused");
            refused.insert(function);
            let (status, section) = legitimate(function).expect("it may fail");
            assert!(outcome.is_failure(), "{name}, call {nth}: {function:?} was refused with {status} ({section})");
        }
    }
    for function in [Function::CreateCq, Function::CreateQp, Function::RegisterMr, Function::Connect, Function::Send] {
        assert!(refused.contains(&function), "{function:?} was never refused: {refused:?}");
    }
}

#[test]
fn chance_is_determined_by_its_seed() {
    let plan =
        |seed, per_million| Plan { function: Some(Function::CreateMr), which: Which::Chance { seed, per_million } };
    let name = "object.create-and-close";
    let refused = |seed, per_million| run(name, plan(seed, per_million)).0.calls();
    assert_eq!(refused(1, 100_000), refused(1, 100_000));
    let many: BTreeSet<_> = (0..8).map(|seed| refused(seed, 100_000)).collect();
    assert!(many.len() > 1, "every seed refuses the same call: {many:?}");
    assert_eq!(run(name, plan(1, 0)).0.refused(), 0);
    assert_eq!(run(name, plan(1, 1_000_000)).0.refused(), 1, "the first one, and then the case ends");
}
