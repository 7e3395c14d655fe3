//! What scripts and documents say of the drivers' traces is what the drivers have.

use std::{fs, path::Path};

use tracelogging::Guid;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The name of the provider, and those of its events, in the source of a driver.
fn events(source: &str) -> (String, Vec<String>) {
    let literal = |text: &str| text.split('"').nth(1).expect("a name in quotes").to_owned();
    let provider = source.split("trace_provider!(").nth(1).map(literal).expect("a provider");
    let events = source.split("write_event!(").skip(1).map(literal).collect();
    (provider, events)
}

#[test]
fn the_scripts_collect_both_providers_and_the_guide_names_every_event() {
    let (script, guide) = (read("tools/windows/Collect-Traces.ps1"), read("docs/windows-vm.md"));
    let mut seen = 0;
    for driver in ["crates/drivers/driver-common/src/trace.rs", "crates/drivers/ndktest/src/trace.rs"] {
        let (provider, events) = events(&read(driver));
        let identifier = format!("{{{:?}}}", Guid::from_name(&provider));
        assert!(script.contains(&identifier), "{provider} has the identifier {identifier}");
        assert!(guide.contains(&format!("`{provider}`")), "{provider}");
        for event in &events {
            assert!(guide.contains(&format!("`{event}`")), "{event} of {provider}");
        }
        seen += events.len();
    }
    assert!(seen > 10, "{seen} events");
}
