//! `ndkctl report`: the results of a self-test as a page, and what has changed since other results.

mod compare;
mod page;

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use host::say;
use recording::{
    Recording,
    timeline::{Options, Timeline, escape, svg},
};

use crate::{
    End,
    output::{labelled, print_json},
    record::save,
    selftest::json::{RecordingJson, ResultsJson},
};

/// `ndkctl report`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Results are what `ndkctl selftest --json` prints.\n\
                  Exit code: 0 for success, 1 if something got worse since --baseline or the command failed, 2 for a wrong argument.")]
pub struct ReportArgs {
    /// The results
    #[arg(value_name = "RESULTS")]
    pub results: PathBuf,
    /// Write a self-contained HTML page: each case by rule, what it did, expected and saw, and how to repeat it
    #[arg(long, value_name = "FILE", value_parser = crate::words::out_file, required_unless_present = "baseline")]
    pub html: Option<PathBuf>,
    /// Show what has changed since these results
    #[arg(long, value_name = "RESULTS")]
    pub baseline: Option<PathBuf>,
    /// Print what has changed as JSON
    #[arg(long, requires = "baseline")]
    pub json: bool,
}

/// Runs the command.
///
/// # Errors
///
/// One line.
pub fn run(args: &ReportArgs) -> Result<End, String> {
    let results = load(&args.results)?;
    if let Some(path) = &args.html {
        let drawn = results.recording.as_ref().map(|recording| drawing(&args.results, recording));
        save(path, page::page(&results, drawn.as_ref()).as_bytes())?;
    }
    let Some(path) = &args.baseline else { return Ok(End::Good) };
    let changes = compare::compare(&load(path)?, &results);
    if args.json {
        print_json(&changes)?;
    } else {
        show(&changes);
    }
    Ok(if changes.worse == 0 { End::Good } else { End::Bad })
}

/// Reads results.
fn load(path: &Path) -> Result<ResultsJson, String> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let bytes = fs::read(path).map_err(|error| named(&error))?;
    let text = decoded(&bytes).ok_or_else(|| named(&"this is no text: write the results anew"))?;
    let results: ResultsJson = serde_json::from_str(&text).map_err(|error| {
        named(&format_args!("these are not the results of `ndkctl selftest --json` ({error}): write them anew"))
    })?;
    if results.cases.is_empty() {
        return Err(named(&"these results are of no case: run the self-test again"));
    }
    Ok(results)
}

/// The text of a file. What PowerShell redirects is UTF-16.
fn decoded(bytes: &[u8]) -> Option<String> {
    match bytes {
        [0xFF, 0xFE, rest @ ..] => {
            let units: Vec<_> = rest
                .chunks(2)
                .map(|pair| pair.iter().rev().fold(0, |unit, &byte| unit << 8 | u16::from(byte)))
                .collect();
            String::from_utf16(&units).ok()
        }
        [0xEF, 0xBB, 0xBF, rest @ ..] | rest => String::from_utf8(rest.to_vec()).ok(),
    }
}

/// The picture of a recording shows so many moments at most, its last ones: what led to a failure. A whole one may be hundreds of megabytes.
const MOMENTS: usize = 600;

/// A case, and the picture of its recording or why there is none.
type Drawn = (String, Result<String, String>);

/// Draws a recording: where its name says, or beside the results.
fn drawing(results: &Path, file: &RecordingJson) -> Drawn {
    let beside = results.parent().zip(Path::new(&file.file).file_name()).map(|(folder, name)| folder.join(name));
    let read = fs::read(&file.file).or_else(|error| beside.map_or(Err(error), fs::read));
    let read = read.map_err(|error| error.to_string());
    let drawn = read.and_then(|bytes| Recording::read(&bytes).map_err(|error| error.to_string())).map(|recording| {
        let timeline = Timeline::of(&recording);
        let count = timeline.moments.len();
        let first = count.saturating_sub(MOMENTS);
        let options = Options { title: "timeline".to_owned(), moments: (first, count), ..Options::default() };
        let picture = svg(&timeline, &options);
        if first == 0 {
            return picture;
        }
        let file = escape(&file.file);
        format!(
            "{picture}<figcaption>The last {MOMENTS} of {count} moments; \
             <code>ndkctl timeline {file} --html timeline.html</code> shows all.</figcaption>"
        )
    });
    (file.case.clone(), drawn.map_err(|error| format!("{}: {error}", file.file)))
}

fn show(changes: &compare::Changes) {
    for change in &changes.cases {
        say!("{}: {} ({})", change.what, change.name, change.section);
        let rows: Vec<_> = [("was", &change.was), ("is", &change.is)]
            .into_iter()
            .filter_map(|(label, seen)| Some((label, seen.as_deref()?)))
            .collect();
        say!("{}", labelled(2, &rows).trim_end());
    }
    if !changes.cases.is_empty() {
        say!();
    }
    for note in &changes.notes {
        say!("{note}");
    }
    let compare::Changes { worse, better, other, same, .. } = changes;
    say!("{worse} worse, {better} better, {other} other changes, {same} as before");
}

#[cfg(test)]
mod tests {
    use super::decoded;

    #[test]
    fn text_is_read_as_each_shell_writes_it() {
        let text = "{\"name\": \"\u{e9}\u{1f980}\"}";
        let wide: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        for bytes in
            [text.as_bytes().to_vec(), [b"\xEF\xBB\xBF", text.as_bytes()].concat(), [&b"\xFF\xFE"[..], &wide].concat()]
        {
            assert_eq!(decoded(&bytes).as_deref(), Some(text));
        }
        assert_eq!(decoded(b"\xC3\x28"), None);
        assert_eq!(decoded(b"\xFF\xFE\x00\xD8"), None, "half of a letter");
    }
}
