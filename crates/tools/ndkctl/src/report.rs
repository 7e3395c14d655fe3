//! `ndkctl report`: the results of a self-test as a page, and what has changed since other results.

mod compare;
mod page;

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use host::say;
use recording::{
    Recording,
    timeline::{Options, Timeline, escape, html, svg},
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
    /// Write a self-contained HTML page: each case by rule, what it did, expected and saw, and how to repeat it. A recorded case whose
    /// timeline is too long for it has its whole timeline in a page beside it
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
        let drawn = results.recording.as_ref().map(|recording| drawing(&args.results, recording, path)).transpose()?;
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

/// The picture of a recording in the page shows so many moments at most, its last ones: what led to a failure. A whole one may be hundreds of
/// megabytes; the page of the timeline, which has levels of detail, shows any number.
const MOMENTS: usize = 600;

/// A case, and the picture of its recording or why there is none.
type Drawn = (String, Result<String, String>);

/// Where the whole timeline of a report goes: beside it, with its name. What the report calls it.
fn timeline_of(report: &Path) -> Option<(PathBuf, String)> {
    let name = format!("{}-timeline.html", report.file_stem()?.to_str()?);
    Some((report.with_file_name(&name), name))
}

/// What a link to a file beside the page has for its name.
fn address(name: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    name.bytes().map(|byte| if is_plain(&byte) { char::from(byte).into() } else { format!("%{byte:02X}") }).collect()
}

/// Draws a recording: where its name says, or beside the results. What the picture has no room for is in a page of its own beside the report.
///
/// # Errors
///
/// One line: that page cannot be written.
fn drawing(results: &Path, file: &RecordingJson, report: &Path) -> Result<Drawn, String> {
    let beside = results.parent().zip(Path::new(&file.file).file_name()).map(|(folder, name)| folder.join(name));
    let read = fs::read(&file.file).or_else(|error| beside.map_or(Err(error), fs::read));
    let read = read.map_err(|error| error.to_string());
    let recording = read.and_then(|bytes| Recording::read(&bytes).map_err(|error| error.to_string()));
    let recording = match recording {
        Ok(recording) => recording,
        Err(error) => return Ok((file.case.clone(), Err(format!("{}: {error}", file.file)))),
    };
    let timeline = Timeline::of(&recording);
    let count = timeline.moments.len();
    let first = count.saturating_sub(MOMENTS);
    let options = Options { title: "timeline".to_owned(), moments: (first, count), ..Options::default() };
    let mut picture = svg(&timeline, &options);
    if first > 0 {
        let from = escape(&file.file);
        let whole = match timeline_of(report) {
            Some((path, name)) => {
                save(&path, html(&timeline, &file.case).as_bytes())?;
                format!("<a href=\"{}\">The whole timeline</a> is a page beside this one", address(&name))
            }
            None => "A page of the whole timeline was not made".to_owned(),
        };
        // Writing to a string cannot fail.
        let _ = write!(
            picture,
            "<figcaption>The last {MOMENTS} of {count} moments; the {first} before them are left out. {whole}, and \
             <code>ndkctl timeline {from} --html timeline.html</code> makes it anew.</figcaption>"
        );
    }
    Ok((file.case.clone(), Ok(picture)))
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
    use std::path::Path;

    use super::{address, decoded, timeline_of};

    #[test]
    fn the_whole_timeline_is_beside_the_report() {
        let (path, name) = timeline_of(Path::new("a/my results.html")).expect("a name");
        assert_eq!(
            (path.as_path(), name.as_str()),
            (Path::new("a/my results-timeline.html"), "my results-timeline.html")
        );
        assert_eq!(address(&name), "my%20results-timeline.html");
        assert_eq!(address("\u{e4}\"<#?.html"), "%C3%A4%22%3C%23%3F.html");
    }

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
