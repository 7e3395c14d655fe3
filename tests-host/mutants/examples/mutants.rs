//! Runs the tests that reach each mutant of a list: `cargo xtask mutants` is the command to type.

use std::{
    collections::{HashMap, HashSet},
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Mutex,
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
use serde::{Deserialize, Serialize};

use mutants::{
    known::Known,
    mutant::Mutant,
    test_run::{self, Test, Verdict},
    tree::{Program, Tree},
};

/// Runs the tests that reach each mutant of a list.
#[derive(Parser)]
struct Options {
    /// The mutants, as `cargo mutants --list --json` prints them
    #[arg(long)]
    list: PathBuf,
    /// The folder for the copy of the tree, what is built of it, and results
    #[arg(long)]
    out: PathBuf,
    /// The list of mutants that no test could notice
    #[arg(long)]
    known: PathBuf,
    /// Seconds of tests for each mutant, the quickest first
    #[arg(long, default_value_t = 40)]
    budget: u64,
    /// Also try the mutants of the list: one that is caught does not belong in it
    #[arg(long)]
    known_too: bool,
    /// A folder that the list has all mutants of: what is known of others there is gone
    #[arg(long, value_name = "FOLDER")]
    whole: Vec<String>,
    /// Only build, and list mutants that no test reaches
    #[arg(long)]
    reach: bool,
    /// What to build, as arguments of `cargo test`
    #[arg(last = true)]
    tests: Vec<String>,
}

/// What became of a mutant.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    /// A test fails.
    Caught,
    /// The tests do not end.
    Timeout,
    /// No test that reaches it fails.
    Missed,
    /// It is in the list of those that no test could notice, and none has noticed it.
    Known,
    /// No test reaches it.
    Unreached,
    /// It does not compile, or is part of a constant.
    Unviable,
}

/// A line of the results.
#[derive(Clone, Deserialize, Serialize)]
struct Record {
    mutant: String,
    /// The file's hash: another file has other mutants.
    file: u64,
    outcome: Outcome,
    /// The test that failed.
    by: Option<String>,
}

fn hash(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Results, those of earlier runs too: a mutant that was caught is not tried again while its file is the same.
struct Results {
    path: PathBuf,
    records: Mutex<HashMap<String, Record>>,
}

impl Results {
    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Record>(line).ok());
        let records = lines.map(|record| (record.mutant.clone(), record)).collect();
        Self { path, records: Mutex::new(records) }
    }

    /// What became of a mutant of a file of that hash.
    fn outcome(&self, mutant: &Mutant, file: u64) -> Option<Outcome> {
        let records = self.records.lock().expect("no thread panics");
        records.get(&mutant.name).filter(|record| record.file == file).map(|record| record.outcome)
    }

    /// The tests that have noticed mutants of `file`.
    fn noticed(&self, file: &str) -> HashSet<String> {
        let records = self.records.lock().expect("no thread panics");
        let of_file = records.values().filter(|record| record.mutant.split(':').next() == Some(file));
        of_file.filter_map(|record| record.by.clone()).collect()
    }

    fn add(&self, record: Record) -> Result<()> {
        let mut records = self.records.lock().expect("no thread panics");
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&self.path)?;
        writeln!(file, "{}", serde_json::to_string(&record)?)?;
        records.insert(record.mutant.clone(), record);
        drop(records);
        Ok(())
    }
}

fn bar(length: usize, what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {pos} of {len}, {eta} to go").expect("the template is right");
    ProgressBar::new(length as u64).with_style(style).with_message(what.to_owned())
}

/// Runs every test once, to know what it reaches.
fn measure(programs: &[Program], count: usize, out: &Path) -> Result<Vec<Test>> {
    let mut tests = Vec::new();
    for (program, of) in programs.iter().enumerate() {
        for name in test_run::names(of)? {
            tests.push(Mutex::new(Test { program, name, takes: Duration::ZERO, reaches: Vec::new() }));
        }
    }
    let failing = Mutex::new(Vec::new());
    let progress = bar(tests.len(), "tests without a mutant:");
    (0..tests.len()).into_par_iter().try_for_each(|index| -> Result<()> {
        let mut test = tests[index].lock().expect("no thread panics");
        let file = out.join(format!("reached-{:?}", thread::current().id()));
        let program = &programs[test.program];
        if !test_run::measure(program, &mut test, count, &file)? {
            progress.suspend(|| {
                eprintln!("fails without a mutant, and is left out: {}", test.name.as_deref().unwrap_or("a test"));
            });
            failing.lock().expect("no thread panics").push(index);
        }
        progress.inc(1);
        Ok(())
    })?;
    progress.finish_and_clear();
    let failing = failing.into_inner().expect("no thread panics");
    let tests = tests.into_iter().enumerate().filter(|(index, _)| !failing.contains(index));
    Ok(tests.map(|(_, test)| test.into_inner().expect("no thread panics")).collect())
}

