//! Runs of the conformance suite.

use conformance::{Platform, cases, runner};
use control::{report::Line, test_device::Kind};
use ndkpi::NDK_VERSION;

use crate::{platform::now, run::Run};

/// Carries out a run, whose adapters are opened with that version.
pub fn run(run: &Run, platform: &dyn Platform, version: NDK_VERSION) {
    let end = now() + u64::from(run.start().seconds) * 1_000_000;
    let mut how = runner::Run { version, seed: run.start().seed, hostile: run.hostile() };
    let wanted = || cases::all().filter(|case| run.case().is_none_or(|only| only.name == case.name));
    let count = u32::try_from(wanted().count()).unwrap_or(u32::MAX);
    run.expect(if run.kind() == Kind::Conformance { count } else { 0 });
    loop {
        run.say(format_args!("seed {:#x}", how.seed));
        for case in wanted() {
            if run.is_cancelled() || now() >= end {
                run.say(format_args!("ended before all cases were run"));
                return;
            }
            let began = now();
            let outcome = runner::run(case, platform, &how);
            let micros = now() - began;
            run.step(&Line { name: case.name, outcome: outcome.word(), micros, text: outcome.text() });
        }
        if run.kind() == Kind::Conformance {
            return;
        }
        // The stress run is the suite again and again, each time with other numbers.
        how.seed = how.seed.wrapping_add(1);
    }
}
