//! Driver images and what they import.

use std::{fs, path::PathBuf};

use crate::{made::made, ndkctl, schema, text};

/// A file with these bytes, in cargo's folder for tests.
fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, bytes).expect("the folder of the tests can be written");
    path
}

#[test]
fn imports_are_listed_with_what_is_missing() {
    let path = file("imports.sys", &made());
    let path = path.to_str().expect("a path in UTF-8");
    let output = ndkctl(&["run", "--imports", path]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "something is missing: {said}");
    let line = |name: &str| said.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name}: {said}"));
    assert!(line("KeInitializeDpc").contains("simulated"), "{said}");
    assert!(line("#42").contains("missing"), "{said}");
    assert!(said.contains("3 imports, 1 missing"), "{said}");
    let output = ndkctl(&["run", "--imports", "--json", path]);
    let value = serde_json::from_slice(&output.stdout).expect("JSON");
    schema::check("run", &value);
    assert_eq!((&value[0]["missing"], &value[0]["imports"][2]["delayed"]), (&1.into(), &true.into()));
}

#[test]
fn a_broken_image_gets_one_line() {
    let whole = made();
    for (name, bytes) in [("cut.sys", &whole[..0x1800]), ("text.sys", b"not an image"), ("empty.sys", b"")] {
        let path = file(name, bytes);
        let output = ndkctl(&["run", "--imports", path.to_str().expect("a path in UTF-8")]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.contains(name) && output.stdout.is_empty(), "{said}");
    }
    let output = ndkctl(&["run", "--imports", "there is no such file.sys"]);
    assert_eq!((output.status.code(), text(&output.stderr).lines().count()), (Some(1), 1));
}
