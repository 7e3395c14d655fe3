//! `ndkctl bench`: measurements, each beside the best of its kind.

use std::path::PathBuf;

use bench::command::Arguments;
use clap::Args;

use crate::{End, measure};

/// What to measure.
#[derive(Debug, Args)]
pub struct Bench {
    /// Only rows whose names contain this
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// A run of seconds, to see that everything works: its figures mean little
    #[arg(long)]
    pub quick: bool,
    /// Write the rows as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draw the plots, as SVG
    #[arg(long, value_name = "FOLDER")]
    pub plots: Option<PathBuf>,
    /// Build this commit too, and run the two builds in turn
    #[arg(long, value_name = "COMMIT", conflicts_with_all = ["json", "plots", "counts"])]
    pub compare: Option<String>,
    /// Only count instructions (callgrind), and compare with the counts in this file
    #[arg(long, value_name = "FILE")]
    pub counts: Option<PathBuf>,
    /// Write the counts to the file instead
    #[arg(long, requires = "counts")]
    pub update: bool,
}

/// Runs the command.
pub fn run(args: &Bench) -> Result<End, String> {
    let arguments = Arguments {
        quick: args.quick,
        filter: args.filter.clone(),
        json: args.json.clone(),
        plots: args.plots.clone(),
        compare: args.compare.clone(),
        counts: args.counts.clone(),
        update: args.update,
        memory_in_use: Some(measure::in_use),
    };
    Ok(if bench::command::run(&arguments)? { End::Good } else { End::Bad })
}
