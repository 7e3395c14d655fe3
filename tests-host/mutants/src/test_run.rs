//! The tests of the programs: how long each takes, which mutants it reaches, and what it says of one.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::tree::Program;

/// For `prlimit`: more bytes than a test needs, so that a mutant that allocates without end does not take the machine with it.
const LIMITS: [&str; 3] = ["--data=21474836480", "--core=0", "--"];

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
    let list = |more: &[&str]| {
        let output = Command::new(&program.path).args(["--list", "--format", "terse"]).args(more).output();
        output.with_context(|| program.path.display().to_string())
    };
    let tests = |output: &Output| -> Vec<String> {
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines().filter_map(|line| line.strip_suffix(": test").map(str::to_owned)).collect()
    };
    let listed = list(&[])?;
    let all = tests(&listed);
    // A program without the test harness does not know its options, so it does what it always does.
    if all.is_empty() && !(listed.stdout.is_empty() && listed.status.success()) {
        return Ok(vec![None]);
    }
    let ignored = tests(&list(&["--ignored"])?);
    Ok(all.into_iter().filter(|name| !ignored.contains(name)).map(Some).collect())
}

/// The arguments that run tests one after the other; none for a program that is one test.
fn arguments(tests: &[&Test]) -> Vec<String> {
    let names: Option<Vec<String>> = tests.iter().map(|test| test.name.clone()).collect();
    let options = ["--exact", "--test-threads=1"].map(str::to_owned);
    names.map_or_else(Vec::new, |names| options.into_iter().chain(names).collect())
}

/// Runs tests of one program with a mutant on, 0 for none, one after the other.
///
/// # Errors
///
/// The program cannot be run.
pub fn run(program: &Program, tests: &[&Test], mutant: usize, limit: Duration) -> Result<Verdict> {
    let seconds = limit.as_secs().max(1).to_string();
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", &seconds, "prlimit"]).args(LIMITS).arg(&program.path).args(arguments(tests));
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
    command.args(LIMITS).arg(&program.path).args(arguments(&[test]));
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
