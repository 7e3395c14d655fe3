//! Ctrl-C.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use crate::INTERRUPTED;

/// What the first Ctrl-C does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// It sets the flag: the command shows what it has, closes everything in order, and ends. A second one ends the program.
    SetsTheFlag,
    /// It ends the program: the command has nothing to show or to close.
    Ends,
}

/// Watches for Ctrl-C.
///
/// # Errors
///
/// The system does not let it.
pub fn watch(first: First) -> Result<Arc<AtomicBool>, ctrlc::Error> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    ctrlc::set_handler(move || {
        if flag.swap(true, Relaxed) || first == First::Ends {
            std::process::exit(INTERRUPTED.into());
        }
    })?;
    Ok(interrupted)
}
