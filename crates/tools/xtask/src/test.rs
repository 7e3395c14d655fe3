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
/// They need nothing but the compiler, and use again what `cargo test` has built. A quarter of an hour.
#[derive(clap::Args)]
pub struct Test {
    /// Only these test programs
    #[arg(long = "test", value_name = "PROGRAM")]
    pub programs: Vec<String>,
    /// Only tests with one of these in their names
    pub filter: Vec<String>,
}

impl Test {
    pub fn run(&self, context: &Context) -> Result<()> {
        let (sh, filter) = (&context.sh, &self.filter);
        // Always all of them: with other packages cargo would build with other features, and again.
        let packages = PACKAGES.map(|package| format!("--package={package}"));
        let targets: Vec<_> = if self.programs.is_empty() {
            // Also what a manifest keeps from the default members.
            ["--lib", "--bins", "--test=*"].map(str::to_owned).into()
        } else {
            self.programs.iter().map(|program| format!("--test={program}")).collect()
        };
        cmd!(sh, "cargo test {packages...} --features softndk/faults {targets...} -- {filter...}").run()?;
        Ok(())
    }
}
