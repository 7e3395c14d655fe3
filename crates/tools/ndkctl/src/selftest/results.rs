//! What a run has found so far.

use std::time::Duration;

use conformance::{Case, Outcome, Tally};
use host::say;
use indicatif::ProgressBar;
use interpose::adviser::Finding;

use crate::{
    args::Selftest,
    output::{duration, word},
};

/// A case that has run.
pub struct Entry {
    /// The case.
    pub case: &'static Case,
    /// The seed of its random numbers.
    pub seed: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

/// The results of a run.
#[derive(Default)]
pub struct Results {
    /// The cases, in the order in which they ran.
    pub entries: Vec<Entry>,
    /// How many ended with which outcome.
    pub tally: Tally,
    /// The duration of the run.
    pub took: Duration,
    /// The run was interrupted.
    pub interrupted: bool,
    /// The case of the recording that was kept.
    pub recorded: Option<&'static str>,
    /// How often each finding of the adviser was made, without those that were not.
    pub findings: Vec<(Finding, u32)>,
}

impl Results {
    /// Counts a case and prints its line above the progress bar; names have `width` columns.
    pub fn add(&mut self, entry: Entry, args: &Selftest, bar: &ProgressBar, width: usize) {
        // With many rounds only the first one is shown in full.
        if !args.json && (entry.seed == args.seed || entry.outcome.is_bad()) {
            bar.suspend(|| print(&entry, width));
        }
        self.tally.count(&entry.outcome);
        self.entries.push(entry);
    }
}

/// Prints the line of a case.
fn print(entry: &Entry, width: usize) {
    let Entry { case, outcome, took, .. } = entry;
    let text = outcome.text();
    let time = duration(*took);
    let line = format!("{:width$}  {:<13}  {}  {time:>8}  {text}", case.name, case.section, word(outcome));
    say!("{}", line.trim_end());
}
