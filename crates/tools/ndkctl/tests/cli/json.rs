//! What programs read is as `docs/ndkctl.schema.json` says.

use serde_json::{Value, json};

use crate::{json, ndkctl, schema, text};

#[test]
fn every_command_prints_what_its_definition_says() {
    for (definition, arguments) in [
        ("selftest", &["selftest", "--filter", "arm.any,moderation.unsupported"][..]),
        ("selftest", &["selftest", "--filter", "arm.any", "--deterministic", "--ndkpi", "1"]),
        ("selftest --list", &["selftest", "--list"]),
        ("ping", &["ping", "--count", "50"]),
        ("ping", &["ping", "--count", "5", "--profile", "ndkpi-1.2"]),
        ("info", &["info", "--profile", "minimum"]),
        ("selftest", &["selftest", "--filter", "arm.any", "--profile", "iwarp"]),
        ("soak", &["soak", "--rounds", "1", "--deterministic"]),
        ("info", &["info"]),
        ("info", &["info", "--memory", "--ndkpi", "1"]),
        ("adapters", &["adapters"]),
        ("counters", &["counters"]),
        ("netstat", &["netstat"]),
        ("nd2 info", &["nd2", "info"]),
        ("nd2-selftest", &["nd2-selftest", "--filter", "arm"]),
    ] {
        let value = json(definition, arguments);
        assert!(value.as_array().is_none_or(|rows| !rows.is_empty()), "{arguments:?}");
    }
}

#[test]
fn a_recording_is_run_again() {
    let file = std::env::temp_dir().join(format!("ndkctl-recording-{}", std::process::id()));
    let name = file.to_str().expect("a name");
    json("ping", &["ping", "--count", "20", "--record", name]);
    let report = json("replay", &["replay", name]);
    assert_eq!(report["differences"], json!([]));
    assert!(report["calls"].as_u64().is_some_and(|calls| calls > 100), "{report}");
    // The same cut in the middle: one line.
    let whole = std::fs::read(&file).expect("the recording");
    std::fs::write(&file, &whole[..whole.len() / 2]).expect("room");
    for command in [&["replay", name][..], &["timeline", name, "--svg", name], &["packets", name, name]] {
        let output = ndkctl(command);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.contains("cut"), "{said}");
    }
    std::fs::remove_file(&file).expect("it is there");
}

#[test]
fn a_run_is_drawn_without_a_recording() {
    let place = |name: &str| std::env::temp_dir().join(format!("ndkctl-drawn-{}-{name}", std::process::id()));
    for (name, begins) in [("page.html", "<!DOCTYPE html>"), ("picture.svg", "<svg ")] {
        let file = place(name);
        let name = file.to_str().expect("a name");
        for command in [
            &["ping", "--count", "5"][..],
            &["soak", "--rounds", "1", "--workers", "1"],
            &["selftest", "--filter", "arm.any"],
        ] {
            let output = ndkctl(&[command, &["--timeline", name, "--record-slots", "64K"]].concat());
            assert!(output.status.success(), "{}", text(&output.stderr));
            let drawn = std::fs::read_to_string(&file).expect("it was written");
            assert!(drawn.get(..begins.len()).is_some_and(|first| first.eq_ignore_ascii_case(begins)), "{command:?}");
            assert!(drawn.contains("NdkCreateQp"), "{command:?}");
            std::fs::remove_file(&file).expect("it is there");
        }
    }
    let refused = ndkctl(&["ping", "--record-last"]);
    assert_eq!(refused.status.code(), Some(2), "nothing is recorded: {}", text(&refused.stderr));
}

#[test]
fn a_recording_is_run_again_under_the_adviser() {
    let file = std::env::temp_dir().join(format!("ndkctl-advised-{}", std::process::id()));
    let name = file.to_str().expect("a name");
    let recorded = ndkctl(&["selftest", "--filter", "arm.merge-any-errors", "--deterministic", "--record", name]);
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    let output = ndkctl(&["replay", name, "--advise", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    schema::check("replay", &report);
    assert_eq!((output.status.code(), &report["findings"][0]["finding"]), (Some(1), &json!("SN0004")), "{report}");
    let said = text(&ndkctl(&["replay", name, "--advise"]).stdout);
    assert!(said.contains("ndkctl explain SN0004"), "{said}");
    std::fs::remove_file(&file).expect("it is there");
}

#[test]
fn json_is_all_that_is_printed() {
    for arguments in [&["selftest", "--filter", "arm.any", "--json"][..], &["info", "--json"], &["netstat", "--json"]] {
        let output = ndkctl(arguments);
        assert!(output.stderr.is_empty(), "{arguments:?}: {}", text(&output.stderr));
        assert!(serde_json::from_slice::<Value>(&output.stdout).is_ok(), "{arguments:?}");
    }
}
