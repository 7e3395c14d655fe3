//! Stand-in for `wdk-build` on machines without the Windows Driver Kit.
//!
//! The genuine crate finds the kit, generates bindings and tells rustc about the driver model. Here the bindings are the
//! stand-in for `wdk-sys`, and the linker's arguments come from `cargo xtask drivers`. What is left is the driver model,
//! by which the crates `wdk`, `wdk-alloc` and `wdk-panic` choose what to compile. See `docs/cross-build.md`.

use std::fmt;

/// What goes wrong when a driver's build is configured. Here nothing does.
#[derive(Debug)]
pub struct ConfigError;

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the build cannot be configured")
    }
}

impl std::error::Error for ConfigError {}

/// The settings of a library crate: the driver model.
///
/// # Errors
///
/// None; the genuine function has some.
#[expect(clippy::unnecessary_wraps, reason = "the genuine function's signature")]
pub fn configure_wdk_library_build() -> Result<(), ConfigError> {
    println!(r#"cargo::rustc-check-cfg=cfg(driver_model__driver_type, values("WDM", "KMDF", "UMDF"))"#);
    println!(r#"cargo::rustc-cfg=driver_model__driver_type="KMDF""#);
    Ok(())
}
