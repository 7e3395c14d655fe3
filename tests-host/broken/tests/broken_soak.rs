//! The random traffic of `ndkctl soak`, which the product passes (`tests-host/tests/soak.rs`), finds wrong providers.

use conformance::{
    HELD,
    client::{Options, Session},
    host::{HostPlatform, Scheduler, Setup},
    soak::{self, Counts},
};
use engine::switch;
use ndkpi::NDK_VERSION;
use provider::CompletionMode;

/// Returns true if something goes wrong in a round on a machine of one thread.
fn fails(seed: u64) -> bool {
    let setup = Setup {
        scheduler: Scheduler::Seeded { seed, preemption: 10 },
        seed,
        patience: 200_000,
        completion: CompletionMode::Mixed,
        ..Setup::default()
    };
    let platform = HostPlatform::start(setup).expect("memory");
    let options = Options { name: "soak", version: NDK_VERSION::V2_0, seed, hostile: true };
    match Session::with(&platform, &options, |session| soak::round(session, &Counts::default(), 3, 20)) {
        HELD => platform.finish().is_err(),
        Ok(pass) => panic!("not expected of a round: {pass:?}"),
        Err(_) => {
            // What a wrong provider leaves behind is not looked at.
            std::mem::forget(platform);
            true
        }
    }
}

#[test]
fn wrong_providers_do_not_pass() {
    const MISTAKES: [&str; 7] = [
        "BytesWrong",
        "WrongOrder",
        "SilentSuccessCompletes",
        "DisconnectDoesNotFlush",
        "FlushOnIncomingDisconnect",
        "OverrunSilent",
        "ModerationIgnoresInterval",
    ];
    for mistake in MISTAKES {
        assert!(switch::making(mistake, || (0..20).any(fails)), "twenty rounds pass with {mistake}");
    }
}
