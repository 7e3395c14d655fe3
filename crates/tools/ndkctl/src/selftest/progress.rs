//! The progress of a run in a file that a crash of the machine does not lose.
//!
//! Each line is a JSON value. That a case begins is written, and flushed to the disk, before the case runs: so the last case that
//! has begun and not ended is the one during which the machine went down.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use conformance::{Case, Outcome, cases, text::Text};
use serde::{Deserialize, Serialize};

use super::results::Entry;

/// A line of the file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// The first: the program and the arguments of the run.
    Run { program: String, arguments: Vec<String> },
    /// A case is about to run.
    Begun { case: String, seed: u64 },
    /// It has.
    Ended { case: String, seed: u64, outcome: String, text: String, micros: u64 },
    /// Somebody has ended the run, and with it the case that was running.
    Interrupted,
    /// All cases have run.
    Over,
}

/// What is said of the case that was running.
const WAS_RUNNING: &str = "this case was running when the run ended without a word: the machine crashed or was reset, or the \
                           program was killed";

/// The file of a run; none if nothing is to be kept.
pub struct Progress(Option<(File, PathBuf)>);

/// A run that ended without a word.
pub struct Broken {
    /// Its arguments.
    pub arguments: Vec<String>,
    /// What has run, the case that was running last.
    pub entries: Vec<Entry>,
    /// The case that was running, if one was.
    pub running: Option<&'static Case>,
}

impl Broken {
    /// Returns true for a case that need not run again.
    pub fn done(&self) -> HashSet<(&'static str, u64)> {
        self.entries.iter().map(|entry| (entry.case.name, entry.seed)).collect()
    }
}

/// Where the progress is kept if nobody says.
pub fn default_path() -> PathBuf {
    std::env::temp_dir().join("ndkctl-selftest.progress")
}

impl Progress {
    /// Keeps nothing.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Begins the file of a run with these arguments.
    ///
    /// # Errors
    ///
    /// One line.
    pub fn begin(path: &Path, arguments: &[String]) -> Result<Self, String> {
        let file = File::create(path).map_err(|error| named(path, &error))?;
        let mut this = Self(Some((file, path.to_owned())));
        let program = env!("CARGO_PKG_VERSION").to_owned();
        this.write(&Line::Run { program, arguments: arguments.to_vec() })?;
        Ok(this)
    }

    /// Goes on with the file of a run that has ended without a word, and writes down which case was running.
    ///
    /// # Errors
    ///
    /// One line: the file is none, or its run has come to its end.
    pub fn resume(path: &Path) -> Result<(Self, Broken), String> {
        let text = fs::read_to_string(path)
            .map_err(|error| named(path, &format_args!("{error}; --progress FILE names the file of another run")))?;
        let (mut broken, running) = read(&text).map_err(|error| named(path, &error))?;
        let file = fs::OpenOptions::new().append(true).open(path).map_err(|error| named(path, &error))?;
        let mut this = Self(Some((file, path.to_owned())));
        if !text.ends_with('\n') {
            // What the crash has cut off.
            this.write_bytes(b"\n")?;
        }
        if let Some((case, seed)) = running {
            let outcome = Outcome::Failed(Text::new(format_args!("{WAS_RUNNING}")));
            let entry = Entry { case, seed, outcome, took: Duration::ZERO };
            this.ended(&entry)?;
            broken.entries.push(entry);
            broken.running = Some(case);
        }
        Ok((this, broken))
    }

    /// A case is about to run.
    ///
    /// # Errors
    ///
    /// One line.
    pub fn begun(&mut self, case: &Case, seed: u64) -> Result<(), String> {
        self.write(&Line::Begun { case: case.name.to_owned(), seed })
    }

    /// A case has run.
    ///
    /// # Errors
    ///
    /// One line.
    pub fn ended(&mut self, entry: &Entry) -> Result<(), String> {
        let Entry { case, seed, outcome, took } = entry;
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let (outcome, text) = (outcome.word().to_owned(), outcome.text().to_owned());
        self.write(&Line::Ended { case: case.name.to_owned(), seed: *seed, outcome, text, micros })
    }

    /// The run ends in order.
    ///
    /// # Errors
    ///
    /// One line.
    pub fn over(&mut self, interrupted: bool) -> Result<(), String> {
        self.write(if interrupted { &Line::Interrupted } else { &Line::Over })
    }

    fn write(&mut self, line: &Line) -> Result<(), String> {
        let mut text = serde_json::to_string(line).map_err(|error| error.to_string())?;
        text.push('\n');
        self.write_bytes(text.as_bytes())
    }

    /// Writes, and waits until it is on the disk.
    fn write_bytes(&mut self, bytes: &[u8]) -> Result<(), String> {
        let Some((file, path)) = &mut self.0 else { return Ok(()) };
        file.write_all(bytes).and_then(|()| file.sync_data()).map_err(|error| named(path, &error))
    }
}

fn named(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("the progress of the run, {}: {error}", path.display())
}

