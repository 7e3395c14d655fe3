//! The command `bench`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use host::say;

use crate::{
    Options, Part, compare,
    counted::{self, Counts, Limit, Scenario},
    machine, measure, report,
};

/// What can be said on the command line.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    /// Only to see that everything runs.
    pub quick: bool,
    /// Rows whose names contain this.
    pub filter: Option<String>,
    /// Without the programs of others.
    pub alone: bool,
    /// Where to write the rows as JSON.
    pub json: Option<PathBuf>,
    /// The page in Markdown that has a place for the table and the machine it is of.
    pub report: Option<PathBuf>,
    /// Where to draw the plots.
    pub plots: Option<PathBuf>,
    /// A commit to compare with.
    pub compare: Option<String>,
    /// Only count instructions, and compare with the counts that are kept in the repository.
    pub smoke: bool,
    /// Only count instructions, and write the counts to this file.
    pub counts: Option<PathBuf>,
    /// The words after the program's name, for who reads the report.
    pub words: Vec<String>,
}

/// Counts that are kept: those of the commit before, or of one on purpose.
const BASELINE: &str = include_str!("../counts.json");
/// How much higher than its baseline a count may be, as a share.
const TOLERANCE: f64 = 0.1;
/// A few more are not worse: small counts change with what the compiler makes part of what.
const SLACK: f64 = 4.0;

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Everything was measured.
    Good,
    /// Something is worse than it was.
    Worse,
    /// The filter leaves out every row.
    NoRow,
}

impl Done {
    const fn unless_worse(is_good: bool) -> Self {
        if is_good { Self::Good } else { Self::Worse }
    }
}

/// Runs the command.
///
/// # Errors
///
/// In words, what went wrong.
pub fn run(arguments: &Arguments) -> Result<Done, String> {
    if counted::run_if_asked() {
        return Ok(Done::Good);
    }
    if arguments.smoke {
        return smoke().map(Done::unless_worse);
    }
    if let Some(file) = &arguments.counts {
        let text = serde_json::to_string_pretty(&counted::count_all()?).map_err(|error| error.to_string())?;
        write(file, &(text + "\n"))?;
        return Ok(Done::Good);
    }
    if let Some(base) = &arguments.compare {
        say!("{}", compare::with(base, arguments.quick, arguments.filter.as_deref())?);
        return Ok(Done::Good);
    }
    let options =
        Options { quick: arguments.quick, filter: arguments.filter.clone(), alone: arguments.alone, part: None };
    // Before threads are kept on single processors.
    let machine = machine::description();
    let measured = measure(&options);
    if measured.rows.is_empty() && arguments.filter.is_some() {
        return Ok(Done::NoRow);
    }
    say!("{}", report::table(&measured.rows));
    let words = arguments.words.join(" ");
    let command = format!("cargo run --release -- {words}");
    if let Some(file) = &arguments.json {
        write(file, &report::json(&measured.rows)?)?;
    }
    if let Some(file) = &arguments.report {
        let page = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        write(file, &report::markdown(&page, &measured.rows, &machine, &command)?)?;
    }
    if let Some(folder) = &arguments.plots {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for plot in &measured.plots {
            plot.draw(folder, &command)?;
        }
    }
    Ok(Done::Good)
}

