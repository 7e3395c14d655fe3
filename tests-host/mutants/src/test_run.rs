//! The tests of the programs: how long each takes, which mutants it reaches, and what it says of one.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::tree::Program;

/// More than a test needs, so that a mutant that allocates without end does not take the machine with it.
const MOST_BYTES: &str = "--data=21474836480";

/// A test.
pub struct Test {
    /// The index of its program.
    pub program: usize,
    /// Its name; `None` for a program that is one test.
    pub name: Option<String>,
    /// How long it takes without a mutant.
    pub takes: Duration,
    /// The numbers of the mutants that it reaches.
    pub reaches: Vec<usize>,
}

/// What tests say.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All pass.
    Passed,
    /// This one fails first, or they all end with a signal.
    Failed(String),
    /// They do not end.
    TimedOut,
}

/// The names of a program's tests, without those that are ignored.
///
/// # Errors
///
/// The program cannot be run.
pub fn names(program: &Program) -> Result<Vec<Option<String>>> {
    let list = |more: &[&str]| -> Result<Vec<String>> {
        let output = Command::new(&program.path).args(["--list", "--format", "terse"]).args(more).output();
        let output = output.with_context(|| program.path.display().to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(text.lines().filter_map(|line| line.strip_suffix(": test").map(str::to_owned)).collect())
    };
    let (all, ignored) = (list(&[])?, list(&["--ignored"])?);
    if all.is_empty() && has_no_harness(program)? {
        return Ok(vec![None]);
    }
    Ok(all.into_iter().filter(|name| !ignored.contains(name)).map(Some).collect())
}

/// A program without the test harness does not know its options, so it does what it always does.
fn has_no_harness(program: &Program) -> Result<bool> {
    let output = Command::new(&program.path).args(["--list", "--format", "terse"]).output()?;
    Ok(!output.stdout.is_empty() || !output.status.success())
}

/// Runs tests of one program with a mutant on, 0 for none, one after the other.
///
/// # Errors
///
/// The program cannot be run.
pub fn run(program: &Program, tests: &[&Test], mutant: usize, limit: Duration) -> Result<Verdict> {
    let seconds = limit.as_secs().max(1).to_string();
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", &seconds, "prlimit", MOST_BYTES, "--core=0", "--"]).arg(&program.path);
    if tests.iter().all(|test| test.name.is_some()) {
        command.args(["--exact", "--test-threads=1"]).args(tests.iter().flat_map(|test| &test.name));
    }
    let started = Instant::now();
    let output = command.current_dir(&program.folder).env("MUTANT", mutant.to_string()).output().context("timeout")?;
    if output.status.success() {
        return Ok(Verdict::Passed);
    }
    if started.elapsed() >= limit {
        return Ok(Verdict::TimedOut);
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed =
        text.lines().find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED").map(str::to_owned));
    Ok(Verdict::Failed(failed.unwrap_or_else(|| output.status.to_string())))
}

/// Runs one test without a mutant and notes what it reaches, of mutants up to `count`.
///
/// `file` is for what it tells. Returns false if the test fails: it needs something that is not in the copy of the tree, so it says
/// nothing about a mutant.
///
/// # Errors
///
/// The program cannot be run.
pub fn measure(program: &Program, test: &mut Test, count: usize, file: &Path) -> Result<bool> {
    fs::write(file, vec![0; count + 1])?;
    let started = Instant::now();
    let mut command = Command::new("prlimit");
    command.args([MOST_BYTES, "--core=0", "--"]).arg(&program.path);
    if let Some(name) = &test.name {
        command.args(["--exact", "--test-threads=1", name]);
    }
    let output = command.current_dir(&program.folder).env("REACHED", file).output().context("prlimit")?;
    test.takes = started.elapsed();
    let reached = fs::read(file)?;
    test.reaches = (1..=count).filter(|&number| reached[number] != 0).collect();
    Ok(output.status.success())
}

/// Tests in the order in which they are run for a mutant, in groups that are split by program.
///
/// Those that are `likely` to notice it come first, the quicker ones before the others. Each group is twice as long as the one before,
/// until `budget` is spent.
#[must_use]
pub fn groups<'a>(mut tests: Vec<&'a Test>, likely: impl Fn(&Test) -> bool, budget: Duration) -> Vec<Vec<&'a Test>> {
    tests.sort_by_key(|test| (!likely(test), test.takes));
    let (mut spent, mut size, mut groups) = (Duration::ZERO, Duration::from_millis(500), Vec::new());
    let mut rest = tests.as_slice();
    while let [first, ..] = rest {
        let (mut group, mut takes): (BTreeMap<usize, Vec<&'a Test>>, Duration) = (BTreeMap::new(), Duration::ZERO);
        if spent + first.takes > budget {
            break;
        }
        while let [test, after @ ..] = rest {
            if !group.is_empty() && (takes + test.takes > size || spent + takes + test.takes > budget) {
                break;
            }
            takes += test.takes;
            group.entry(test.program).or_default().push(test);
            rest = after;
        }
        spent += takes;
        size *= 2;
        groups.extend(group.into_values());
    }
    groups
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Test, groups};

    fn test(program: usize, name: &str, milliseconds: u64) -> Test {
        Test { program, name: Some(name.to_owned()), takes: Duration::from_millis(milliseconds), reaches: Vec::new() }
    }

    #[test]
    fn the_likely_and_the_quick_come_first_and_the_budget_ends_it() {
        let tests =
            [test(0, "slow", 900), test(0, "a", 100), test(1, "b", 200), test(0, "c", 300), test(0, "endless", 9000)];
        let likely = |test: &Test| test.name.as_deref() == Some("c");
        let groups = groups(tests.iter().collect(), likely, Duration::from_secs(2));
        let names: Vec<Vec<_>> =
            groups.iter().map(|group| group.iter().map(|test| test.name.as_deref().unwrap()).collect()).collect();
        assert_eq!(names, [vec!["c", "a"], vec!["b"], vec!["slow"]]);
    }
}
