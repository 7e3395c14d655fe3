//! Text that grows without aborting.

use alloc::string::String;
use core::fmt::{self, Write};

/// A string that refuses what it has no memory for, and what is beyond a number of bytes.
pub struct Room<'text> {
    text: &'text mut String,
    most: usize,
}

impl<'text> Room<'text> {
    /// Room in `text` for so many bytes.
    pub const fn new(text: &'text mut String, most: usize) -> Self {
        Self { text, most }
    }
}

impl Write for Room<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fits = self.text.len().saturating_add(text.len()) <= self.most;
        if !fits || self.text.try_reserve(text.len()).is_err() {
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}
