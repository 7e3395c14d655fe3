//! From a failure to a test, as `docs/recorder.md` describes it: a wrong provider is recorded, and the replay on the product's names the
//! record where it was wrong.

use std::sync::{Arc, Mutex, PoisonError};

use conformance::{
    Outcome, Run, cases,
    host::{Harness, HostPlatform, Interposed, Layer, Scheduler, Setup},
};
use engine::switch;
use ndkpi::NDK_VERSION;
use provider::CompletionMode;
use recorder::{Keep, Recorder, Ring};
use recording::Recording;

/// Runs a case of the suite. How it ended, and the file of its recording.
fn run_of(name: &str) -> (Outcome, Vec<u8>) {
    let case = cases::all().find(|case| case.name == name).expect("a case of the suite");
    let latest: Arc<Mutex<Option<fallible::Arc<Ring>>>> = Arc::default();
    let kept = latest.clone();
    let layer: Layer = Arc::new(move |platform: &Arc<HostPlatform>| {
        let ring = Ring::try_new(1 << 14, Keep::First, 2).expect("memory");
        *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(ring.clone());
        Box::new(Interposed::new(platform, Box::new(move |os| Recorder::new(os.clone(), ring.clone()))))
    });
    let setup = Setup {
        scheduler: Scheduler::Seeded { seed: 0, preemption: 10 },
        completion: CompletionMode::Mixed,
        tokens: Some(1 << 12),
        ..Setup::default()
    };
    let how = Run { version: NDK_VERSION::new(2, 0), seed: 1, hostile: false };
    let outcome = Harness::new(setup).with_layer(layer).run(case, how).outcome;
    let ring = latest.lock().unwrap_or_else(PoisonError::into_inner).take().expect("it was recorded");
    (outcome, broken_recording::write(&ring, 2))
}

#[test]
fn the_replay_of_a_wrong_provider_says_where_it_was_wrong() {
    let (outcome, file) = switch::making("ArmIsNotOneShot", || run_of("arm.one-callback-per-arm"));
    assert!(outcome.is_failure(), "the provider is wrong: {outcome}");
    // From here on it is a test like any other: a file, and what has to be.
    let recording = Recording::read(&file).expect("a recording");
    let report = replay::run(&recording, 0).expect("it runs");
    let said: Vec<_> = report.differences.iter().map(|one| one.what.as_str()).collect();
    let callback = |what: &&str| what.contains("recorded a callback, here none comes");
    assert!(said.iter().any(callback), "a callback that nobody had armed for: {said:?}");
}
