//! Cases of the suite and random traffic on a machine of one thread, where nobody gets into a DPC: for
//! `cargo xtask dpcs`, which counts what the longest one takes. Says which has copied the most bytes.
//!
//!     cargo run --release -p conformance --features host --example dpcs -- [FILTER] [ROUNDS]

use std::env;

use conformance::{
    HELD, Stop, Verdict, cases,
    client::{Options, Session},
    host::{HostPlatform, Scheduler, Setup},
    selects,
    soak::{self, Counts},
};
use engine::nic::NicMode;
use ndkpi::NDK_VERSION;
use provider::CompletionMode;

/// Runs `work` on a machine of its own. How many DPCs there were, and the most bytes that one of them has copied.
fn on_a_machine(
    name: &str,
    nic: NicMode,
    seed: u64,
    work: impl FnOnce(&Session<'_>) -> Verdict,
) -> Result<(u64, usize), String> {
    let scheduler = Scheduler::Seeded { seed, preemption: 0 };
    let setup = Setup { scheduler, nic, seed, completion: CompletionMode::Mixed, ..Setup::default() };
    let platform = HostPlatform::start(setup).map_err(|status| format!("no machine: {status}"))?;
    let options = Options { name, version: NDK_VERSION::V2_0, seed, hostile: true };
    if let Err(Stop::Failed(seen)) = Session::with(&platform, &options, work) {
        return Err(format!("{name}: {seen}"));
    }
    platform.take_panic().map_or(Ok(()), Err)?;
    let statistics = platform.machine().statistics();
    platform.finish()?;
    Ok((statistics.dpcs_run(), statistics.most_copied))
}

fn main() -> Result<(), String> {
    let mut arguments = env::args().skip(1);
    let filter = arguments.next().unwrap_or_default();
    let rounds: u64 =
        arguments.next().map_or(Ok(1), |text| text.parse()).map_err(|error| format!("rounds: {error}"))?;
    for nic in [NicMode::Deferred, NicMode::Direct] {
        let (mut calls, mut most) = (0, (0, ""));
        let mut note = |name, (run, copied): (u64, usize)| {
            calls += run;
            most = most.max((copied, name));
        };
        for case in cases::all().filter(|case| selects(&filter, case)) {
            note(case.name, on_a_machine(case.name, nic, 1, |session| (case.run)(session))?);
        }
        for seed in 0..rounds {
            let counts = Counts::default();
            let round = |session: &Session<'_>| soak::round(session, &counts, 4, 25);
            note("random traffic", on_a_machine("soak", nic, seed, |session| round(session).and(HELD))?);
        }
        println!("{nic:?}: {calls} DPCs; most bytes that one copied: {} ({})", most.0, most.1);
    }
    Ok(())
}
