//! The C header for consumers says what the Rust crate says, and compiles as its first lines tell.

mod compile;
mod words;

use std::{fs, path::PathBuf};

/// A path in the repository.
fn path(relative: &str) -> PathBuf {
    sources::root().join(relative)
}

fn read(relative: &str) -> String {
    let path = path(relative);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn header() -> String {
    read("crates/consumer/control/include/softndk.h")
}

/// What stands between two texts, the first time that they do.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("`{before}` is in the header")).1;
    rest.split_once(after).expect("it has an end").0
}
