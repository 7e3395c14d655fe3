//! What scripts, workflows and documents say of the drivers' traces is what the drivers have; what they run is documented and looked at.

use std::fs;

use tracelogging::Guid;

fn read(path: &str) -> String {
    let path = sources::root().join(path);
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
fn both_providers_are_collected_and_the_guide_names_every_event() {
    let (workflow, guide) = (read(".github/workflows/drivers.yml"), read("docs/windows-vm.md"));
    let mut seen = 0;
    for driver in ["crates/drivers/driver-common/src/trace.rs", "crates/drivers/ndktest/src/trace.rs"] {
        let (provider, events) = events(&read(driver));
        let identifier = format!("{{{:?}}}", Guid::from_name(&provider));
        for (place, text) in [("the workflow", &workflow), ("the guide", &guide)] {
            assert!(text.contains(&identifier), "{place}: {provider} has the identifier {identifier}");
        }
        assert!(guide.contains(&format!("`{provider}`")), "{provider}");
        for event in &events {
            assert!(guide.contains(&format!("`{event}`")), "{event} of {provider}");
        }
        seen += events.len();
    }
    assert!(seen > 10, "{seen} events");
}

/// The scripts in PowerShell, and the workflow whose steps are.
fn scripts() -> Vec<(String, String)> {
    let folder = sources::root().join("tools/windows");
    let names = fs::read_dir(folder).expect("the scripts").map(|entry| entry.expect("an entry").file_name());
    let mut paths: Vec<_> = names.map(|name| format!("tools/windows/{}", name.display())).collect();
    paths.push(".github/workflows/drivers.yml".to_owned());
    assert!(paths.len() >= 3, "{paths:?}");
    paths.into_iter().map(|path| (path.clone(), read(&path))).collect()
}

/// Under strict mode a member of nothing is an error: of a command that may find nothing, none is taken.
fn member_of_nothing(line: &str) -> bool {
    line.match_indices(").").any(|(place, _)| {
        let mut depth = 0;
        let open = line[..=place].char_indices().rev().find(|(_, character)| {
            depth += i32::from(*character == ')') - i32::from(*character == '(');
            depth == 0
        });
        let before = open.map_or("", |(open, _)| &line[open..place]);
        ["SilentlyContinue", "Select-Object -First"].iter().any(|part| before.contains(part))
    })
}

#[test]
fn no_member_is_taken_of_what_may_not_be_there() {
    assert!(member_of_nothing("(Get-Command devcon.exe -ErrorAction SilentlyContinue).Source"));
    assert!(member_of_nothing("$x = ((Get-Item a) | Select-Object -First 1).Name"));
    assert!(!member_of_nothing("(Get-NetAdapter -Name $_).ifIndex; (Get-Date).AddHours(-4)"));
    for (path, text) in scripts() {
        for line in text.lines() {
            assert!(!member_of_nothing(line), "{path}: {line}");
        }
    }
}

/// The value of a number after `before`.
fn number_after(line: &str, before: &str) -> Option<u32> {
    let digits = line.split(before).nth(1)?.trim_start().strip_prefix("0x")?;
    u32::from_str_radix(digits.split(|character: char| !character.is_ascii_hexdigit()).next()?, 16).ok()
}

/// The options that can be set without a restart since Windows 11: bits 2, 5, 7, 9 and 10.
const VOLATILE: u32 = 0x4 | 0x20 | 0x80 | 0x200 | 0x400;

#[test]
fn driver_verifier_gets_documented_commands_whose_results_are_looked_at() {
    let mut volatile = 0;
    for (path, text) in scripts() {
        let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.starts_with('#')).collect();
        for (number, line) in lines.iter().enumerate() {
            if line.contains("/volatile") && line.starts_with("verifier.exe") {
                // Options and drivers are two commands.
                assert!(!(line.contains("/flags") && line.contains("/adddriver")), "{path}: {line}");
                if let Some(flags) = number_after(line, "/flags") {
                    assert_eq!(flags & !VOLATILE, 0, "{path}: {line}");
                }
                volatile += 1;
            }
            let looked_at = |next: &&str| next.contains("$LASTEXITCODE");
            if line.starts_with("verifier.exe") || line.contains("= verifier.exe") {
                assert!(lines.get(number + 1).is_some_and(looked_at), "{path}: nobody looks at the end of {line}");
            }
        }
    }
    assert_eq!(volatile, 2);
    let (workflow, guide) = (read(".github/workflows/drivers.yml"), read("docs/windows-vm.md"));
    for driver in ["softndk.sys", "ndktest.sys", "softndknic.sys"] {
        let asserted = format!("'{driver}'");
        assert!(workflow.contains(&asserted), "{driver}: /query is not asserted");
    }
    // What is set replaces what was set: each command names all.
    for (path, text) in [("Prepare-Vm.ps1", read("tools/windows/Prepare-Vm.ps1")), ("the guide", guide)] {
        for driver in ["softndk.sys", "ndktest.sys", "softndknic.sys", "ndis.sys"] {
            assert!(text.contains(driver), "{path}: {driver}");
        }
        let partial = text.lines().filter(|line| line.trim().starts_with("verifier /standard"));
        assert!(partial.clone().all(|line| line.contains("ndis.sys") && line.contains("softndk.sys")), "{path}");
    }
}

#[test]
fn a_step_that_tests_nothing_fails() {
    let workflow = read(".github/workflows/drivers.yml");
    let step = workflow.split("- name: ").find(|step| step.starts_with("rping")).expect("the step");
    for part in ["NDKPing.exe", "NdkPerfCmd.exe", "if (-not $ping) { throw", "'rping'"] {
        assert!(step.contains(part), "{part}: {step}");
    }
    assert!(!step.contains("exit 0") && !step.contains("::notice::"), "{step}");
}

/// Installing is a program: no devcon, no certutil, no pnputil.
#[test]
fn nothing_is_installed_by_other_programs() {
    for (path, text) in scripts() {
        for program in ["devcon", "certutil", "pnputil", "Import-Certificate"] {
            assert!(!text.contains(program), "{path}: {program}");
        }
    }
}
