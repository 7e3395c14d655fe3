//! `ndkctl replay`: a recording, run again on the host's provider.

use std::path::PathBuf;

use clap::Args;
use host::say;
use serde::Serialize;

use crate::{End, output::print_json, record::load};

/// `ndkctl replay`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Exit code: 0 if nothing differs, 1 if something does or the recording cannot be run, 2 for a wrong argument."
)]
pub struct Replay {
    /// The recording
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Determines the order in which the machine does what it may do in any order
    #[arg(long, default_value = "0", value_name = "SEED", value_parser = crate::size::parse_seed)]
    pub seed: u64,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct DifferenceJson<'a> {
    record: u64,
    what: &'a str,
}

#[derive(Serialize)]
struct ReplayJson<'a> {
    records: usize,
    calls: u64,
    left_out: u64,
    differences: Vec<DifferenceJson<'a>>,
}

/// Runs the command.
pub fn run(args: &Replay) -> Result<End, String> {
    let recording = load(&args.file)?;
    let report = replay::run(&recording, args.seed).map_err(|error| format!("{}: {error}", args.file.display()))?;
    let good = report.differences.is_empty();
    if args.json {
        let differences = report.differences.iter();
        print_json(&ReplayJson {
            records: recording.records.len(),
            calls: report.calls,
            left_out: report.left_out,
            differences: differences.map(|one| DifferenceJson { record: one.record, what: &one.what }).collect(),
        })?;
    } else {
        for difference in &report.differences {
            say!("record {}: {}", difference.record, difference.what);
        }
        let left_out = if report.left_out == 0 { String::new() } else { format!(", {} left out", report.left_out) };
        say!("{} calls run again{left_out}: {} differences", report.calls, report.differences.len());
    }
    Ok(if good { End::Good } else { End::Bad })
}
