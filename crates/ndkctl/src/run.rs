//! `ndkctl run`: driver images in the simulated kernel, by a script and with seeds (`docs/run.md`).

mod execute;
mod imports;
mod script;
mod symbols;
mod workers;

use std::{num::NonZeroUsize, path::PathBuf};

use clap::Args;
use runner::{Faults, Seeds};

use crate::End;

/// Driver images, and what to do with them.
#[derive(Clone, Debug, Args)]
pub struct Run {
    /// Driver images for x64: .sys files. With a script that names images, NAME=FILE takes the place of one of them
    #[arg(required_unless_present_any = ["script", "worker"], value_name = "IMAGE")]
    pub images: Vec<PathBuf>,
    /// Seeds to run with: 7, 1..1000 or 1,5,9..12
    #[arg(long, default_value = "1..10")]
    pub seeds: Seeds,
    /// What the images do (TOML); without it they are loaded, started, removed and unloaded
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// What fails of what can: none, each-call (in a run of its own), each-site (in one run), or the number of one
    #[arg(long, default_value = "none", value_name = "WHICH")]
    pub faults: Faults,
    /// Values of the registry (TOML): a table for each service
    #[arg(long, value_name = "FILE")]
    pub registry: Option<PathBuf>,
    /// Debugging information of an image; a file beside the image is found without this
    #[arg(long, value_name = "FILE")]
    pub pdb: Vec<PathBuf>,
    /// Runs at a time; as many as there are processors, if not given
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// Seconds that a step may take before it is a finding, 1 to 86400
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub limit: u64,
    /// Show each call of the drivers, on the standard error
    #[arg(long)]
    pub trace: bool,
    /// Write a report for CI systems (JUnit)
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// List what the images import, and what of it is missing; nothing is run
    #[arg(long, conflicts_with_all = ["script", "registry", "junit", "trace"])]
    pub imports: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// What `ndkctl run` starts
    #[arg(long, hide = true)]
    pub worker: bool,
}

/// Runs the command.
pub fn run(args: &Run) -> Result<End, String> {
    if args.worker {
        workers::work().map(|()| End::Good)
    } else if args.imports {
        imports::list(args)
    } else {
        execute::execute(args)
    }
}
