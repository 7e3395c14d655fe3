//! What a driver is told once its first device is started, and what it has recorded by the end of a run: as `ndkctl run --record` and `--fault` do it.

use std::path::{Path, PathBuf};

use control::provider_device::{LINK_NAME, NIC_LINK_NAME, Recording as Wanted, SET_FAULT_PLAN, SET_RECORDING};
use interpose::{
    Function,
    faults::{Kind, Plan, Rule, Which},
};
use recording::{
    Recording,
    timeline::{MarkKind, Timeline},
};
use runner::{
    Faults, Results, Script,
    parse::read,
    script::Ioctl,
    worker::{Job, Recordings},
};

use crate::{carry_out, file, path, sample::is_there};

/// The provider without NDIS, with a device.
const ADAPTER: &str = r#"
[[image]]
name = "softndk"

[[device]]
name = "adapter"
image = "softndk"

[[step]]
do = "load"
image = "softndk"

[[step]]
do = "start"
device = "adapter"
"#;

const RECORD: Wanted = Wanted { slots: 1 << 14, keep: 0 };

/// A driver with this control device is told to record.
fn record(link: &str) -> Ioctl {
    Ioctl { link: link.to_owned(), code: SET_RECORDING, input: RECORD.to_bytes().to_vec(), seed_at: None }
}

/// Runs a script whose NIC, or provider, is told this.
fn run(script: &Path, seeds: &str, consumer: &str, ioctls: &[Ioctl], faults: Faults) -> (Results, PathBuf) {
    let mut script: Script = read(script).expect("a script");
    script.advise();
    for ioctl in ioctls {
        let stem = if ioctl.link == LINK_NAME { "softndk" } else { "softndknic" };
        assert!(script.send_ioctl(stem, ioctl), "the script has a provider");
    }
    let name = format!("recordings-{consumer}-{seeds}-{}", std::process::id());
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let last = seeds.parse::<runner::Seeds>().expect("seeds").iter().last().expect("one");
    let recordings = Some(Recordings { folder: folder.clone(), passing: last, machine: None });
    (carry_out(&Job { recordings, ..Job::new(script, faults) }, seeds, consumer), folder)
}

/// What a run has left.
fn recording(folder: &Path, seed: u64) -> Option<Recording> {
    let memory = std::fs::read(Recordings::file(folder, seed, None, None)).ok()?;
    let file = recording::salvage(&memory).expect("the slots of a ring");
    Some(Recording::read(&file).expect("a recording"))
}

fn calls(recording: &Recording, function: Function) -> usize {
    let is_call = |record: &&recording::Record| record.function == function && record.phase == interpose::Phase::Call;
    recording.records.iter().filter(is_call).count()
}

#[test]
fn a_run_that_passes_leaves_the_recording_of_the_last_seed() {
    if !is_there() {
        return;
    }
    let (results, folder) =
        run(&path("samples/consumer-c/run.toml"), "1..3", "right", &[record(NIC_LINK_NAME)], Faults::None);
    assert_eq!(results.exit_code(), 0, "{results}\n{:?}", results.findings().next());
    assert!((1..3).all(|seed| recording(&folder, seed).is_none()), "only that of the last seed is kept");
    let recording = recording(&folder, 3).expect("that of the last seed");
    // The script has the consumer run twice: three rounds of send, write and read, and one more.
    assert_eq!((calls(&recording, Function::Connect), calls(&recording, Function::Send)), (2, 4));
    assert_eq!(recording.lost, 0);
}

#[test]
fn a_broken_rule_leaves_a_recording_that_ends_there() {
    if !is_there() {
        return;
    }
    let script = path("samples/consumer-c/run.toml");
    let (results, folder) = run(&script, "1", "stale-token", &[record(NIC_LINK_NAME)], Faults::None);
    let (seed, finding) = results.findings().next().expect("a finding");
    assert_eq!(finding.rule, "SN0025", "{results}");
    let recording = recording(&folder, seed).expect("a recording");
    // The timeline's lane has the name that the finding has once it is called by what is in the recording.
    let named = recording.in_its_names(&finding.rule, &finding.words);
    let timeline = Timeline::of(&recording);
    let mark = timeline.marks.iter().find(|mark| mark.kind == MarkKind::Finding).expect("the finding is a mark");
    let lane = &timeline.lanes[mark.lane].name;
    assert!(lane.starts_with("QP ") && named.contains(&format!(": {lane}: ")), "{lane}: {named}");
    assert!(mark.text.starts_with(&format!("SN0025 of {lane}, in NdkWrite")), "{}", mark.text);
    assert!(
        !named.contains("Qp ") && !mark.text.contains(" Mr "),
        "no object has a second name: {named}\n{}",
        mark.text
    );
    // The recorder is in front of the adviser, which stops the machine in that write.
    let last = recording.records.last().expect("something was recorded");
    assert!(calls(&recording, Function::DeregisterMr) > 0, "the region that the token stood for");
    assert!(calls(&recording, Function::Connect) > 0 && last.time > 0, "{last:?}");
}

