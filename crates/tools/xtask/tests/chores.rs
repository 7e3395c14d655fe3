//! The chores that the documents show are those that there are, and what chores write is as they would write it.

use clap::{CommandFactory as _, Parser as _, error::ErrorKind};
use testing::documents::{all, filled, read};

#[test]
fn xtask_knows_every_command_of_the_documents() {
    let mut count = 0;
    for (path, words) in all() {
        let ["cargo", "xtask", arguments @ ..] = &words.iter().map(String::as_str).collect::<Vec<_>>()[..] else {
            continue;
        };
        // Whatever is before it is parsed, and wrong words are refused. What takes any word takes this one, too.
        let before = std::iter::once("").chain(arguments.iter().copied());
        let arguments = arguments.iter().zip(before).map(|(word, before)| filled(word, before));
        let line: Vec<_> = std::iter::once("cargo xtask").chain(arguments).chain(["--help"]).collect();
        if let Err(error) = xtask::Arguments::try_parse_from(&line) {
            assert_eq!(error.kind(), ErrorKind::DisplayHelp, "{path}: {}: {error}", line.join(" "));
        }
        count += 1;
    }
    assert!(count > 40, "{count} commands of cargo xtask");
}

#[test]
fn a_wrong_chore_would_be_seen() {
    for wrong in [&["lom"][..], &["drivers", "--arhc", "all"], &["fuzz", "long"], &["schedules", "1"]] {
        let line = [&["cargo xtask"], wrong, &["--help"]].concat();
        let error = xtask::Arguments::try_parse_from(line).err().expect("nothing is done");
        assert_ne!(error.kind(), ErrorKind::DisplayHelp, "{wrong:?}");
    }
}

/// CI does without cargo-make, and makes the drivers of one architecture, so what the tasks do on Linux is compared with what CI does.
#[test]
fn the_tasks_of_makefile_toml_are_steps_of_ci() {
    let tasks: toml::Table = read("Makefile.toml").parse().expect("TOML");
    let task = |name: &str| tasks["tasks"][name].clone();
    let words = |value: &toml::Value| value.as_str().expect("text").to_owned();
    let check = task("drivers-check");
    let variables =
        check["env"].as_table().expect("variables").iter().map(|(name, value)| format!("{name}={}", words(value)));
    let arguments = check["args"].as_array().expect("arguments").iter().map(words);
    let check: Vec<_> = variables.chain([words(&check["command"])]).chain(arguments).collect();
    for line in [words(&task("drivers")["script"]) + " --arch x86_64", check.join(" ")] {
        // A step may do more: all tests in the place of some.
        let does =
            |step: &str| line == step || line.strip_prefix(step).is_some_and(|more| more.starts_with(" --test "));
        assert!(xtask::ci_commands().any(does), "no step of CI runs `{line}`");
    }
}

/// What nobody runs does not hold for long.
#[test]
fn each_chore_runs_in_ci_or_at_night() {
    // What these write or list is for who asks, and `ci` does not run itself.
    const ASKED: [&str; 5] = ["coverage", "routines", "semantics", "slowest", "ci"];
    let mut workflows: Vec<_> =
        ["host", "drivers"].iter().map(|name| read(&format!(".github/workflows/{name}.yml"))).collect();
    workflows.extend(xtask::ci_commands().map(str::to_owned));
    let words: Vec<Vec<&str>> =
        workflows.iter().flat_map(|text| text.lines()).map(|line| line.split_whitespace().collect()).collect();
    let runs = |chore: &str| words.iter().any(|line| line.windows(3).any(|words| words == ["cargo", "xtask", chore]));
    let mut command = xtask::Arguments::command();
    command.build();
    let chores = command.get_subcommands().filter(|chore| !chore.is_hide_set()).map(clap::Command::get_name);
    let idle: Vec<_> = chores.filter(|chore| *chore != "help" && !ASKED.contains(chore) && !runs(chore)).collect();
    assert!(idle.is_empty(), "neither a step of CI nor a workflow runs {idle:?}");
}

#[test]
fn every_rule_is_listed_with_its_code_and_its_tests() {
    let page = xtask::semantics_page().expect("each citation names a rule, each rule has a test");
    assert!(page == read("docs/semantics.md"), "docs/semantics.md is out of date: cargo xtask semantics");
}
