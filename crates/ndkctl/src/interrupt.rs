//! Ctrl-C.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use crate::INTERRUPTED;

/// Sets the flag at the first Ctrl-C, so that everything is closed in order, and ends the program at the second.
pub fn watch() -> Result<Arc<AtomicBool>, ctrlc::Error> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    ctrlc::set_handler(move || {
        if flag.swap(true, Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
    })?;
    Ok(interrupted)
}
