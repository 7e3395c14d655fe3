//! What a run does with the provider.

use conformance::{cases, runner};
use ndk_interface::test_control::Kind;
use ndkpi::{NDK_VERSION, NtStatus};

use crate::{
    platform::{KernelPlatform, now},
    provider::Interface,
    run::Run,
};

/// Whether runs of that kind can be started.
///
/// # Errors
///
/// `STATUS_NOT_SUPPORTED`: performance is not measured in the kernel yet.
pub const fn supported(kind: Kind) -> Result<(), NtStatus> {
    match kind {
        Kind::Conformance | Kind::Stress => Ok(()),
        Kind::Performance => Err(NtStatus::NOT_SUPPORTED),
    }
}

/// Carries out a run.
pub fn run(run: &Run, interface: &Interface) {
    let platform = KernelPlatform::new(run, interface);
    let end = now() + u64::from(run.start().seconds) * 1_000_000;
    let mut how = runner::Run { version: NDK_VERSION::V2_1, seed: run.start().seed, hostile: true };
    let count = u32::try_from(cases::all().count()).unwrap_or(u32::MAX);
    run.expect(if run.kind() == Kind::Conformance { count } else { 0 });
    loop {
        run.say(format_args!("seed {:#x}", how.seed));
        for case in cases::all() {
            if run.is_cancelled() || now() >= end {
                run.say(format_args!("ended before all cases were run"));
                return;
            }
            let outcome = runner::run(case, &platform, &how);
            run.step(!outcome.is_failure(), format_args!("{}: {outcome}", case.name));
        }
        if run.kind() == Kind::Conformance {
            return;
        }
        // The stress run is the suite again and again, each time with other numbers.
        how.seed = how.seed.wrapping_add(1);
    }
}
