//! Random traffic over frames: that of `ndkctl soak`.

use conformance::{
    HELD,
    client::{Options, Session},
    host::{HostPlatform, Impairments, Scheduler, Setup},
    soak::{self, Counts},
};
use ndkpi::NDK_VERSION;
use provider::CompletionMode;

use super::{CLEAN, on_cable};

/// One round of soak. What was done, or what went wrong.
fn round(seed: u64, impairments: Impairments) -> Result<Vec<(&'static str, u64)>, String> {
    let setup = Setup {
        seed,
        patience: 20_000_000,
        completion: CompletionMode::Mixed,
        ..on_cable(Scheduler::Seeded { seed, preemption: 10 }, impairments)
    };
    let platform = HostPlatform::start(setup).expect("memory");
    let options = Options { name: "soak", version: NDK_VERSION::V2_0, seed, hostile: true };
    let counts = Counts::default();
    match Session::with(&platform, &options, |session| soak::round(session, &counts, 3, 20)) {
        HELD => platform.finish().map(|()| counts.each().collect()),
        Ok(pass) => Err(format!("not expected of a round: {pass:?}")),
        Err(stop) => {
            std::mem::forget(platform);
            Err(stop.text().to_owned())
        }
    }
}

#[test]
fn soak_does_everything_over_frames() {
    for seed in 0..6 {
        let done = round(seed, CLEAN).unwrap_or_else(|seen| panic!("seed {seed}: {seen}"));
        for (what, count) in done {
            assert!(count > 0 || seed != 0, "no {what}");
        }
    }
}

#[test]
fn soak_on_a_spoilt_cable() {
    let kinds = [
        Impairments { loss: 20, ..CLEAN },
        Impairments { duplicates: 50, disorder: 50, ..CLEAN },
        Impairments { corruption: 20, ..CLEAN },
        Impairments::all(10),
    ];
    for (seed, impairments) in (20..).zip(kinds) {
        round(seed, impairments).unwrap_or_else(|seen| panic!("seed {seed}, {impairments:?}: {seen}"));
    }
}
