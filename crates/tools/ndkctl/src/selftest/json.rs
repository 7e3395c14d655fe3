//! The results of a run for programs, as they are written and read again.

use std::thread::available_parallelism;

use conformance::{Case, Tally};
use serde::{Deserialize, Serialize};

use super::{again::again, completion, results::Results, version};
use crate::{args::Selftest, fault_rule};

/// A case.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct CaseJson {
    pub name: String,
    pub section: String,
    pub does: String,
    pub expects: String,
}

impl CaseJson {
    pub fn new(case: &Case) -> Self {
        let owned = str::to_owned;
        Self {
            name: owned(case.name),
            section: owned(case.section),
            does: owned(case.does),
            expects: owned(case.expects),
        }
    }
}

/// A case that has run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct EntryJson {
    #[serde(flatten)]
    pub case: CaseJson,
    pub outcome: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    pub micros: u64,
    pub seed: u64,
    /// The command that repeats it.
    #[serde(default)]
    pub again: String,
}

/// What was tested, as it says of itself.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AdapterJson {
    pub name: String,
    /// The driver and its version, if it says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The version of NDKPI in force.
    pub ndkpi: String,
    /// The vendor's identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub technology: Option<String>,
}

/// Where the program ran.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct HostJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub os: String,
    pub arch: String,
    pub processors: usize,
}

impl HostJson {
    fn here() -> Self {
        let name = std::env::var("COMPUTERNAME").ok();
        let name = name.or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
        Self {
            name: name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()),
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            processors: available_parallelism().map_or(1, usize::from),
        }
    }
}

/// A recording that was kept.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RecordingJson {
    /// The case that it is of.
    pub case: String,
    pub file: String,
}

/// A finding of the adviser.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct FindingJson {
    pub finding: String,
    pub times: u32,
}

/// A run. What is optional was not written by earlier versions.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ResultsJson {
    /// The version of this program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    pub seed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<AdapterJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostJson>,
    /// The kind of hardware whose limits the adapter has; on the host only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The rules of what went wrong on purpose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    pub completion: String,
    pub ndkpi: String,
    pub deterministic: bool,
    pub interrupted: bool,
    pub passed: u32,
    pub failed: u32,
    pub observed: u32,
    pub skipped: u32,
    #[serde(default)]
    pub inconclusive: u32,
    pub seconds: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<RecordingJson>,
    /// With the adviser.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<FindingJson>,
    pub cases: Vec<EntryJson>,
}

impl ResultsJson {
    pub fn new(args: &Selftest, adapter: Option<AdapterJson>, results: &Results) -> Self {
        let entries = results.entries.iter().map(|entry| EntryJson {
            case: CaseJson::new(entry.case),
            outcome: entry.outcome.word().to_owned(),
            text: entry.outcome.text().to_owned(),
            micros: u64::try_from(entry.took.as_micros()).unwrap_or(u64::MAX),
            seed: entry.seed,
            again: again(args, entry.case, entry.seed),
        });
        let Tally { passed, failed, observed, skipped, inconclusive } = results.tally;
        let recording = results.recorded.zip(args.record.file.as_ref());
        Self {
            program: Some(env!("CARGO_PKG_VERSION").to_owned()),
            seed: args.seed,
            interface: args.interface.clone(),
            peer: args.peer.clone(),
            adapter,
            host: Some(HostJson::here()),
            profile: (!args.driver).then(|| args.machine.profile.0.name().to_owned()),
            faults: args.fault.iter().map(fault_rule::shown).collect(),
            completion: completion(args),
            ndkpi: version(args).unwrap_or_default().to_string(),
            deterministic: args.deterministic,
            interrupted: results.interrupted,
            passed,
            failed,
            observed,
            skipped,
            inconclusive,
            seconds: results.took.as_secs_f64(),
            recording: recording
                .map(|(case, file)| RecordingJson { case: case.to_owned(), file: file.display().to_string() }),
            findings: results
                .findings
                .iter()
                .map(|(finding, times)| FindingJson { finding: finding.to_string(), times: *times })
                .collect(),
            cases: entries.collect(),
        }
    }
}
