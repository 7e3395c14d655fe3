//! Events for whoever collects traces: what runs when, and how it ends.

use control::test_device::Progress;
use tracelogging::{Level, define_provider, write_event};

define_provider!(PROVIDER, "NdkTest");

/// Begins. `PASSIVE_LEVEL`, once, before any other function here.
pub fn start() {
    // SAFETY: `stop` unregisters before the driver is unloaded. Without a registration there are just no events.
    let _ = unsafe { PROVIDER.register() };
}

/// Ends. `PASSIVE_LEVEL`, after all other functions here.
pub fn stop() {
    let _ = PROVIDER.unregister();
}

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
