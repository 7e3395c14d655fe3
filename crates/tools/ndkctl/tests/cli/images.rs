//! Driver images and what they import.

use std::{fs, path::PathBuf};

use testing::driver_image::made;

use crate::{ndkctl, schema, text};

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

/// Which functions of the framework such an image calls is not known, and that is said.
#[test]
fn an_image_that_makes_what_it_binds_with_is_not_called_complete() {
    let mut image = made();
    let [name, other] = [&b"KeInitializeDpc\0"[..], b"WdfVersionBind\0\0"];
    let place = image.windows(name.len()).position(|bytes| bytes == name).expect("its import");
    image[place..][..other.len()].copy_from_slice(other);
    for (name, image, unlisted) in [("binds.sys", image, true), ("binds-not.sys", made(), false)] {
        let path = file(name, &image);
        let path = path.to_str().expect("a path in UTF-8");
        let said = text(&ndkctl(&["run", "--imports", path]).stderr);
        assert_eq!(said.contains("binds to KMDF with a structure that it makes as it runs"), unlisted, "{said}");
        let value = serde_json::from_slice(&ndkctl(&["run", "--imports", "--json", path]).stdout).expect("JSON");
        schema::check("run", &value);
        assert_eq!(value[0]["unlisted"], unlisted);
    }
}

/// The one image imports number 42 of the kernel, and another one of the kernel's name has it.
#[test]
fn an_image_imports_from_another() {
    let one = file("one.sys", &made());
    let mut other = made();
    // The first number, and how many exports and names there are.
    let numbers: Vec<u8> = [5_u32, 2, 2].iter().flat_map(|number| number.to_le_bytes()).collect();
    let place = other.windows(numbers.len()).position(|bytes| bytes == numbers).expect("its exports");
    other[place] = 42;
    let other = file("ntoskrnl.sys", &other);
    let output = ndkctl(&["run", "--imports", one.to_str().expect("UTF-8"), other.to_str().expect("UTF-8")]);
    let said = text(&output.stdout);
    assert_eq!((output.status.code(), said.matches("another image").count()), (Some(0), 2), "{said}");
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

#[test]
fn what_a_run_needs_and_does_not_have_is_one_line() {
    let whole = file("whole.sys", &made());
    let whole = whole.to_str().expect("a path in UTF-8");
    let broken = file("broken.sys", b"MZ");
    let broken = broken.to_str().expect("a path in UTF-8");
    let script = file("other.toml", b"[[image]]\nname = \"other\"\n");
    let script = script.to_str().expect("a path in UTF-8");
    for (arguments, code, words) in [
        (&[broken][..], 1, "broken.sys"),
        (&["no.sys"], 1, "no.sys"),
        (&[whole, "--script", script], 1, "write NAME="),
        (&[whole, "--script", "no.toml"], 1, "no.toml"),
        (&[whole, "--registry", "no.toml"], 1, "no.toml"),
        (&[whole, "--seeds", "3..1"], 2, "1..1000"),
        (&[whole, "--faults", "some"], 2, "each-call"),
        (&[whole, "--limit", "0"], 2, "1..=86400"),
        (&[whole, "--record", "run.ndkrec"], 1, "the run has neither"),
        (&[whole, "--timeline", "run.html"], 1, "the run has neither"),
        (&[whole, "--fault", "late,chance=300000,delay=~200"], 1, "the run has neither"),
        (&[whole, "--fault", "lat"], 2, "late"),
        (&[whole, "--record-slots", "1K"], 2, "--record"),
        (&["--worker"], 1, ""),
        (&[], 2, "IMAGE"),
    ] {
        let arguments: Vec<_> = std::iter::once("run").chain(arguments.iter().copied()).collect();
        let output = ndkctl(&arguments);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(code), 1), "{arguments:?}: {said}");
        assert!(said.contains(words) && output.stdout.is_empty(), "{arguments:?}: {said}");
    }
}

/// Elsewhere images run in a program for Windows.
#[cfg(not(windows))]
#[test]
fn a_program_for_windows_that_is_not_there_is_one_line() {
    let whole = file("runnable.sys", &made());
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_ndkctl"))
        .arg("run")
        .arg(whole)
        .env("NDKCTL_WORKER", "no such file.exe")
        .output()
        .expect("the program runs");
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("no such file.exe"), "{said}");
}
