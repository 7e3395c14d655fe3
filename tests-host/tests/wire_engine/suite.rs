//! The conformance suite between two adapters that reach each other by frames only: each case ends as in memory, or is listed with the
//! reason.

use std::{collections::BTreeMap, sync::LazyLock, thread};

use conformance::{
    Case, Outcome, Run, cases,
    host::{Harness, Impairments, Scheduler, Setup},
};
use ndkpi::NDK_VERSION;
use testing::share::share;

use super::{CLEAN, on_cable};

/// Cases that end otherwise, with the beginning of how, and why.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    (
        "invalidate.bad-token",
        "observed: the send ends with STATUS_SUCCESS, the receive with STATUS_INVALID",
        INVALIDATE,
    ),
    (
        "invalidate.plain-region",
        "observed: the send ends with STATUS_SUCCESS, the receive with STATUS_INVALID",
        INVALIDATE,
    ),
    ("invalidate.token-of-another-domain", "observed: the receive ends with STATUS_INVALID_DEVICE_REQUEST", INVALIDATE),
];

const INVALIDATE: &str = "RoCEv2 7: the responder acknowledges the SEND, fails its receive, and ends the connection";

/// Cases that may end otherwise, because it takes time until a message is there.
const TIMING: &[(&str, &str, &str)] = &[
    ("connect.passive-side-gives-up", "failed: NdkCompleteConnect: STATUS_SUCCESS", REJ),
    ("connect.rejected-after-the-peer-gave-up", "failed: NdkReject by the active side: STATUS_SUCCESS", REJ),
    ("object.requests-complete-once", "observed: ", "a connect over the wire pends, whatever the mode"),
];

const REJ: &str = "the peer's REJ is still on its way; the disconnect event follows";

/// Cases that may end otherwise on a cable that loses frames.
const IMPAIRED: &[(&str, &str, &str)] = &[(
    "overrun.unarmed",
    "observed: callbacks: 1, none with an error",
    "the messages that overrun the queue come later",
)];

/// A responder that refuses a request says so once, before it ends the connection. If that NAK is lost, or the DREQ overtakes it, the
/// requester learns of the end only: its request ends with `STATUS_IO_TIMEOUT` in place of `STATUS_REMOTE_RESOURCES`, and nothing else differs.
fn is_lost_nak(here: &str, there: &str) -> bool {
    let otherwise = there.replace("STATUS_IO_TIMEOUT", "STATUS_REMOTE_RESOURCES");
    let says_the_same = otherwise == here && there != here;
    // A case that looks for the status itself, and says what it has found.
    let is_what_it_looks_for =
        there.starts_with("observed: not STATUS_REMOTE_RESOURCES but ") && there.ends_with(": STATUS_IO_TIMEOUT");
    says_the_same || (here == "passed" && is_what_it_looks_for)
}

fn setup(wire: bool, scheduler: Scheduler, impairments: Impairments) -> Setup {
    let setup = on_cable(scheduler, impairments);
    if wire { Setup { patience: 20_000_000, ..setup } } else { Setup { wire: None, ..setup } }
}

