//! Every command of the documents: those of `ndkctl` are parsed by it, the short ones run; of the others everything that they name
//! has to be there.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use testing::documents::{all, commands, filled, read, root};

/// The arguments for `ndkctl`, directly or by cargo.
fn of_ndkctl(words: &[String]) -> Option<Vec<&str>> {
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["ndkctl", arguments @ ..]
        | ["cargo", "run", "--", arguments @ ..]
        | ["cargo", "run", "--release", "--", arguments @ ..] => Some(arguments.to_vec()),
        _ => None,
    }
}

fn ndkctl(arguments: &[&str]) -> (bool, String) {
    // Where the documents have their reader type it: files are named from there.
    let mut command = Command::new(env!("CARGO_BIN_EXE_ndkctl"));
    let output = command.args(arguments).current_dir(root()).output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

#[test]
fn ndkctl_knows_every_command_of_the_documents() {
    let mut seen = BTreeSet::new();
    for (path, words) in all() {
        let Some(arguments) = of_ndkctl(&words) else { continue };
        // `ndkctl --json` stands for the switch of any command.
        if arguments.first().is_none_or(|first| *first == "COMMAND" || first.starts_with('-')) {
            continue;
        }
        let before = std::iter::once("").chain(arguments.iter().copied());
        let mut arguments: Vec<_> = arguments.iter().zip(before).map(|(word, before)| filled(word, before)).collect();
        if !seen.insert(arguments.join(" ")) {
            continue;
        }
        // Whatever is before it is parsed, and wrong words are refused.
        arguments.push("--help");
        let (good, text) = ndkctl(&arguments);
        // Text may name a flag without the value that it takes.
        let only_named = ["needs a value", "cannot be empty"].iter().any(|part| text.contains(part))
            && words.last().is_some_and(|last| last.starts_with("--"));
        assert!(good || only_named, "{path}: ndkctl {}: {text}", arguments.join(" "));
    }
    assert!(seen.len() > 25, "{seen:?}");
}

#[test]
fn a_wrong_command_would_be_seen() {
    for wrong in [&["selftset"][..], &["selftest", "--flter", "arm"], &["ping", "--size", "0"]] {
        let arguments: Vec<_> = wrong.iter().copied().chain(["--help"]).collect();
        assert!(!ndkctl(&arguments).0, "{wrong:?}");
    }
    let text =
        "Text with `ndkctl ping --count 5`.\n\n    tools/x.sh --all   # all of it\n    A=b cargo test -p x | tail\n";
    let expected =
        [vec!["tools/x.sh", "--all"], vec!["cargo", "test", "-p", "x"], vec!["ndkctl", "ping", "--count", "5"]];
    assert_eq!(commands(text), expected);
}

/// What is run, in the short form that it has here.
const RUN: [&[&str]; 7] = [
    &["info", "--memory"],
    &["adapters"],
    &["netstat"],
    &["counters"],
    &["nd2", "info"],
    &["selftest", "--list"],
    &["completions", "bash"],
];

#[test]
fn short_commands_run() {
    let documented: BTreeSet<_> =
        all().iter().filter_map(|(_, words)| of_ndkctl(words).map(|words| words.join(" "))).collect();
    for arguments in RUN {
        let line = arguments.join(" ");
        assert!(documented.iter().any(|command| command.starts_with(&line)), "no document has `ndkctl {line}`");
        let needs_driver = cfg!(windows) && line == "adapters";
        if !needs_driver {
            let (good, text) = ndkctl(arguments);
            assert!(good, "ndkctl {line}: {text}");
        }
    }
    for arguments in
        [&["selftest", "--filter", "arm.merge"][..], &["ping", "--count", "20", "--size", "4K", "--notify", "any"]]
    {
        let (good, text) = ndkctl(arguments);
        assert!(good, "ndkctl {arguments:?}: {text}");
    }
}

/// The packages of the workspace, with their folders, and the tests that `cargo test` has of them if no package is named.
fn packages() -> Vec<(String, String, Vec<String>)> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |package: &serde_json::Value, name: &str| package[name].as_str().expect("text").to_owned();
    let packages = metadata["packages"].as_array().expect("packages").iter();
    let root = text(&metadata, "workspace_root");
    packages
        .map(|package| {
            let manifest = text(package, "manifest_path");
            let folder = Path::new(&manifest).parent().and_then(|folder| folder.strip_prefix(&root).ok());
            let is_default = metadata["workspace_default_members"].as_array().expect("a list").contains(&package["id"]);
            let targets = package["targets"].as_array().expect("targets").iter();
            let tests = targets.filter(|target| is_default && target["test"] == true);
            let tests = tests.map(|target| text(target, "name")).collect();
            (text(package, "name"), folder.expect("a folder below the root").display().to_string(), tests)
        })
        .collect()
}

