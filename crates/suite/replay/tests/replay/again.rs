//! A recording that is run again.

use interpose::{Function, Phase};
use ndkpi::NtStatus;
use recorder::Keep;
use recording::{Arguments, Outcome, Recording};

use crate::world::{file_of, recorded};

/// Cases of every kind, whose course does not depend on what happens at the same time.
const CASES: [&str; 14] = [
    "object.create-and-close",
    "arm.one-callback-per-arm",
    "arm.merge-any-solicited",
    "notify.at-once-any",
    "results.order-of-receives",
    "post.silent-success",
    "post.silent-failure",
    "protection.remote-rights",
    "fast.invalidated-token",
    "window.rights",
    "logical.privileged-token",
    "connect.private-data-sizes",
    "disconnect.graceful",
    "srq.notification",
];

#[test]
fn the_same_happens_again() {
    let mut wrong = Vec::new();
    for name in CASES {
        let recording = recorded(name);
        assert!(recording.lost == 0 && recording.torn == 0, "{name}");
        let report = replay::run(&recording, 7).expect(name);
        assert!(report.calls > 10, "{name}: {} calls", report.calls);
        wrong.extend(report.differences.iter().map(|one| format!("{name}: record {}: {}", one.record, one.what)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_replay_is_the_same_each_time() {
    let recording = recorded("stress.sleeping-consumer");
    let first = replay::run(&recording, 3).expect("it runs");
    assert_eq!(replay::run(&recording, 3).expect("it runs"), first);
}

/// A provider that answered otherwise, as far as the recording says.
#[test]
fn what_differs_is_said() {
    let mut recording = recorded("results.order-of-receives");
    let mut changed = 0;
    for record in &mut recording.records {
        if let (Phase::Return, Arguments::GetCqResults { results, .. }) = (record.phase, &mut record.arguments)
            && let Some(result) = results.first_mut()
            && changed == 0
        {
            result.status = NtStatus::DATA_OVERRUN;
            changed += 1;
        } else if record.phase == Phase::Return
            && record.function == Function::Receive
            && record.outcome == Outcome::Status(NtStatus::SUCCESS)
            && changed == 1
        {
            record.outcome = Outcome::Status(NtStatus::INVALID_PARAMETER);
            changed += 1;
        }
    }
    let report = replay::run(&recording, 0).expect("it runs");
    let said: Vec<_> = report.differences.iter().map(|one| one.what.as_str()).collect();
    assert_eq!(said.len(), changed, "{said:?}");
    assert!(said[0].contains("recorded STATUS_DATA_OVERRUN, here STATUS_SUCCESS"), "{said:?}");
}

#[test]
fn a_callback_that_does_not_come_is_said() {
    let mut recording = recorded("arm.one-callback-per-arm");
    // The queue was never armed, as far as the recording says.
    recording.records.retain(|record| record.function != Function::ArmCq);
    let report = replay::run(&recording, 0).expect("it runs");
    assert!(
        report.differences.iter().any(|one| one.what.contains("recorded a callback, here none comes")),
        "{:?}",
        report.differences
    );
}

#[test]
fn what_is_not_whole_is_not_run() {
    let last = file_of("results.order-of-receives", 256, Keep::Last);
    let recording = Recording::read(&last).expect("a recording");
    assert!(recording.first > 0 && !recording.records.is_empty());
    let refused = replay::run(&recording, 0).expect_err("the first records are not there");
    assert!(refused.contains("--record-slots") && !refused.contains('\n'), "{refused}");
    let nothing = Recording { records: Vec::new(), first: 0, ..recording };
    assert!(replay::run(&nothing, 0).is_err());
}
