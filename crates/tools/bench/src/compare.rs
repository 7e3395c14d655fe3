//! Two builds in turn: the one that runs, and one of another commit.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use comfy_table::{Cell, CellAlignment, Table, presets::NOTHING};
use host::note;

use crate::{id, measure::Samples, report::Figure};

/// How often each build has its turn.
const TURNS: usize = 11;
/// Turns to see that everything runs.
const QUICK_TURNS: usize = 1;

/// A build that fails in its turn has another try, so often in all. One commit's benchmarks may fail now and then, and are
/// nothing that can be changed now.
const TRIES: usize = 3;
/// What is worse by less than this share is called nothing.
const TOLERANCE: f64 = 0.05;
/// Figures that say how much they vary: of fewer nothing is said.
const FEW: usize = 3;

/// Figures of one row, and what that build calls it.
#[derive(Default)]
struct RowFigures {
    name: String,
    values: Vec<f64>,
}

/// Figures of one build, by the id of the row and the unit.
type Figures = BTreeMap<(String, String), RowFigures>;

/// Builds `base` and measures it and this build in turn. A table of what both have.
///
/// # Errors
///
/// In words, what went wrong.
pub fn with(base: &str, quick: bool, filter: Option<&str>) -> Result<String, String> {
    let here = env::current_exe().map_err(|error| error.to_string())?;
    let there = build(base)?;
    let folder = env::temp_dir().join(format!("softndk-compare-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let file = folder.join("rows.json");
    let (mut ours, mut theirs) = (Figures::new(), Figures::new());
    let turns = if quick { QUICK_TURNS } else { TURNS };
    for turn in 0..turns {
        note!("turn {} of {turns}", turn + 1);
        // Nobody is always the second.
        let mut builds = [(&there, &mut theirs), (&here, &mut ours)];
        if turn % 2 == 1 {
            builds.reverse();
        }
        for (program, figures) in builds {
            take_at_last(program, filter, &file, figures)?;
        }
    }
    // The files are of no use to anybody else.
    let _ = fs::remove_dir_all(&folder);
    Ok(table(base, &theirs, &ours))
}

/// Builds the commit `base` in a work tree of its own. The program.
fn build(base: &str) -> Result<PathBuf, String> {
    let top = output(Command::new("git").args(["rev-parse", "--show-toplevel"]))?;
    let commit = output(Command::new("git").args(["rev-parse", "--verify", &format!("{base}^{{commit}}")]))?;
    let tree = Path::new(&top).join("target/compare").join(&commit);
    if !tree.exists() {
        // Forced: git still knows of a work tree that went with the folder of builds.
        output(Command::new("git").args(["worktree", "add", "--force", "--detach"]).arg(&tree).arg(&commit))?;
    }
    note!("building {commit}");
    let target = Path::new(&top).join("target/compare/target");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--package", "ndkctl"]).current_dir(&tree).env("CARGO_TARGET_DIR", &target);
    let status = cargo.status().map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err(format!("{commit} does not build"));
    }
    // The next commit is built in the same place.
    let name = format!("ndkctl{}", env::consts::EXE_SUFFIX);
    let program = target.join(format!("ndkctl-{commit}{}", env::consts::EXE_SUFFIX));
    fs::copy(target.join("release").join(name), &program).map_err(|error| error.to_string())?;
    Ok(program)
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// [`take`], which may fail sometimes.
fn take_at_last(program: &Path, filter: Option<&str>, file: &Path, figures: &mut Figures) -> Result<(), String> {
    let mut tries = 1;
    loop {
        match take(program, filter, file, figures) {
            Err(error) if tries < TRIES => note!("{error}\nonce more"),
            result => return result,
        }
        tries += 1;
    }
}

/// Lets a build measure, and adds its figures.
fn take(program: &Path, filter: Option<&str>, file: &Path, figures: &mut Figures) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(["bench", "--quick", "--alone", "--json"]).arg(file);
    if let Some(filter) = filter {
        command.args(["--filter", filter]);
    }
    let output = command.output().map_err(|error| format!("{}: {error}", program.display()))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}\n{words}", program.display(), output.status));
    }
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    let rows: Vec<Figure> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    // What stands in a row beside several peers is one figure of ours.
    let rows = rows.into_iter().filter_map(|row| {
        let name = row.row.split(" | ").next().unwrap_or_default().to_owned();
        Some(((id::of(&name), row.unit), (name, row.ours?)))
    });
    let mut turn = BTreeMap::new();
    turn.extend(rows);
    for (id, (name, value)) in turn {
        let taken = figures.entry(id).or_default();
        taken.name = name;
        taken.values.push(value);
    }
    Ok(())
}

