use anyhow::Result;

use crate::context::Context;

/// What runs in a kernel.
const PACKAGES: [&str; 11] =
    ["ntstatus", "ndkpi", "cable", "crc32", "fallible", "roce", "engine", "provider", "conformance", "control", "ndk"];
/// What is not the same for each processor, and who uses it.
const BY_PROCESSOR: [&str; 2] = ["crc32", "roce"];

/// Builds what runs in a kernel for a Windows target, without a standard library
///
/// Whatever used one would not compile. Seconds. Installs Debian's compiler, which does it, if that is missing.
#[derive(clap::Args)]
pub struct NoStd;

impl NoStd {
    pub fn run(&self, context: &Context) -> Result<()> {
        context.need_compiler(&[])?;
        check(context, "x86_64", &PACKAGES, &[])?;
        check(context, "aarch64", &BY_PROCESSOR, &["--features=kernel"])
    }
}

fn check(context: &Context, processor: &str, packages: &[&str], features: &[&str]) -> Result<()> {
    let target = format!("{processor}-pc-windows-msvc");
    let check = context.debian_cargo("check").env("CARGO_TARGET_DIR", "target/no-std");
    check
        .args(["--quiet", "--target", &target, "-Zbuild-std=core,alloc,compiler_builtins"])
        .args(packages.iter().map(|package| format!("--package={package}")))
        .args(features)
        .run()?;
    println!("{} build for {target} with core and alloc only", packages.join(", "));
    Ok(())
}