/// Measures one part and prints its table: what a program of `cargo bench` does.
pub fn run_part(part: Part) {
    if counted::run_if_asked() {
        return;
    }
    let quick = std::env::args().any(|word| word == "--quick");
    // Before threads are kept on single processors.
    for line in machine::description() {
        say!("{line}");
    }
    let measured = measure(&Options { quick, part: Some(part), ..Options::default() });
    say!("{}", report::table(&measured.rows));
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Counts instructions and compares them with those that are kept. `true` also where they cannot be counted.
fn smoke() -> Result<bool, String> {
    if !counted::is_possible() {
        say!("skipped: callgrind is not installed (Debian package `valgrind`)");
        return Ok(true);
    }
    let baseline: Counts = serde_json::from_str(BASELINE).map_err(|error| format!("counts.json: {error}"))?;
    let counts = counted::count_all()?;
    let (worse, lost) = (worse(&counts, &baseline), lost(&counts, &baseline));
    say!("{:32} {:>8}    {:>8}", "instructions", "kept", "now");
    for (name, count) in &counts {
        let before = baseline.get(name).map_or_else(|| "new".to_owned(), f64::to_string);
        let mark = if worse.contains(name) { "  WORSE" } else { "" };
        say!("{name:32} {before:>8} -> {count:>8}{mark}");
    }
    say!("\n{:32} {:>8}    {:>8}", "of the direct engine's, of plain", "goal", "now");
    for OfAnother { name, ratio, most } in ratios(&counts) {
        let mark = if ratio > most { "  MISSED" } else { "" };
        say!("{name:32} {most:>8} -> {ratio:>8.2}{mark}");
    }
    if !worse.is_empty() {
        say!("worse than kept by more than {:.0} %: {}", TOLERANCE * 100.0, worse.join(", "));
    }
    if !lost.is_empty() {
        say!("goals that the kept counts meet: {}", lost.join(", "));
    }
    Ok(worse.is_empty() && lost.is_empty())
}

/// A count as a multiple of another's, and its goal.
struct OfAnother {
    name: String,
    ratio: f64,
    most: f64,
}

/// The ratios that have a goal and were counted.
fn ratios(counts: &Counts) -> Vec<OfAnother> {
    let ratio = |scenario: Scenario| {
        let (Limit { of, most, .. }, name) = (scenario.limit()?, scenario.name());
        Some(OfAnother { ratio: counts.get(&name)? / counts.get(&of.name())?, name, most })
    };
    Scenario::ALL.into_iter().filter_map(ratio).collect()
}

/// The names of counts that miss a goal which is met by the counts that are kept.
fn lost(counts: &Counts, baseline: &Counts) -> Vec<String> {
    let kept = ratios(baseline);
    let was_met = |name: &str| kept.iter().any(|kept| kept.name == name && kept.ratio <= kept.most);
    let missed = ratios(counts).into_iter().filter(|now| now.ratio > now.most && was_met(&now.name));
    missed.map(|now| now.name).collect()
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
    use super::{BASELINE, Counts, lost, worse};
    use crate::counted::Scenario;

    fn counts(push: f64, poll: f64) -> Counts {
        Counts::from([("push".to_owned(), push), ("poll".to_owned(), poll)])
    }

    #[test]
    fn a_count_is_worse_above_the_tolerance_only() {
        assert!(worse(&counts(114.0, 50.0), &counts(100.0, 50.0)).is_empty(), "a tenth and four");
        assert_eq!(worse(&counts(115.0, 50.0), &counts(100.0, 50.0)), ["push"]);
        assert!(worse(&counts(10.0, 10.0), &Counts::new()).is_empty(), "what is new is not worse");
    }

    #[test]
    fn a_goal_that_was_met_stays_met() {
        let counts = |deferred| Counts::from([("write".to_owned(), 100.0), ("write-deferred".to_owned(), deferred)]);
        assert_eq!(lost(&counts(171.0), &counts(170.0)), ["write-deferred"]);
        assert!(lost(&counts(170.0), &counts(170.0)).is_empty(), "the goal is met");
        assert!(lost(&counts(171.0), &counts(180.0)).is_empty(), "it was missed before");
        let beside = |count| Counts::from([("message".to_owned(), 900.0), ("message-beside-layers".to_owned(), count)]);
        assert_eq!(lost(&beside(901.0), &beside(900.0)), ["message-beside-layers"], "off is not there at all");
        assert!(lost(&beside(900.0), &beside(900.0)).is_empty());
    }

    #[test]
    fn a_count_is_kept_for_every_scenario() {
        let kept: Counts = serde_json::from_str(BASELINE).expect("counts");
        let missing = Scenario::ALL.into_iter().skip(1).find(|scenario| !kept.contains_key(&scenario.name()));
        assert_eq!(missing, None);
    }
}
