//! `ndkctl completions`: what a shell completes.

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::{Shell, generate};

use crate::{End, args::Cli};
use host::say;

/// For which shell.
#[derive(Clone, Copy, Debug, Args)]
#[command(after_help = "docs/ndkctl.md says where each shell looks for the file.")]
pub struct Completions {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Kind,
}

/// A shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// GNU Bash.
    Bash,
    /// Z shell.
    Zsh,
    /// Fish.
    Fish,
    /// PowerShell.
    #[value(name = "powershell")]
    PowerShell,
}

/// Writes the completions to the standard output.
///
/// # Errors
///
/// They are no text.
pub fn run(args: Completions) -> Result<End, String> {
    let shell = match args.shell {
        Kind::Bash => Shell::Bash,
        Kind::Zsh => Shell::Zsh,
        Kind::Fish => Shell::Fish,
        Kind::PowerShell => Shell::PowerShell,
    };
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "ndkctl", &mut script);
    let script = String::from_utf8(script).map_err(|error| error.to_string())?;
    say!("{}", script.trim_end());
    Ok(End::Good)
}
