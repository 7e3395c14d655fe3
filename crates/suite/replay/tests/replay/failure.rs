//! From a failure to a test, as `docs/recorder.md` describes it: what was recorded once is run again, and what was wrong is named.
//! That it names a wrong provider is in `tests-host/broken/tests/replay_of_a_failure.rs`.

use std::sync::{Mutex, PoisonError};

use host::HostOs;
use interpose::adviser::{Adviser, Mode, Report, Settings, Sink, Totals};
use recording::Recording;

use crate::world::recorded;

/// Keeps what is found.
#[derive(Default)]
struct Found(Mutex<Vec<String>>);

impl Sink for Found {
    fn report(&self, report: &Report<'_>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(report.to_string());
    }
}

/// What the adviser says of a recording that is run again.
fn advice(recording: &Recording) -> Vec<String> {
    let (found, totals) = (fallible::Arc::try_new(Found::default()), fallible::Arc::try_new(Totals::default()));
    let (found, totals) = (found.expect("memory"), totals.expect("memory"));
    let sink = found.clone();
    let settings = Settings { mode: Mode::Log, advice: true, longest_callback: 0 };
    let hooks = move |os: &HostOs| Adviser::new(os.clone(), settings, sink.clone(), totals.clone());
    let report = replay::run_behind(recording, 0, hooks).expect("it runs");
    assert_eq!(report.differences, [], "the adviser changes nothing");
    found.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

#[test]
fn the_replay_of_a_wrong_consumer_names_the_rule() {
    // The suite arms for less than is armed already, to see that the provider does as NDKPI says.
    let found = advice(&recorded("arm.merge-any-errors"));
    assert!(found.iter().any(|line| line.starts_with("SN0004 ") && line.contains("NdkArmCq")), "{found:?}");
    assert_eq!(advice(&recorded("results.order-of-receives")), Vec::<String>::new(), "nothing wrong");
}

/// These consumers poll until they find less than they have room for. A replay takes no more at once than they did, so it never finds
/// less: what they have seen has to be told.
#[test]
fn the_replay_of_a_correct_consumer_accuses_nobody() {
    for name in ["notify.post-inside", "notify.callback-beside-arm", "results.order-of-receives"] {
        assert_eq!(advice(&recorded(name)), [""; 0], "{name}");
    }
}
