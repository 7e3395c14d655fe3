//! Text whose allocation may fail.

use alloc::string::String;
use core::fmt::{self, Write};

/// Text for people. It is cut short if memory runs out.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Text(String);

impl Text {
    /// The words of `arguments`.
    #[must_use]
    pub fn new(arguments: fmt::Arguments<'_>) -> Self {
        let mut text = Self::default();
        // The only error is running out of memory.
        let _ = text.write_fmt(arguments);
        text
    }

    /// The words.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Write for Text {
    fn write_str(&mut self, words: &str) -> fmt::Result {
        self.0.try_reserve(words.len()).map_err(|_| fmt::Error)?;
        self.0.push_str(words);
        Ok(())
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
