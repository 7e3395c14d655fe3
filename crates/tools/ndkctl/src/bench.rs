//! `ndkctl bench`: benchmarks, each beside the best of its kind.

use std::path::PathBuf;

use bench::command::{Arguments, Done};
use clap::Args;
use host::note;

use crate::End;

/// What to measure.
#[derive(Debug, Args)]
pub struct Bench {
    /// Only rows whose names contain this
    #[arg(long, value_name = "TEXT", value_parser = crate::words::filter)]
    pub filter: Option<String>,
    /// Run for seconds only, to check that everything works; the figures mean little
    #[arg(long)]
    pub quick: bool,
    /// Leave out the programs of others, UCX and libfabric
    #[arg(long)]
    pub alone: bool,
    /// Also write the rows to this file, as JSON
    #[arg(long, value_name = "FILE", value_parser = crate::words::out_file)]
    pub json: Option<PathBuf>,
    /// Also write the table into this Markdown page, between its marks
    #[arg(long, value_name = "FILE", value_parser = crate::words::out_file)]
    pub report: Option<PathBuf>,
    /// Draw the plots into this folder, as SVG
    #[arg(long, value_name = "FOLDER")]
    pub plots: Option<PathBuf>,
    /// Build this commit too, run both builds in turn, and compare them
    #[arg(long, value_name = "COMMIT", conflicts_with_all = ["json", "report", "plots", "smoke", "counts"])]
    pub compare: Option<String>,
    /// Only count instructions (callgrind), and fail if there are more than on file
    #[arg(long, conflicts_with_all = ["json", "report", "plots", "counts"])]
    pub smoke: bool,
    /// Only count instructions, and write them to this file; crates/tools/bench/counts.json is the one on file
    #[arg(long, value_name = "FILE", value_parser = crate::words::out_file, conflicts_with_all = ["json", "report", "plots"])]
    pub counts: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &Bench) -> Result<End, String> {
    let arguments = Arguments {
        quick: args.quick,
        filter: args.filter.clone(),
        alone: args.alone,
        json: args.json.clone(),
        report: args.report.clone(),
        plots: args.plots.clone(),
        compare: args.compare.clone(),
        smoke: args.smoke,
        counts: args.counts.clone(),
        words: std::env::args().skip(1).collect(),
    };
    Ok(match bench::command::run(&arguments)? {
        Done::Good => {
            if cfg!(debug_assertions) {
                note!("ndkctl bench: not an optimised build, so these say little; cargo run --release -- bench");
            }
            End::Good
        }
        Done::Worse => End::Bad,
        Done::NoRow => {
            let filter = args.filter.as_deref().unwrap_or_default();
            note!("ndkctl bench: no row's name contains `{filter}`; docs/performance/README.md has the rows");
            End::Refused
        }
    })
}
