//! Cases of the suite, recorded.

use std::sync::{Arc, Mutex, PoisonError};

use conformance::{
    Outcome, Run, cases,
    host::{Harness, HostPlatform, Impairments, Interposed, Layer, Scheduler, Setup},
};
use ndkpi::{NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED as LOOPBACK, NDK_VERSION};
use provider::CompletionMode;
use recorder::{Keep, Recorder, Ring};
use recording::Recording;

/// Runs a case of the suite. How it ended, and the file of its recording.
pub fn run_of(name: &str, slots: usize, keep: Keep) -> (Outcome, Vec<u8>) {
    let (outcome, file, _) = ring_of(name, slots, keep);
    (outcome, file)
}

/// The same, with what it was recorded in.
pub fn ring_of(name: &str, slots: usize, keep: Keep) -> (Outcome, Vec<u8>, fallible::Arc<Ring>) {
    ring_on(Setup { tokens: Some(1 << 12), ..Setup::default() }, name, slots, keep)
}

/// The same, on two adapters with nothing but a wire between them.
pub fn file_on_wire(name: &str, slots: usize, impairments: Impairments) -> Vec<u8> {
    let setup = Setup { tokens: Some(1 << 12), without: LOOPBACK, wire: Some(impairments), ..Setup::default() };
    let (outcome, file, _) = ring_on(setup, name, slots, Keep::First);
    assert!(!outcome.is_bad(), "{name}: {outcome}");
    file
}

fn ring_on(setup: Setup, name: &str, slots: usize, keep: Keep) -> (Outcome, Vec<u8>, fallible::Arc<Ring>) {
    let case = cases::all().find(|case| case.name == name).expect("a case of the suite");
    let latest: Arc<Mutex<Option<fallible::Arc<Ring>>>> = Arc::default();
    let kept = latest.clone();
    let layer: Layer = Arc::new(move |platform: &Arc<HostPlatform>| {
        let ring = Ring::try_new(slots, keep, 2).expect("memory");
        *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(ring.clone());
        platform.record_cable(&ring);
        Box::new(Interposed::new(platform, Box::new(move |os| Recorder::new(os.clone(), ring.clone()))))
    });
    let setup =
        Setup { scheduler: Scheduler::Seeded { seed: 0, preemption: 10 }, completion: CompletionMode::Mixed, ..setup };
    let how = Run { version: NDK_VERSION::new(2, 0), seed: 1, hostile: false };
    let outcome = Harness::new(setup).with_layer(layer).run(case, how).outcome;
    let ring = latest.lock().unwrap_or_else(PoisonError::into_inner).take().expect("it was recorded");
    (outcome, recording::write(&ring, 2), ring)
}

/// The file of a case that does not fail.
pub fn file_of(name: &str, slots: usize, keep: Keep) -> Vec<u8> {
    let (outcome, file) = run_of(name, slots, keep);
    assert!(!outcome.is_bad(), "{name}: {outcome}");
    file
}

/// The recording of a case.
pub fn recorded(name: &str) -> Recording {
    Recording::read(&file_of(name, 1 << 16, Keep::First)).expect("a recording")
}
