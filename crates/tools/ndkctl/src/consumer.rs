//! Adapters of the suite's platform for what is no test: consumers in safe Rust.

use std::sync::Arc;

use conformance::{Platform, host::HostPlatform};
use ndk::{Adapter, NDK_VERSION};

/// Opens an adapter of `platform`, which is `host` or has a layer in front of its adapters.
///
/// # Errors
///
/// The reason, in one line.
pub fn open(
    host: &HostPlatform,
    platform: Arc<dyn Platform + Send>,
    number: u32,
    version: NDK_VERSION,
) -> Result<Adapter, String> {
    let failed = |status| format!("no adapter: {status}");
    let raw = platform.open(number, version).map_err(failed)?;
    let close = move |adapter| {
        // SAFETY: the adapter came from this platform, and `ndk` does not use it any more.
        unsafe { platform.close(adapter) };
    };
    // SAFETY: the adapter was just opened, and nobody else has it.
    unsafe { ndk::host::adopt(host.machine(), raw, close) }.map_err(failed)
}
