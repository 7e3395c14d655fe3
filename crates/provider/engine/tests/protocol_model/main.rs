//! The protocol of notifications as a model: every state that producers, consumer, DPC, timer and time can reach within
//! bounds. The engine's own state machine is in it, with an oracle written from NDKPI 7.1.3 to 7.1.7 and 7.1.10 beside it.

#![cfg(not(loom))]

mod model;
mod oracle;

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use engine::fault::{self, Fault};
use model::{Bounds, Protocol};
use oracle::Moderation;
use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// A mistake is made in the whole program: one test at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Nothing is bounded by it but what follows: how often each thing happens.
const NONE: Bounds = Bounds { entries: 0, arms: 0, failures: 0, moderations: 0, resizes: 0, closes: 0, end: 0 };

/// A queue for two entries, which a resize makes a queue for one or for three.
fn protocol(bounds: Bounds) -> Protocol {
    // A time, a count, both with a count above the depth, and none.
    let limits = [(Some(2), None), (None, Some(2)), (Some(1), Some(3)), (Some(0), Some(0))];
    let moderations = limits.map(|(interval, count)| Moderation { interval, count }).to_vec();
    Protocol { bounds, depth: 2, moderations, depths: vec![1, 3] }
}

/// Arms, callbacks, a failure, a resize and a close; nothing is held back.
fn unmoderated(entries: u8) -> Protocol {
    protocol(Bounds { entries, arms: 3, failures: 1, resizes: 1, closes: 1, ..NONE })
}

/// The same with interrupt moderation.
fn moderated(entries: u8, moderations: u8, end: u32) -> Protocol {
    protocol(Bounds { entries, arms: 2, failures: 1, moderations, resizes: 1, closes: 1, end })
}

/// The moderation is changed while callbacks are held back.
fn changed() -> Protocol {
    protocol(Bounds { entries: 3, arms: 2, moderations: 2, end: 1, ..NONE })
}

fn check(protocol: Protocol) -> impl Checker<Protocol> {
    protocol.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join()
}

/// Checks them all, and that they come, together, to what the model is about: of a state that is never reached nothing is shown.
fn holds_in_all(protocols: impl IntoIterator<Item = (&'static str, Protocol)>) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut found = BTreeSet::new();
    for (name, protocol) in protocols {
        let checker = check(protocol);
        let (states, steps, depth) = (checker.unique_state_count(), checker.state_count(), checker.max_depth());
        println!("{name}: {states} states, {steps} steps, at most {depth} one after the other");
        for property in checker.model().properties() {
            if property.expectation == Expectation::Always {
                checker.assert_no_discovery(property.name);
            }
        }
        assert!(states > 10_000, "only {states} states");
        found.extend(checker.discoveries().into_keys());
    }
    for property in changed().properties() {
        let is_found = found.contains(property.name);
        assert_eq!(is_found, property.expectation == Expectation::Sometimes, "{}", property.name);
    }
}

#[test]
fn every_reachable_state_is_as_the_text_says() {
    holds_in_all([
        ("not moderated, 3 entries", unmoderated(3)),
        ("moderated once, 2 entries", moderated(2, 1, 1)),
        ("moderated twice, 3 entries", changed()),
    ]);
}

#[test]
#[ignore = "minutes"]
fn every_reachable_state_within_larger_bounds_is_as_the_text_says() {
    holds_in_all([("not moderated, 4 entries", unmoderated(4)), ("moderated twice, 3 entries", moderated(3, 2, 2))]);
}

#[test]
fn the_model_sees_every_mistake_of_the_state_machine() {
    const MISTAKES: [Fault; 8] = [
        Fault::ArmDowngraded,
        Fault::ArmMissesQueuedEntry,
        Fault::ArmIsNotOneShot,
        Fault::EntryDuringCallbackLost,
        Fault::ResizeDisarms,
        Fault::ModerationIgnoresCount,
        Fault::ModerationHoldsFailure,
        Fault::CallbackAfterCloseBegan,
    ];
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for mistake in MISTAKES {
        fault::set(Some(mistake));
        let checker = check(moderated(3, 1, 1));
        let found: Vec<_> = checker.discoveries().into_keys().collect();
        fault::set(None);
        let broken = |name: &&'static str| checker.model().property(name).expectation == Expectation::Always;
        assert!(found.iter().any(broken), "nothing in the model breaks with {mistake:?}: {found:?}");
    }
}
