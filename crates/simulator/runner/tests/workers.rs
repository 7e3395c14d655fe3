//! Workers that end before their runs do. A worker is a program of the shell here.

#![cfg(unix)]

use std::{
    fs,
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use runner::{
    faults::Faults,
    parse,
    report::Outcome,
    worker::{Job, Workers, supervise},
};

/// What a worker says when its run begins, and when it has passed.
const BEGAN: &str = r#"echo; echo 'run: {"began":{"seed":7,"fault":null}}'"#;
const PASSED: &str = r#"echo; echo 'run: {"passed":{"hash":1}}'"#;

/// Nobody wants an end.
static NEVER: AtomicBool = AtomicBool::new(false);

/// Has workers that are this program of the shell carry out the seed 7.
fn outcomes(program: &str) -> Result<Vec<Outcome>, String> {
    let job = Job::new(parse("[[image]]\nname = \"a\"\nfile = \"a.sys\"\n").expect("a script"), Faults::None);
    let workers = Workers { jobs: 1, batch: 1, limit: Duration::from_mins(1), shown: false, stop: &NEVER };
    let command = || {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("cat >/dev/null; {program}")]);
        command
    };
    supervise(&job, [7], &workers, command, |_| ())
}

/// What the only finding says.
fn words(program: &str) -> (String, String) {
    let outcomes = outcomes(program).expect("workers start");
    let [outcome] = &outcomes[..] else { panic!("one run: {outcomes:?}") };
    let finding = outcome.findings.first().expect("a finding");
    (finding.rule.clone(), finding.words.clone())
}

/// The name of a file that is not there.
fn new_file(name: &str) -> PathBuf {
    let file = std::env::temp_dir().join(format!("runner-{name}-{}", std::process::id()));
    let _ = fs::remove_file(&file);
    file
}

#[test]
fn a_worker_that_ends_before_its_first_run_is_no_finding() {
    let why = outcomes("echo 'unknown field `x`' >&2; exit 1").expect_err("no worker of this job");
    for part in ["sh ended before its first run", "exit status: 1", "unknown field `x`", "from the same sources"] {
        assert!(why.contains(part), "{part}: {why}");
    }
}

#[test]
fn a_crash_has_the_last_line_and_what_the_same_run_does_once_more() {
    let crash = "echo 'last words' >&2; exit 1";
    let (rule, seen) = words(&format!("{BEGAN}; {crash}"));
    assert_eq!(rule, "crash");
    let ended = "exit status: 1, after \"last words\"";
    assert_eq!(seen, format!("{ended}; the same run once more: crash: {ended}"));

    let file = new_file("once");
    let mark = file.display();
    let (rule, seen) = words(&format!("{BEGAN}; if [ -e {mark} ]; then {PASSED}; else touch {mark}; {crash}; fi"));
    let _ = fs::remove_file(&file);
    assert_eq!(rule, "crash");
    assert_eq!(seen, format!("{ended}; the same run once more: it passes"));
}

#[test]
fn a_broken_rule_is_not_run_again() {
    let file = new_file("rule");
    let mark = file.display();
    let broken = "echo 'bug check: rule broken: pool-leak: 1 block' >&2; exit 188";
    let (rule, seen) = words(&format!("{BEGAN}; echo . >>{mark}; {broken}"));
    let runs = fs::read_to_string(&file).expect("it ran").lines().count();
    let _ = fs::remove_file(&file);
    assert_eq!((rule.as_str(), seen.as_str(), runs), ("pool-leak", "1 block", 1));
}

