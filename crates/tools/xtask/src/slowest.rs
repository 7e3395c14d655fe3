use std::path::PathBuf;

use anyhow::{Result, ensure};
use regex::Regex;

use crate::context::Context;

/// Prints the ten slowest tests of a run of .ci/run
#[derive(clap::Args)]
pub struct Slowest {
    /// What the run has printed
    #[arg(default_value = "target/test-output.txt")]
    output: PathBuf,
}

impl Slowest {
    pub fn run(&self, context: &Context) -> Result<()> {
        let tests = tests(&context.sh.read_file(&self.output)?);
        ensure!(!tests.is_empty(), "no test in {} says how long it took", self.output.display());
        tests.iter().take(10).for_each(|(seconds, name)| println!("{seconds:9.3} s  {name}"));
        Ok(())
    }
}

/// The tests with their seconds, the slowest first.
///
/// From lines such as "     Running tests/x.rs (target/debug/deps/x-0123456789abcdef)" and "test name ... ok <0.123s>".
fn tests(output: &str) -> Vec<(f64, String)> {
    let running = Regex::new(r"^\s+Running .*[/\\](\S+)-[0-9a-f]+(?:\.exe)?\)$").expect("a pattern");
    let test = Regex::new(r"^test (\S+) .*<([0-9.]+)s>$").expect("a pattern");
    let mut program = "";
    let mut tests = Vec::new();
    for line in output.lines() {
        if let Some(found) = running.captures(line) {
            program = found.get(1).map_or("", |found| found.as_str());
        } else if let Some((Ok(seconds), name)) =
            test.captures(line).map(|found| (found[2].parse(), found[1].to_owned()))
        {
            tests.push((seconds, format!("{program}: {name}")));
        }
    }
    tests.sort_by(|(one, _), (other, _)| f64::total_cmp(other, one));
    tests
}

#[test]
fn tests_are_listed_by_time() {
    let output = "     Running tests/x.rs (target/debug/deps/x-0123456789abcdef)\n\
                  test quick ... ok <0.001s>\ntest slow ... ok <1.500s>\ntest without ... ok\n";
    assert_eq!(tests(output), [(1.5, "x: slow".to_owned()), (0.001, "x: quick".to_owned())]);
}
