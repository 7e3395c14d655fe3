use std::{ffi::OsString, path::Path, process::Command};

use anyhow::Result;

use crate::context::Context;

/// Runs a test program so that it says how long each test takes: the `runner` of the host's target in .ci/run
///
/// The option is an unstable one of the test harness, which the variable allows; nothing is built with it.
#[derive(clap::Args)]
pub struct Timed {
    program: OsString,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Timed {
    pub fn run(&self, _: &Context) -> Result<()> {
        let mut program = Command::new(&self.program);
        program.args(&self.arguments);
        // Elsewhere lie documentation tests, which have no harness.
        if Path::new(&self.program).components().any(|part| part.as_os_str() == "deps") {
            program.env("RUSTC_BOOTSTRAP", "1").args(["-Zunstable-options", "--report-time"]);
        }
        run(program)
    }
}

/// Becomes the program, so that cargo sees the signal that ends it.
#[cfg(unix)]
fn run(mut program: Command) -> Result<()> {
    Err(std::os::unix::process::CommandExt::exec(&mut program).into())
}

#[cfg(not(unix))]
fn run(mut program: Command) -> Result<()> {
    std::process::exit(program.status()?.code().unwrap_or(101))
}
