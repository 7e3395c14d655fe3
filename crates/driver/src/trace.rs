//! Events for whoever collects traces: `TraceLogging`, so that the trace describes itself.
//!
//! There is one for each thing that happens seldom, and none on the data path. While nobody listens an event costs one
//! comparison.

use ndkpi::{NDK_VERSION, NtStatus};
use tracelogging::{Level, define_provider, write_event};

define_provider!(PROVIDER, "SoftNDK");

/// Begins. `PASSIVE_LEVEL`, once, before any other function here.
pub fn start() {
    // SAFETY: `stop` unregisters before the driver is unloaded. Without a registration there are just no events.
    let _ = unsafe { PROVIDER.register() };
}

/// Ends. `PASSIVE_LEVEL`, after all other functions here.
pub fn stop() {
    let _ = PROVIDER.unregister();
}

/// A consumer has opened an adapter.
pub fn opened(version: NDK_VERSION, open: u32) {
    write_event!(
        PROVIDER,
        "Opened",
        level(Level::Informational),
        u16("Major", &version.Major),
        u16("Minor", &version.Minor),
        u32("Open", &open),
    );
}

/// A consumer could not open an adapter.
pub fn refused(version: NDK_VERSION, status: NtStatus) {
    write_event!(
        PROVIDER,
        "Refused",
        level(Level::Warning),
        u16("Major", &version.Major),
        u16("Minor", &version.Minor),
        i32_hex("Status", &status.0),
    );
}

/// A consumer has closed an adapter.
pub fn closed(open: u32) {
    write_event!(PROVIDER, "Closed", level(Level::Informational), u32("Open", &open));
}

/// An adapter waits for consumers to close it.
pub fn waiting(open: u32) {
    write_event!(PROVIDER, "WaitingForClose", level(Level::Warning), u32("Open", &open));
}

/// The settings were changed.
pub fn settings(completion_mode: u32, moderation_granularity: u32) {
    write_event!(
        PROVIDER,
        "Settings",
        level(Level::Informational),
        u32("CompletionMode", &completion_mode),
        u32("ModerationGranularity", &moderation_granularity),
    );
}
