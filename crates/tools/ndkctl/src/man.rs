//! `ndkctl man`: a manual page for each command.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use host::say;

use crate::{End, args::Cli};

/// Where the pages go.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:\n  ndkctl man ~/.local/share/man/man1 && man ndkctl-run")]
pub struct Man {
    /// The folder, which is made: man1 in a folder of MANPATH
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Writes a page for each command.
///
/// # Errors
///
/// The folder cannot be written; in one line.
pub fn run(args: &Man) -> Result<End, String> {
    let failed = |error| format!("{}: {error}", args.folder.display());
    std::fs::create_dir_all(&args.folder).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), &args.folder).map_err(failed)?;
    say!("{}: ndkctl.1, and a page for each command", args.folder.display());
    Ok(End::Good)
}
