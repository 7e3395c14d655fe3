//! What stands between a machine and a working SoftNDK.

use serde::Serialize;

use crate::{
    Device, Driver, Facts, Firewall, Machine, NIC, Pair, Processor, Staged,
    describe::problem,
    machine::Result,
    network::{ends, same_name},
    plan::FIRST_BUILD,
};

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is as it should be.
    Good,
    /// SoftNDK does not work with it, or not all of it.
    Bad,
    /// It can matter.
    Notice,
    /// It could not be found out.
    Unknown,
    /// It does not matter here.
    Skipped,
}

/// A check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: String,
    /// How it is.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

impl Check {
    fn new(name: impl Into<String>, verdict: Verdict, found: impl Into<String>) -> Self {
        Self { name: name.into(), verdict, found: found.into(), remedy: None }
    }

    fn with(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }

    fn good(name: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(name, Verdict::Good, found)
    }

    fn bad(name: impl Into<String>, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(name, Verdict::Bad, found).with(remedy)
    }

    fn notice(name: impl Into<String>, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(name, Verdict::Notice, found).with(remedy)
    }
}

const TEST_SIGNING_ON: &str = "`bcdedit /set testsigning on`, then restart";

/// Looks at a machine with Windows. What cannot be looked at is a check that says so; the others go on.
pub fn examine(machine: &impl Machine) -> Vec<Check> {
    let mut checks = Vec::new();
    let unknown = |name: &str, fault: crate::Fault| Check::new(name, Verdict::Unknown, fault.to_string());
    match machine.facts() {
        Ok(facts) => of_facts(&facts, &mut checks),
        Err(fault) => checks.push(unknown("Windows", fault)),
    }
    for driver in Driver::ALL {
        match (machine.staged(driver), machine.devices(driver), machine.loaded(driver)) {
            (Ok(staged), Ok(devices), Ok(loaded)) => of_driver(driver, &staged, &devices, loaded, &mut checks),
            (Err(fault), ..) | (_, Err(fault), _) | (.., Err(fault)) => checks.push(unknown(driver.name, fault)),
        }
    }
    if let Err(fault) = of_network(machine, &Pair::default(), &mut checks) {
        checks.push(unknown("network", fault));
    }
    checks
}

fn of_facts(facts: &Facts, checks: &mut Vec<Check>) {
    let (major, minor, build) = facts.version;
    let found = format!("{major}.{minor}, build {build}");
    checks.push(if build >= FIRST_BUILD {
        Check::good("Windows", found)
    } else {
        Check::bad("Windows", found, "the drivers need Windows 10 version 2004, Windows Server 2022 or later")
    });
    checks.push(match (facts.processor, Processor::OWN) {
        (None, _) => Check::bad("processor", "neither x64 nor ARM64", "there are no drivers for it"),
        (Some(machine), Some(own)) if machine != own => Check::bad(
            "processor",
            format!("the machine is {}, this ndkctl is for {}", machine.name(), own.name()),
            format!("use the ndkctl for {}", machine.name()),
        ),
        (Some(machine), _) => Check::good("processor", machine.name()),
    });
    checks.push(if facts.elevated {
        Check::good("elevation", "this program runs elevated")
    } else {
        let remedy = "installing, and the drivers' devices, need an elevated prompt";
        Check::notice("elevation", "this program does not run elevated", remedy)
    });
    let unknown = |name: &str| Check::new(name, Verdict::Unknown, "Windows does not say");
    checks.push(match (facts.secure_boot, facts.test_signing) {
        (Some(false), _) => Check::good("Secure Boot", "off"),
        (Some(true), Some(false)) => Check::bad(
            "Secure Boot",
            "on: test signing cannot be turned on",
            "turn it off in the machine's firmware (Hyper-V: `Set-VMFirmware NAME -EnableSecureBoot Off`)",
        ),
        (Some(true), _) => Check::notice(
            "Secure Boot",
            "on",
            "drivers with a test signature do not load; those that Microsoft has signed do",
        ),
        (None, _) => unknown("Secure Boot"),
    });
    checks.push(match facts.test_signing {
        Some(true) => Check::good("test signing", "on"),
        Some(false) => {
            Check::bad("test signing", "off: Windows does not load drivers with a test signature", TEST_SIGNING_ON)
        }
        None => unknown("test signing"),
    });
    checks.push(match facts.hvci {
        Some(false) => Check::good("memory integrity (HVCI)", "off"),
        Some(true) => Check::notice(
            "memory integrity (HVCI)",
            "on",
            "if a driver does not load (problem 39 or 52), turn it off in Windows Security, Core isolation, and restart",
        ),
        None => unknown("memory integrity (HVCI)"),
    });
}

