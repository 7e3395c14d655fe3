//! `docs/semantics.md` names tests and files that exist, and every rule of NDKPI 7.1.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// The names of the test functions in a source: written out, or given to a macro that makes one of each line.
fn tests_in(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut attributed = false;
    let mut in_macro = false;
    for line in source.lines().map(str::trim) {
        if line == "#[test]" {
            attributed = true;
        } else if let Some(rest) = line.strip_prefix("fn ") {
            if attributed {
                names.push(rest.split(['(', '<']).next().unwrap_or(rest).to_owned());
            }
            attributed = false;
        }
        // `every_allocation_fails_once! { name: "case"; }`
        if line.ends_with("! {") && !line.starts_with("macro_rules") {
            in_macro = true;
        } else if line == "}" {
            in_macro = false;
        } else if in_macro && let Some((name, _)) = line.split_once(": ") {
            names.push(name.to_owned());
        }
    }
    names
}

/// Where tests stand: beside their crates, and in `tests-host` those that cross crates.
fn folders_of_tests() -> Vec<PathBuf> {
    let below = |folder: PathBuf| fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let crates = below(root().join("crates")).filter(|role| role.is_dir()).flat_map(below);
    let mut all: Vec<_> = crates.map(|one| one.join("tests")).filter(|tests| tests.is_dir()).collect();
    all.push(root().join("tests-host/tests"));
    all
}

/// `target::module::name` of every test, model checks included.
fn existing_tests() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for folder in folders_of_tests() {
        for path in files(&folder) {
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let relative = path.strip_prefix(&folder).expect("below the folder").with_extension("");
            let mut module: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
            module.pop_if(|last| last == "main");
            let module = module.join("::");
            all.extend(tests_in(&read(&path)).into_iter().map(|name| format!("{module}::{name}")));
        }
    }
    all
}

/// What stands between back quotes.
fn quoted(document: &str) -> impl Iterator<Item = &str> {
    document.split('`').skip(1).step_by(2)
}

fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|found| found == extension)
}

#[test]
fn every_test_that_is_listed_exists() {
    let (document, tests) = (read(&root().join("docs/semantics.md")), existing_tests());
    let listed: Vec<_> =
        quoted(&document).filter(|name| name.matches("::").count() >= 1 && !name.contains(' ')).collect();
    let named = listed.iter().filter(|name| {
        name.contains('_') && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c))
    });
    let missing: Vec<_> =
        named.clone().filter(|name| !tests.contains(**name) && **name != "target::module::name").collect();
    assert!(missing.is_empty(), "not found: {missing:#?}");
    assert!(named.count() > 80, "the document lists few tests");
}

#[test]
fn every_file_that_is_listed_exists() {
    let document = read(&root().join("docs/semantics.md"));
    let listed: Vec<_> = quoted(&document).filter(|name| has_extension(name, "rs")).collect();
    assert!(listed.len() > 20, "the document lists few files");
    let roles: Vec<_> =
        fs::read_dir(root().join("crates")).expect("a folder").map(|role| role.expect("an entry").path()).collect();
    for name in listed {
        assert!(roles.iter().any(|role| role.join(name).is_file()), "no crate has {name}");
    }
}

#[test]
fn every_case_that_is_listed_exists() {
    let document = read(&root().join("docs/semantics.md"));
    let is_case = |name: &&str| {
        let mut parts = name.split('.');
        parts.clone().count() == 2
            && parts
                .all(|part| part.starts_with(|c: char| c.is_ascii_lowercase()) && !part.contains(['/', ' ', '_', ':']))
            && !has_extension(name, "rs")
            && !has_extension(name, "md")
    };
    let listed: Vec<_> = quoted(&document).filter(is_case).collect();
    assert!(listed.len() > 30, "the document lists few cases");
    for name in listed {
        assert!(conformance::cases::all().any(|case| case.name == name), "there is no case {name}");
    }
}

#[test]
fn every_rule_of_ndkpi_7_1_is_listed() {
    let (document, reference) =
        (read(&root().join("docs/semantics.md")), read(&root().join("docs/reference/ndkpi.md")));
    let rules: BTreeSet<_> = reference
        .lines()
        .filter_map(|line| line.strip_prefix("**7.1."))
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next())
        .collect();
    assert!(rules.len() >= 12, "the reference has {} rules", rules.len());
    for rule in rules {
        assert!(document.contains(&format!("| 7.1.{rule} ")), "NDKPI 7.1.{rule} is not listed");
    }
}
