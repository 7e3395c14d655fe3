//! Cases of the suite, recorded.

use std::sync::{Arc, Mutex, PoisonError};

use conformance::{
    Outcome, Platform, Run, cases,
    host::{Harness, HostPlatform, Impairments, Interposed, Layer, Scheduler, Setup},
};
use host::HostOs;
use interpose::{
    ObjectId,
    adviser::{self, Finding, Mode, Report, Settings, Sink, Totals},
};
use ndkpi::{NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED as LOOPBACK, NDK_VERSION};
use provider::CompletionMode;
use recorder::{Adviser, Findings, Keep, Recorder, Ring};
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
    run_behind(setup, name, slots, keep, |platform, ring| {
        Box::new(Interposed::new(platform, Box::new(move |os| Recorder::new(os.clone(), ring.clone()))))
    })
}

/// Runs a case behind what `interpose` makes, which records in the ring.
fn run_behind(
    setup: Setup,
    name: &str,
    slots: usize,
    keep: Keep,
    interpose: impl Fn(&Arc<HostPlatform>, fallible::Arc<Ring>) -> Box<dyn Platform + Send> + Send + Sync + 'static,
) -> (Outcome, Vec<u8>, fallible::Arc<Ring>) {
    let case = cases::all().find(|case| case.name == name).expect("a case of the suite");
    let latest: Arc<Mutex<Option<fallible::Arc<Ring>>>> = Arc::default();
    let kept = latest.clone();
    let layer: Layer = Arc::new(move |platform: &Arc<HostPlatform>| {
        let ring = Ring::try_new(slots, keep, 2).expect("memory");
        *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(ring.clone());
        platform.record_cable(&ring);
        interpose(platform, ring)
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

/// What an adviser has reported: of which object.
type Reported = Arc<Mutex<Vec<(Finding, ObjectId)>>>;

/// Keeps what is found, here and in the recording.
struct Noting {
    reported: Reported,
    recorded: Findings<HostOs>,
}

impl Sink for Noting {
    fn report(&self, report: &Report<'_>) {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner).push((report.finding, report.object));
        self.recorded.record(report);
    }
}

/// The recording of a case with an adviser in front of the recorder or behind it, and what that has reported.
pub fn advised(name: &str, adviser: Adviser) -> (Recording, Vec<(Finding, ObjectId)>) {
    let reported = Reported::default();
    let kept = reported.clone();
    let setup = Setup { tokens: Some(1 << 12), ..Setup::default() };
    let (_, file, _) = run_behind(setup, name, 1 << 16, Keep::First, move |platform, ring| {
        let (kept, of_recorder) = (kept.clone(), ring.clone());
        let hooks = move |os: &HostOs| {
            let recorded = Findings::new(os.clone(), ring.clone(), adviser);
            let sink = fallible::Arc::try_new(Noting { reported: kept.clone(), recorded }).expect("memory");
            let settings = Settings { mode: Mode::Log, advice: true, longest_callback: 0 };
            let totals = fallible::Arc::try_new(Totals::default()).expect("memory");
            adviser::Adviser::new(os.clone(), settings, sink, totals)
        };
        let recorder = move |os: &HostOs| Recorder::new(os.clone(), of_recorder.clone());
        match adviser {
            Adviser::InFront => Box::new(Interposed::new(platform, Box::new(move |os| (hooks(os), recorder(os))))),
            Adviser::Behind => Box::new(Interposed::new(platform, Box::new(move |os| (recorder(os), hooks(os))))),
        }
    });
    let reported = reported.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (Recording::read(&file).expect("a recording"), reported)
}
