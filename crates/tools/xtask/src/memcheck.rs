use anyhow::{Result, bail};
use xshell::cmd;

use crate::context::{Context, executables};

/// Tests, by package and test program, and a part of their names.
const TESTS: [(&str, &str, &[&str]); 4] = [
    ("fallible", "rules", &[]),
    ("engine", "cq_rules", &["ring::"]),
    ("engine", "cq_rules", &["queue::"]),
    ("engine", "memory", &["tokens::"]),
];

/// Runs the tests of references, rings, queues and tokens under valgrind's memcheck
///
/// Finds what is read before it was written, used after it was freed or past its end. It stands in for Miri, whose component is a
/// download of rustup's. What only Miri sees, aliasing and provenance, this does not. What is never freed `cargo xtask sanitize` finds.
/// Minutes.
#[derive(clap::Args)]
pub struct Memcheck;

impl Memcheck {
    pub fn run(&self, context: &Context) -> Result<()> {
        context.need(&[("valgrind", "valgrind")])?;
        let sh = &context.sh;
        for (package, test, filter) in TESTS {
            let build = cmd!(sh, "cargo test --quiet --no-run -p {package} --test {test}").quiet();
            let [program] = &executables(build)?[..] else { bail!("{package} has no single test program {test}") };
            let check =
                cmd!(sh, "valgrind --quiet --error-exitcode=1 --leak-check=no {program} {filter...} --test-threads 1");
            let said = check.quiet().read()?;
            said.lines()
                .filter(|line| line.starts_with("test result"))
                .for_each(|line| println!("{package} {test}: {line}"));
        }
        Ok(())
    }
}
