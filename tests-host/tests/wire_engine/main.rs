//! Adapters that reach each other by frames only.

mod causes;
mod chains;
mod ends;
mod forged;
mod frames;
mod invalidations;
mod refusals;
mod soak;
mod states;
mod suite;

use conformance::{
    Verdict,
    client::{Options, Session},
    host::{HostPlatform, Impairments, Scheduler, Setup},
};
use ndkpi::{NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED as LOOPBACK, NDK_VERSION};

/// Two adapters whose only way to each other is a cable, and which do not connect to themselves: the suite takes both then.
fn on_cable(scheduler: Scheduler, impairments: Impairments) -> Setup {
    Setup { scheduler, tokens: Some(1 << 12), without: LOOPBACK, wire: Some(impairments), ..Setup::default() }
}

const SEEDED: Scheduler = Scheduler::Seeded { seed: 7, preemption: 10 };

const CLEAN: Impairments = Impairments { loss: 0, duplicates: 0, disorder: 0, corruption: 0 };

/// Runs `work` on a machine, and looks that nothing is left.
fn run(setup: Setup, work: impl Fn(&Session<'_>, &HostPlatform) -> Verdict) {
    let platform = HostPlatform::start(setup).expect("a machine");
    let options = Options { name: "wire", version: NDK_VERSION::V2_1, seed: 1, hostile: false };
    let verdict = Session::with(&platform, &options, |session| work(session, &platform));
    assert_eq!(verdict, conformance::HELD);
    assert_eq!(platform.take_panic(), None);
    platform.finish().expect("nothing is left");
}

/// What the wire of an adapter has counted.
fn counters(platform: &HostPlatform, adapter: usize) -> engine::wire::Counters {
    platform.devices()[adapter].wire().expect("a wire").counters()
}
