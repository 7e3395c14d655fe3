//! What the files of the simulated kernel may know of each other (`docs/simulated-kernel.md`, "Where things are").
//!
//! A file uses another one if it imports from it, names a path into it, or calls a method of `State` that is defined there: methods of
//! `State` are in many files, and need no import. A name that is re-exported counts for the file that re-exports it.

use std::collections::{BTreeMap, BTreeSet};

use sources::{Source, code_of, files};

const FOLDER: &str = "crates/simulator/simulated-kernel/src/";

/// The layers, the lowest first: a file uses its own layer and those before it. The core are the files in no folder, and those of `platform`
/// and `sites`.
const LAYERS: [&str; 10] = ["core", "wdm", "netio", "wsk", "image", "wdf", "ndis", "pnp", "programs", "top"];

/// In no folder, and not the core: what makes a kernel out of the others.
const TOP: [&str; 2] = ["builder.rs", "lib.rs"];

/// As many files are in one cycle at most: what is kept of a socket, and what becomes of its datagrams.
const LONGEST_CYCLE: usize = 4;

/// The files by their names from `FOLDER`, and for each those that it uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// A file without comments, in words and signs.
struct File {
    name: String,
    /// The names of its module, from the root of the crate.
    module: Vec<String>,
    tokens: Vec<String>,
}

impl File {
    fn of(source: &Source) -> Self {
        let name = source.path.strip_prefix(FOLDER).expect("a source of the simulated kernel").to_owned();
        let mut module: Vec<String> = name.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if module.last().is_some_and(|last| ["mod", "lib"].contains(&last.as_str())) {
            module.pop();
        }
        // What its tests use is not below it.
        let text = source.text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        Self { tokens: tokens(&code_of(text)), name, module }
    }
}

/// Words, `::`, and any other sign by itself. What is between quotes is left out.
fn tokens(code: &str) -> Vec<String> {
    let mut tokens = Vec::<String>::new();
    let (mut is_quoted, mut is_escaped, mut follows) = (false, false, false);
    for letter in code.chars() {
        let is_word = letter.is_alphanumeric() || letter == '_';
        if is_quoted {
            is_quoted = letter != '"' || is_escaped;
            is_escaped = letter == '\\' && !is_escaped;
            follows = false;
        } else if letter == '"' {
            (is_quoted, is_escaped, follows) = (true, false, false);
        } else if follows && (is_word || letter == ':' && tokens.last().is_some_and(|last| last == ":")) {
            tokens.last_mut().expect("it follows one").push(letter);
            follows = is_word;
        } else if !letter.is_whitespace() {
            tokens.push(letter.into());
            follows = is_word || letter == ':';
        } else {
            follows = false;
        }
    }
    tokens
}

/// The paths that begin at `place` with the names of `before`: more than one if there are braces. And where they end.
fn paths(tokens: &[String], mut place: usize, before: &[String]) -> (Vec<Vec<String>>, usize) {
    let mut path = before.to_vec();
    loop {
        match tokens.get(place).map(String::as_str) {
            Some("{") => {
                let mut all = Vec::new();
                place += 1;
                while tokens.get(place).is_some_and(|token| token != "}") {
                    match tokens[place].as_str() {
                        "," => place += 1,
                        // Another name for what was just named.
                        "as" => place += 2,
                        _ => {
                            let (some, end) = paths(tokens, place, &path);
                            all.extend(some);
                            place = end.max(place + 1);
                        }
                    }
                }
                return (all, place + 1);
            }
            Some(name) if name.starts_with(|letter: char| letter.is_alphabetic() || letter == '_') => {
                path.push(name.to_owned());
            }
            _ => return (vec![path], place),
        }
        place += 1;
        if tokens.get(place).is_none_or(|token| token != "::") {
            return (vec![path], place);
        }
        place += 1;
    }
}

/// The file of the module that a path leads to, if it is one of these.
fn target<'files>(
    path: &[String],
    from: &[String],
    by_module: &BTreeMap<&[String], &'files str>,
) -> Option<&'files str> {
    let mut module = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" => from.to_vec(),
        "super" => from[..from.len().checked_sub(1)?].to_vec(),
        child => {
            let module = [from, &[child.to_owned()]].concat();
            by_module.contains_key(module.as_slice()).then_some(module)?
        }
    };
    for name in &path[1..] {
        if name == "super" {
            module.pop();
            continue;
        }
        module.push(name.clone());
        if !by_module.contains_key(module.as_slice()) {
            module.pop();
            break;
        }
    }
    by_module.get(module.as_slice()).copied()
}

