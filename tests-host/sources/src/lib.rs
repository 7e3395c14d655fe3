//! The repository's own text, for tests that read it.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

/// Directories that hold nothing of the repository's.
const FOREIGN: [&str; 2] = ["target", ".git"];

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file of the repository.
pub struct Source {
    /// From the root, with `/` between the names.
    pub path: String,
    /// All of it.
    pub text: String,
}

/// The files under `directory` (from the root) with one of these extensions, in no order.
///
/// # Panics
///
/// If one of them cannot be read, or is no text in UTF-8.
#[must_use]
pub fn files(directory: &str, extensions: &[&str]) -> Vec<Source> {
    let root = root();
    let mut found = Vec::new();
    let mut directories = vec![root.join(directory)];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory of the repository") {
            let path = entry.expect("a directory entry").path();
            let is_foreign = path.file_name().and_then(OsStr::to_str).is_none_or(|name| FOREIGN.contains(&name));
            if is_foreign {
                continue;
            }
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().and_then(OsStr::to_str).is_some_and(|ending| extensions.contains(&ending)) {
                let text = fs::read_to_string(&path).expect("text in UTF-8");
                let path = path.strip_prefix(&root).expect("a path under the root");
                let names: Vec<_> = path.iter().map(|name| name.to_string_lossy()).collect();
                found.push(Source { path: names.join("/"), text });
            }
        }
    }
    found
}

/// A Rust source without its comments. What stands behind `//` in a string literal is lost too.
#[must_use]
pub fn code_of(source: &str) -> String {
    source.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The words of a text: runs of letters, digits and `_`.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_alphanumeric() && character != '_').filter(|word| !word.is_empty())
}
