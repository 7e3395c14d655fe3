//! The conformance suite under the adviser: what it does against the rules on purpose is found, and nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    thread,
};

use conformance::{
    Case, Run, cases,
    host::{Harness, Interposed, Scheduler, Setup},
};
use host::HostOs;
use interpose::adviser::{Adviser, Finding, Report, Settings, Sink, Totals};
use ndkpi::NDK_VERSION;
use provider::{CompletionMode, Profile};
use testing::share::share;

/// Keeps the findings and the words of the first of each.
#[derive(Default)]
struct Kept(Arc<Mutex<BTreeMap<Finding, String>>>);

impl Sink for Kept {
    fn report(&self, report: &Report<'_>) {
        self.0.lock().expect("no panic").entry(report.finding).or_insert_with(|| report.to_string());
    }
}

/// The findings of each of these cases.
fn findings(
    setup: Setup,
    version: NDK_VERSION,
    hostile: bool,
    cases: impl Iterator<Item = &'static Case>,
) -> BTreeMap<&'static str, BTreeMap<Finding, String>> {
    let found: Arc<Mutex<BTreeMap<Finding, String>>> = Arc::default();
    let kept = found.clone();
    let harness = Harness::new(setup).with_layer(Arc::new(move |platform| {
        let kept = kept.clone();
        let make = move |os: &HostOs| {
            let sink = fallible::Arc::try_new(Kept(kept.clone())).expect("memory");
            let totals = fallible::Arc::try_new(Totals::default()).expect("memory");
            // The time of a machine that a seed drives says nothing of how long a callback takes.
            Adviser::new(os.clone(), Settings { longest_callback: 0, ..Settings::default() }, sink, totals)
        };
        Box::new(Interposed::new(platform, Box::new(make)))
    }));
    let how = Run { version, seed: 5, hostile };
    cases
        .map(|case| {
            let outcome = harness.run(case, how).outcome;
            assert!(!outcome.is_bad(), "{}: {outcome}", case.name);
            (case.name, std::mem::take(&mut *found.lock().expect("no panic")))
        })
        .collect()
}

/// What cases of this theme break depends on the order in which things happen.
const BY_CHANCE: &str = "stress.";

