//! The suite under each device profile: what does not apply is skipped with its reason, the rest adapts, and nothing fails for
//! being hardware.
//!
//! The provider enforces what a profile says: fewer elements, little private data, read sinks, no connections of an adapter with
//! itself.

use conformance::{
    Case, Outcome, Run, Tally, cases,
    host::{Harness, Scheduler, Setup},
};
use engine::nic::NotReady;
use ndkpi::{
    NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED as MODERATION, NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED as RESIZE,
    NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED as IN_ORDER, NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED as LOOPBACK,
    NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED as MULTI_ENGINE,
    NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED as LOCAL_INVALIDATE,
    NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED as SINK_NOT_REQUIRED, NDK_VERSION,
};
use provider::{Config, Profile};

/// The suite, without what a correct consumer never does.
fn run(profile: Profile, adapters: u8, without: u32) -> Vec<(&'static Case, Outcome)> {
    let setup = Setup {
        scheduler: Scheduler::Seeded { seed: 3, preemption: 10 },
        tokens: Some(1 << 12),
        adapters,
        profile,
        without,
        ..Setup::default()
    };
    let newest = profile.versions().iter().max().expect("it has a version");
    let how = Run { version: NDK_VERSION::new(newest.Major, 0), seed: 1, hostile: false };
    let harness = Harness::new(setup);
    cases::all().map(|case| (case, harness.run(case, how).outcome)).collect()
}

