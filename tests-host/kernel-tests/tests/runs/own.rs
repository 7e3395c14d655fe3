//! The drivers of `SoftNDK`, driven by scripts.

use runner::{Faults, Results};

use crate::{file, run, run_with};

/// The provider without NDIS.
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

[[step]]
do = "open"
file = "control"
link = '\DosDevices\Global\SoftNdkControl'

[[step]]
do = "begin"
request = "one"
file = "control"
code = 0

[[step]]
do = "wait"
request = "one"
status = "STATUS_INVALID_DEVICE_REQUEST"

[[step]]
do = "close"
file = "control"

[[step]]
do = "restart"
device = "adapter"
"#;

/// The NIC.
const NIC: &str = r#"
[[image]]
name = "softndknic"

[[device]]
name = "nic"
image = "softndknic"
kind = "nic"
addresses = ["192.168.77.11/24", "fd00::11/64"]

[[step]]
do = "load"
image = "softndknic"

[[step]]
do = "start"
device = "nic"

[[step]]
do = "power"
device = "nic"
state = "D3"

[[step]]
do = "power"
device = "nic"
state = "D0"

[[step]]
do = "restart"
device = "nic"

[[step]]
do = "surprise-remove"
device = "nic"
"#;

#[test]
fn a_script_takes_our_drivers_through_their_lives_and_a_seed_is_the_same_run() {
    for (name, text) in [("adapter.toml", ADAPTER), ("nic.toml", NIC)] {
        let script = file(name, text);
        let first = run(&script, "1..2", "");
        assert_eq!(first.exit_code(), 0, "{first}");
        let again = run(&script, "1..2", "");
        let hashes =
            |results: &runner::Results| results.outcomes.iter().map(|outcome| outcome.hash).collect::<Vec<_>>();
        assert_eq!(hashes(&first), hashes(&again));
        assert!(hashes(&first).windows(2).any(|pair| pair[0] != pair[1]), "other seeds are other runs");
    }
}

#[test]
fn a_step_that_ends_otherwise_is_a_finding_that_names_its_line() {
    let wrong = ADAPTER.replace("STATUS_INVALID_DEVICE_REQUEST", "STATUS_CANCELLED");
    let results = run(&file("wrong-adapter.toml", &wrong), "7", "");
    let (seed, finding) = results.findings().next().expect("a finding");
    assert_eq!((seed, finding.rule.as_str()), (7, "script"));
    assert!(finding.words.contains("line 28, wait one"), "{}", finding.words);
    assert!(finding.words.contains("instead of STATUS_CANCELLED"), "{}", finding.words);
}

#[test]
fn an_image_that_is_not_there_is_a_finding() {
    let results =
        run(&file("other.toml", "[[image]]\nname = \"other\"\n[[step]]\ndo = \"load\"\nimage = \"other\""), "1", "");
    let (_, finding) = results.findings().next().expect("a finding");
    assert!(finding.words.contains("0xc0000034"), "{}", finding.words);
}

/// Loaded and unloaded, no more.
const LOADED: &str = "[[image]]\nname = \"softndk\"\n[[step]]\ndo = \"load\"\nimage = \"softndk\"\n";

#[test]
fn each_thing_that_can_fail_does_once() {
    let results = run_with(&file("loaded.toml", LOADED), "3", "", Faults::EachCall);
    assert_eq!(results.exit_code(), 0, "{results}\n{:?}", results.findings().next());
    let mut faults: Vec<_> = results.outcomes.iter().map(|outcome| outcome.fault.unwrap_or(0)).collect();
    faults.sort_unstable();
    assert!(faults.len() > 5, "{faults:?}");
    assert_eq!(faults, (0..faults.len() as u64).collect::<Vec<_>>(), "one run for each, and one without");
}

#[test]
fn what_a_failure_takes_away_the_script_does_without() {
    // The first thing that fails is in the entry of the driver, so nothing of the script can be done.
    let script = file("failing.toml", ADAPTER);
    for faults in [Faults::Nth(1), Faults::EachSite] {
        let results = run_with(&script, "5", "", faults);
        assert_eq!(results.exit_code(), 0, "{results}\n{:?}", results.findings().next());
        let hash = |results: &Results| results.outcomes[0].hash;
        assert_ne!(hash(&results), hash(&run(&script, "5", "")), "something failed");
        assert_eq!(hash(&results), hash(&run_with(&script, "5", "", faults)), "and does each time");
    }
}