/// The cases that break a rule on purpose, by the finding.
const ON_PURPOSE: &[(Finding, &[&str])] = &[
    (Finding::NotDrained, &["notify.not-inside-arm", "post.at-dispatch-level"]),
    (
        Finding::WeakerArm,
        &["arm.merge-any-errors", "arm.merge-any-solicited", "arm.merge-solicited-errors", "arm.merge-triples"],
    ),
    (Finding::UnknownArm, &["arm.unknown-type"]),
    (Finding::ModerationUnlimited, &["moderation.every-mix", "moderation.no-limit-at-all"]),
    (
        Finding::CqOverrun,
        &[
            "arm.merge-errors-errors",
            "arm.merge-triples",
            "moderation.overrun",
            "overrun.every-queue-pair",
            "overrun.everything-closes",
            "overrun.once",
            "overrun.others-go-on",
            "overrun.queue-pair-is-unusable",
            "overrun.queued-entries",
            "overrun.reported-to-any",
            "overrun.reported-to-errors",
            "overrun.reported-to-solicited",
            "overrun.unarmed",
            "resize.depth-is-exact",
        ],
    ),
    (
        Finding::AboveLimit,
        &[
            "bad-input.greatest-lengths",
            "cq.depth-above-maximum",
            "qp.above-limits",
            "registration.longer-than-the-memory",
            "resize.above-maximum",
            "srq.above-limits",
            "srq.modify-above-the-limit",
            "window.outside-of-the-region",
        ],
    ),
    (Finding::MissingCallback, &["cq.polling-only", "cq.without-what-is-mandatory"]),
    (Finding::BadFlags, &["bad-input.request-flags", "post.unknown-flags"]),
    (
        Finding::QueueFull,
        &[
            "qp.initiator-queue-is-exact",
            "qp.receive-queue-is-exact",
            "qp.without-receive-queue",
            "srq.depth-is-exact",
            "srq.depth-zero-keeps-the-depth",
        ],
    ),
    (
        Finding::TooManySges,
        &[
            "post.deferred-then-failure",
            "post.deferred-then-failure-of-another-kind",
            "post.too-many-elements",
            "srq.too-many-elements",
        ],
    ),
    (
        Finding::TooLong,
        &["access.arithmetic-that-wraps", "post.longer-than-a-transfer-may-be", "rdma.longer-than-a-transfer-may-be"],
    ),
    (Finding::InlineTooLong, &["post.deferred-then-failure-of-another-kind", "transfer.inline-limit"]),
    (Finding::MissingList, &["bad-input.receives-without-list", "post.elements-without-a-list"]),
    (Finding::PostBeforeConnection, &["post.unconnected"]),
    (Finding::ReceiveBesideSrq, &["srq.receive-on-the-queue-pair"]),
    (Finding::ReadLimit, &["connect.no-reads"]),
    (
        Finding::UnknownToken,
        &[
            "access.wrong-local-token",
            "logical.privileged-token-of-each-domain",
            "post.silent-failure",
            "protection.stale-local",
        ],
    ),
    (Finding::TokenAfterInvalidate, &["fast-register.used-after-invalidation"]),
    (
        Finding::OutsideRegistration,
        &[
            "access.arithmetic-that-wraps",
            "access.local-range",
            "access.second-element-is-wrong",
            "post.longer-than-a-transfer-may-be",
            "protection.local-errors-first",
            "protection.outside-local",
            "rdma.longer-than-a-transfer-may-be",
        ],
    ),
    (Finding::NoLocalWrite, &["fast-register.local-rights", "protection.local-write"]),
    (
        Finding::OtherDomain,
        &["access.local-token-of-another-domain", "bad-input.regions-of-another-adapter", "window.of-another-domain"],
    ),
    (
        Finding::RegionState,
        &[
            "fast-register.initialise-twice",
            "fast-register.invalidated-twice",
            "fast-register.not-initialised",
            "fast.invalidate-a-plain-region",
            "fast.invalidate-twice",
            "fast.read-and-invalidate",
            "fast.register-twice",
            "invalidate.then-locally",
            "registration.not-registered",
            "registration.registered-twice",
            "registration.wrong-kind",
        ],
    ),
    (
        Finding::FastRegister,
        &[
            "bad-input.greatest-lengths",
            "fast-register.wrong-arithmetic",
            "fast.bad-arithmetic",
            "fast.remote-rights-need-initialisation",
        ],
    ),
    (
        Finding::BindRights,
        &[
            "bad-input.greatest-lengths",
            "bad-input.regions-of-another-adapter",
            "disconnect.posts-afterwards",
            "window.outside-of-the-region",
            "window.rights-that-the-region-lacks",
        ],
    ),
    (Finding::WrongKind, &["bad-input.objects-of-another-kind"]),
    (Finding::PrivateData, &["connect.private-data-too-long"]),
    (
        Finding::ConnectionOrder,
        &[
            "bad-input.connections-out-of-order",
            "connect.complete-without-connect",
            "connect.rejected-after-the-peer-gave-up",
            "disconnect.never-connected",
            "disconnect.twice",
        ],
    ),
    (Finding::QpReused, &["connect.connector-not-reused", "connect.queue-pair-not-reused"]),
    (Finding::DisconnectInFlight, &["close.while-disconnecting", "disconnect.nothing-left-to-wait-for"]),
    (Finding::SilentQueue, &["cq.polling-only"]),
    (
        Finding::LateReceive,
        &[
            "close.while-disconnecting",
            "disconnect.nothing-left-to-wait-for",
            "flush.error-codes",
            "flush.initiator-requests",
            "flush.silent-requests",
            "qp.initiator-queue-is-exact",
            "transfer.receives-come-late",
        ],
    ),
];