/// Nothing has failed, what was skipped says why, and so many at least were not skipped.
fn judge(name: &str, outcomes: &[(&'static Case, Outcome)], at_least: u32) {
    let (mut tally, mut failed) = (Tally::default(), Vec::new());
    for (case, outcome) in outcomes {
        tally.count(outcome);
        if outcome.is_bad() {
            failed.push(format!("{}: {outcome}", case.name));
        }
        if let Outcome::Skipped(why) = outcome {
            assert!(!why.as_str().is_empty(), "{name}: {}", case.name);
            println!("{name}: {}: {}", case.name, why.as_str());
        }
    }
    println!("{name}: {tally}");
    assert!(failed.is_empty(), "{name}:\n{}", failed.join("\n"));
    assert!(tally.passed + tally.observed >= at_least, "{name}: {tally}");
}

fn reason<'a>(outcomes: &'a [(&'static Case, Outcome)], name: &str) -> &'a str {
    let found = outcomes.iter().find(|(case, _)| case.name == name);
    match found {
        Some((_, Outcome::Skipped(why))) => why.as_str(),
        other => panic!("{name} should be skipped: {other:?}"),
    }
}

#[test]
fn rocev2() {
    let outcomes = run(Profile::RoceV2ConnectX, 1, 0);
    judge("rocev2-connectx, one port", &outcomes, 200);
    assert!(reason(&outcomes, "transfer.inline-is-taken-at-once").contains("MaxInlineDataSize is 0"));
}

#[test]
fn iwarp() {
    let outcomes = run(Profile::Iwarp, 2, 0);
    judge("iwarp, two ports", &outcomes, 200);
    assert!(reason(&outcomes, "srq.notification").contains("no shared receive queues"));
    assert!(reason(&outcomes, "moderation.count-alone").contains("CQ_INTERRUPT_MODERATION"));
}

#[test]
fn small() {
    judge("small", &run(Profile::Small, 2, 0), 200);
}

#[test]
fn ndkpi_1_2() {
    let outcomes = run(Profile::Ndkpi12, 1, 0);
    judge("ndkpi-1.2", &outcomes, 200);
    // What the document says of versions.
    assert_eq!(since(&outcomes, "2.1"), cases::SINCE_2_1, "cases that need NDKPI 2.1");
}

#[test]
fn minimum() {
    let outcomes = run(Profile::Minimum, 2, 0);
    judge("minimum", &outcomes, 100);
    let since = since(&outcomes, "1.2");
    assert!(since.iter().all(|name| cases::SINCE_1_2.contains(name)), "not in the list: {since:?}");
    // Some need more that this adapter does not have, and say that first.
    for name in cases::SINCE_1_2 {
        assert!(!reason(&outcomes, name).is_empty());
    }
}

#[test]
fn one_port_without_loopback() {
    let outcomes = run(Profile::Ndkpi12, 1, LOOPBACK);
    judge("one port without loopback", &outcomes, 40);
    assert!(reason(&outcomes, "connect.private-data").contains("cannot connect to itself"));
}

/// The cases that were skipped because what they are about came with that version.
fn since(outcomes: &[(&'static Case, Outcome)], version: &str) -> Vec<&'static str> {
    let words = format!("came with {version}");
    let skipped = outcomes
        .iter()
        .filter(|(_, outcome)| matches!(outcome, Outcome::Skipped(why) if why.as_str().contains(&words)));
    skipped.map(|(case, _)| case.name).collect()
}

#[test]
fn each_profile_leaves_its_flags_out() {
    let all = Config::default().info.AdapterFlags;
    for (profile, left_out) in [
        (Profile::Own, 0),
        (Profile::RoceV2ConnectX, IN_ORDER),
        (Profile::Iwarp, LOOPBACK | SINK_NOT_REQUIRED | MODERATION | RESIZE | MULTI_ENGINE),
        (Profile::Small, SINK_NOT_REQUIRED | LOCAL_INVALIDATE),
        (Profile::Ndkpi12, 0),
        (Profile::Minimum, all),
    ] {
        let mut config = Config::default();
        profile.limit(&mut config);
        assert_eq!(config.info.AdapterFlags, all & !left_out, "{profile:?}");
    }
    let mut config = Config { versions: &[NDK_VERSION::V1_1], ..Config::default() };
    Profile::Ndkpi12.limit(&mut config);
    assert_eq!(config.versions, [NDK_VERSION::V1_1], "an older one stays");
}

#[test]
fn a_card_tries_again_as_often_as_it_is_told() {
    for (rnr_retries, ends) in [(0, true), (6, true), (7, false)] {
        let mut config = Config { rnr_retries, ..Config::default() };
        Profile::RoceV2ConnectX.limit(&mut config);
        let is_counted = matches!(config.not_ready, NotReady::Retry { retries, .. } if retries == rnr_retries);
        assert_eq!(is_counted, ends, "{rnr_retries}: {:?}", config.not_ready);
        assert_eq!(matches!(config.not_ready, NotReady::Wait), !ends, "seven is for ever");
    }
}

#[test]
fn a_profile_only_takes_away() {
    let own = Config::default();
    for (number, profile) in (0..).zip(Profile::ALL) {
        assert_eq!(Profile::from_number(number), Some(profile));
        let mut config = own;
        profile.limit(&mut config);
        let (before, after) = (own.info, config.info);
        assert_eq!(after.AdapterFlags & !before.AdapterFlags, 0, "{profile:?}");
        let numbers = [before, after].map(|info| {
            [
                info.FRMRPageCount,
                info.MaxInitiatorRequestSge,
                info.MaxReceiveRequestSge,
                info.MaxReadRequestSge,
                info.MaxTransferLength,
                info.MaxInlineDataSize,
                info.MaxInboundReadLimit,
                info.MaxOutboundReadLimit,
                info.MaxReceiveQueueDepth,
                info.MaxInitiatorQueueDepth,
                info.MaxSrqDepth,
                info.MaxCqDepth,
                info.MaxCallerData,
                info.MaxCalleeData,
            ]
        });
        assert!(numbers[0].iter().zip(numbers[1]).all(|(before, after)| after <= *before), "{profile:?}");
        assert!(after.FRMRPageCount >= 16, "{profile:?}: NDKPI 3.11");
        assert!(config.versions.iter().all(|version| own.versions.iter().any(|offered| version <= offered)));
        // Twice is once.
        let once = config;
        profile.limit(&mut config);
        assert_eq!((config.info, config.versions), (once.info, once.versions), "{profile:?}");
    }
    assert_eq!(Profile::from_number(6), None);
}

#[test]
fn every_profile_has_a_name_and_a_title_of_its_own() {
    for text in [Profile::name, Profile::title] {
        let mut texts = Profile::ALL.map(text).to_vec();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), Profile::ALL.len(), "{texts:?}");
    }
}
