//! Two machines in one run, each in a process of its own: by a seed, over a network that the runner carries.

use std::{path::PathBuf, time::Duration};

use control::provider_device::{NIC_LINK_NAME, Recording as Wanted, SET_FAULT_PLAN, SET_RECORDING};
use interpose::{
    Function,
    faults::{Kind, Plan, Rule, Which},
};
use recording::Recording;
use runner::{
    Faults, Results, Script,
    parse::read,
    report::Outcome,
    script::Ioctl,
    worker::{Job, Recordings},
};

use crate::{carry_out, file, path, sample::is_there};

const SCRIPT: &str = "samples/consumer-c/two.toml";

/// The script of the sample, with another text in the place of some of it.
fn script(name: &str, changes: &[(&str, &str)]) -> std::path::PathBuf {
    let mut text = std::fs::read_to_string(path(SCRIPT)).expect("the script of the sample");
    for (before, after) in changes {
        assert!(text.contains(before), "{before} is in the script");
        text = text.replace(before, after);
    }
    file(&format!("two-{name}.toml"), &text)
}

/// Carries out a script, with the adviser.
fn run(script: &std::path::Path, seeds: &str, consumer: &str) -> Results {
    let mut script = read(script).expect("a script");
    script.advise();
    carry_out(&Job::new(script, Faults::None), seeds, consumer)
}

/// The same without the adviser, which would say what is wrong before the wait.
fn run_unadvised(script: &std::path::Path, seeds: &str, consumer: &str) -> Results {
    carry_out(&Job::new(read(script).expect("a script"), Faults::None), seeds, consumer)
}

/// All that is said of runs, but for how long they took.
fn said(results: &Results) -> Vec<String> {
    let timeless = |outcome: &Outcome| format!("{:?}", Outcome { took: Duration::ZERO, ..outcome.clone() });
    results.outcomes.iter().map(timeless).collect()
}

fn passed(results: &Results) {
    assert_eq!(results.exit_code(), 0, "{results}\n{:?}", results.findings().next());
}

/// On the server the variant of the sample, on the client the right one, which waits for the server at the end.
fn wrong_server(name: &str, more: &[(&str, &str)]) -> std::path::PathBuf {
    let image = |file: &str| format!("[[machine.image]]\nname = \"consumer\"\nfile = \"{file}\"\n");
    let [server, client] = ["192.0.2.1/24", "192.0.2.2/24"].map(|address| format!("addresses = [\"{address}\"]\n"));
    let [of_server, of_client] =
        [(&server, "consumer.sys"), (&client, "right.sys")].map(|(before, file)| format!("{before}{}", image(file)));
    let expected = "expect = [{ u32 = 5 }, { any = 4 }, { u64 = 15000 }]\n";
    let done = format!("{expected}\n[[machine.step]]\ndo = \"barrier\"\nname = \"done\"\n");
    let mut changes = vec![
        ("[[image]]\nname = \"consumer\"\nfile = \"consumer.sys\"\n", ""),
        ("file = \"softndknic.sys\"\n", "file = \"softndknic.sys\"\n[image.registry]\nCompletionMode = 3\n"),
        (server.as_str(), of_server.as_str()),
        (client.as_str(), of_client.as_str()),
        (expected, done.as_str()),
    ];
    changes.extend(more);
    script(name, &changes)
}

/// Clean, and with a network that does everything there is: every byte arrives, and a seed says the same twice.
#[test]
fn a_consumer_pings_itself_on_another_machine_and_a_seed_repeats() {
    if !is_there() {
        return;
    }
    let bad = "loss = 1\ndouble = 1\nreorder = 5\ncorrupt = 0.5";
    for (name, network) in [("clean", "loss = 0"), ("lossy", "loss = 1"), ("bad", bad)] {
        let script = script(name, &[("loss = 1 ", &format!("{network}\n#"))]);
        let once = run(&script, "1..2", "right");
        passed(&once);
        let hashes: std::collections::BTreeSet<_> = once.outcomes.iter().filter_map(|outcome| outcome.hash).collect();
        assert_eq!(hashes.len(), 2, "each seed is another run: {once}");
        assert_eq!(said(&once), said(&run(&script, "1..2", "right")), "{name}");
    }
}

