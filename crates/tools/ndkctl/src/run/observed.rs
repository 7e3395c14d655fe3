//! `--record`, `--timeline` and `--fault`: what `ndkctl record` and `ndkctl faults` ask of a driver, asked as soon as its first device is started.

use std::{
    fs,
    path::{Path, PathBuf},
};

use control::provider_device::{self as device, SET_FAULT_PLAN, SET_RECORDING};
use host::note;
use interpose::faults::Plan;
use recording::Recording;
use runner::{
    Results, Script,
    report::Outcome,
    script::Told,
    worker::{Job, Recordings},
};
use tempfile::TempDir;

use super::{Run, workers};
use crate::{fault_plan, fault_rule};

/// Our drivers: those that record and let faults happen, and their control devices. For everybody whose calls are found wrong they are the
/// other side of NDK.
const PROVIDERS: [(&str, &str); 2] = [("softndk", device::LINK_NAME), ("softndknic", device::NIC_LINK_NAME)];

/// True of an image, as findings call it, if it is one of our drivers.
pub fn is_provider(image: &str) -> bool {
    let stem = image.strip_suffix(".sys");
    PROVIDERS.iter().any(|(provider, _)| stem == Some(*provider))
}

/// What happens to consumers in every run with seeds: half of the calls that may pend do, and complete later. A mistake that needs that
/// would else show with one seed in many.
const BY_DEFAULT: &str = "late,chance=500000";

/// Has the drivers of a script do what the command line says.
pub fn ask(args: &Run, script: &mut Script) -> Result<(), String> {
    let is_seeded = args.threads.is_none() && !script.kernel.threads;
    if args.fault.is_empty() && !args.no_advise && is_seeded {
        let plan = fault_plan::plan(0, &[fault_rule::parse(BY_DEFAULT)?])?;
        for (stem, link) in PROVIDERS {
            let (link, input) = (link.to_owned(), plan.to_bytes().to_vec());
            // A run without these drivers has nobody to tell.
            script.tell(stem, &Told { link, code: SET_FAULT_PLAN, input, seed_at: Some(Plan::SEED_AT) });
        }
    }
    let mut wanted: Vec<(u32, Vec<u8>, Option<usize>)> = Vec::new();
    if !args.fault.is_empty() {
        let plan = fault_plan::plan(0, &args.fault)?;
        wanted.push((SET_FAULT_PLAN, plan.to_bytes().to_vec(), Some(Plan::SEED_AT)));
    }
    if args.record.is_wanted() {
        let recording = device::Recording { slots: args.record.slots, keep: args.record.last.into() };
        if !recording.is_valid() {
            return Err("a driver records 256 to 1M slots (--record-slots)".to_owned());
        }
        wanted.push((SET_RECORDING, recording.to_bytes().to_vec(), None));
    }
    for (code, input, seed_at) in wanted {
        let told = PROVIDERS.map(|(stem, link)| {
            let told = Told { link: link.to_owned(), code, input: input.clone(), seed_at };
            script.tell(stem, &told)
        });
        if told == [false, false] {
            return Err(
                "softndk.sys and softndknic.sys record and let faults happen, and the run has neither".to_owned()
            );
        }
    }
    Ok(())
}

/// A folder for the recordings of the workers, which goes with this. What cannot be removed is in the folder for temporary files.
pub struct Folder(TempDir);

impl Folder {
    /// Makes one if anything is to be recorded, and has the workers put their recordings there.
    pub fn of(args: &Run, job: &mut Job) -> Result<Option<Self>, String> {
        let Some(passing) = args.seeds.iter().last().filter(|_| args.record.is_wanted()) else { return Ok(None) };
        let folder = tempfile::Builder::new().prefix("ndkctl-run-").tempdir();
        let folder = folder.map_err(|error| format!("a folder for recordings: {error}"))?;
        job.recordings = Some(Recordings { folder: workers::path(folder.path()), passing, machine: None });
        Ok(Some(Self(folder)))
    }

    /// Calls objects in findings of the adviser as the timeline of the same run calls them.
    pub fn rename(&self, results: &mut Results) {
        for outcome in &mut results.outcomes {
            let files: Vec<_> = outcome
                .findings
                .iter()
                .map(|finding| {
                    self.file_of(outcome, finding.machine.as_deref()).filter(|_| finding.rule.starts_with("SN"))
                })
                .collect();
            for (finding, file) in outcome.findings.iter_mut().zip(files) {
                let recording = file
                    .and_then(|file| recording::salvage(&fs::read(file).ok()?))
                    .and_then(|file| Recording::read(&file).ok());
                if let Some(recording) = recording {
                    finding.words = recording.in_its_names(&finding.rule, &finding.words);
                }
            }
        }
    }

    /// Writes what was asked for: the recording of the first run in which something was found, or of the last seed if nothing was. Of
    /// several machines each has a file of its own, with its name.
    pub fn write(&self, args: &Run, script: &Script, results: &Results) -> Result<(), String> {
        let machines: Vec<Option<&str>> = match &script.machines[..] {
            [] => vec![None],
            nodes => nodes.iter().map(|node| Some(node.name.as_str())).collect(),
        };
        let found = results.outcomes.iter().filter(|outcome| !outcome.findings.is_empty());
        let passed = results.outcomes.iter().rev().filter(|outcome| outcome.findings.is_empty());
        // A worker that was ended from outside has left none.
        let recorded = found.chain(passed).find_map(|outcome| {
            let files: Vec<_> =
                machines.iter().filter_map(|name| Some((*name, self.file_of(outcome, *name)?))).collect();
            (!files.is_empty()).then_some((outcome, files))
        });
        let Some((outcome, files)) = recorded else {
            return Err("no run has left a recording: nobody opened an adapter, or the process was ended from outside"
                .to_owned());
        };
        let mut is_written = false;
        for (machine, memory) in files {
            let memory = fs::read(&memory).map_err(|error| format!("{}: {error}", memory.display()))?;
            if let Some(file) = recording::salvage(&memory) {
                args.record.of_machine(machine).write(&file)?;
                is_written = true;
            }
        }
        if !is_written {
            return Err(format!("nothing was recorded with {outcome}: nobody opened an adapter"));
        }
        let ended = outcome.findings.first().map_or("which passes", |finding| finding.rule.as_str());
        note!("recorded: {outcome}, {ended}");
        Ok(())
    }

    /// The slots of a run, if it has left any: of that machine, if there are several.
    fn file_of(&self, outcome: &Outcome, machine: Option<&str>) -> Option<PathBuf> {
        let file = Recordings::file(self.0.path(), outcome.seed, outcome.fault, machine);
        Path::exists(&file).then_some(file)
    }
}
