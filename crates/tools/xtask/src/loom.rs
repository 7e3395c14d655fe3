use anyhow::Result;
use xshell::cmd;

use crate::context::Context;

/// Checks the engine's atomics in every interleaving (loom)
///
/// Runs the tests whose names begin with `loom_` in every interleaving that the memory model allows, up to a number of pre-emptions.
/// They need another build of the crates, with loom's atomics, and so have a target directory of their own: target/loom. Minutes.
#[derive(clap::Args)]
pub struct Loom {
    /// Arguments for the test programs, such as a part of a test's name
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    filter: Vec<String>,
}

impl Loom {
    pub fn run(&self, context: &Context) -> Result<()> {
        let (sh, filter) = (&context.sh, &self.filter);
        let test = cmd!(
            sh,
            "cargo test --release --target-dir target/loom -p fallible -p engine --test loom_* -- {filter...}"
        );
        Ok(test.env("RUSTFLAGS", "--cfg loom").run()?)
    }
}