fn outcomes(setup: Setup, seed: u64, cases: impl Iterator<Item = &'static Case>) -> BTreeMap<&'static str, Outcome> {
    let harness = Harness::new(setup);
    let how = Run { version: NDK_VERSION::V2_1, seed, hostile: true };
    cases.map(|case| (case.name, harness.run(case, how).outcome)).collect()
}

fn is_listed(list: &[(&str, &str, &str)], name: &str, seen: &str) -> bool {
    list.iter().any(|(case, text, _)| *case == name && seen.starts_with(text))
}

/// The cases that end neither as in memory nor as `allows` says. `there` may have fewer cases.
fn unlike(
    here: &BTreeMap<&str, Outcome>,
    there: &BTreeMap<&str, Outcome>,
    allows: impl Fn(&str, &str) -> bool,
) -> Vec<String> {
    let differ = here.iter().filter(|(name, outcome)| there.get(*name).is_some_and(|seen| seen != *outcome));
    let unlisted = differ.filter(|(name, _)| !allows(name, &there[*name].to_string()));
    unlisted.map(|(name, outcome)| format!("{name}\n  in memory: {outcome}\n  by frames: {}", there[name])).collect()
}

const SEEDED: Scheduler = Scheduler::Seeded { seed: 0, preemption: 10 };

/// How the cases end in memory.
static IN_MEMORY: LazyLock<BTreeMap<&'static str, Outcome>> =
    LazyLock::new(|| outcomes(setup(false, SEEDED, CLEAN), 1, cases::all()));

/// Every case by a seed, and some on a machine of threads.
fn on_a_clean_cable(every: usize) {
    let ways = [(SEEDED, 1), (Scheduler::Threads, every)];
    let runs = thread::scope(|scope| {
        let run = |(scheduler, every)| outcomes(setup(true, scheduler, CLEAN), 1, cases::all().step_by(every));
        ways.map(|way| scope.spawn(move || run(way))).map(|run| run.join().expect("the cases have ended"))
    });
    for ((scheduler, every), there) in ways.into_iter().zip(runs) {
        let here = &*IN_MEMORY;
        assert!(there.len() * every > 400, "{} cases", there.len());
        let wrong =
            unlike(here, &there, |name, seen| is_listed(DIFFERENCES, name, seen) || is_listed(TIMING, name, seen));
        assert!(wrong.is_empty(), "{} of {}, {scheduler:?}:\n{}", wrong.len(), here.len(), wrong.join("\n"));
        for (name, text, why) in DIFFERENCES {
            assert!(here.contains_key(name), "{name} is no case");
            let Some(seen) = there.get(name).map(ToString::to_string) else { continue };
            assert!(seen.starts_with(text), "{name} is not as listed ({why}): {seen}");
        }
    }
}

#[test]
fn cases_end_as_in_memory() {
    on_a_clean_cable(3);
}

#[test]
#[ignore = "cargo test --test wire_engine -- --ignored: half a minute"]
fn cases_end_as_in_memory_on_a_machine_of_threads_too() {
    on_a_clean_cable(1);
}

/// Each case on so many of the kinds of spoilt cables, and on each kind some.
fn on_spoilt_cables(kinds_of_a_case: usize) {
    let kinds = [
        Impairments { loss: 20, ..CLEAN },
        Impairments { duplicates: 50, disorder: 50, ..CLEAN },
        Impairments { corruption: 20, ..CLEAN },
        Impairments::all(10),
    ];
    let run = |kind: usize| {
        let impairments = kinds[kind];
        let here = &*IN_MEMORY;
        let some = share(cases::all(), kind, kinds.len(), kinds_of_a_case);
        let there = outcomes(setup(true, SEEDED, impairments), kind as u64 + 1, some);
        assert!((there.len() + 1) * kinds.len() > here.len() * kinds_of_a_case, "{} cases", there.len());
        let unlisted = unlike(here, &there, |name, seen| {
            is_lost_nak(&here[name].to_string(), seen)
                || [DIFFERENCES, TIMING, IMPAIRED].iter().any(|list| is_listed(list, name, seen))
        });
        unlisted.iter().map(|case| format!("{impairments:?}: {case}")).collect::<Vec<_>>()
    };
    let wrong = thread::scope(|scope| {
        let run = &run;
        let runs = [0, 1, 2, 3].map(|kind| scope.spawn(move || run(kind)));
        runs.map(|run| run.join().expect("the cases have ended")).concat()
    });
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn cases_end_as_in_memory_on_a_spoilt_cable() {
    on_spoilt_cables(1);
}

#[test]
#[ignore = "cargo test --test wire_engine -- --ignored: half a minute"]
fn cases_end_as_in_memory_on_each_spoilt_cable() {
    on_spoilt_cables(4);
}
