//! `ndkctl timeline` and `ndkctl packets`: drawing and exporting recordings.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use recording::{
    Recording, pcapng,
    timeline::{Options, Scale, Timeline, html, perfetto, svg},
};

use crate::{End, example, output::working, record};

/// `ndkctl timeline`.
#[derive(Clone, Debug, Args)]
pub struct TimelineArgs {
    /// The recording
    #[arg(value_name = "FILE", required_unless_present = "example", conflicts_with = "example")]
    pub file: Option<PathBuf>,
    /// Instead of a recording, draw one of the built-in runs that the documents show
    #[arg(long, value_enum, value_name = "WHICH")]
    pub example: Option<Example>,
    /// Write a self-contained HTML page with zoom, search and details
    #[arg(long, value_name = "FILE", value_parser = crate::words::out_file, required_unless_present_any = ["svg", "perfetto"])]
    pub html: Option<PathBuf>,
    /// Write a picture (SVG)
    #[arg(long, value_name = "FILE", value_parser = crate::words::out_file)]
    pub svg: Option<PathBuf>,
    /// Write a trace for Perfetto, or any program that reads Chrome's JSON
    #[arg(long, value_name = "FILE", value_parser = crate::words::out_file)]
    pub perfetto: Option<PathBuf>,
    /// In the picture: space events evenly instead of by time
    #[arg(long, requires = "svg")]
    pub order: bool,
    /// In the picture: show only these lanes (processor 0, QP 1, CQ 2), separated by commas
    #[arg(long, requires = "svg", value_name = "LANES", value_delimiter = ',')]
    pub lanes: Vec<String>,
}

/// A picture of the documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Example {
    /// Post, completion, arm, callback.
    Completion,
    /// Two arms merge into one.
    Merge,
}

/// Runs the command.
pub fn run(args: &TimelineArgs) -> Result<End, String> {
    let (recording, mut options, title) = match (&args.file, args.example) {
        (Some(file), _) => {
            let title = file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            (record::load(file)?, Options::default(), title)
        }
        (None, Some(which)) => example::run(which)?,
        (None, None) => return Err("name a recording, or use --example".to_owned()),
    };
    let _drawing = working("drawing");
    let timeline = Timeline::of(&recording);
    if args.order {
        options.scale = Scale::Order;
    }
    if !args.lanes.is_empty() {
        options.lanes.clone_from(&args.lanes);
        let known = |name: &String| timeline.lanes.iter().any(|lane| lane.name == *name);
        if let Some(unknown) = args.lanes.iter().find(|name| !known(name)) {
            let names: Vec<_> = timeline.lanes.iter().map(|lane| lane.name.as_str()).collect();
            return Err(format!("there is no lane `{unknown}`; the lanes are {}", names.join(", ")));
        }
    }
    options.title.clone_from(&title);
    if let Some(path) = &args.html {
        record::save(path, html(&timeline, &title).as_bytes())?;
    }
    if let Some(path) = &args.perfetto {
        record::save(path, perfetto(&timeline).as_bytes())?;
    }
    if let Some(path) = &args.svg {
        record::save(path, svg(&timeline, &options).as_bytes())?;
    }
    Ok(End::Good)
}

/// Draws a recording: a picture if the name of the file ends with `.svg`, otherwise a page.
///
/// # Errors
///
/// One line.
pub fn draw(recording: &Recording, path: &Path) -> Result<(), String> {
    let _drawing = working("drawing");
    let timeline = Timeline::of(recording);
    let title = path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let drawn = if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg")) {
        svg(&timeline, &Options { title, ..Options::default() })
    } else {
        html(&timeline, &title)
    };
    record::save(path, drawn.as_bytes())
}

/// `ndkctl packets`.
#[derive(Clone, Debug, Args)]
pub struct Packets {
    /// The recording
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The pcapng file to write
    #[arg(value_name = "PCAPNG", value_parser = crate::words::out_file)]
    pub to: PathBuf,
}

/// Runs the command.
pub fn packets(args: &Packets) -> Result<End, String> {
    let recording = record::load(&args.file)?;
    let _writing = working("writing packets");
    let capture = pcapng(&recording).ok_or_else(|| {
        format!(
            "{}: nothing of it went over a wire; record the same over one in memory, for example `ndkctl ping --wire --record FILE`",
            args.file.display()
        )
    })?;
    record::save(&args.to, &capture)?;
    Ok(End::Good)
}