#[test]
fn a_run_that_somebody_ends_is_no_finding() {
    let job = Job::new(parse("[[image]]\nname = \"a\"\nfile = \"a.sys\"\n").expect("a script"), Faults::None);
    let stop = AtomicBool::new(false);
    let workers = Workers { jobs: 2, batch: 1, limit: Duration::from_mins(1), shown: false, stop: &stop };
    // The seeds that begin after the first have no end.
    let file = new_file("stop");
    let program = format!(
        "cat >/dev/null; {BEGAN}; if mkdir {} 2>/dev/null; then {PASSED}; else exec sleep 600; fi",
        file.display()
    );
    let command = || {
        let mut command = Command::new("sh");
        command.args(["-c", &program]);
        command
    };
    let outcomes = supervise(&job, 1..=9, &workers, command, |_| stop.store(true, Relaxed)).expect("workers start");
    let _ = fs::remove_dir(&file);
    assert_eq!(outcomes.len(), 1, "{outcomes:?}");
    assert!(outcomes[0].findings.is_empty(), "{outcomes:?}");
}

/// Two machines, of which one ends without a word, while the other one waits.
#[test]
fn a_machine_that_crashes_ends_the_run_of_the_other_one() {
    let script = parse("[[machine]]\nname = \"a\"\n[[machine]]\nname = \"b\"\n").expect("a script");
    let file = new_file("nodes");
    let crash = "echo 'last words' >&2; exit 1";
    let waits = format!(
        r#"echo; echo 'run: {{"step":0}}'; echo; echo 'run: {{"waits":{{"next":7,"sent":[]}}}}'; read answer; echo "$answer" >>{}"#,
        file.display()
    );
    let program = format!(r#"read job; {BEGAN}; case "$job" in *'"number":1'*) {crash};; *) {waits};; esac"#);
    let command = || {
        let mut command = Command::new("sh");
        command.args(["-c", &program]);
        command
    };
    let workers = Workers { jobs: 1, batch: 4, limit: Duration::from_mins(1), shown: false, stop: &NEVER };
    let job = Job::new(script.clone(), Faults::None);
    let outcomes = supervise(&job, [7, 8], &workers, command, |_| ()).expect("workers start");
    let told = fs::read_to_string(&file).expect("what the other one was told");
    let _ = fs::remove_file(&file);
    assert_eq!(outcomes.iter().map(|outcome| outcome.seed).collect::<Vec<_>>(), [7, 8]);
    for outcome in &outcomes {
        let [finding] = &outcome.findings[..] else { panic!("one finding: {outcome:?}") };
        assert_eq!((finding.rule.as_str(), finding.machine.as_deref()), ("crash", Some("b")));
        let ended = "exit status: 1, after \"last words\"";
        assert_eq!(finding.words, format!("{ended}; the same run once more: crash: {ended}"));
        assert_eq!(outcome.stood.len(), 1);
        assert_eq!(outcome.stood[0].machine, "a");
    }
    // Each run twice, and no more: the run is over.
    assert_eq!(told, "\"end\"\n".repeat(4));
    let why = supervise(&Job::new(script, Faults::EachCall), [7], &workers, command, |_| ()).expect_err("failures");
    assert!(why.contains("one machine"), "{why}");
}

/// A machine that says nothing any more ends the run, too.
#[test]
fn a_machine_that_does_not_get_on_is_found_out() {
    let script = parse("[[machine]]\nname = \"a\"\n[[machine]]\nname = \"b\"\n").expect("a script");
    let waits = r#"echo; echo 'run: {"waits":{"next":7,"sent":[]}}'; read answer"#;
    let program = format!(r#"read job; {BEGAN}; case "$job" in *'"number":1'*) exec sleep 600;; *) {waits};; esac"#);
    let command = || {
        let mut command = Command::new("sh");
        command.args(["-c", &program]);
        command
    };
    let workers = Workers { jobs: 1, batch: 1, limit: Duration::from_secs(1), shown: false, stop: &NEVER };
    let outcomes = supervise(&Job::new(script, Faults::None), [7], &workers, command, |_| ()).expect("workers start");
    let [finding] = &outcomes[0].findings[..] else { panic!("one finding: {outcomes:?}") };
    assert_eq!((finding.rule.as_str(), finding.machine.as_deref()), ("no-end", Some("b")));
}