/// The driver of one machine breaks a rule: that ends the run, and where the other one stood is said with it.
#[test]
fn a_broken_rule_on_one_machine_ends_the_run() {
    if !is_there() {
        return;
    }
    let script = wrong_server("freed", &[]);
    let results = run(&script, "1..8", "freed-context");
    // With some seeds no close is late.
    let found: Vec<_> = results.outcomes.iter().filter(|outcome| !outcome.findings.is_empty()).collect();
    assert!(found.len() >= 2, "{results}");
    for outcome in &found {
        let [finding] = &outcome.findings[..] else { panic!("one finding: {outcome:?}") };
        assert_eq!(
            (finding.rule.as_str(), finding.machine.as_deref()),
            ("use-after-free", Some("server")),
            "{results}"
        );
        let seed = format!("the seed is {}", outcome.seed);
        assert!(finding.words.contains(&seed), "{}", finding.words);
        let [stood] = &outcome.stood[..] else { panic!("one other machine: {outcome:?}") };
        assert!(stood.machine == "client" && stood.words.starts_with("line "), "{stood:?}");
    }
    let text = results.to_string();
    assert!(text.starts_with("use-after-free: server: "), "{text}");
    assert!(text.contains("\n    client: line "), "{text}");
    assert_eq!((results.exit_code(), results.rules()["use-after-free"]), (1, found.len()));
}

/// A driver that uses an adapter that it has not: the processor refuses it, which ends its process.
#[test]
fn a_driver_that_crashes_ends_the_run_for_both() {
    if !is_there() {
        return;
    }
    let script =
        wrong_server("crash", &[("{ u32 = \"nic.index\" },\n    { u32 = 1 },", "{ u32 = 1234 },\n    { u32 = 1 },")]);
    let results = run(&script, "1..2", "unchecked-status");
    for outcome in &results.outcomes {
        let [finding] = &outcome.findings[..] else { panic!("one finding: {outcome:?}") };
        let seen = (finding.rule.as_str(), finding.machine.as_deref());
        assert_eq!(seen, ("access-violation", Some("server")), "{results}");
        assert_eq!(outcome.stood.len(), 1);
    }
}

/// The server waits for ever in a close, and the client for the server: a deadlock of both, and what each of them waits for.
#[test]
fn a_deadlock_is_one_of_all_machines() {
    if !is_there() {
        return;
    }
    let script = wrong_server("deadlock", &[]);
    let results = run_unadvised(&script, "1..3", "wrong-close-order");
    for outcome in &results.outcomes {
        let [server, client] = &outcome.findings[..] else { panic!("two findings: {outcome:?}") };
        assert_eq!([server.machine.as_deref(), client.machine.as_deref()], [Some("server"), Some("client")]);
        assert_eq!([server.rule.as_str(), client.rule.as_str()], ["deadlock"; 2], "{results}");
        assert!(client.words.contains("the other machines at the barrier `done`"), "{}", client.words);
        assert!(!server.words.contains("barrier"), "{}", server.words);
    }
    let text = results.to_string();
    assert!(text.starts_with("deadlock: server: ") && text.contains("\n    client: deadlock: "), "{text}");
    // The runs themselves: what is said of them has addresses, which are not the same in each process.
    let again = run_unadvised(&script, "1..3", "wrong-close-order");
    let steps = |results: &Results| results.findings().map(|(seed, finding)| (seed, finding.step)).collect::<Vec<_>>();
    assert_eq!(steps(&results), steps(&again));
}

