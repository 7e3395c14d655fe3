use std::path::Path;

use anyhow::Result;
use xshell::Cmd;

use crate::context::{CLIPPY, Context};

/// Checks that what `cargo test` and `cargo run` build compiles for Windows too
///
/// Tests included. Of the installer, most of which is for Windows only, clippy has nothing to say. Nothing is linked or run. Minutes the
/// first time. Installs Debian's compiler and its clippy, which do it, if they are missing.
#[derive(clap::Args)]
pub struct Windows {
    /// That the installer compiles for ARM64, too: with a standard library of its own, so as long again
    #[arg(long)]
    arm64: bool,
}

impl Windows {
    pub fn run(&self, context: &Context) -> Result<()> {
        let mut packages = context.missing_compiler();
        packages.extend((!Path::new(CLIPPY).is_file()).then_some("rust-web-clippy"));
        context.install(&packages)?;
        context.need_compiler(&[])?;

        check(context, "x86_64").run()?;
        println!("the default members and their tests compile for x86_64-pc-windows-msvc");
        // What cargo-clippy would say to the compiler of rustup.
        let clippy = check(context, "x86_64").env("RUSTC_WORKSPACE_WRAPPER", CLIPPY);
        clippy.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__").args(["-p", "install"]).run()?;
        println!("clippy has nothing to say to the installer for x86_64-pc-windows-msvc");
        if self.arm64 {
            check(context, "aarch64").args(["-p", "install"]).run()?;
            println!("the installer and its tests compile for aarch64-pc-windows-msvc");
        }
        Ok(())
    }
}

fn check<'a>(context: &'a Context, processor: &str) -> Cmd<'a> {
    let target = format!("--target={processor}-pc-windows-msvc");
    let check = context.debian_cargo("check").env("CARGO_TARGET_DIR", "target/windows");
    check.args(["--quiet", "--all-targets", "-Zbuild-std=std,panic_unwind,test"]).arg(target)
}
