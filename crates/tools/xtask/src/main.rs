//! `cargo xtask`: see the library.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match xtask::Arguments::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
