//! Random consumers, one call after the other, recorded and run again.

use std::sync::{Arc, Mutex, PoisonError};

use conformance::host::{HostPlatform, Interposed, Layer};
use programs::{Counts, generate};
use recorder::{Keep, Recorder, Ring};
use recording::Recording;

/// What a random program did.
fn recorded(number: u64) -> Recording {
    let latest: Arc<Mutex<Option<fallible::Arc<Ring>>>> = Arc::default();
    let kept = latest.clone();
    let layer: Layer = Arc::new(move |platform: &Arc<HostPlatform>| {
        let ring = Ring::try_new(1 << 16, Keep::First, 2).expect("memory");
        *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(ring.clone());
        Box::new(Interposed::new(platform, Box::new(move |os| Recorder::new(os.clone(), ring.clone()))))
    });
    let program = generate::program(24, number);
    programs::run_behind(&program, &mut Counts::default(), &layer).expect("the provider is right");
    let ring = latest.lock().unwrap_or_else(PoisonError::into_inner).take().expect("it was recorded");
    Recording::read(&recording::write(&ring, 2)).expect("a recording")
}

/// How far work has come when a queue is flushed or full, or a connection ends, is not the consumer's doing: it is no difference.
#[test]
fn random_sequential_consumers_are_run_again_without_a_difference() {
    let mut wrong = Vec::new();
    let count = std::env::var("REPLAY_PROGRAMS").map_or(100, |text| text.parse().expect("a number"));
    for number in 0..count {
        let recording = recorded(number);
        let report = replay::run(&recording, number).expect("it runs");
        let said =
            report.differences.iter().map(|one| format!("program {number}: record {}: {}", one.record, one.what));
        wrong.extend(said);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