/// For each word or sign of a file, if it stands in an `impl State`.
fn in_state(tokens: &[String]) -> Vec<bool> {
    let (mut depth, mut state) = (0_usize, None);
    let mut places = Vec::with_capacity(tokens.len());
    for (place, token) in tokens.iter().enumerate() {
        if tokens[place..].iter().take(3).eq(["impl", "State", "{"]) {
            state = Some(depth);
        }
        match token.as_str() {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if token == "}" && state == Some(depth) {
            state = None;
        }
        places.push(state.is_some());
    }
    places
}

/// What each file uses.
fn uses(sources: &[Source]) -> Uses {
    let files: Vec<File> = sources.iter().map(File::of).collect();
    let by_module: BTreeMap<&[String], &str> =
        files.iter().map(|file| (file.module.as_slice(), file.name.as_str())).collect();
    let mut count = BTreeMap::<&str, u32>::new();
    let mut methods = BTreeMap::<&str, &str>::new();
    for file in &files {
        for (words, in_state) in
            file.tokens.windows(2).zip(in_state(&file.tokens)).filter(|(words, _)| words[0] == "fn")
        {
            *count.entry(&words[1]).or_default() += 1;
            if in_state {
                methods.insert(&words[1], &file.name);
            }
        }
    }
    // A name that several functions have does not say whose it is.
    methods.retain(|name, _| count[name] == 1);
    files.iter().map(|file| (file.name.clone(), uses_of(file, &by_module, &methods))).collect()
}

fn uses_of(file: &File, by_module: &BTreeMap<&[String], &str>, methods: &BTreeMap<&str, &str>) -> BTreeSet<String> {
    let in_state = in_state(&file.tokens);
    let (mut found, mut place) = (BTreeSet::new(), 0);
    while let Some(token) = file.tokens.get(place) {
        let at = |place: Option<usize>| place.and_then(|place| file.tokens.get(place)).map_or("", String::as_str);
        let (before, next) = (at(place.checked_sub(1)), at(Some(place + 1)));
        let of = at(place.checked_sub(2));
        let is_of_state = ["state", "kernel"].contains(&of) || of == "self" && in_state[place];
        if before == "." && next == "(" && is_of_state {
            found.extend(methods.get(token.as_str()).map(|&name| name.to_owned()));
        }
        if next == "::" && before != "::" {
            let (all, end) = paths(&file.tokens, place, &[]);
            found.extend(all.iter().filter_map(|path| target(path, &file.module, by_module)).map(str::to_owned));
            place = end.max(place + 1);
        } else {
            place += 1;
        }
    }
    found.remove(&file.name);
    found
}

/// The files that lie on a way from `file`.
fn reached<'uses>(uses: &'uses Uses, file: &str) -> BTreeSet<&'uses str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = uses[file].iter().map(String::as_str).collect();
    while let Some(file) = next.pop() {
        if reached.insert(file) {
            next.extend(uses[file].iter().map(String::as_str));
        }
    }
    reached
}

/// The cycles: sets of files each of which uses each other one, through others or not. The longest first.
fn cycles(uses: &Uses) -> Vec<Vec<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        uses.keys().map(|file| (file.as_str(), reached(uses, file))).collect();
    let cycle_of = |file: &&str| -> Vec<&str> {
        reached.keys().copied().filter(|other| reached[file].contains(other) && reached[other].contains(file)).collect()
    };
    let mut cycles: Vec<Vec<&str>> = reached.keys().map(cycle_of).filter(|cycle| cycle.len() > 1).collect();
    cycles.sort_by_key(|cycle| (usize::MAX - cycle.len(), cycle.clone()));
    cycles.dedup();
    cycles
}

fn layer_of(file: &str) -> &str {
    match file.split_once('/') {
        Some(("platform" | "sites", _)) => "core",
        Some((folder, _)) => folder,
        None if TOP.contains(&file) => "top",
        None => "core",
    }
}

#[test]
fn no_cycle_of_files_of_the_simulated_kernel_is_long() {
    let uses = uses(&files(FOLDER, &["rs"]));
    assert!(uses.len() > 150, "{} files", uses.len());
    let cycles = cycles(&uses);
    let longest = cycles.first().map_or(0, Vec::len);
    assert!(longest <= LONGEST_CYCLE, "{longest} files use each other: {cycles:#?}");
}

#[test]
fn a_file_of_the_simulated_kernel_uses_its_own_layer_and_those_below() {
    let uses = uses(&files(FOLDER, &["rs"]));
    let height = |file: &str| {
        let layer = layer_of(file);
        LAYERS.iter().position(|known| *known == layer).unwrap_or_else(|| panic!("{file} is in no layer"))
    };
    let mut arrows = 0;
    for (file, used) in &uses {
        for below in used {
            assert!(height(below) <= height(file), "{file} uses {below}, which is above it");
            arrows += 1;
        }
    }
    assert!(arrows > 1000, "{arrows} uses were seen");
    let layers: BTreeSet<&str> = uses.keys().map(|file| layer_of(file)).collect();
    assert_eq!(layers, LAYERS.into(), "every layer has files");
}

#[test]
fn uses_are_seen_by_import_by_path_and_by_method() {
    let source = |path: &str, text: &str| Source { path: format!("{FOLDER}{path}"), text: text.to_owned() };
    let uses = uses(&[
        source("lib.rs", "mod a; mod state; mod wdm; pub use crate::wdm::{irp::Irp, device::{self, Device}};"),
        source("state.rs", "impl State { pub fn next(&self) {} }"),
        source(
            "a.rs",
            "use crate::{state::State as Kept, wdm}; // crate::wdm::irp\nimpl Other { fn f() { \"crate::wdm::irp::f()\" } }",
        ),
        source("wdm/mod.rs", "pub mod irp; pub mod device; fn g() { irp::first() }"),
        source("wdm/irp.rs", "use super::super::a; impl State { fn irp(&self) { self.next() } }"),
        source("wdm/device.rs", "fn h(state: &State) { state.irp(); state.f(); super::irp::first(); }"),
    ]);
    let of = |file: &str| uses[file].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(of("lib.rs"), ["wdm/device.rs", "wdm/irp.rs"]);
    assert_eq!(of("state.rs"), [""; 0]);
    assert_eq!(of("a.rs"), ["state.rs", "wdm/mod.rs"]);
    assert_eq!(of("wdm/mod.rs"), ["wdm/irp.rs"]);
    assert_eq!(of("wdm/irp.rs"), ["a.rs", "state.rs"]);
    assert_eq!(of("wdm/device.rs"), ["wdm/irp.rs"]);
    assert_eq!(cycles(&uses), [["a.rs", "wdm/irp.rs", "wdm/mod.rs"]]);
}
