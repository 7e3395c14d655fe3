//! Printing for programs whose output may be cut off, as in `ndkctl selftest --list | head -1`.
//!
//! The standard library's `println!` panics then. [`say!`](crate::say) ends the program without a word, and
//! [`note!`](crate::note) goes on.

use std::{
    fmt,
    io::{self, ErrorKind, Write as _},
    process,
};

/// The exit code that shells report for a program that SIGPIPE has ended.
const CLOSED_PIPE: i32 = 141;

/// Writes a line to the standard output. Use [`say!`](crate::say).
///
/// If nobody reads the output any more, the program ends with exit code 141. It ends with 1, and says why, if the output cannot
/// be written for another reason.
pub fn line_out(line: fmt::Arguments<'_>) {
    if let Err(error) = writeln!(io::stdout().lock(), "{line}") {
        if error.kind() == ErrorKind::BrokenPipe {
            process::exit(CLOSED_PIPE);
        }
        line_err(format_args!("the output cannot be written: {error}"));
        process::exit(1);
    }
}

/// Writes a line to the standard error. Use [`note!`](crate::note). What nobody can read is lost.
pub fn line_err(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Prints a line as `println!` does, and ends the program quietly if nobody reads the standard output any more.
#[macro_export]
macro_rules! say {
    () => {
        $crate::console::line_out(::core::format_args!(""))
    };
    ($($line:tt)+) => {
        $crate::console::line_out(::core::format_args!($($line)+))
    };
}

/// Prints a line as `eprintln!` does, and goes on if nobody reads the standard error any more.
#[macro_export]
macro_rules! note {
    ($($line:tt)+) => {
        $crate::console::line_err(::core::format_args!($($line)+))
    };
}
