//! The suite with its second adapter behind an agent: every case ends as with both adapters at hand, or otherwise for a reason that is
//! listed. And what a dead channel, a slow one and hostile calls do.

mod hostile;
mod machines;

use std::time::Duration;

use conformance::{
    Case, Outcome, Run, cases,
    host::{Impairments, Setup},
};
use ndkpi::NDK_VERSION;
use provider::CompletionMode;

use machines::{Quality, run, run_directly, setup};

const HOW: Run = Run { version: NDK_VERSION::new(2, 0), seed: 1, hostile: true };

/// Cases that end otherwise, or may do so, and why.
const DIFFERENCES: &[(&str, &str)] = &[
    ("notify.not-inside-arm", RAISED),
    ("post.at-dispatch-level", RAISED),
    ("notify.affinity", "skipped: a callback runs where the pump does"),
    ("qp.queue-of-another-adapter", TWO),
    ("bad-input.regions-of-another-adapter", TWO),
    ("bad-input.shared-queue-of-another-domain", TWO),
    ("bad-input.queue-pair-of-another-adapter", TWO),
    ("fast.bad-arithmetic", WITHHELD),
    ("fast-register.wrong-arithmetic", WITHHELD),
    ("fast-register.pages-without-mapping", WITHHELD),
    ("logical.unmapped-address", WITHHELD),
    ("logical.after-release", WITHHELD),
    ("bad-input.greatest-lengths", "skipped: the agent maps no more bytes than there are"),
    (
        "object.requests-complete-once",
        "observed: a callback may come before its function has returned, as the pump is a thread",
    ),
];

const RAISED: &str = "skipped: a call has to wait, and the case makes it at DISPATCH_LEVEL";
const TWO: &str = "skipped: objects of the one machine are given to the other";
const WITHHELD: &str = "skipped: the agent gives its adapter no logical address outside its mappings";

/// Over a wire, cases that end otherwise from run to run, also with both adapters at hand.
const BY_CHANCE: &[&str] =
    &["overrun.unarmed", "transfer.receives-come-late", "invalidate.bad-token", "invalidate.plain-region"];

/// Runs cases both ways, and returns how many ended in the same way.
fn compare<'c>(cases: impl Iterator<Item = &'static Case> + 'c, setup: Setup, by_chance: &[&str]) -> (usize, usize) {
    let (mut same, mut all, mut others) = (0, 0, Vec::new());
    for case in cases {
        all += 1;
        let there = match run(case, HOW, setup, Quality::default()) {
            Ok((outcome, _)) => outcome,
            Err(wrong) => {
                others.push(format!("{}: {wrong}", case.name));
                continue;
            }
        };
        let here = run_directly(case, HOW, setup);
        let is_listed = DIFFERENCES.iter().any(|(name, why)| *name == case.name && why.starts_with(there.word()))
            || by_chance.contains(&case.name);
        let is_same = there == here;
        same += usize::from(is_same);
        if there.is_bad() || !is_same && !is_listed {
            others.push(format!("{}: behind the agent {there}, at hand {here}", case.name));
        }
    }
    assert!(others.is_empty(), "{others:#?}");
    (same, all)
}

#[test]
#[ignore = "cargo test -p remote -- --ignored: half a minute"]
fn every_case_ends_as_with_both_adapters_at_hand() {
    let (same, all) = compare(cases::all(), setup(), &[]);
    assert!(same * 10 > all * 9, "{same} of {all} cases");
}

#[test]
fn every_third_case_ends_so_over_a_wire() {
    let setup = Setup { wire: Some(Impairments::default()), ..setup() };
    let (same, all) = compare(cases::all().step_by(3), setup, BY_CHANCE);
    assert!(same * 10 > all * 9, "{same} of {all} cases");
}

#[test]
fn every_case_ends_so_in_one_of_the_ways_in_which_requests_complete() {
    for (first, completion) in
        [CompletionMode::Pending, CompletionMode::Early, CompletionMode::Mixed].into_iter().enumerate()
    {
        let setup = Setup { completion, ..setup() };
        let (same, all) = compare(cases::all().skip(first).step_by(3), setup, &[]);
        assert!(same * 10 > all * 9, "{completion:?}: {same} of {all} cases");
    }
}

fn case(name: &str) -> &'static Case {
    cases::all().find(|case| case.name == name).expect("a case")
}

/// Whenever the channel dies: the case is skipped and says why, closes come to their end, and nothing is left on either machine.
#[test]
fn a_dead_channel_ends_a_case_and_leaves_nothing() {
    let setup = Setup { patience: 2_000_000, ..setup() };
    let mut dead = 0;
    for theme in ["transfer", "fast-register", "srq", "connect", "logical"] {
        let case = cases::all().find(|case| case.theme() == theme).expect("a case of the theme");
        let (outcome, calls) = run(case, HOW, setup, Quality::default()).expect("nothing is left");
        assert!(!outcome.is_bad(), "{}: {outcome}", case.name);
        let step = (calls / 12).max(1);
        for lives in (1..calls).step_by(usize::try_from(step).expect("a small number")) {
            let quality = Quality { lives: Some(lives), ..Quality::default() };
            let (outcome, _) =
                run(case, HOW, setup, quality).unwrap_or_else(|left| panic!("{}: {lives}: {left}", case.name));
            // The calls after the last that the case needs may be those of the pump.
            let says_it = matches!(&outcome, Outcome::Skipped(why) if why.as_str().contains("channel"));
            assert!(says_it || outcome == Outcome::Passed, "{} after {lives} calls: {outcome}", case.name);
            dead += u32::from(says_it);
        }
    }
    assert!(dead > 30, "the channel has died in {dead} runs");
}

#[test]
fn a_slow_channel_changes_nothing() {
    let quality = Quality { delay: Duration::from_millis(2), ..Quality::default() };
    for name in ["arm.any-by-error", "arm.one-callback-per-arm", "arm.merge-any-solicited"] {
        let (outcome, _) = run(case(name), HOW, setup(), quality).expect("nothing is left");
        assert_eq!(outcome, Outcome::Passed, "{name}");
    }
}