/// The values of a flag that may be there several times.
fn values<'a>(words: &'a [String], flag: &str) -> Vec<&'a str> {
    words
        .iter()
        .zip(words.iter().skip(1))
        .filter(|(before, _)| *before == flag)
        .map(|(_, word)| word.as_str())
        .collect()
}

/// Returns true if a package has this example: by its manifest, or as a file where cargo looks.
fn has_example(folder: &str, example: &str) -> bool {
    let manifest = read(&format!("{folder}/Cargo.toml"));
    manifest.contains(&format!("[[example]]\nname = \"{example}\""))
        || root().join(folder).join("examples").join(format!("{example}.rs")).exists()
}

/// Where the source of a test may be.
fn sources_of(folder: &str, test: &str) -> [PathBuf; 2] {
    let tests = root().join(folder).join("tests");
    [tests.join(test).join("main.rs"), tests.join(format!("{test}.rs"))]
}

/// Returns true if some source of a test has this word.
fn has_word(folder: &str, test: &str, word: &str) -> bool {
    let tests = root().join(folder).join("tests");
    let mut sources = Vec::from(sources_of(folder, test));
    if let Ok(entries) = fs::read_dir(tests.join(test)) {
        sources.extend(entries.map(|entry| entry.expect("an entry").path()));
    }
    let named = |path: &Path| path.file_stem().is_some_and(|stem| stem.to_string_lossy().contains(word));
    sources.iter().any(|path| named(path) || fs::read_to_string(path).is_ok_and(|text| text.contains(word)))
}

#[test]
fn what_cargo_is_asked_for_is_there() {
    let packages = packages();
    let mut count = 0;
    for (path, words) in all().iter().filter(|(_, words)| words[0] == "cargo") {
        let line = words.join(" ");
        let named = values(words, "-p");
        for package in named.iter().copied().filter(|package| *package != "X") {
            assert!(packages.iter().any(|(name, ..)| name == package), "{path}: `{line}`: no package {package}");
        }
        let asked = packages.iter().filter(|(name, ..)| named.is_empty() || named.contains(&name.as_str()));
        let folders = asked.clone().map(|(_, folder, _)| folder);
        for example in values(words, "--example").into_iter().filter(|example| *example != "NAME") {
            let there = folders.clone().any(|folder| has_example(folder, example));
            assert!(there, "{path}: `{line}`: no example {example}");
        }
        for test in values(words, "--test") {
            let asked = asked.clone().filter(|(.., tests)| !named.is_empty() || tests.iter().any(|name| name == test));
            let mut folders = asked.map(|(_, folder, _)| folder);
            let folder = folders.find(|folder| sources_of(folder, test).iter().any(|path| path.exists()));
            let Some(folder) = folder else { panic!("{path}: `{line}`: no test {test}") };
            // Words behind the last flag name single tests.
            let last = words.iter().rposition(|word| word.starts_with("--")).unwrap_or_default();
            for filter in words.iter().skip(last + 2) {
                let word = filter.split("::").find(|part| !part.is_empty()).unwrap_or_default();
                assert!(has_word(folder, test, word), "{path}: `{line}`: no test has {word}");
            }
        }
        if let ["cargo", "make", task, ..] = words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            assert!(read("Makefile.toml").contains(&format!("[tasks.{task}]")), "{path}: `{line}`: no task {task}");
        }
        count += 1;
    }
    assert!(count > 40, "{count} commands of cargo");
}

#[test]
fn every_script_is_there_and_knows_its_flags() {
    let mut count = 0;
    for (path, words) in all().iter().filter(|(_, words)| words[0].starts_with("tools")) {
        let script = words[0].replace('\\', "/");
        if !Path::new(&script)
            .extension()
            .is_some_and(|extension| ["sh", "py", "ps1"].iter().any(|known| extension == *known))
        {
            continue;
        }
        let text = read(&script);
        for word in &words[1..] {
            let flag = word.trim_start_matches('-');
            if flag != word && !flag.is_empty() && flag.parse::<u32>().is_err() {
                assert!(text.contains(flag), "{path}: {script} does not know {word}");
            }
        }
        count += 1;
    }
    assert!(count > 2, "{count} scripts");
}
