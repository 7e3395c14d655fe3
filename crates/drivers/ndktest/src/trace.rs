//! Events for whoever collects traces: what runs when, and how it ends.

use control::test_device::Progress;
use tracelogging::{Level, write_event};

kernel::trace_provider!("NdkTest");

/// A run begins.
pub fn begun(kind: u32, seed: u64) {
    write_event!(PROVIDER, "Begun", level(Level::Informational), u32("Kind", &kind), u64_hex("Seed", &seed));
}

/// A run is over.
pub fn over(progress: &Progress) {
    write_event!(
        PROVIDER,
        "Over",
        level(Level::Informational),
        u32("State", &progress.state),
        u32("Passed", &progress.passed),
        u32("Failed", &progress.failed),
    );
}
