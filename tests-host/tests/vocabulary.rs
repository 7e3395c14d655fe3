//! The repository speaks RDMA's language (`docs/glossary.md`): words that only it knew do not come back.

use std::{collections::BTreeSet, path::Path};

use sources::{Source, code_of, files, words};

mod sources;

/// Names of types and functions that the repository had, and what they are called now.
const OLD_NAMES: [(&str, &str); 20] = [
    ("Attachment", "Port"),
    ("Few", "InlineData"),
    ("Grant", "MrEntry"),
    ("Lap", "a pass over a segment"),
    ("Line", "Connection"),
    ("LineState", "ConnectionState"),
    ("Mine", "Local"),
    ("OnePiece", "a single SGE"),
    ("Opened", "LockedMr"),
    ("Piece", "Segment"),
    ("Places", "TokenTable"),
    ("Shared", "Arc"),
    ("Theirs", "Remote"),
    ("Transmit", "SendQueue"),
    ("Unique", "UniqueArc"),
    ("Watch", "TailPublisher"),
    ("Way", "CompletionTiming"),
    ("Wire", "Fabric"),
    ("come_to_rest", "quiesce"),
    ("permit_at_once", "ignores_plain"),
];

/// Names that only the engine may not have: elsewhere they mean something else.
const OLD_NAMES_OF_THE_ENGINE: [(&str, &str); 6] = [
    ("Here", "a single SGE"),
    ("Key", "Lookup"),
    ("Turn", "quantum"),
    ("alone", "direct"),
    ("look", "refresh"),
    ("reach", "prefetch_ahead"),
];

/// Words that mean something else in what these paths begin with.
const EXCEPTIONS: [(&str, &str, &str); 17] = [
    ("Line", "crates/control/", "a line of the suite's report"),
    ("Line", "crates/test-driver/", "a line of the suite's report"),
    ("Line", "crates/ndkctl/", "a line of the suite's report"),
    ("Line", "tests-host/tests/driver", "a line of the suite's report"),
    ("Line", "crates/bench/", "a cache line"),
    ("Opened", "crates/driver-common/", "an event of the traces"),
    ("Opened", "docs/windows-vm.md", "an event of the traces"),
    ("Opened", "tests-host/kernel/", "a file of the framework's that is open"),
    ("Opened", "tests-host/tests/drivers/suite.rs", "an event of the traces"),
    ("Piece", "crates/nd2/", "a part of the bytes that a self-test sends"),
    ("Piece", "tests-host/tests/nd2/", "the same, in its random clients"),
    ("Shared", "crates/engine/src/connection/", "NDKPI's shared endpoint, as a variant"),
    ("Shared", "crates/ndkctl/", "NDKPI's shared endpoint, as a variant"),
    ("Shared", "tests-host/tests/connection/", "NDKPI's shared endpoint, as a variant"),
    ("Watch", "crates/host/", "what watches over a machine's failures"),
    ("Watch", "crates/test-driver/", "what waits for changes of network interfaces"),
    ("Way", "crates/bench/", "one of the two directions of a message"),
];

/// Phrases that no text has, in any place.
const OLD_PHRASES: [(&str, &str); 3] =
    [("fault::is(Fault", "mistake!"), ("long way", "slow path"), ("short way", "fast path")];

/// This file, and the description of NDKPI, which is not ours to word.
const LEFT_OUT: [&str; 2] = ["tests-host/tests/vocabulary.rs", "docs/reference/"];

fn texts() -> Vec<Source> {
    let all = files("", &["rs", "md", "sh", "py", "toml"]);
    assert!(all.len() > 300, "{} files of the repository", all.len());
    all.into_iter().filter(|file| !LEFT_OUT.iter().any(|path| file.path.starts_with(path))).collect()
}

fn is_rust(file: &Source) -> bool {
    Path::new(&file.path).extension().is_some_and(|extension| extension == "rs")
}

/// The words of the code, and those that comments and documents mark as code.
fn named(file: &Source) -> BTreeSet<String> {
    let in_backticks = file.text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let code = if is_rust(file) { code_of(&file.text) } else { String::new() };
    words(&code).chain(in_backticks.flat_map(words)).map(str::to_owned).collect()
}

fn is_excepted(word: &str, path: &str) -> bool {
    EXCEPTIONS.iter().any(|(excepted, prefix, _)| *excepted == word && path.starts_with(prefix))
}

#[test]
fn no_old_name_comes_back() {
    let mut found = Vec::new();
    for file in texts() {
        let named = named(&file);
        let of_engine: &[_] = if file.path.starts_with("crates/engine/") { &OLD_NAMES_OF_THE_ENGINE } else { &[] };
        for (old, new) in
            OLD_NAMES.iter().chain(of_engine).filter(|(old, _)| named.contains(*old) && !is_excepted(old, &file.path))
        {
            found.push(format!("{}: `{old}` is called {new}", file.path));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn no_old_phrase_comes_back() {
    let mut found = Vec::new();
    for file in texts() {
        for (old, new) in OLD_PHRASES.iter().filter(|(old, _)| file.text.contains(*old)) {
            found.push(format!("{}: \"{old}\" is {new}", file.path));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_exception_is_needed() {
    let texts = texts();
    for (word, prefix, reason) in EXCEPTIONS {
        let mut those = texts.iter().filter(|file| file.path.starts_with(prefix));
        assert!(those.any(|file| named(file).contains(word)), "`{word}` ({reason}) is not in {prefix}");
    }
}

#[test]
fn no_item_is_described_with_whether() {
    for file in texts().iter().filter(|file| is_rust(file)) {
        for line in file.text.lines().map(str::trim) {
            let described = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
            let begins = described.is_some_and(|text| text.trim_start().starts_with("Whether"));
            assert!(!begins, "{}: \"{line}\": say what it returns, or what is true of it", file.path);
        }
    }
}

#[test]
fn names_are_seen_in_code_and_between_backticks_only() {
    let file = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let code = file("a.rs", "// A Line, a `Wire`.\nuse x::{Shared, Unique};");
    assert_eq!(named(&code), ["Shared", "Unique", "Wire", "use", "x"].map(str::to_owned).into());
    assert_eq!(named(&file("a.md", "A Line, a `Wire`.")), ["Wire".to_owned()].into());
}

#[test]
fn every_new_word_is_in_the_glossary() {
    let glossary = files("docs", &["md"]).into_iter().find(|file| file.path == "docs/glossary.md");
    let glossary = glossary.expect("there is a glossary").text;
    for word in
        ["Connection", "Fabric", "Port", "Arc", "SendQueue", "TailPublisher", "InlineData", "MrEntry", "Segment"]
    {
        assert!(glossary.contains(&format!("`{word}`")), "`{word}` is not in the glossary");
    }
}
