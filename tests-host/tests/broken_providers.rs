//! Providers that are wrong on purpose: each is failed by the cases that are about its mistake, and the one without a mistake
//! passes them all. A suite that passes everything proves nothing.

use std::{fs, path::Path, time::Duration};

use conformance::host::{Harness, Scheduler, Setup};
use conformance::{Case, Outcome, Run, cases};
use engine::fault::{self, Fault};
use ndkpi::NDK_VERSION;
use provider::CompletionMode;

/// Every mistake, with the cases that are about it. More cases may fail, but these have to.
const FAULTS: &[(Fault, &[&str])] = &[
    (Fault::ArmDowngraded, &["arm.merge-any-errors", "arm.merge-any-solicited", "arm.merge-solicited-errors"]),
    (Fault::ArmMissesQueuedEntry, &["notify.at-once-any", "notify.at-once-solicited"]),
    (Fault::ArmIsNotOneShot, &["arm.one-callback-per-arm"]),
    (Fault::UnarmedCallback, &["arm.new-queue-is-unarmed"]),
    (Fault::PlainEntrySolicits, &["arm.solicited-ignores-plain"]),
    (Fault::SolicitedEntryIsPlain, &["arm.solicited-ignores-plain", "notify.at-once-solicited"]),
    (Fault::FailedRequestDoesNotSolicit, &["arm.solicited-by-error"]),
    (
        Fault::EntryDuringCallbackLost,
        &["notify.entry-during-callback", "notify.arm-before-entry-during-callback", "stress.sleeping-consumer"],
    ),
    (Fault::CallbackInsideArm, &["notify.not-inside-arm"]),
    (Fault::CallbackReentered, &["notify.entry-during-callback"]),
    (Fault::CallbackUnderLock, &["arm.one-callback-per-arm"]),
    (Fault::CallbackAfterClose, &["close.armed-queue"]),
    (Fault::CallbackAfterCloseBegan, &["notify.close-inside"]),
    (Fault::CloseCompletesEarly, &["close.queue-waits-for-queue-pair", "close.domain-waits-for-children"]),
    (Fault::CloseFails, &["object.create-and-close"]),
    (Fault::OverrunSilent, &["overrun.reported-to-errors", "overrun.reported-to-solicited", "overrun.reported-to-any"]),
    (Fault::OverrunLeavesQueuePairs, &["overrun.every-queue-pair"]),
    (Fault::DepthOffByOne, &["overrun.queued-entries"]),
    (Fault::ResizeLosesEntry, &["resize.grow", "resize.shrink", "resize.at-random"]),
    (Fault::ResizeDisarms, &["resize.keeps-the-arm"]),
    (Fault::ModerationIgnoresCount, &["moderation.count-alone", "moderation.count-of-the-depth"]),
    (Fault::ModerationIgnoresInterval, &["moderation.interval-alone"]),
    (Fault::ModerationHoldsFailure, &["moderation.overrun"]),
    (Fault::ModerationWithoutLimit, &["moderation.no-limit-at-all"]),
    (Fault::WrongOrder, &["results.order-of-receives", "results.order-of-initiator-requests"]),
    (Fault::SilentSuccessCompletes, &["post.silent-success", "notify.silent-success"]),
    (Fault::SilentFailureIsSilent, &["post.silent-failure"]),
    (Fault::BytesWrong, &["results.bytes-received"]),
    (Fault::DeferredStaysOnFailure, &["post.deferred-then-failure"]),
    (Fault::UnconnectedPostAccepted, &["post.unconnected"]),
    (Fault::TooManyElementsAccepted, &["post.too-many-elements"]),
    (
        Fault::RangeOffByOneAbove,
        &["access.local-range", "access.remote-range", "fast.range", "window.range", "protection.outside-remote"],
    ),
    (
        Fault::RangeOffByOneBelow,
        &["access.local-range", "access.remote-range", "fast.range", "window.range", "protection.outside-remote"],
    ),
    (Fault::RightsNotChecked, &["protection.local-write", "protection.remote-rights", "fast.rights", "window.rights"]),
    (Fault::ReadSinkRequired, &["protection.read-sink"]),
    (Fault::RemoteErrorsFirst, &["protection.local-errors-first"]),
    (Fault::LocalWriteIsRemoteWrite, &["protection.remote-rights", "fast.rights"]),
    (Fault::DomainNotChecked, &["access.local-token-of-another-domain", "access.remote-token-of-another-domain"]),
    (Fault::PrivilegedTokenIsRemote, &["logical.never-remote"]),
    (Fault::TokenAfterInvalidate, &["fast.invalidated-token", "window.invalidated-token"]),
    (Fault::TokenAfterDeregister, &["protection.stale-local", "protection.stale-remote"]),
    (Fault::DeregisterDoesNotWait, &["registration.deregistered-under-load"]),
    (Fault::InvalidateDoesNotWait, &["fast.invalidated-under-load"]),
    (Fault::CloseDoesNotWait, &["fast.closed-under-load"]),
    (Fault::WindowForgetsRegion, &["window.region-closed-under-load"]),
    (Fault::RemoteInvalidateLate, &["invalidate.before-the-receive-completes", "invalidate.before-the-callback"]),
    (Fault::FlushOnIncomingDisconnect, &["disconnect.incoming-does-not-flush"]),
    (Fault::DisconnectDoesNotFlush, &["disconnect.flushes-own-receives"]),
    (Fault::FlushForgetsSilent, &["flush.silent-requests"]),
    (Fault::SecondDisconnectIndication, &["disconnect.graceful", "disconnect.close-aborts"]),
    (Fault::IndicationOfOwnDisconnect, &["disconnect.graceful"]),
    (Fault::DisconnectDoesNotDrain, &["disconnect.carries-out-what-was-posted"]),
    (Fault::PrivateDataLengthWrong, &["connect.private-data-sizes"]),
    (Fault::AcceptCompletesEarly, &["connect.accept-pends"]),
    (Fault::ClosedListenerAccepts, &["connect.closed-listener-refuses"]),
    (Fault::PauseIgnored, &["connect.paused-events"]),
    (Fault::ReadLimitIgnored, &["connect.no-reads"]),
    (Fault::SrqNotificationIsNotOneShot, &["srq.notification", "srq.one-shot"]),
    (Fault::SrqZeroThresholdDisarms, &["srq.threshold-zero-keeps-the-arm"]),
    (Fault::CompletesTwice, &["object.requests-complete-once"]),
    (Fault::PendingCreateWritesPlace, &["object.create-and-close"]),
    (Fault::ReservedBlockTouched, &["object.layer-of-the-operating-system"]),
    (Fault::MinorVersionNotChecked, &["version.higher-minor-is-refused"]),
];