/// The case during which the run of a file ended without a word.
pub fn left_running(path: &Path) -> Option<&'static str> {
    let text = fs::read_to_string(path).ok()?;
    read(&text).ok()?.1.map(|(case, _)| case.name)
}

/// A case that was running, and its seed.
type Running = (&'static Case, u64);

/// A file's run, and the case that was running with its seed.
fn read(text: &str) -> Result<(Broken, Option<Running>), String> {
    let mut lines = text.lines();
    let first = lines.next().and_then(|line| serde_json::from_str(line).ok());
    let Some(Line::Run { arguments, .. }) = first else {
        return Err("this is not the progress of a run: name the file that --progress wrote".to_owned());
    };
    let find = |name: &str| {
        cases::all()
            .find(|case| case.name == name)
            .ok_or_else(|| format!("there is no case `{name}`: the program is another"))
    };
    let (mut entries, mut running) = (Vec::new(), None);
    for line in lines {
        // A crash can cut a line off, of which nothing is known then.
        match serde_json::from_str(line) {
            Ok(Line::Begun { case, seed }) => running = Some((find(&case)?, seed)),
            Ok(Line::Ended { case, seed, outcome, text, micros }) => {
                let outcome = Outcome::from_word(&outcome, &text).ok_or("an outcome is none")?;
                entries.push(Entry { case: find(&case)?, seed, outcome, took: Duration::from_micros(micros) });
                running = None;
            }
            Ok(Line::Interrupted) => running = None,
            Ok(Line::Over) => return Err("its run has come to its end: there is nothing to resume".to_owned()),
            Ok(Line::Run { .. }) | Err(_) => {}
        }
    }
    Ok((Broken { arguments, entries, running: None }, running))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf, time::Duration};

    use conformance::{Outcome, cases};

    use super::{Progress, left_running};
    use crate::selftest::results::Entry;

    fn file(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("ndkctl-progress-{name}-{}", std::process::id()))
    }

    fn entry(index: usize) -> Entry {
        let case = cases::all().nth(index).expect("a case");
        Entry { case, seed: 5, outcome: Outcome::Passed, took: Duration::from_micros(7) }
    }

    #[test]
    fn the_case_that_was_running_is_known_afterwards() {
        let path = file("running");
        let arguments = ["selftest".to_owned(), "--driver".to_owned()];
        let mut progress = Progress::begin(&path, &arguments).expect("a file");
        progress.begun(entry(0).case, 5).expect("room");
        progress.ended(&entry(0)).expect("room");
        progress.begun(entry(1).case, 5).expect("room");
        drop(progress);
        assert_eq!(left_running(&path), Some(entry(1).case.name));
        let (mut progress, broken) = Progress::resume(&path).expect("a run");
        assert_eq!(broken.arguments, arguments);
        assert_eq!(broken.running.map(|case| case.name), Some(entry(1).case.name));
        assert!(matches!(&broken.entries[1].outcome, Outcome::Failed(text) if text.as_str().contains("was running")));
        assert_eq!(broken.done(), [(entry(0).case.name, 5), (entry(1).case.name, 5)].into());
        // A second crash.
        progress.begun(entry(2).case, 5).expect("room");
        drop(progress);
        let (mut progress, broken) = Progress::resume(&path).expect("a run");
        assert_eq!((broken.entries.len(), broken.running.map(|case| case.name)), (3, Some(entry(2).case.name)));
        progress.over(false).expect("room");
        let Err(error) = Progress::resume(&path) else { panic!("it is over") };
        assert!(error.contains("nothing to resume"), "{error}");
        fs::remove_file(&path).expect("it is there");
    }

    #[test]
    fn what_was_interrupted_runs_again_and_nobody_is_blamed() {
        let path = file("interrupted");
        let mut progress = Progress::begin(&path, &[]).expect("a file");
        progress.begun(entry(0).case, 5).expect("room");
        progress.over(true).expect("room");
        let (_, broken) = Progress::resume(&path).expect("a run");
        assert!(broken.entries.is_empty() && broken.running.is_none());
        fs::remove_file(&path).expect("it is there");
    }

    #[test]
    fn a_line_that_is_cut_off_says_nothing() {
        let path = file("cut");
        let mut progress = Progress::begin(&path, &[]).expect("a file");
        progress.begun(entry(0).case, 5).expect("room");
        progress.ended(&entry(0)).expect("room");
        let whole = fs::read(&path).expect("a file");
        fs::write(&path, &whole[..whole.len() - 9]).expect("room");
        // The end is not known, so the case was running.
        let (_, broken) = Progress::resume(&path).expect("a run");
        assert_eq!(broken.running.map(|case| case.name), Some(entry(0).case.name));
        let (_, broken) = Progress::resume(&path).expect("a run");
        assert_eq!((broken.entries.len(), broken.running.is_none()), (1, true), "it is written down");
        for other in ["", "{\"begun\"", "something else\n"] {
            fs::write(&path, other).expect("room");
            let Err(error) = Progress::resume(&path) else { panic!("{other}") };
            assert!(error.contains("--progress") && !error.contains('\n'), "{error}");
        }
        fs::remove_file(&path).expect("it is there");
    }
}
