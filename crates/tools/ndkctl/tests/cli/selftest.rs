//! A self-test as somebody works on one case: what is chosen, what survives a crash, what repeats it, and its report.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{good, json, ndkctl, schema, text};

/// A file for a test.
fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("ndkctl-selftest-{name}-{}", std::process::id()))
}

fn name(path: &Path) -> &str {
    path.to_str().expect("a name")
}

/// What a self-test prints with `--json`, and its exit code.
fn run(arguments: &[&str]) -> (Value, Option<i32>) {
    let output = ndkctl(&[&["selftest", "--json"], arguments].concat());
    let value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    schema::check("selftest", &value);
    (value, output.status.code())
}

fn names(run: &Value) -> Vec<String> {
    let cases = run["cases"].as_array().expect("cases").iter();
    cases.map(|case| case["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn what_the_arguments_choose_is_listed_for_the_kernel_too() {
    let shown = good(&["selftest", "--driver", "--list", "--filter", "cq.", "--from", "cq.many"]);
    assert!(
        shown.trim_start().starts_with("case") && shown.contains("cq.many") && !shown.contains("cq.depth-one"),
        "{shown}"
    );
    assert!(shown.trim_end().ends_with("3 cases"), "{shown}");
}

#[test]
fn a_run_that_ended_without_a_word_is_gone_on_with() {
    let path = file("progress");
    let (whole, code) = run(&["--filter", "arm", "--seed", "7", "--progress", name(&path)]);
    assert_eq!(code, Some(0), "{whole}");
    // As if the machine had gone down in the fifth case.
    let lines = fs::read_to_string(&path).expect("the progress");
    let begun: Vec<_> = lines.match_indices("{\"begun\"").map(|(at, _)| at).collect();
    let cut = begun[4] + lines[begun[4]..].find('\n').expect("a line") + 1;
    fs::write(&path, &lines[..cut]).expect("room");
    let (resumed, code) = run(&["--resume", "--progress", name(&path)]);
    assert_eq!((code, names(&resumed)), (Some(1), names(&whole)), "{resumed}");
    assert_eq!((&resumed["seed"], &resumed["failed"]), (&7.into(), &1.into()));
    let case = &resumed["cases"][4];
    assert_eq!(case["outcome"], "failed");
    assert!(case["text"].as_str().is_some_and(|seen| seen.contains("was running when")), "{case}");
    // It has come to its end now.
    let output = ndkctl(&["selftest", "--resume", "--progress", name(&path)]);
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("nothing to resume"), "{said}");
    fs::remove_file(&path).expect("it is there");
}

#[test]
fn a_program_that_was_killed_leaves_its_last_case() {
    let path = file("killed");
    let arguments = ["selftest", "--repeat", "100000", "--filter", "stress", "--progress", name(&path)];
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_ndkctl"))
        .args(arguments)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the program runs");
    let begun = || {
        fs::read_to_string(&path)
            .is_ok_and(|lines| lines.trim_end().lines().last().is_some_and(|line| line.contains("begun")))
    };
    while !begun() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().expect("it runs");
    child.wait().expect("it has ended");
    let lines = fs::read_to_string(&path).expect("the progress");
    assert!(lines.starts_with("{\"run\"") && lines.contains("--repeat"), "{lines}");
    // The next run says what it would have to go on with.
    let output = ndkctl(&["selftest", "--filter", "arm.merge-any-any", "--progress", name(&path)]);
    let said = text(&output.stderr);
    assert!(said.lines().count() <= 1 && (said.is_empty() || said.contains("--resume")), "{said}");
    fs::remove_file(&path).expect("it is there");
}

/// A fault that a case of queues does not survive, and its options.
const FAULT: [&str; 6] =
    ["--filter", "results.contexts,results.kinds", "--fault", "refuse,function=NdkCreatePd,nth=1", "--seed", "3"];

#[test]
fn again_is_the_same_case_with_its_faults() {
    // The counter of the fault begins anew with each case: both are hit.
    let (both, code) = run(&FAULT);
    assert_eq!((code, names(&both).len()), (Some(1), 2), "{both}");
    assert_eq!(both["inconclusive"], 2, "{both}");
    let case = &both["cases"][1];
    assert_eq!((&case["name"], &case["outcome"]), (&"results.kinds".into(), &"inconclusive".into()), "{case}");
    let again = case["again"].as_str().expect("a command");
    let words: Vec<_> = again.strip_prefix("ndkctl selftest ").expect("the command").split(' ').collect();
    let (alone, _) = run(&words);
    assert_eq!(names(&alone), ["results.kinds"], "{again}");
    assert_eq!(
        (&alone["cases"][0]["outcome"], &alone["cases"][0]["text"]),
        (&case["outcome"], &case["text"]),
        "{again}"
    );
    let shown = text(&ndkctl(&[&["selftest"], &FAULT[..]].concat()).stdout);
    assert!(shown.contains(again) && shown.contains("inconclusive"), "{shown}");
}

#[test]
fn results_become_a_page_and_are_compared() {
    let [good_file, bad_file, page] = ["good.json", "bad.json", "page.html"].map(file);
    let write = |path: &Path, (value, _): (Value, Option<i32>)| fs::write(path, value.to_string()).expect("room");
    write(&good_file, run(&[FAULT[0], FAULT[1]]));
    write(&bad_file, run(&FAULT));
    good(&["report", name(&bad_file), "--html", name(&page)]);
    let html = fs::read_to_string(&page).expect("the page");
    for part in [
        "results.kinds",
        "2 inconclusive",
        "refuse,function=NdkCreatePd",
        "<code>ndkctl selftest",
        "SoftNDK in this program",
    ] {
        assert!(html.contains(part), "{part}");
    }
    let same = json("report", &["report", "--baseline", name(&bad_file), name(&bad_file)]);
    assert_eq!((&same["worse"], &same["same"]), (&0.into(), &2.into()));
    let worse = ndkctl(&["report", "--baseline", name(&good_file), name(&bad_file)]);
    let shown = text(&worse.stdout);
    assert_eq!(worse.status.code(), Some(1), "{shown}");
    assert!(shown.contains("inconclusive now: results.kinds") && shown.contains("2 worse, 0 better"), "{shown}");
    let better = good(&["report", "--baseline", name(&bad_file), name(&good_file)]);
    assert!(better.contains("fixed: results.kinds") && better.contains("faults: was refuse"), "{better}");
    // What is no results.
    for content in [&b""[..], b"{}", b"[1, 2]", b"\xFF\xFE", b"{\"seed\": 1}"] {
        fs::write(&bad_file, content).expect("room");
        for arguments in [
            &["report", name(&bad_file), "--html", name(&page)][..],
            &["report", "--baseline", name(&bad_file), name(&good_file)],
        ] {
            let output = ndkctl(arguments);
            let said = text(&output.stderr);
            assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
            assert!(said.contains(name(&bad_file)), "{said}");
        }
    }
    for path in [good_file, bad_file, page] {
        fs::remove_file(path).expect("it is there");
    }
}

#[test]
fn two_runs_of_one_provider_differ_in_nothing_whatever_their_seeds() {
    let files = ["one-run.json", "other-run.json"].map(file);
    for (path, seed) in files.iter().zip(["1", "2"]) {
        fs::write(path, run(&["--seed", seed]).0.to_string()).expect("room");
    }
    let compared = json("report", &["report", "--baseline", name(&files[0]), name(&files[1])]);
    let counts = ["worse", "better", "other"].map(|count| &compared[count]);
    assert!(counts.iter().all(|&count| *count == 0), "{compared}");
    assert!(compared["same"].as_u64() > Some(400), "{compared}");
    for path in files {
        fs::remove_file(path).expect("it is there");
    }
}

#[test]
fn the_page_has_the_timeline_of_what_was_recorded() {
    let [results, recording, page] = ["recorded.json", "recorded", "recorded.html"].map(file);
    let (value, _) = run(&["--filter", "arm.merge-any-any", "--record", name(&recording)]);
    assert_eq!(value["recording"]["case"], "arm.merge-any-any");
    fs::write(&results, value.to_string()).expect("room");
    good(&["report", name(&results), "--html", name(&page)]);
    let html = fs::read_to_string(&page).expect("the page");
    assert!(html.contains("<figure><svg") && html.contains("NdkArmCq"), "no picture");
    fs::remove_file(&recording).expect("it is there");
    good(&["report", name(&results), "--html", name(&page)]);
    assert!(fs::read_to_string(&page).expect("the page").contains("The recording cannot be drawn"));
    fs::remove_file(&results).expect("it is there");
    fs::remove_file(&page).expect("it is there");
}

/// However much was recorded, the page has what came last, says what is left out, and leads to all of it.
#[test]
fn a_report_with_a_long_recording_can_be_opened() {
    let file = |name: &str| std::env::temp_dir().join(format!("ndkctl-long-report-{}-{name}", std::process::id()));
    let [results, recording, html] = ["json", "ndkrec", "html"].map(file);
    let [results, recording, html] = [&results, &recording, &html].map(|path| path.to_str().expect("UTF-8"));
    let run = ["selftest", "--filter", "arm.merge-any-errors", "--json", "--record", recording];
    std::fs::write(results, good(&run)).expect("room");
    let page = || {
        good(&["report", results, "--html", html]);
        std::fs::read_to_string(html).expect("the page")
    };
    let short = page();
    assert!(short.contains("<figure><svg") && !short.contains("<figcaption>"), "all of it is there");
    let whole = format!("{html}-timeline.html");
    assert!(!std::fs::exists(&whole).expect("a folder"), "nothing is left out");
    // Something longer in its place.
    good(&["ping", "--count", "2000", "--record", recording]);
    let long = page();
    assert!(long.len() < 2 << 20, "{} bytes", long.len());
    let link = format!("<a href=\"{}\">", std::path::Path::new(&whole).file_name().expect("a name").display());
    for words in ["<figure><svg", "<figcaption>The last 600 of ", " before them are left out", &link] {
        assert!(long.contains(words), "{words}");
    }
    // The page that it leads to is the timeline of all of it.
    let all = std::fs::read_to_string(&whole).expect("the whole timeline");
    good(&["timeline", recording, "--html", html]);
    let drawn = std::fs::read_to_string(html).expect("the timeline");
    let body = |page: &str| page.split_once("</title>").expect("a title").1.replace("arm.merge-any-errors", "").len();
    assert!(all.contains("arm.merge-any-errors") && body(&all).abs_diff(body(&drawn)) < 1_000, "they differ");
    for path in [results, recording, html, &whole] {
        std::fs::remove_file(path).expect("it is there");
    }
}
