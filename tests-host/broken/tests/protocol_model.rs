//! The protocol of notifications as a model (`tests-host/models`) sees what is wrong in the state machine.

use engine::switch;
use models::bounds;
use stateright::{Checker, Expectation, Model};

#[test]
fn the_model_sees_every_mistake_of_the_state_machine() {
    const MISTAKES: [&str; 8] = [
        "ArmDowngraded",
        "ArmMissesQueuedEntry",
        "ArmIsNotOneShot",
        "EntryDuringCallbackLost",
        "ResizeDisarms",
        "ModerationIgnoresCount",
        "ModerationHoldsFailure",
        "CallbackAfterCloseBegan",
    ];
    for mistake in MISTAKES {
        let checker = switch::making(mistake, || bounds::check(bounds::moderated(3, 1, 1)));
        let broken = |name: &&'static str| checker.model().property(name).expectation == Expectation::Always;
        let found: Vec<_> = checker.discoveries().into_keys().collect();
        assert!(found.iter().any(broken), "nothing in the model breaks with {mistake}: {found:?}");
    }
}
