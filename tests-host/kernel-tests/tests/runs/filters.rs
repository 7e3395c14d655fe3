//! A light-weight filter of NDIS in a script, between the adapters of `softndknic` and their protocols.

use runner::Results;

use crate::{file, run, run_with};

/// Two adapters, which a cable connects, and a filter that lets frames of up to 1,000 bytes through (`rigs::limiter`).
const MACHINE: &str = r#"
[[image]]
name = "nic"
file = "softndknic.sys"

[[image]]
name = "limiter"

[[device]]
name = "one"
image = "nic"
kind = "nic"
mac = "02-00-00-00-00-01"

[[device]]
name = "two"
image = "nic"
kind = "nic"
mac = "02-00-00-00-00-02"
"#;

/// A step.
fn step(words: &str) -> String {
    format!("[[step]]\n{words}\n")
}

/// A frame from the first adapter to the second, with so many bytes behind its header.
fn frame(bytes: usize) -> String {
    format!(
        "[{{ hex = \"02 00 00 00 00 02 02 00 00 00 00 01 88 b5\" }}, {{ text = \"softndk\" }}, {{ zero = {} }}]",
        bytes - 7
    )
}

/// It arrives.
fn arrives(bytes: usize) -> String {
    let frame = frame(bytes);
    step(&format!("do = \"send-frame\"\ndevice = \"one\"\ninput = {frame}"))
        + &step(&format!("do = \"receive-frame\"\ndevice = \"two\"\nexpect = {frame}"))
}

/// The filter does not let it through.
fn is_refused(bytes: usize) -> String {
    let frame = frame(bytes);
    step(&format!("do = \"send-frame\"\ndevice = \"one\"\ninput = {frame}\nstatus = \"NDIS_STATUS_INVALID_LENGTH\""))
}

fn of(word: &str, key: &str, name: &str) -> String {
    step(&format!("do = \"{word}\"\n{key} = \"{name}\""))
}

fn power(device: &str, state: &str) -> String {
    step(&format!("do = \"power\"\ndevice = \"{device}\"\nstate = \"{state}\""))
}

fn passed(results: &Results) {
    assert_eq!(results.exit_code(), 0, "{results}\n{:?}", results.findings().next());
}

/// The adapter's life with the filter above it: restarted, put to sleep and woken, removed with and without asking.
fn life() -> Vec<String> {
    vec![
        of("load", "image", "nic"),
        of("start", "device", "one"),
        of("start", "device", "two"),
        arrives(1200),
        // It comes to adapters that run.
        of("load", "image", "limiter"),
        step("do = \"sleep\"\nmicroseconds = 100000"),
        arrives(100),
        is_refused(1200),
        of("restart", "device", "one"),
        arrives(101),
        is_refused(1200),
        power("one", "D3"),
        power("one", "D0"),
        arrives(102),
        is_refused(1200),
        of("remove", "device", "one"),
        // It is there before the adapter.
        of("start", "device", "one"),
        arrives(103),
        is_refused(1200),
        of("unload", "image", "limiter"),
        arrives(1200),
        of("load", "image", "limiter"),
        of("surprise-remove", "device", "one"),
        of("remove", "device", "two"),
    ]
}

#[test]
fn a_filter_is_attached_to_adapters_through_their_lives_and_a_seed_repeats() {
    let script = file("filtered.toml", &format!("{MACHINE}{}", life().concat()));
    let once = run(&script, "1..3", "");
    passed(&once);
    let hashes = |results: &Results| results.outcomes.iter().map(|outcome| outcome.hash).collect::<Vec<_>>();
    assert_eq!(hashes(&once), hashes(&run(&script, "1..3", "")));
}

/// What is expected of a frame that the filter has kept is what a script would say of a filter that is wrong.
#[test]
fn a_frame_that_a_filter_keeps_is_a_finding_of_the_step() {
    let steps = life();
    let text = format!("{MACHINE}{}{}", steps[..6].concat(), arrives(1200));
    let results = run(&file("refused.toml", &text), "1", "");
    let (_, finding) = results.findings().next().expect("a finding");
    let words = "send-frame one: NDIS_STATUS_INVALID_LENGTH (0xc0010014) instead of STATUS_SUCCESS (0x0)";
    assert!(finding.rule == "script" && finding.words.ends_with(words), "{}", finding.words);
}

/// The filter's module is one of the things that can fail: the adapter lives without it.
#[test]
fn a_filter_that_cannot_be_had_leaves_the_adapter_alone() {
    let script = file("filtered-failing.toml", &format!("{MACHINE}{}", life().concat()));
    passed(&run_with(&script, "1", "", runner::Faults::EachSite));
}
