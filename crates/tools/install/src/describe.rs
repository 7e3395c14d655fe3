//! Words for what is wrong.

use std::fmt;

use serde::Serialize;

/// What is wrong, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Why {
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

impl Why {
    pub(crate) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.remedy)
    }
}

/// A problem code of Windows (`CM_PROB_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its number.
    pub code: u32,
    /// What it means.
    pub text: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
    /// A restart is what it asks for.
    pub restart: bool,
}

const LOG: &str = "look at C:\\Windows\\INF\\setupapi.dev.log, and at the driver's traces (docs/windows-vm.md)";
const AGAIN: &str = "`ndkctl driver install` again";
const SIGNATURE: &str = "`ndkctl doctor` says what its signature needs";

/// The codes that a root-enumerated device of these drivers can have.
const PROBLEMS: [Problem; 19] = [
    of(1, "it is not configured", AGAIN),
    of(3, "the driver may be damaged, or there is no memory for it", LOG),
    of(9, "its hardware identifiers are wrong", "`ndkctl driver uninstall`, then install again"),
    of(10, "its driver failed to start it", LOG),
    needs_restart(14),
    of(18, "its driver has to be installed again", AGAIN),
    of(19, "what the registry has of it is damaged", "`ndkctl driver uninstall`, then install again"),
    needs_restart(21),
    of(22, "it is disabled", "enable it in the device manager (`pnputil /enable-device`)"),
    of(28, "it has no driver", AGAIN),
    of(31, "its driver could not be added to it", LOG),
    of(32, "the driver's service is disabled", "set its start type to 3 (`sc config NAME start= demand`)"),
    of(37, "its driver failed to initialise", LOG),
    needs_restart(38),
    of(39, "its driver could not be loaded", LOG),
    of(43, "its driver reported that it failed", LOG),
    of(48, "Windows blocks its driver", SIGNATURE),
    of(52, "Windows does not accept the signature of its driver", SIGNATURE),
    of(
        56,
        "its class is still being set up: for a NIC, the network bindings",
        "wait; if it stays, restart the machine",
    ),
];

const fn of(code: u32, text: &'static str, remedy: &'static str) -> Problem {
    Problem { code, text, remedy, restart: false }
}

const fn needs_restart(code: u32) -> Problem {
    let text = match code {
        21 => "Windows is removing it",
        38 => "an earlier load of its driver is still in memory",
        _ => "it works after a restart only",
    };
    Problem { code, text, remedy: "restart the machine", restart: true }
}

/// What a problem code means.
#[must_use]
pub fn problem(code: u32) -> Problem {
    let unknown = of(code, "it does not run", LOG);
    PROBLEMS.into_iter().find(|one| one.code == code).unwrap_or(unknown)
}
