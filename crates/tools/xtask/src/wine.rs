//! Programs for Windows: built with Debian's compiler and mingw-w64's linker, run under Wine.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use xshell::{Cmd, cmd};

use crate::context::{Context, MINGW, Needed, WINDOWS_GNU, absolute, variable};

/// Where these programs are built.
pub fn cache() -> PathBuf {
    variable("IMAGES_TARGET_DIR").map_or_else(|| absolute("target/images-build"), PathBuf::from)
}

/// Has the compiler, the linker and these programs.
pub fn need(context: &Context, programs: &[Needed]) -> Result<()> {
    let linker = (MINGW, "gcc-mingw-w64-x86-64-win32");
    context.need_compiler(&[programs, &[linker]].concat())?;
    context.sh.create_dir(cache())?;
    Ok(())
}

/// A command of cargo that builds such programs. The library and others' crates are optimised a little too, without their assertions: the
/// tests run twice as fast under Wine.
pub fn cargo<'a>(context: &'a Context, command: &str) -> Result<Cmd<'a>> {
    let lock = context.lock_file(&cache().with_extension("lock"))?;
    Ok(context
        .debian_cargo(command)
        .args(["--target", WINDOWS_GNU, "-Zbuild-std=std,panic_unwind,test"])
        .args(["--config", r#"profile.dev.package."*".opt-level=1"#])
        .args(["--config", r#"profile.dev.package."*".debug-assertions=false"#])
        .args(lock)
        .env("CARGO_TARGET_DIR", cache())
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER", MINGW)
        .env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUSTFLAGS", "-Clink-arg=-static-libgcc"))
}

/// Puts the worker of `ndkctl run`, which has been built, where ndkctl looks for it.
pub fn keep_worker(context: &Context) -> Result<()> {
    let to = context.sh.create_dir("target/runner")?;
    context.sh.copy_file(cache().join(WINDOWS_GNU).join("debug/worker.exe"), &to)?;
    context.random_numbers(MINGW, &cache(), &to)
}

/// A Wine that is ready.
pub struct Wine {
    /// The command, and where its Windows is.
    command: String,
    prefix: PathBuf,
}

impl Wine {
    /// Starts Wine, if it is there; otherwise says what is left out. The first start makes the prefix.
    pub fn start(context: &Context, command: &str, prefix: PathBuf, left_out: &str) -> Option<Self> {
        if !context.have_wine(command, left_out) {
            return None;
        }
        let wine = Self { command: command.to_owned(), prefix };
        if wine.command(300).arg("wineboot").output().is_ok_and(|boot| boot.status.success()) {
            return Some(wine);
        }
        crate::context::say(format_args!("skipped, because Wine does not start here: {left_out}"));
        None
    }

    /// A command that ends after so many seconds, to which a program for Windows and its arguments are added.
    pub fn command(&self, seconds: u32) -> Command {
        let mut command = Command::new("timeout");
        command.args([&seconds.to_string(), &self.command]).current_dir(absolute("."));
        command.env("WINEPREFIX", &self.prefix).env("WINEDEBUG", "-all").env("WINEDLLOVERRIDES", "mscoree,mshtml=");
        command
    }

    /// What it calls itself.
    pub fn version(&self, context: &Context) -> Result<String> {
        let (sh, wine) = (&context.sh, &self.command);
        Ok(cmd!(sh, "{wine} --version").quiet().ignore_stderr().read()?)
    }
}

/// Runs a command with all that it says in a file; returns whether it succeeded, and the text without carriage returns.
pub fn run_into(mut command: Command, file: &Path) -> Result<(bool, String)> {
    let output = File::create(file).with_context(|| file.display().to_string())?;
    let status = command.stdout(output.try_clone()?).stderr(output).status()?;
    let said = String::from_utf8_lossy(&std::fs::read(file)?).replace('\r', "");
    Ok((status.success(), said))
}

/// Builds the program in which `ndkctl run` runs driver images under Wine
///
/// On Linux (Debian): target/runner/worker.exe. Minutes the first time. What is missing is installed from Debian, Wine too.
#[derive(clap::Args)]
pub struct Worker;

impl Worker {
    pub fn run(&self, context: &Context) -> Result<()> {
        need(context, &[])?;
        cargo(context, "build")?.args(["--quiet", "--package", "driver-images", "--bin", "worker"]).run()?;
        keep_worker(context)?;
        println!("target/runner/worker.exe");
        context.have_wine("wine", "ndkctl run needs it");
        Ok(())
    }
}
