//! Mutants as cargo-mutants lists them.

use serde::Deserialize;

/// A place in a file, counted from 1, in characters.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub struct LineColumn {
    /// The line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

/// What a mutant replaces.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Span {
    /// The first character.
    pub start: LineColumn,
    /// The character after the last one.
    pub end: LineColumn,
}

/// What kind of change a mutant is.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Genre {
    /// A function returns a fixed value.
    FnValue,
    /// `==` becomes `!=`, and so on.
    BinaryOperator,
    /// `!` or `-` goes.
    UnaryOperator,
    /// An arm of a match with a `_` goes.
    MatchArm,
    /// A guard is `true`, or `false`.
    MatchArmGuard,
    /// A field of a struct expression takes the base's value.
    StructField,
}

/// One change of one file.
#[derive(Clone, Debug, Deserialize)]
pub struct Mutant {
    /// File, place and change, in words: what cargo-mutants calls it.
    pub name: String,
    /// The file, from the root of the tree.
    pub file: String,
    /// What it replaces.
    pub span: Span,
    /// By what.
    pub replacement: String,
    /// The kind of change.
    pub genre: Genre,
}

impl Mutant {
    /// The name without line and column, which change with every edit of the file.
    #[must_use]
    pub fn stable_name(&self) -> String {
        let at = format!(":{}:{}:", self.span.start.line, self.span.start.column);
        self.name.replacen(&at, ":", 1)
    }
}

/// Where `at` is in `text`, in bytes. `None` if the text has no such place.
#[must_use]
pub fn offset(text: &str, at: LineColumn) -> Option<usize> {
    let start: usize = text.split_inclusive('\n').take(at.line - 1).map(str::len).sum();
    let line = text.get(start..)?.split_inclusive('\n').next()?;
    let columns = line.char_indices().map(|(index, _)| index).chain([line.len()]);
    columns.skip(at.column - 1).map(|column| start + column).next()
}