/// Runs tests until one fails: first those that have noticed other mutants of the file, or are named after it.
fn judge(
    programs: &[Program],
    reaching: Vec<&Test>,
    (number, mutant): (usize, &Mutant),
    noticed: &HashSet<String>,
    budget: Duration,
) -> Result<(Outcome, Option<String>)> {
    if reaching.is_empty() {
        return Ok((Outcome::Unreached, None));
    }
    let stem = Path::new(&mutant.file).file_stem().unwrap_or_default().to_string_lossy();
    let likely = |test: &Test| {
        test.name.as_ref().is_some_and(|name| noticed.contains(name) || (stem.len() > 3 && name.contains(&*stem)))
    };
    for group in test_run::groups(reaching, likely, budget) {
        let takes: Duration = group.iter().map(|test| test.takes).sum();
        let limit = Duration::from_secs(10) + 10 * takes;
        match test_run::run(&programs[group[0].program], &group, number, limit)? {
            Verdict::Passed => {}
            Verdict::Failed(by) => return Ok((Outcome::Caught, Some(by))),
            Verdict::TimedOut => return Ok((Outcome::Timeout, None)),
        }
    }
    Ok((Outcome::Missed, None))
}

fn run(options: &Options) -> Result<bool> {
    let source = std::env::current_dir()?;
    let out = source.join(&options.out);
    let listed = fs::read_to_string(&options.list).with_context(|| options.list.display().to_string())?;
    let mutants: Vec<Mutant> = serde_json::from_str(&listed).context("the list of mutants")?;
    let known = Known::read(&options.known)?;
    fs::create_dir_all(&out)?;

    let mut files: HashMap<&str, (String, u64)> = HashMap::new();
    for mutant in &mutants {
        if !files.contains_key(mutant.file.as_str()) {
            let text = fs::read_to_string(source.join(&mutant.file))?;
            let hash = hash(&text);
            files.insert(&mutant.file, (text, hash));
        }
    }
    let results = Results::read(out.join("results.jsonl"));
    let earlier = |mutant: &Mutant| results.outcome(mutant, files[mutant.file.as_str()].1);

    eprintln!("building {} mutants", mutants.len());
    let unviable = (1..).zip(&mutants).filter(|(_, mutant)| earlier(mutant) == Some(Outcome::Unviable));
    let unviable = unviable.map(|(number, _)| number).collect();
    let mut tree = Tree::copy(&source, out.join("tree"), &mutants, unviable)?;
    let programs = tree.build(&source, &options.tests, |wrong| eprintln!("{wrong} do not compile"))?;
    let tests = measure(&programs, mutants.len(), &out)?;
    let reached: HashSet<usize> = tests.iter().flat_map(|test| &test.reaches).copied().collect();
    let viable = mutants.len() - tree.left_out().len();
    eprintln!("{} tests in {} programs reach {} of {viable} mutants", tests.len(), programs.len(), reached.len());

    let line_of =
        |mutant: &Mutant| files[mutant.file.as_str()].0.lines().nth(mutant.span.start.line - 1).unwrap_or_default();
    let progress = bar(mutants.len(), "mutants:");
    (0..mutants.len()).into_par_iter().try_for_each(|index| {
        let (number, mutant) = (index + 1, &mutants[index]);
        progress.inc(1);
        if matches!(earlier(mutant), Some(Outcome::Caught | Outcome::Timeout)) {
            return Ok(());
        }
        let reaching: Vec<&Test> = tests.iter().filter(|test| test.reaches.contains(&number)).collect();
        let reason = known.reason(mutant, line_of(mutant));
        let (outcome, by) = if tree.left_out().contains(&number) {
            (Outcome::Unviable, None)
        } else if reason.is_some() && !options.known_too {
            (Outcome::Known, None)
        } else if options.reach && !reaching.is_empty() {
            return Ok(());
        } else {
            judge(
                &programs,
                reaching,
                (number, mutant),
                &results.noticed(&mutant.file),
                Duration::from_secs(options.budget),
            )?
        };
        let (outcome, words) = match (outcome, reason) {
            (Outcome::Missed, None) => (outcome, Some("missed")),
            (Outcome::Unreached, None) => (outcome, Some("reached by no test")),
            (Outcome::Missed | Outcome::Unreached, Some(_)) => (Outcome::Known, None),
            (Outcome::Caught | Outcome::Timeout, Some(_)) => {
                (outcome, Some("caught, so it does not belong in the list"))
            }
            _ => (outcome, None),
        };
        if let Some(words) = words {
            progress.suspend(|| println!("{words}: {}\n    {}", mutant.name, line_of(mutant).trim()));
        }
        let file = files[mutant.file.as_str()].1;
        results.add(Record { mutant: mutant.name.clone(), file, outcome, by })
    })?;
    progress.finish_and_clear();

    let count = |outcome| mutants.iter().filter(|mutant| earlier(mutant) == Some(outcome)).count();
    let missed = count(Outcome::Missed) + count(Outcome::Unreached);
    println!(
        "{} mutants: {} caught, {} without end, {} constant or not compiling, {} with a reason, {missed} missed",
        mutants.len(),
        count(Outcome::Caught),
        count(Outcome::Timeout),
        count(Outcome::Unviable),
        count(Outcome::Known),
    );
    let names: Vec<String> = mutants.iter().map(Mutant::stable_name).collect();
    let stale = if options.known_too { known.stale(&names, &options.whole) } else { Vec::new() };
    for name in &stale {
        println!("{} has what is no mutant: {name}", options.known.display());
    }
    Ok(missed == 0 && stale.is_empty())
}

fn main() -> Result<ExitCode> {
    let passed = run(&Options::parse())?;
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