/// The adviser keeps what is closed for a while, and so does the recorder with it: neither looks into memory that is free.
#[test]
fn a_use_after_the_close_is_named_while_a_recording_goes_on() {
    if !is_there() {
        return;
    }
    let script = path("samples/consumer-c/run.toml");
    for seed in ["1", "2", "3", "4"] {
        let [with, without] = [vec![record(NIC_LINK_NAME)], vec![]].map(|ioctls| {
            let (results, folder) = run(&script, seed, "use-after-close", &ioctls, Faults::None);
            let (seed, finding) = results.findings().next().expect("a finding");
            (finding.rule.clone(), finding.words.clone(), recording(&folder, seed))
        });
        assert_eq!((with.0.as_str(), &with.1), ("SN0035", &without.1), "as without: {}", without.0);
        let recording = with.2.expect("a recording");
        assert!(without.2.is_none() && recording.findings.iter().any(|found| found.finding == 35), "seed {seed}");
    }
}

/// Nobody opens an adapter: the ring has nothing, and the folder no file that is a recording.
#[test]
fn without_a_consumer_nothing_is_recorded() {
    let (results, folder) = run(&file("unrecorded.toml", ADAPTER), "1", "", &[record(LINK_NAME)], Faults::None);
    assert_eq!(results.exit_code(), 0, "{results}");
    assert!(recording(&folder, 1).is_none());
}

/// What a driver is told allocates, so it can fail: the run goes on without.
#[test]
fn what_a_driver_is_told_may_fail_where_something_was_made_to() {
    let script = file("told.toml", ADAPTER);
    let (results, _) = run(&script, "4", "", &[record(LINK_NAME)], Faults::EachCall);
    assert_eq!(results.exit_code(), 0, "{results}\n{:?}", results.findings().next());
    let (without, _) = run(&script, "5", "", &[], Faults::EachCall);
    assert!(
        results.outcomes.len() > without.outcomes.len(),
        "{} and {}",
        results.outcomes.len(),
        without.outcomes.len()
    );
}

#[test]
fn a_driver_that_refuses_what_it_is_told_is_a_finding() {
    let ioctl = Ioctl { input: vec![1], ..record(LINK_NAME) };
    let (results, _) = run(&file("refused.toml", ADAPTER), "6", "", &[ioctl], Faults::None);
    let (_, finding) = results.findings().next().expect("a finding");
    assert_eq!(finding.rule, "script");
    assert!(finding.words.contains("SoftNdkControl: STATUS_BUFFER_TOO_SMALL"), "{}", finding.words);
}

/// Every connect is refused: the consumer says so, and the script hears another status than it expects.
#[test]
fn a_fault_of_ndkpi_happens_in_front_of_the_driver() {
    if !is_there() {
        return;
    }
    let rule = Rule { function: Some(Function::Connect), ..Rule::new(Kind::Refuse, Which::Every(1)) };
    let plan = Plan::new(0).with(rule).expect("a rule");
    let ioctl = Ioctl {
        link: NIC_LINK_NAME.to_owned(),
        code: SET_FAULT_PLAN,
        input: plan.to_bytes().to_vec(),
        seed_at: Some(Plan::SEED_AT),
    };
    assert_eq!(Plan::from_bytes(&ioctl.input_for(77)).expect("a plan").seed, 77);
    let (results, _) = run(&path("samples/consumer-c/run.toml"), "7", "right", &[ioctl], Faults::None);
    let (_, finding) = results.findings().next().expect("a finding");
    assert_eq!(finding.rule, "script", "{results}");
    assert!(finding.words.contains("STATUS_INSUFFICIENT_RESOURCES"), "{}", finding.words);
}
