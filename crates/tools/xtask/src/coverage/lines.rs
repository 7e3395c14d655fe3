//! Lines and how often they ran, and the list of those that did not.
//!
//! A line is named by its file, the last function that begins before it, and its text, so that the list stays true when lines move:
//! "crates/provider/engine/src/slab.rs: remove: return None;". A name stands for one line: two equal ones of a function need it twice.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Result, ensure};
use regex::Regex;
use serde::Deserialize;

use crate::context::root;

/// The executions of each line, by file.
#[derive(Default)]
pub struct Lines(BTreeMap<String, BTreeMap<usize, u64>>);

/// The list: how many lines have a name.
#[derive(Default)]
pub struct Known {
    /// Lines that no run reaches.
    always: Counts,
    /// Lines that only some runs reach: stale only if a line is gone.
    sometimes: Counts,
}

type Counts = BTreeMap<String, usize>;

/// What is to be said.
pub struct Report {
    /// The lines where list and run disagree; without a list those that were not run.
    pub lines: Vec<String>,
    pub total: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    uncovered: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    reason: String,
    #[serde(default)]
    sometimes: bool,
    lines: Vec<String>,
}

impl Known {
    pub fn read(text: &str) -> Result<Self> {
        let mut known = Self::default();
        for entry in toml::from_str::<List>(text)?.uncovered {
            ensure!(!entry.reason.trim().is_empty(), "{:?} have no reason", entry.lines);
            let counts = if entry.sometimes { &mut known.sometimes } else { &mut known.always };
            for line in entry.lines {
                *counts.entry(line).or_default() += 1;
            }
        }
        Ok(known)
    }
}

impl Lines {
    /// Adds what llvm-cov has exported.
    pub fn add(&mut self, lcov: &str) -> Result<()> {
        let mut file = None;
        for line in lcov.lines() {
            if let Some(path) = line.strip_prefix("SF:") {
                file = Some(Path::new(path).strip_prefix(root())?.display().to_string());
            } else if let Some(counted) = line.strip_prefix("DA:") {
                let mut numbers = counted.split(',').map(str::parse::<u64>);
                let (Some(Ok(number)), Some(Ok(count)), Some(file)) = (numbers.next(), numbers.next(), &file) else {
                    anyhow::bail!("llvm-cov exports '{line}'");
                };
                let lines = self.0.entry(file.clone()).or_default();
                *lines.entry(usize::try_from(number)?).or_default() += count;
            }
        }
        Ok(())
    }

    /// Compares the lines that were not run with the list. `read` returns a source file.
    pub fn compare(&self, known: Option<Known>, read: impl Fn(&str) -> Result<String>) -> Result<Report> {
        let mut known = known.unwrap_or_default();
        let (mut lines, mut not_run, mut total) = (Vec::new(), 0, 0);
        let mut may_run = known.sometimes.clone();
        for (file, counts) in &self.0 {
            for (number, name) in named(&read(file)?) {
                let Some(count) = counts.get(&number) else { continue };
                total += 1;
                let full = format!("{file}: {name}");
                take(&mut may_run, &full);
                if *count == 0 {
                    not_run += 1;
                    if !take(&mut known.always, &full) && !take(&mut known.sometimes, &full) {
                        lines.push(format!("{file}:{number}: {name}"));
                    }
                }
            }
        }
        let stale = known.always.iter().chain(&may_run).flat_map(|(name, count)| std::iter::repeat_n(name, *count));
        lines.extend(stale.map(|name| format!("stale: {name}")));
        let run = total - not_run;
        ensure!(total > 0, "llvm-cov knows no lines");
        let tenths = (1000 * run + total / 2) / total;
        let total =
            format!("total: {run} of {total} lines run ({}.{} %), {not_run} were not", tenths / 10, tenths % 10);
        Ok(Report { lines, total })
    }
}

/// Takes one of this name out of the counts, if there is one.
fn take(counts: &mut Counts, name: &str) -> bool {
    counts.get_mut(name).filter(|count| **count > 0).map(|count| *count -= 1).is_some()
}

/// The number of each line of a file, and what it is called there: function and text. Tests at its end are not asked for.
fn named(text: &str) -> Vec<(usize, String)> {
    let text = text.find("#[cfg(test)]\nmod tests").map_or(text, |tests| &text[..tests]);
    let function = Regex::new(r"\bfn\s+(\w+)").expect("a pattern");
    let mut current = "-".to_owned();
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(found) = function.captures(line.split("//").next().unwrap_or_default()) {
            found[1].clone_into(&mut current);
        }
        lines.push((number, format!("{current}: {}", line.trim())));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{Known, Lines, Report};

    const SOURCE: &str = "fn one() {\n    a();\n    b();\n}\nfn two() {\n    a();\n}\n";

    fn compared(list: &str, counts: [u64; 3]) -> Report {
        let mut lines = Lines::default();
        let file = crate::context::root().join("x.rs");
        let [first, second, third] = counts;
        let lcov = format!("SF:{}\nDA:2,{first}\nDA:3,{second}\nDA:6,{third}\nend_of_record\n", file.display());
        lines.add(&lcov).expect("lines");
        let known = Known::read(list).expect("a list");
        lines.compare(Some(known), |_| Ok(SOURCE.to_owned())).expect("a report")
    }

    #[test]
    fn a_line_needs_a_reason_and_a_reason_its_line() {
        let list = "[[uncovered]]\nreason = \"why\"\nlines = [\"x.rs: two: a();\"]\n";
        let report = compared(list, [1, 1, 0]);
        assert!(report.lines.is_empty(), "{:?}", report.lines);
        assert_eq!(report.total, "total: 2 of 3 lines run (66.7 %), 1 were not");
        assert_eq!(compared(list, [1, 0, 0]).lines, ["x.rs:3: one: b();"]);
        assert_eq!(compared(list, [1, 1, 1]).lines, ["stale: x.rs: two: a();"]);
    }

    #[test]
    fn the_lines_of_tests_are_not_looked_at() {
        let source = "fn one() {}\n\n#[cfg(test)]\nmod tests {\n    fn two() {}\n}\n";
        let names: Vec<_> = super::named(source).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["one: fn one() {}", "one: "]);
    }

    #[test]
    fn a_line_that_only_some_runs_reach_is_stale_when_it_is_gone() {
        let list =
            |line: &str| format!("[[uncovered]]\nreason = \"why\"\nsometimes = true\nlines = [\"x.rs: {line}\"]\n");
        assert!(compared(&list("two: a();"), [1, 1, 0]).lines.is_empty());
        assert!(compared(&list("two: a();"), [1, 1, 1]).lines.is_empty());
        assert_eq!(compared(&list("two: c();"), [1, 1, 1]).lines, ["stale: x.rs: two: c();"]);
    }

    #[test]
    fn a_list_says_why_and_nothing_unknown() {
        assert!(Known::read("[[uncovered]]\nreason = \" \"\nlines = []\n").is_err());
        assert!(Known::read("[[uncovered]]\nreason = \"why\"\nlines = []\nsomtimes = true\n").is_err());
    }
}
