//! The program as a person meets it: exit codes, one line for a wrong argument, output that machines can read, Ctrl-C.

mod images;
#[cfg(unix)]
mod interrupts;
mod json;
mod manners;
mod new;
// The unit tests of the program use it too, and a program has no library.
#[path = "../../src/schema.rs"]
mod schema;
mod selftest;
mod wire;
mod wrong;

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn ndkctl(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ndkctl")).args(arguments).output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// The output of a run that succeeds.
fn good(arguments: &[&str]) -> String {
    let output = ndkctl(arguments);
    assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// What a run prints with `--json`, which is as documented.
fn json(definition: &str, arguments: &[&str]) -> Value {
    let arguments: Vec<_> = arguments.iter().copied().chain(["--json"]).collect();
    let value = serde_json::from_str(&good(&arguments)).expect("JSON");
    schema::check(definition, &value);
    value
}

#[test]
fn without_arguments_it_says_what_to_try_first() {
    let help = good(&[]);
    assert!(help.contains("Try first:"), "{help}");
    for command in ["ndkctl selftest", "ndkctl ping", "ndkctl info"] {
        assert!(help.contains(command), "{command}: {help}");
    }
}

#[test]
fn a_wrong_argument_gets_one_line_that_says_what_is_allowed() {
    for (arguments, part) in [
        (&["ping", "--size", "0"][..], "1 to 1G"),
        (&["ping", "--size", "2G"], "1 to 1G"),
        (&["ping", "--count", "-3"], "1 to 100000000"),
        (&["ping", "--notify", "never"], "poll, any, solicited"),
        (&["ping", "--frobnicate"], "--size"),
        (&["selftest", "--completion", "late"], "inline, pending, early, mixed"),
        (&["selftest", "--processors", "0"], "1 to 64"),
        (&["selftest", "--repeat", "0"], "1 to 1000000"),
        (&["selftest", "--seed", "red"], "hexadecimal"),
        (&["selftest", "--filter", "no such case"], "arm"),
        (&["nd2-selftest", "--filter", "no such case"], "--list"),
        (&["self-test"], "selftest"),
        (&["selftest", "--driver", "--filter", "no such case"], "arm"),
        (&["selftest", "--from", "no such case"], "--list"),
        (&["selftest", "--exclude", "/no/such/file"], "--exclude"),
        (&["selftest", "--junit", "."], "folder"),
        (&["selftest", "--resume", "--filter", "arm"], "--filter"),
        (&["selftest", "--driver", "--interface", "Ethernet 3", "--record", "file"], "--record"),
        (&["selftest", "--driver", "--interface", "Ethernet 3", "--advise"], "--advise"),
        (&["report", "results.json"], "--html"),
        (&["selftest", "--driver", "--completion", "early"], "--completion"),
        (&["selftest", "--interface", "Ethernet 3"], "--driver"),
        (&["selftest", "--driver", "--peer", "Ethernet 4"], "--interface"),
        (&["selftest", "--driver", "--hostile"], "--interface"),
        (&["driver", "run", "sprint"], "stress, performance"),
        (&["driver", "run", "stress", "--seconds", "4000"], "1 to 3600"),
        (&["driver", "install", "--adapters", "9"], "1..=8"),
        (&["driver", "install", "--driver", "softnd"], "softndk, softndknic, ndktest"),
        (&["nic", "pair", "--addresses", "192.168.77.11", "here"], "--addresses"),
        (&["info", "--mem"], "--memory"),
        (&["bench", "--quick", "--filter", "no such row"], "docs/performance"),
        (&["help", "nd2", "foo"], "info, list, install, uninstall"),
        (&["help", "ping", "foo"], "none"),
        (&["help", "pnig"], "selftest, ping"),
        (&["explain", "no such name"], "STATUS_CANCELLED"),
        (&["run", "--junit", ".", "image.sys"], "folder"),
    ] {
        let output = ndkctl(arguments);
        let (said, shown) = (text(&output.stderr), text(&output.stdout));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
        assert!(said.contains(part), "{arguments:?}: {said}");
        assert!(shown.is_empty(), "{arguments:?}: {shown}");
    }
}

/// The program with one end of a pipe for each stream, whose other end is closed.
fn unread(arguments: &[&str], out: bool, err: bool) -> Output {
    let closed = || {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        Stdio::from(writer)
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_ndkctl"));
    command.args(arguments).stdout(if out { closed() } else { Stdio::piped() });
    command.stderr(if err { closed() } else { Stdio::piped() });
    command.spawn().expect("the program starts").wait_with_output().expect("it ends")
}

#[test]
fn every_command_ends_quietly_when_nobody_reads_its_output() {
    for arguments in [
        &[][..],
        &["--help"],
        &["--version"],
        &["selftest", "--help"],
        &["selftest", "--list"],
        &["selftest", "--list", "--markdown"],
        &["selftest", "--filter", "arm"],
        &["selftest", "--filter", "arm", "--json"],
        &["ping", "--count", "10"],
        &["info"],
        &["info", "--json"],
        &["info", "--memory"],
        &["counters"],
        &["counters", "--watch"],
        &["netstat"],
        &["nd2-selftest", "--filter", "arm"],
    ] {
        let output = unread(arguments, true, false);
        let said = text(&output.stderr);
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
        assert!(matches!(output.status.code(), Some(0 | 141)), "{arguments:?}: {:?}", output.status);
    }
}

#[test]
fn what_goes_to_the_standard_error_is_not_needed_to_end_well() {
    for (arguments, code) in [
        (&["self-test"][..], 2),
        (&["selftest", "--filter", "no such case"], 2),
        (&["selftest", "--filter", "arm", "--verbose"], 0),
        (&["ping", "--size", "0"], 2),
        (&["ping", "--count", "10"], 0),
        (&["bench", "--quick", "--filter", "no such row"], 2),
    ] {
        assert_eq!(unread(arguments, false, true).status.code(), Some(code), "{arguments:?}");
    }
    assert!(matches!(unread(&["selftest", "--list"], true, true).status.code(), Some(0 | 141)));
}

#[cfg(not(windows))]
#[test]
fn without_windows_the_adapters_are_those_of_the_program() {
    let list = json("adapters", &["adapters"]);
    let all = list.as_array().expect("a list");
    assert!(!all.is_empty());
    for adapter in all {
        assert_eq!(adapter["ndk"]["version"], "2.1");
        assert!(adapter["addresses"].as_array().is_some_and(|addresses| !addresses.is_empty()), "{adapter}");
        assert!(adapter["ndk"]["MaxCallerData"].as_u64().is_some_and(|most| most > 0), "{adapter}");
    }
    let shown = ndkctl(&["adapters"]);
    assert!(text(&shown.stdout).contains("with NDK"), "{}", text(&shown.stdout));
    assert!(text(&shown.stderr).contains("on Windows only"), "{}", text(&shown.stderr));
}

#[cfg(not(windows))]
#[test]
fn the_doctor_says_what_applies_without_windows() {
    let checks = json("doctor", &["doctor"]);
    let all = checks.as_array().expect("a list");
    let verdict = |name: &str| all.iter().find(|check| check["name"] == name).map(|check| check["verdict"].clone());
    assert_eq!(verdict("provider"), Some("good".into()), "{checks}");
    assert!(all.iter().any(|check| check["verdict"] == "skipped" && check["remedy"].is_string()), "{checks}");
    assert!(good(&["doctor"]).contains("0 in the way"));
}

#[cfg(not(windows))]
#[test]
fn where_there_are_no_drivers_one_line_says_so() {
    for arguments in [
        &["selftest", "--driver"][..],
        &["selftest", "--driver", "--filter", "arm", "--ndkpi", "1", "--record", "file"],
        &["selftest", "--driver", "--interface", "Ethernet 3"],
        &["driver", "run", "performance"],
        &["driver", "settings"],
        &["driver", "install", "--dry-run"],
        &["driver", "uninstall", "--json"],
        &["driver", "status"],
        &["nic", "pair"],
        &["driver-run", "performance"],
    ] {
        let output = ndkctl(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("Windows") && output.stdout.is_empty(), "{said}");
    }
}

#[test]
fn help_and_version_are_no_mistakes() {
    for arguments in
        [&["--help"][..], &["--version"], &["selftest", "--help"], &["ping", "--help"], &["info", "--help"], &["help"]]
    {
        assert!(!good(arguments).is_empty(), "{arguments:?}");
    }
}

#[test]
fn the_selftest_prints_a_row_for_each_case_and_a_table_of_counts() {
    let shown = good(&["selftest", "--filter", "arm.merge"]);
    assert!(shown.lines().filter(|line| line.starts_with("arm.merge")).count() >= 9, "{shown}");
    assert!(shown.contains("NDKPI 7.1.4"), "{shown}");
    assert!(shown.lines().any(|line| line.contains("passed") && line.contains("failed")), "{shown}");
    assert!(!shown.contains('\u{1b}'), "colours in a pipe");
}

#[test]
fn the_selftest_lists_cases_for_people_and_for_programs() {
    let shown = good(&["selftest", "--list", "--filter", "cq.depth"]);
    assert!(shown.contains("cq.depth-one"), "{shown}");
    let listed = json("selftest --list", &["selftest", "--list"]);
    let cases = listed.as_array().expect("a list");
    assert!(cases.len() > 100, "{}", cases.len());
    for case in cases {
        for field in ["name", "section", "does", "expects"] {
            assert!(case[field].as_str().is_some_and(|text| !text.is_empty()), "{case}");
        }
    }
}

#[test]
fn the_selftest_tells_programs_what_it_found() {
    for completion in ["inline", "pending", "early", "mixed"] {
        let results =
            json("selftest", &["selftest", "--filter", "cq.depth", "--completion", completion, "--seed", "0x2A"]);
        assert_eq!((&results["failed"], &results["seed"]), (&0.into(), &42.into()), "{results}");
        assert_eq!(results["completion"], completion);
        let cases = results["cases"].as_array().expect("a list");
        assert!(cases.iter().all(|case| case["outcome"] == "passed" || case["outcome"] == "observed"), "{results}");
    }
}

#[test]
fn the_same_seed_gives_the_same_deterministic_run() {
    let outcomes = || {
        let results = json("selftest", &["selftest", "--filter", "moderation", "--deterministic", "--seed", "7"]);
        let cases = results["cases"].as_array().expect("a list").clone();
        cases
            .into_iter()
            .map(|case| (case["name"].clone(), case["outcome"].clone(), case["text"].clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(outcomes(), outcomes());
}

#[test]
fn a_repeated_selftest_uses_other_seeds() {
    let results = json("selftest", &["selftest", "--filter", "arm.one-callback", "--repeat", "3", "--seed", "5"]);
    let seeds: Vec<_> = results["cases"].as_array().expect("a list").iter().map(|case| case["seed"].as_u64()).collect();
    assert_eq!(seeds, [Some(5), Some(6), Some(7)]);
}

#[test]
fn junit_has_a_suite_for_each_theme() {
    let path = std::env::temp_dir().join(format!("ndkctl-junit-{}.xml", std::process::id()));
    let name = path.to_str().expect("a name that can be written");
    good(&["selftest", "--filter", "arm.one,results.empty,moderation.unsupported", "--junit", name]);
    let report = std::fs::read_to_string(&path).expect("the report");
    std::fs::remove_file(&path).expect("the report goes away");
    for part in ["<testsuite name=\"arm\"", "<testsuite name=\"results\"", "<skipped", "time=\""] {
        assert!(report.contains(part), "{part}: {report}");
    }
    let output = ndkctl(&["selftest", "--filter", "arm.one", "--junit", "/no/such/folder/report.xml"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn ping_measures_every_way_to_learn_of_messages() {
    for notify in ["poll", "any", "solicited"] {
        let results = json("ping", &["ping", "--size", "4K", "--count", "500", "--notify", notify]);
        assert_eq!((&results["size"], &results["count"]), (&4096.into(), &500.into()), "{results}");
        assert_eq!(results["notify"], notify);
        let times = &results["microseconds"];
        let (least, most) = (times["min"].as_f64().expect("min"), times["max"].as_f64().expect("max"));
        assert!(least > 0.0 && least <= most, "{results}");
    }
    let shown = good(&["ping", "--count", "100", "--size", "1"]);
    assert!(shown.contains("p99") && shown.contains("per second"), "{shown}");
}

#[test]
fn info_shows_the_limits_and_what_objects_take() {
    let shown = good(&["info"]);
    assert!(shown.contains("MaxCqDepth") && shown.contains("CQ_RESIZE_SUPPORTED"), "{shown}");
    let found = json("info", &["info", "--memory"]);
    assert!(found["MaxCqDepth"].as_u64().is_some_and(|depth| depth >= 1 << 20), "{found}");
    assert_eq!(found["Version"], "2.1");
    let costs = found["memory"].as_array().expect("a list");
    assert!(costs.iter().all(|cost| cost["bytes"].as_u64().is_some_and(|bytes| bytes > 0)), "{found}");
    let large = costs.iter().filter(|cost| cost["entries"].as_u64().is_some_and(|entries| entries >= 4096));
    let ratios: Vec<_> = large.map(|cost| cost["ratio"].as_f64().expect("a ratio")).collect();
    assert!(ratios.len() >= 5 && ratios.iter().all(|ratio| (1.0..=1.5).contains(ratio)), "{found}");
    let shown = good(&["info", "--memory"]);
    assert!(shown.contains("for fast registration, pages 512") && shown.contains("ratio"), "{shown}");
    assert_eq!(json("info", &["info", "--ndkpi", "1"])["Version"], "1.2");
}
