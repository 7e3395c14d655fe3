//! The protocol of notifications as a model (`crates/provider/engine/tests/protocol_model`) sees what is wrong in the state machine.

use engine::switch;
use stateright::{Checker, Expectation, Model};

#[path = "../../../crates/provider/engine/tests/protocol_model/bounds.rs"]
#[expect(dead_code, reason = "the right state machine is looked at within other bounds too")]
mod bounds;
#[path = "../../../crates/provider/engine/tests/protocol_model/model.rs"]
mod model;
#[path = "../../../crates/provider/engine/tests/protocol_model/oracle.rs"]
mod oracle;

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