fn of_driver(driver: &Driver, staged: &[Staged], devices: &[Device], loaded: bool, checks: &mut Vec<Check>) {
    let install = if driver == &NIC {
        "`ndkctl nic pair --package FOLDER` installs it"
    } else {
        "`ndkctl driver install --package FOLDER` installs it"
    };
    let name = format!("{}: package", driver.name);
    let newest = staged.iter().max_by_key(|one| one.version);
    let Some(newest) = newest else {
        checks.push(if devices.is_empty() {
            Check::notice(name, "not installed", install)
        } else {
            Check::bad(name, "none, though it has devices", install)
        });
        return;
    };
    checks.push(if staged.len() == 1 {
        Check::good(name, format!("{} ({})", newest.version, newest.name))
    } else {
        let all: Vec<_> = staged.iter().map(|one| format!("{} ({})", one.version, one.name)).collect();
        Check::notice(name, all.join(", "), "an install deletes all but its own")
    });
    if devices.is_empty() {
        checks.push(Check::bad(format!("{}: devices", driver.name), "none", install));
    }
    for device in devices {
        let name = format!("{}: {}", driver.name, device.instance);
        checks.push(match device.problem {
            0 if !device.started => Check::bad(name, "does not run", install),
            0 if device.inf.as_deref() != Some(newest.name.as_str()) => {
                let inf = device.inf.as_deref().unwrap_or("no package");
                Check::notice(name, format!("runs with {inf}, and {} is newer", newest.name), install)
            }
            0 => Check::good(name, "runs"),
            code => Check::bad(name, format!("problem {code}: {}", problem(code).text), problem(code).remedy),
        });
        if let Some(rdma) = device.rdma {
            let name = format!("{}: RDMA of {}", driver.name, device.instance);
            checks.push(if rdma {
                Check::good(name, "enabled; `ndkctl adapters` says what NDIS makes of it")
            } else {
                Check::bad(name, "disabled (*NetworkDirect)", "Enable-NetAdapterRdma")
            });
        }
    }
    if devices.is_empty() && loaded {
        let remedy = "somebody has it open, or a restart is due";
        checks.push(Check::notice(format!("{}: image", driver.name), "in the kernel without a device", remedy));
    }
}

/// The doubt about frames between two addresses of one machine.
const DOUBT: &str =
    "`ndkctl nic pair` adds it; RDMA does not depend on it, and whether TCP and SMB then use the cable is untried";

fn of_network(machine: &impl Machine, pair: &Pair, checks: &mut Vec<Check>) -> Result<()> {
    let devices = machine.devices(&NIC)?;
    if devices.is_empty() {
        checks.push(Check::new("network", Verdict::Skipped, "there is no virtual NIC"));
        return Ok(());
    }
    let chosen = ends(machine, &devices, &pair.names)?;
    let mut interfaces = [None, None];
    for (place, device) in interfaces.iter_mut().zip(&chosen) {
        if let Some(guid) = device.as_ref().and_then(|device| device.interface.as_deref()) {
            *place = machine.interface(guid)?;
        }
    }
    for end in 0..2 {
        let name = format!("end {}", end + 1);
        let Some(own) = &interfaces[end] else {
            let found = if chosen[end].is_some() { "it has no IPv4" } else { "there is no such NIC" };
            checks.push(Check::bad(name, found, "`ndkctl nic pair --package FOLDER`"));
            continue;
        };
        let addresses: Vec<_> = own.addresses.iter().map(ToString::to_string).collect();
        let found = format!("{} (index {}): {}", own.alias, own.index, addresses.join(" "));
        // Those that Windows makes up where nobody gives any out do not count.
        let addressed = own.addresses.iter().any(|address| !address.is_link_local());
        checks.push(if !own.up {
            Check::bad(name, format!("{found}, not connected"), "both ends have to be enabled (Enable-NetAdapter)")
        } else if !addressed {
            Check::bad(name, found, "`ndkctl nic pair` gives it an address, which a restart takes away")
        } else if same_name(&own.alias, &pair.names[end]) {
            Check::good(name, found)
        } else {
            Check::notice(name, found, format!("`ndkctl nic pair` names it `{}`", pair.names[end]))
        });
        let Some(other) = &interfaces[1 - end] else { continue };
        for peer in other.addresses.iter().filter(|address| !address.is_link_local()) {
            let routed = machine.routed(own.luid, *peer)?;
            let known = machine.neighbour(own.luid, *peer)? == Some(other.mac);
            let name = format!("route to {peer} through end {}", end + 1);
            checks.push(if routed && known {
                Check::good(name, "there, with the neighbour")
            } else {
                Check::notice(name, "none", DOUBT)
            });
        }
    }
    checks.push(match machine.firewall()? {
        Firewall::Off => Check::good("firewall", "off for public networks"),
        Firewall::On => Check::notice(
            "firewall",
            "on for public networks, and the cable is one",
            "RDMA does not pass it; for TCP and SMB over the cable a rule may be needed, which is untried",
        ),
    });
    Ok(())
}

/// What of it applies to a machine without Windows. `wine` says whether Wine is there.
#[must_use]
pub fn elsewhere(system: &str, wine: bool) -> Vec<Check> {
    let kernel = "drivers, NICs, firewall, signatures";
    vec![
        Check::good("provider", "runs in this program: `ndkctl selftest` tests it"),
        if wine {
            Check::good("driver images", "Wine is there: `ndkctl run` runs them in a simulated kernel")
        } else {
            Check::notice(
                "driver images",
                "there is no Wine to run them with",
                "cargo xtask worker installs it on Debian",
            )
        },
        Check::new(kernel, Verdict::Skipped, format!("this is {system}: they are parts of Windows"))
            .with("run `ndkctl doctor` on the Windows machine (docs/windows-vm.md)"),
    ]
}
