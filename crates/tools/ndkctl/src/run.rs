//! `ndkctl run`: driver images in the simulated kernel, by a script and with seeds (`docs/run.md`).

mod execute;
mod imports;
mod named;
mod observed;
mod script;
mod symbols;
mod workers;

use std::{num::NonZeroUsize, path::PathBuf, sync::atomic::AtomicBool};

use clap::Args;
use runner::{Faults, Seeds};

use crate::{End, record::Record};

/// Driver images, and what to do with them.
#[derive(Clone, Debug, Args)]
pub struct Run {
    /// Driver images for x64 (.sys). With a script, each replaces the script's image of the same file name, and NAME=FILE the
    /// image NAME
    #[arg(required_unless_present_any = ["script", "worker"], value_name = "IMAGE")]
    pub images: Vec<PathBuf>,
    /// Seeds to run with: 7, 1..1000 or 1,5,9..12
    #[arg(long, default_value = "1..10")]
    pub seeds: Seeds,
    /// Script of what happens (TOML); without one the images are loaded, started, removed and unloaded
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// Failures to inject: none, each-call (each in a run of its own), each-site (all in one run), or the number of one
    #[arg(long, default_value = "none", value_name = "WHICH")]
    pub faults: Faults,
    /// Registry values (TOML), one table for each service
    #[arg(long, value_name = "FILE")]
    pub registry: Option<PathBuf>,
    /// Folder whose files the drivers find on C:, instead of the script's; they are copied, and never written
    #[arg(long, value_name = "DIR")]
    pub files: Option<PathBuf>,
    /// Debugging information of an image; not needed for a file beside the image
    #[arg(long, value_name = "FILE")]
    pub pdb: Vec<PathBuf>,
    /// Number of runs at a time; by default one per processor
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// Real time that a step may take before that is a finding, 1 to 86400 seconds
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub limit: u64,
    /// Number of processors, 1 to 64, that are threads of this machine and run at the same time: the seed decides only what fails, and
    /// a run cannot be repeated
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: Option<u32>,
    /// Leave out the adviser, which stands in front of the adapters of softndk and softndknic unless their registry says otherwise, and
    /// the fault `late`, which happens to half of the calls there
    #[arg(long)]
    pub no_advise: bool,
    /// Have softndk and softndknic let this fault happen, written as for `ndkctl faults`: late,chance=300000,delay=~200; on one of several
    /// machines with its name and a colon in front; up to eight times for each machine
    #[arg(long, value_name = "RULE", value_parser = observed::parse_fault)]
    pub fault: Vec<observed::Fault>,
    #[command(flatten)]
    pub record: Record,
    /// Print every kernel call of the drivers to the standard error
    #[arg(long)]
    pub trace: bool,
    /// Also write the results to this file, in JUnit format
    #[arg(long, value_name = "FILE", value_parser = crate::words::out_file)]
    pub junit: Option<PathBuf>,
    /// List what the images import and what of it is not simulated, and run nothing
    #[arg(long, conflicts_with_all = ["script", "registry", "files", "junit", "trace", "no_advise", "fault", "recorded"])]
    pub imports: bool,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
    /// The worker process that `ndkctl run` starts
    #[arg(long, hide = true)]
    pub worker: bool,
}

/// Runs the command.
pub fn run(args: &Run, interrupted: &AtomicBool) -> Result<End, String> {
    if args.worker {
        workers::work().map(|()| End::Good)
    } else if args.imports {
        imports::list(args)
    } else {
        execute::execute(args, interrupted)
    }
}
