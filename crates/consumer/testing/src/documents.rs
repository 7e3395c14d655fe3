//! The repository's documents, and the commands that they show: for tests that ask whether there is such a command.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// A file of the repository, by its path there.
///
/// # Panics
///
/// Panics if there is none.
#[must_use]
pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The documents with their paths: those at the root, and those in `docs`.
///
/// # Panics
///
/// Panics if they cannot be read, or are fewer than there are.
#[must_use]
pub fn documents() -> Vec<(String, String)> {
    let mut paths = Vec::new();
    for folder in ["", "docs", "docs/performance"] {
        for entry in fs::read_dir(root().join(folder)).expect("a folder") {
            let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
            if Path::new(&name).extension().is_some_and(|extension| extension == "md") {
                paths.push(Path::new(folder).join(name).to_str().expect("UTF-8").replace('\\', "/"));
            }
        }
    }
    paths.sort();
    assert!(paths.len() > 20, "{paths:?}");
    paths.into_iter().map(|path| (path.clone(), read(&path))).collect()
}

/// What may begin a command that can be judged here.
const JUDGED: [&str; 4] = ["cargo", "ndkctl", "tools/", "tools\\"];

/// The words of a command line, up to a pipe or redirection. Quotation marks keep words together.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for character in line.chars() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (None, '"' | '\'') => quote = Some(character),
            (None, ' ') => words.push(String::new()),
            _ => words.last_mut().expect("a word").push(character),
        }
    }
    let end = |word: &String| ["|", "\\|", ">", ">>", "&&", ";"].contains(&word.as_str());
    words.into_iter().filter(|word| !word.is_empty()).take_while(|word| !end(word)).collect()
}

/// A line of a code block without what explains it: a comment, or text after a gap.
fn without_explanation(line: &str) -> &str {
    let line = line.trim();
    let line = line.split(" #").next().unwrap_or_default();
    line.split("   ").next().unwrap_or_default().trim()
}

/// The command in a line, if it begins as one that can be judged; variables before it do not count.
fn command(line: &str) -> Option<Vec<String>> {
    let mut words = words(line);
    while words.first().is_some_and(|word| {
        word.split_once('=')
            .is_some_and(|(name, _)| name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_'))
    }) {
        words.remove(0);
    }
    let first = words.first()?;
    let judged =
        JUDGED.iter().any(|begin| if begin.ends_with(['/', '\\']) { first.starts_with(begin) } else { first == begin });
    (judged && words.len() > usize::from(first == "cargo" || first == "ndkctl")).then_some(words)
}

/// The commands of a document: in code blocks, and between backticks in the text.
#[must_use]
pub fn commands(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut fenced = false;
    let joined = text.replace("\\\n", " ");
    let mut prose = String::new();
    for line in joined.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced || line.starts_with("    ") {
            found.extend(command(without_explanation(line)));
        } else {
            prose.push_str(line.trim());
            // A span may go on in the next line.
            prose.push(' ');
        }
    }
    found.extend(prose.split('`').skip(1).step_by(2).filter_map(command));
    found
}

/// Every command, with the document that has it.
#[must_use]
pub fn all() -> Vec<(String, Vec<String>)> {
    let with_path =
        |(path, text): (String, String)| commands(&text).into_iter().map(move |words| (path.clone(), words));
    documents().into_iter().flat_map(with_path).collect()
}

/// A value for a placeholder: a word of capitals. Other words stay as they are.
#[must_use]
pub fn filled<'a>(argument: &'a str, before: &str) -> &'a str {
    let argument = argument.trim_matches(['[', ']']);
    let placeholder = !argument.is_empty() && argument.chars().all(|letter| letter.is_ascii_uppercase());
    match (placeholder, before) {
        (true, "explain") => "--list",
        (true, "completions") => "bash",
        (true, "schedules") => "100",
        (true, _) => "1",
        (false, _) => argument,
    }
}
