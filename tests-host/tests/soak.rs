//! The random traffic of `ndkctl soak`: right providers pass it, wrong ones do not, and a seed replays.

use std::sync::{Mutex, PoisonError};

use conformance::{
    HELD,
    client::{Options, Session},
    host::{HostPlatform, Scheduler, Setup},
    soak::{self, Counts},
};
use engine::fault::{self, Fault};
use ndkpi::NDK_VERSION;
use provider::{CompletionMode, NicMode};

/// A mistake is made in the whole program: one test at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// One round on a machine of one thread. What was done, or what went wrong.
fn round(seed: u64, nic: NicMode, patience: u64) -> Result<Vec<(&'static str, u64)>, String> {
    let scheduler = Scheduler::Seeded { seed, preemption: 10 };
    let setup = Setup { scheduler, nic, seed, patience, completion: CompletionMode::Mixed, ..Setup::default() };
    let platform = HostPlatform::start(setup).expect("memory");
    let options = Options { name: "soak", version: NDK_VERSION::V2_0, seed, hostile: true };
    let counts = Counts::default();
    match Session::with(&platform, &options, |session| soak::round(session, &counts, 3, 20)) {
        HELD => platform.finish().map(|()| counts.each().collect()),
        Ok(pass) => Err(format!("not expected of a round: {pass:?}")),
        Err(stop) => {
            // What a wrong provider leaves behind is not looked at.
            std::mem::forget(platform);
            Err(stop.text().to_owned())
        }
    }
}

#[test]
fn a_round_does_everything_and_its_seed_replays() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for nic in [NicMode::Deferred, NicMode::Direct] {
        let first = round(7, nic, 5_000_000).expect("the provider is right");
        for (what, count) in &first {
            assert!(*count > 0, "no {what}");
        }
        assert_eq!(round(7, nic, 5_000_000).as_ref(), Ok(&first), "the same seed, the same round");
        assert_ne!(round(8, nic, 5_000_000).as_ref(), Ok(&first), "another seed, another round");
    }
}

#[test]
fn wrong_providers_do_not_pass() {
    const MISTAKES: [Fault; 7] = [
        Fault::BytesWrong,
        Fault::WrongOrder,
        Fault::SilentSuccessCompletes,
        Fault::DisconnectDoesNotFlush,
        Fault::FlushOnIncomingDisconnect,
        Fault::OverrunSilent,
        Fault::ModerationIgnoresInterval,
    ];
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for mistake in MISTAKES {
        fault::set(Some(mistake));
        let is_found = (0..20).any(|seed| round(seed, NicMode::Deferred, 200_000).is_err());
        fault::set(None);
        assert!(is_found, "twenty rounds pass with {mistake:?}");
    }
}
