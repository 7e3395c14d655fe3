//! Two builds in turn: the one that runs, and one of another commit.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use comfy_table::{Cell, CellAlignment, Table, presets::NOTHING};

use crate::{measure::Samples, report::Figure};

/// How often each build has its turn.
const TURNS: usize = 11;
/// Turns to see that everything runs.
const QUICK_TURNS: usize = 1;

/// Figures of one build, by row and unit.
type Figures = BTreeMap<(String, String), Vec<f64>>;

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
    for turn in 0..if quick { QUICK_TURNS } else { TURNS } {
        eprintln!("turn {}", turn + 1);
        // Nobody is always the second.
        let mut builds = [(&there, &mut theirs), (&here, &mut ours)];
        if turn % 2 == 1 {
            builds.reverse();
        }
        for (program, figures) in builds {
            take(program, filter, &file, figures)?;
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
        output(Command::new("git").args(["worktree", "add", "--detach"]).arg(&tree).arg(&commit))?;
    }
    eprintln!("building {commit}");
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

/// Lets a build measure, and adds its figures.
fn take(program: &Path, filter: Option<&str>, file: &Path, figures: &mut Figures) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(["bench", "--quick", "--alone", "--json"]).arg(file);
    if let Some(filter) = filter {
        command.args(["--filter", filter]);
    }
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().map_err(|error| format!("{}: {error}", program.display()))?;
    if !status.success() {
        return Err(format!("{}: {status}", program.display()));
    }
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    let rows: Vec<Figure> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    for row in rows {
        if let Some(value) = row.ours {
            figures.entry((row.row, row.unit)).or_default().push(value);
        }
    }
    Ok(())
}

fn table(base: &str, theirs: &Figures, ours: &Figures) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["row", "unit", base, "this build", "ratio"]);
    for (row, values) in ours {
        let Some(before) = theirs.get(row) else { continue };
        let (now, before) = (Samples::new(values.clone()).median(), Samples::new(before.clone()).median());
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        table.add_row([
            Cell::new(&row.0),
            Cell::new(&row.1),
            right(format!("{before:.2}")),
            right(format!("{now:.2}")),
            right(format!("{:.2}", now / before)),
        ]);
    }
    table.to_string()
}