#[test]
fn the_suite_is_found_to_break_only_the_rules_that_it_breaks_on_purpose() {
    let seeded = Setup {
        scheduler: Scheduler::Seeded { seed: 0, preemption: 10 },
        completion: CompletionMode::Mixed,
        tokens: Some(1 << 12),
        ..Setup::default()
    };
    let mut all = BTreeMap::<Finding, BTreeSet<&str>>::new();
    let mut words = Vec::new();
    for (case, found) in findings(seeded, NDK_VERSION::new(2, 0), true, cases::all()) {
        for (finding, report) in found {
            let may_be = [Finding::NotDrained, Finding::WeakerArm, Finding::DisconnectInFlight, Finding::LateReceive]
                .contains(&finding);
            if case.starts_with(BY_CHANCE) && may_be {
                continue;
            }
            all.entry(finding).or_default().insert(case);
            words.push(format!("{case}: {report}"));
        }
    }
    let expected: BTreeMap<_, BTreeSet<_>> =
        ON_PURPOSE.iter().map(|&(finding, cases)| (finding, cases.iter().copied().collect())).collect();
    assert_eq!(all, expected, "\n{}", words.join("\n"));
}

/// What cases ask of an adapter that cannot do it, to see that it says so; and reads that wait for each other, which is allowed.
const BY_PROFILE: &[(Finding, &[&str])] = &[
    (Finding::ModerationUnsupported, &["moderation.unsupported"]),
    (
        Finding::TooManySges,
        &["access.second-element-is-wrong", "post.as-many-elements-as-allowed", "post.longer-than-a-transfer-may-be"],
    ),
    (Finding::InlineTooLong, &["disconnect.posts-afterwards"]),
    (Finding::ReadLimit, &["close.during-traffic", "results.order-of-initiator-requests"]),
    (Finding::ReadSink, &["logical.read-sink"]),
    (Finding::LocalInvalidate, &["fast.read-and-invalidate"]),
];

/// What is found in these cases under this profile, and is not listed.
fn unlisted(profile: Profile, cases: impl Iterator<Item = &'static Case>) -> Vec<String> {
    let setup = Setup {
        scheduler: Scheduler::Seeded { seed: 0, preemption: 10 },
        completion: CompletionMode::Mixed,
        tokens: Some(1 << 12),
        profile,
        ..Setup::default()
    };
    let newest = *profile.versions().iter().max().expect("it has a version");
    let mut wrong = Vec::new();
    for (case, found) in findings(setup, NDK_VERSION::new(newest.Major, 0), false, cases) {
        for (finding, report) in found {
            let mut listed = ON_PURPOSE.iter().chain(BY_PROFILE);
            let on_purpose = listed.any(|(of, cases)| *of == finding && cases.contains(&case));
            let by_chance = case.starts_with(BY_CHANCE);
            if !on_purpose && !by_chance {
                wrong.push(format!("{profile:?}, {case}: {report}"));
            }
        }
    }
    wrong
}

/// Each case under so many of the profiles, and under each profile some.
fn under_profiles(profiles_of_a_case: usize) {
    let profiles = || Profile::ALL.into_iter().filter(|profile| *profile != Profile::Own);
    let (wrong, count) = (Mutex::new(Vec::new()), profiles().count());
    thread::scope(|scope| {
        for (kind, profile) in profiles().enumerate() {
            let wrong = &wrong;
            scope.spawn(move || {
                let found = unlisted(profile, share(cases::all(), kind, count, profiles_of_a_case));
                wrong.lock().expect("no panic").extend(found);
            });
        }
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn under_profiles_nothing_else_is_found() {
    under_profiles(2);
}

#[test]
#[ignore = "once a night: cargo test --test adviser -- --ignored"]
fn under_each_profile_nothing_else_is_found() {
    under_profiles(5);
}
