//! What a sink hears of what a consumer may wait for.

use conformance::Platform;
use ndkpi::*;
use provider::CompletionMode;

use crate::{
    consumer::{Differs, Done, World, ndk},
    rows::near,
};

/// The steps without those of other objects, which the name of the object tells.
fn of<'a>(steps: &'a [String], object: &str) -> Vec<&'a str> {
    steps.iter().filter_map(|step| step.strip_prefix(object)?.strip_prefix(": ")).collect()
}

#[test]
fn an_arm_is_missed_from_the_return_of_the_notification_on() {
    let found = near(|world, pair| {
        ndk!(pair.cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
        let steps = world.steps();
        let armed = steps.iter().rfind(|step| step.contains(": armed")).expect("an arm");
        let cq = armed.split(':').next().expect("a name");
        let last = || of(&world.steps(), cq).last().map(|step| (*step).to_owned());
        assert!(pair.receive(1, 64).is_success());
        assert!(pair.send(2, 64, 0).is_success());
        world.platform.settle();
        assert_eq!(last().as_deref(), Some("unarmed"), "the callback has returned");
        assert_eq!(world.completions(pair.cq, 2).len(), 2);
        assert_eq!(last().as_deref(), Some("polled"), "it was polled, and is not armed");
        let before = world.steps().len();
        ndk!(pair.cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
        World::drain(pair.cq);
        ndk!(pair.cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
        let steps = world.steps();
        assert_eq!(steps[before..], [format!("{cq}: armed")], "an arm of what is armed is no step, nor a second poll");
    });
    assert_eq!(found, []);
}

#[test]
fn a_call_has_ended_once_however_it_completes() {
    for completion in [CompletionMode::Inline, CompletionMode::Pending, CompletionMode::Early] {
        let world = World::with(Differs { completion, ..Differs::default() });
        let cq = world.cq(8);
        let steps = world.steps();
        let opened = steps.iter().position(|step| step.contains(": opened")).expect("it is there");
        let began = steps.iter().position(|step| step.contains("began NdkCreateCq")).expect("a call");
        let ended = steps.iter().position(|step| step.contains(": ended")).expect("its end");
        assert!(began < ended && began < opened, "{completion:?}: {steps:?}");
        assert_eq!(steps.iter().filter(|step| step.contains(": ended")).count(), 1, "{completion:?}: {steps:?}");
        world.close(cq);
        let steps = world.steps();
        let count = |what: &str| steps.iter().filter(|step| step.contains(what)).count();
        assert_eq!((count("began NdkCloseObject"), count(": closing"), count(": ended")), (1, 1, 2), "{steps:?}");
        assert!(world.end().is_empty());
    }
}

#[test]
fn a_close_that_pends_has_not_ended() {
    let world = World::with(Differs { completion: CompletionMode::Pending, ..Differs::default() });
    let (cq, done) = (world.cq(8), Done::new());
    let before = world.steps().iter().filter(|step| step.contains(": ended")).count();
    if World::close_with(cq, done.context()) == NtStatus::PENDING && done.count() == 0 {
        let ended = world.steps().iter().filter(|step| step.contains(": ended")).count();
        assert_eq!(ended, before, "nobody was called");
    }
    world.wait("the close", &|| done.count() > 0);
    assert_eq!(world.steps().iter().filter(|step| step.contains(": ended")).count(), before + 1);
    assert!(world.end().is_empty());
}
