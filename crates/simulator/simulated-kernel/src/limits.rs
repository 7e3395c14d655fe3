//! The IRQL up to which each routine may be called, from the table of what the DDI reference says.

use std::sync::OnceLock;

use host::machine::Irql;
use litemap::LiteMap;

use crate::{report::bug_check, rule::Rule};

/// What the DDI reference says of each routine.
const FACTS: &str = include_str!("../../../../tests-host/facts/ddi.json");

/// Routines whose level the table does not have because the reference gives it in its remarks, in two parts, or on the page for
/// programs only. What more there
/// is to say, such as that a wait is allowed below this level only, the routines themselves check.
const IN_REMARKS: [&str; 15] = [
    "ExAllocatePoolWithTag",
    "KeReleaseSemaphore",
    "KeSetEvent",
    "KeWaitForMultipleObjects",
    "KeWaitForSingleObject",
    "MmAllocatePagesForMdlEx",
    "MmFreePagesFromMdl",
    "MmMapLockedPagesSpecifyCache",
    "MmProbeAndLockPages",
    "MmUnmapLockedPages",
    "RtlCaptureStackBackTrace",
    "RtlInitUnicodeString",
    "WdfObjectDelete",
    "WdfObjectDereferenceActual",
    "WdfObjectReferenceActual",
];

/// The highest level of a routine.
pub fn of(routine: &str) -> Irql {
    static LIMITS: OnceLock<LiteMap<String, Irql>> = OnceLock::new();
    let limits = LIMITS.get_or_init(|| {
        let facts: serde_json::Value = serde_json::from_str(FACTS).expect("the facts are JSON");
        let routines = facts.as_object().expect("the facts are an object");
        routines.iter().map(|(name, fact)| (name.clone(), level(fact["irql"].as_str().unwrap_or("")))).collect()
    });
    if IN_REMARKS.contains(&routine) {
        return Irql::DISPATCH_LEVEL;
    }
    let limit = limits.get(routine);
    *limit.unwrap_or_else(|| bug_check(Rule::NotSimulated, format_args!("nothing is known about {routine}")))
}

/// The first level that the words name: `<= DISPATCH_LEVEL`, `PASSIVE_LEVEL (see Remarks)`.
fn level(words: &str) -> Irql {
    let levels = [
        ("PASSIVE_LEVEL", Irql::PASSIVE_LEVEL),
        ("APC_LEVEL", Irql::APC_LEVEL),
        ("DISPATCH_LEVEL", Irql::DISPATCH_LEVEL),
        ("HIGH_LEVEL", Irql::HIGH_LEVEL),
    ];
    if words.starts_with("< ") {
        return Irql::APC_LEVEL;
    }
    if words.contains(">=") || words.to_lowercase().contains("see remarks") {
        return Irql::HIGH_LEVEL;
    }
    let found = levels.iter().filter_map(|&(name, irql)| Some((words.find(name)?, irql)));
    found.map(|(_, irql)| irql).max().unwrap_or(Irql::HIGH_LEVEL)
}