/// What the figures of the build at hand are, beside those of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    Better,
    Worse,
}

/// Worse or better is what differs by more than the tolerance, and more than both sets of figures vary: the middle halves of
/// them do not overlap.
fn verdict(unit: &str, now: &Samples, before: &Samples) -> Verdict {
    if now.count().min(before.count()) < FEW {
        return Verdict::Same;
    }
    let is_above = |this: &Samples, that: &Samples| {
        this.median() > that.median() * (1.0 + TOLERANCE) && this.quantile(0.25) > that.quantile(0.75)
    };
    // Of rates, more is better.
    let is_rate = unit.ends_with("/s");
    match (is_above(now, before), is_above(before, now)) {
        (true, _) => {
            if is_rate {
                Verdict::Better
            } else {
                Verdict::Worse
            }
        }
        (_, true) => {
            if is_rate {
                Verdict::Worse
            } else {
                Verdict::Better
            }
        }
        _ => Verdict::Same,
    }
}

fn table(base: &str, theirs: &Figures, ours: &Figures) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["row", "unit", base, "this build", "ratio", ""]);
    for (row, now) in ours {
        let Some(before) = theirs.get(row) else { continue };
        let name = &now.name;
        let (now, before) = (Samples::new(now.values.clone()), Samples::new(before.values.clone()));
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        let figure = |samples: &Samples| right(format!("{:.2} ±{:.0}%", samples.median(), samples.spread() * 100.0));
        table.add_row([
            Cell::new(name),
            Cell::new(&row.1),
            figure(&before),
            figure(&now),
            right(format!("{:.2}", now.median() / before.median())),
            Cell::new(match verdict(&row.1, &now, &before) {
                Verdict::Same => "",
                Verdict::Better => "better",
                Verdict::Worse => "WORSE",
            }),
        ]);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::{Verdict, verdict};
    use crate::measure::Samples;

    fn samples(values: &[f64]) -> Samples {
        Samples::new(values.to_vec())
    }

    #[test]
    fn more_time_is_worse_and_a_higher_rate_is_better() {
        let (low, high) = (samples(&[10.0, 10.1, 10.2]), samples(&[12.0, 12.1, 12.2]));
        assert_eq!(verdict("ns", &high, &low), Verdict::Worse);
        assert_eq!(verdict("M/s", &high, &low), Verdict::Better);
        assert_eq!(verdict("GiB/s", &low, &high), Verdict::Worse);
        assert_eq!(verdict("instructions", &low, &high), Verdict::Better);
    }

    #[test]
    fn figures_that_overlap_or_hardly_differ_are_the_same() {
        let (wide, high) = (samples(&[5.0, 10.0, 15.0, 20.0]), samples(&[12.0, 13.0, 14.0, 15.0]));
        assert_eq!(verdict("ns", &high, &wide), Verdict::Same);
        assert_eq!(verdict("ns", &samples(&[104.0; 3]), &samples(&[100.0; 3])), Verdict::Same);
    }

    #[test]
    fn of_a_single_turn_nothing_is_said() {
        assert_eq!(verdict("ns", &samples(&[20.0]), &samples(&[10.0; 11])), Verdict::Same);
        assert_eq!(verdict("ns", &samples(&[20.0; 3]), &samples(&[10.0; 3])), Verdict::Worse);
    }
}
