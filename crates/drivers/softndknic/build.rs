//! Tells rustc and the linker that this is a KMDF driver.

/// By the installed Windows Driver Kit.
#[cfg(windows)]
fn main() -> Result<(), wdk_build::ConfigError> {
    wdk_build::configure_wdk_binary_build()
}

/// Without the kit there is nothing to find out; `cargo xtask drivers` tells the linker.
#[cfg(not(windows))]
const fn main() {}