/// A seeded machine, so that a mistake shows every time or never.
fn harness() -> Harness {
    let setup = Setup {
        scheduler: Scheduler::Seeded { seed: 0, preemption: 10 },
        tokens: Some(1 << 12),
        completion: CompletionMode::Mixed,
        ..Setup::default()
    };
    Harness::new(setup).with_limit(Duration::from_mins(1))
}

/// A mistake about something that happens at the same time shows in some orders only.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=40;

fn how(seed: u64) -> Run {
    Run { version: NDK_VERSION::new(2, 0), seed, hostile: true }
}

fn case(name: &str) -> &'static Case {
    cases::all().find(|case| case.name == name).unwrap_or_else(|| panic!("there is no case {name}"))
}

/// One test, because a mistake is one of the whole program.
#[test]
fn every_mistake_is_failed_by_the_cases_that_are_about_it() {
    let harness = harness();
    let mut wrong = Vec::new();
    for (fault, names) in FAULTS {
        for name in *names {
            let case = case(name);
            let mut found = false;
            for seed in SEEDS {
                let without = harness.run(case, how(seed)).outcome;
                if !matches!(without, Outcome::Passed | Outcome::Observed(_)) {
                    wrong.push(format!("{name} without a mistake: {without}"));
                }
                fault::set(Some(*fault));
                found |= harness.run(case, how(seed)).outcome.is_failure();
                fault::set(None);
                if found {
                    break;
                }
            }
            if !found {
                wrong.push(format!("{name} has passed with {fault:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_mistake_has_a_case() {
    let listed: Vec<_> = FAULTS.iter().map(|(fault, _)| *fault).collect();
    assert_eq!(listed, Fault::ALL);
    assert!(FAULTS.iter().all(|(_, names)| !names.is_empty()));
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_document_lists_every_mistake_with_its_cases() {
    let document = read("docs/broken-providers.md");
    for (fault, names) in FAULTS {
        let cases: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        let row = format!("| `{fault:?}` | {} |", cases.join(", "));
        assert!(document.contains(&row), "docs/broken-providers.md lacks the row\n{row}");
    }
}

/// A driver or program is built with the dependencies of manifests, not with those of tests.
#[test]
fn only_tests_can_be_built_with_mistakes() {
    let engine = read("crates/provider/engine/Cargo.toml");
    assert!(engine.contains("faults = []") && !engine.contains("default ="), "the feature is off by default");
    let below =
        |folder: &Path| fs::read_dir(folder).expect("a readable folder").map(|entry| entry.expect("an entry").path());
    let roles = below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates")).filter(|role| role.is_dir());
    let packages = roles.flat_map(|role| below(&role).collect::<Vec<_>>());
    for path in packages.map(|package| package.join("Cargo.toml")) {
        let Ok(manifest) = fs::read_to_string(&path) else { continue };
        let asks = manifest.lines().any(|line| {
            let dependency = ["engine", "provider"].iter().any(|name| line.starts_with(name));
            (dependency && line.contains("faults")) || line.contains("provider/faults")
        });
        assert!(!asks, "{} asks for mistakes", path.display());
        // The provider and what tests have in common pass the wish on; nobody else does, and only tests depend on the latter.
        let passes_on =
            ["provider/provider/Cargo.toml", "consumer/testing/Cargo.toml"].iter().any(|one| path.ends_with(one));
        assert_eq!(manifest.contains("engine/faults"), passes_on, "{}", path.display());
        let product = manifest.split("dev-dependencies]").next().expect("a beginning");
        assert!(!product.lines().any(|line| line.starts_with("testing")), "{} depends on tests", path.display());
    }
    let ours = read("tests-host/Cargo.toml");
    let (normal, tests) = ours.split_once("[dev-dependencies]").expect("dependencies of tests");
    let wish = "provider = { workspace = true, features = [\"faults\"] }";
    assert!(!normal.contains(wish) && tests.contains(wish));
}