/// The script of `docs/run.md`.
#[test]
fn the_script_of_the_manual_runs() {
    if !is_there() {
        return;
    }
    let page = std::fs::read_to_string(path("docs/run.md")).expect("the page");
    let section = page.split_once("## Two machines").expect("its section").1;
    let text = section.split_once("```toml\n").and_then(|(_, rest)| rest.split_once("```")).expect("a script").0;
    let script = file("two-of-the-manual.toml", text);
    let once = run(&script, "1..3", "right");
    passed(&once);
    assert_eq!(said(&once), said(&run(&script, "1..3", "right")));
}

/// The machines of the script.
const MACHINES: [&str; 2] = ["server", "client"];

/// What each machine's driver has recorded of a run with that seed: of the calls of each, those functions that were called.
fn recorded(name: &str, script: Script, seed: u64) -> (Results, [Vec<Function>; 2]) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    // Of an earlier run, if it is there.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let recordings = Some(Recordings { folder: folder.clone(), passing: seed, machine: None });
    let results = carry_out(&Job { recordings, ..Job::new(script, Faults::None) }, &seed.to_string(), "right");
    let called = MACHINES.map(|machine| {
        let memory = std::fs::read(Recordings::file(&folder, seed, None, Some(machine))).expect(machine);
        let file = recording::salvage(&memory).expect("the slots of a ring");
        let recording = Recording::read(&file).expect("a recording");
        assert_eq!(recording.lost, 0, "{machine}");
        recording.records.iter().map(|record| record.function).collect()
    });
    std::fs::remove_dir_all(&folder).expect("the folder goes");
    (results, called)
}

/// The script, whose drivers record.
fn script_that_records(name: &str) -> Script {
    const RECORD: Wanted = Wanted { slots: 1 << 14, keep: 0 };
    let mut script = read(&script(name, &[("loss = 1 ", "loss = 0 ")])).expect("a script");
    script.advise();
    let input = RECORD.to_bytes().to_vec();
    let ioctl = Ioctl { link: NIC_LINK_NAME.to_owned(), code: SET_RECORDING, input, seed_at: None };
    assert!(script.send_ioctl("softndknic", &ioctl));
    script
}

/// As `--record` has it: a recording of each machine, with what was called there and not on the other one.
#[test]
fn each_machine_leaves_a_recording_of_its_own() {
    if !is_there() {
        return;
    }
    let (results, [server, client]) = recorded("two-recordings", script_that_records("recorded"), 1);
    passed(&results);
    for (ours, theirs, only) in [
        (&server, &client, [Function::Listen, Function::Accept]),
        (&client, &server, [Function::Connect, Function::CompleteConnect]),
    ] {
        assert!(only.iter().all(|function| ours.contains(function) && !theirs.contains(function)), "{only:?}");
    }
}

/// As `--fault client:RULE` has it.
#[test]
fn a_fault_of_one_machine_does_not_happen_on_the_other() {
    if !is_there() {
        return;
    }
    let rule = Rule { function: Some(Function::CreateCq), ..Rule::new(Kind::Refuse, Which::Every(1)) };
    let input = Plan::new(0).with(rule).expect("a rule").to_bytes().to_vec();
    let ioctl = Ioctl { link: NIC_LINK_NAME.to_owned(), code: SET_FAULT_PLAN, input, seed_at: Some(Plan::SEED_AT) };
    for machine in MACHINES {
        let mut script = read(&script(&format!("fault-{machine}"), &[])).expect("a script");
        let node = script.machines.iter_mut().find(|node| node.name == machine).expect("the machine");
        assert!(node.script.send_ioctl("softndknic", &ioctl));
        let results = carry_out(&Job::new(script, Faults::None), "1", "right");
        let (_, finding) = results.findings().next().expect("the pings do not end as the script says");
        assert_eq!((finding.rule.as_str(), finding.machine.as_deref()), ("script", Some(machine)), "{results}");
        assert!(finding.words.contains("STATUS_INSUFFICIENT_RESOURCES"), "{}", finding.words);
    }
}
