//! The mutants that no test could notice, each with its reason: a checked-in list.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::mutant::Mutant;

/// Mutants and the reason that holds for them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// Names without line and column.
    mutants: Vec<String>,
    /// The line that it changes, where a function has several of the same name.
    line: Option<String>,
    /// Why no test could notice it.
    reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    survivor: Vec<Entry>,
}

/// The list.
#[derive(Debug, Default)]
pub struct Known(File);

impl Known {
    /// Reads the list.
    ///
    /// # Errors
    ///
    /// It cannot be read, or an entry lacks its reason.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Self> {
        let file: File = toml::from_str(text)?;
        for entry in &file.survivor {
            anyhow::ensure!(!entry.reason.trim().is_empty(), "{:?} have no reason", entry.mutants);
        }
        Ok(Self(file))
    }

    /// The reason why no test could notice `mutant`, which changes `line`.
    #[must_use]
    pub fn reason(&self, mutant: &Mutant, line: &str) -> Option<&str> {
        let name = mutant.stable_name();
        let entry = self.0.survivor.iter().find(|entry| {
            entry.mutants.contains(&name) && entry.line.as_ref().is_none_or(|expected| expected.trim() == line.trim())
        })?;
        Some(&entry.reason)
    }

    /// The names in the list that are of one of `folders` and not among `names`, all mutants of these: what they stood for is gone.
    #[must_use]
    pub fn stale(&self, names: &[String], folders: &[String]) -> Vec<&str> {
        let listed = self.0.survivor.iter().flat_map(|entry| &entry.mutants);
        let of_folders = listed.filter(|name| folders.iter().any(|folder| name.starts_with(folder)));
        of_folders.filter(|name| !names.contains(name)).map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Known;
    use crate::mutant::{Genre, LineColumn, Mutant, Span};

    fn mutant() -> Mutant {
        let [start, end] = [11, 12].map(|column| LineColumn { line: 2, column });
        Mutant {
            name: "crates/a/src/b.rs:2:11: replace < with <= in f".to_owned(),
            file: "crates/a/src/b.rs".to_owned(),
            span: Span { start, end },
            replacement: "<=".to_owned(),
            genre: Genre::BinaryOperator,
        }
    }

    #[test]
    fn an_entry_is_of_a_line_where_it_names_one() {
        let text = "[[survivor]]\nmutants = [\"crates/a/src/b.rs: replace < with <= in f\"]\nline = \"a < b\"\nreason = \"never equal\"\n";
        let known = Known::parse(text).unwrap();
        assert_eq!(known.reason(&mutant(), "    a < b"), Some("never equal"));
        assert_eq!(known.reason(&mutant(), "    a < c"), None);
        let [a, c] = ["crates/a/", "crates/c/"].map(|folder| [folder.to_owned()]);
        assert_eq!(known.stale(&[], &a), ["crates/a/src/b.rs: replace < with <= in f"]);
        assert!(known.stale(&[mutant().stable_name()], &a).is_empty());
        assert!(known.stale(&[], &c).is_empty(), "of another part");
    }

    #[test]
    fn an_entry_needs_a_reason() {
        assert!(Known::parse("[[survivor]]\nmutants = [\"a\"]\nreason = \" \"\n").is_err());
        assert!(Known::parse("[[survivor]]\nmutants = [\"a\"]\n").is_err());
    }
}
