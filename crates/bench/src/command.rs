//! The command `bench`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    Options, compare,
    counted::{self, Counts},
    measure, report,
};

/// What can be said on the command line.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    /// Only to see that everything runs.
    pub quick: bool,
    /// Rows whose names contain this.
    pub filter: Option<String>,
    /// Where to write the rows as JSON.
    pub json: Option<PathBuf>,
    /// Where to draw the plots.
    pub plots: Option<PathBuf>,
    /// A commit to compare with.
    pub compare: Option<String>,
    /// Only count instructions, and compare with the counts in this file.
    pub counts: Option<PathBuf>,
    /// Write the counts to the file instead.
    pub update: bool,
    /// Says how many bytes of memory are in use, if somebody counts them.
    pub memory_in_use: Option<fn() -> usize>,
}

/// How much higher than its baseline a count may be, as a share.
const TOLERANCE: f64 = 0.03;
/// Counts below this may be higher by one or two without being worse.
const SLACK: f64 = 2.0;

/// Runs the command. `false` if something is worse than it was.
///
/// # Errors
///
/// In words, what went wrong.
pub fn run(arguments: &Arguments) -> Result<bool, String> {
    if counted::run_if_asked() {
        return Ok(true);
    }
    if let Some(file) = &arguments.counts {
        return counts(file, arguments.update);
    }
    if let Some(base) = &arguments.compare {
        println!("{}", compare::with(base, arguments.quick, arguments.filter.as_deref())?);
        return Ok(true);
    }
    let options =
        Options { quick: arguments.quick, filter: arguments.filter.clone(), memory_in_use: arguments.memory_in_use };
    let measured = measure(&options);
    println!("{}", report::table(&measured.rows));
    if let Some(file) = &arguments.json {
        let text = serde_json::to_string_pretty(&measured.rows).map_err(|error| error.to_string())?;
        write(file, &(text + "\n"))?;
    }
    if let Some(folder) = &arguments.plots {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for plot in &measured.plots {
            plot.draw(folder, "cargo run --release -- bench --plots docs/performance")?;
        }
    }
    Ok(true)
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Counts instructions and compares them with those of the file.
fn counts(file: &Path, update: bool) -> Result<bool, String> {
    let counts = counted::count_all()?;
    if update {
        let text = serde_json::to_string_pretty(&counts).map_err(|error| error.to_string())?;
        write(file, &(text + "\n"))?;
        return Ok(true);
    }
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let baseline: Counts = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    let worse = worse(&counts, &baseline);
    for (name, count) in &counts {
        let before = baseline.get(name).map_or_else(|| "new".to_owned(), f64::to_string);
        let mark = if worse.contains(name) { "  WORSE" } else { "" };
        println!("{name:24} {before:>8} -> {count:>8}{mark}");
    }
    Ok(worse.is_empty())
}

/// The names of counts that are higher than the tolerance allows.
fn worse(counts: &Counts, baseline: &Counts) -> Vec<String> {
    let is_worse = |(name, count): &(&String, &f64)| {
        baseline.get(*name).is_some_and(|before| **count > before.mul_add(1.0 + TOLERANCE, SLACK))
    };
    counts.iter().filter(is_worse).map(|(name, _)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::{Counts, worse};

    fn counts(push: f64, poll: f64) -> Counts {
        Counts::from([("push".to_owned(), push), ("poll".to_owned(), poll)])
    }

    #[test]
    fn a_count_is_worse_above_the_tolerance_only() {
        assert!(worse(&counts(104.0, 50.0), &counts(100.0, 50.0)).is_empty(), "three percent and two");
        assert_eq!(worse(&counts(106.0, 50.0), &counts(100.0, 50.0)), ["push"]);
        assert!(worse(&counts(10.0, 10.0), &Counts::new()).is_empty(), "what is new is not worse");
    }
}
