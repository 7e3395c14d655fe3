//! The process that runs driver images for `ndkctl run`, where that is not built for Windows: it gets its job by the standard input
//! (`runner::worker`), and runs under Wine. `cargo xtask worker` makes it.

use std::process::ExitCode;

#[cfg(windows)]
fn work() -> Result<(), String> {
    let job = runner::worker::Job::read(std::io::stdin().lock())?;
    script_machine::images::work(&job)
}

#[cfg(not(windows))]
fn work() -> Result<(), String> {
    Err("this program is for Windows".to_owned())
}

fn main() -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
