//! The model of notifications holds in every state that it can reach.

use std::collections::BTreeSet;

use models::{
    bounds::{changed, check, moderated, unmoderated},
    model::Protocol,
};
use stateright::{Checker, Expectation, Model};

/// Checks them all, and that they come, together, to what the model is about: of a state that is never reached nothing is shown.
fn holds_in_all(protocols: impl IntoIterator<Item = (&'static str, Protocol)>) {
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
