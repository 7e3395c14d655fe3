use anyhow::Result;

use crate::context::Context;

/// What runs in a kernel.
const PACKAGES: [&str; 10] =
    ["ntstatus", "ndkpi", "cable", "fallible", "roce", "engine", "provider", "conformance", "control", "ndk"];

/// Builds what runs in a kernel for a Windows target, without a standard library
///
/// Whatever used one would not compile. Seconds. Installs Debian's compiler, which does it, if that is missing.
#[derive(clap::Args)]
pub struct NoStd;

impl NoStd {
    pub fn run(&self, context: &Context) -> Result<()> {
        context.need_compiler(&[])?;
        let check = context.debian_cargo("check").env("CARGO_TARGET_DIR", "target/no-std");
        check
            .args(["--quiet", "--target", "x86_64-pc-windows-msvc", "-Zbuild-std=core,alloc,compiler_builtins"])
            .args(PACKAGES.map(|package| format!("--package={package}")))
            .run()?;
        println!("{} build for x86_64-pc-windows-msvc with core and alloc only", PACKAGES.join(", "));
        Ok(())
    }
}
