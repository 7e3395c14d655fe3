//! The random traffic of `ndkctl soak`: a right provider passes it, and a seed replays. That wrong ones do not pass is in
//! `tests-host/broken`.

use conformance::{
    HELD,
    client::{Options, Session},
    host::{HostPlatform, Scheduler, Setup},
    soak::{self, Counts},
};
use ndkpi::NDK_VERSION;
use provider::{CompletionMode, NicMode};

/// One round on a machine of one thread. What was done, or what went wrong.
fn round(seed: u64, nic: NicMode) -> Result<Vec<(&'static str, u64)>, String> {
    let scheduler = Scheduler::Seeded { seed, preemption: 10 };
    let setup =
        Setup { scheduler, nic, seed, patience: 5_000_000, completion: CompletionMode::Mixed, ..Setup::default() };
    let platform = HostPlatform::start(setup).expect("memory");
    let options = Options { name: "soak", version: NDK_VERSION::V2_0, seed, hostile: true };
    let counts = Counts::default();
    match Session::with(&platform, &options, |session| soak::round(session, &counts, 3, 20)) {
        HELD => platform.finish().map(|()| counts.each().collect()),
        Ok(pass) => Err(format!("not expected of a round: {pass:?}")),
        Err(stop) => Err(stop.text().to_owned()),
    }
}

#[test]
fn a_round_does_everything_and_its_seed_replays() {
    for nic in [NicMode::Deferred, NicMode::Direct] {
        let first = round(7, nic).expect("the provider is right");
        for (what, count) in &first {
            assert!(*count > 0, "no {what}");
        }
        assert_eq!(round(7, nic).as_ref(), Ok(&first), "the same seed, the same round");
        assert_ne!(round(8, nic).as_ref(), Ok(&first), "another seed, another round");
    }
}
