use anyhow::Result;
use xshell::cmd;

use crate::context::Context;

/// What has tests beyond those of the default members.
const PACKAGES: [&str; 19] = [
    "ndkctl",
    "bench",
    "broken",
    "driver-common",
    "image-loader",
    "install",
    "kernel",
    "kernel-tests",
    "models",
    "mutants",
    "programs",
    "remote",
    "runner",
    "schemas",
    "script-machine",
    "simulated-kernel",
    "softndk",
    "softndknic",
    "xtask",
];

/// Runs the tests that `cargo test` leaves out, because they take long to build
///
/// Those of the drivers in the simulated kernel, of that kernel, of ndkctl and of these chores; wrong providers, models, random programs.
/// They need nothing but the compiler. A quarter of an hour, with the build.
#[derive(clap::Args)]
pub struct Test {
    /// Only tests with one of these in their names
    filter: Vec<String>,
}

impl Test {
    pub fn run(&self, context: &Context) -> Result<()> {
        let (sh, filter) = (&context.sh, &self.filter);
        let packages = PACKAGES.map(|package| format!("--package={package}"));
        // All of each package: also what its manifest keeps from the default members.
        cmd!(sh, "cargo test {packages...} --features softndk/faults --lib --bins --test * -- {filter...}").run()?;
        Ok(())
    }
}
