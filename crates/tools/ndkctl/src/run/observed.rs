//! `--record`, `--timeline` and `--fault`: what `ndkctl record` and `ndkctl faults` ask of a driver, asked as soon as its first device is started.

use std::{
    fs,
    path::{Path, PathBuf},
};

use control::provider_device::{self as device, SET_FAULT_PLAN, SET_RECORDING};
use host::note;
use interpose::faults::{Plan, Rule};
use recording::Recording;
use runner::{
    Results, Script,
    report::Outcome,
    script::Ioctl,
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

/// A rule of `--fault`: for all machines of a script, or for the one of that name.
#[derive(Clone, Debug)]
pub struct Fault {
    machine: Option<String>,
    rule: Rule,
}

impl Fault {
    fn is_for(&self, machine: Option<&str>) -> bool {
        self.machine.is_none() || self.machine.as_deref() == machine
    }
}

/// `late,chance=1000`, or `server:late,chance=1000`.
///
/// # Errors
///
/// What is wrong with the rule, and what is allowed.
pub fn parse_fault(text: &str) -> Result<Fault, String> {
    // The name of a fault has no colon. That of an object may have one (`object=CQ:3`), behind a comma.
    let first = text.split(',').next().unwrap_or_default();
    let (machine, rule) = match first.split_once(':') {
        Some((machine, _)) => (Some(machine.trim().to_owned()), &text[machine.len() + 1..]),
        None => (None, text),
    };
    Ok(Fault { machine, rule: fault_rule::parse(rule)? })
}

/// What is done on each machine, with its name if there are several.
fn machines(script: &mut Script) -> Vec<(Option<String>, &mut Script)> {
    if script.machines.is_empty() {
        return vec![(None, script)];
    }
    script.machines.iter_mut().map(|node| (Some(node.name.clone()), &mut node.script)).collect()
}

/// Tells our drivers of a machine something. Returns false if it has none.
fn tell(script: &mut Script, code: u32, input: &[u8], seed_at: Option<usize>) -> bool {
    let sent = PROVIDERS.map(|(stem, link)| {
        script.send_ioctl(stem, &Ioctl { link: link.to_owned(), code, input: input.to_vec(), seed_at })
    });
    sent.contains(&true)
}

fn tell_faults(script: &mut Script, rules: &[Rule]) -> Result<bool, String> {
    let plan = fault_plan::plan(0, rules)?;
    Ok(tell(script, SET_FAULT_PLAN, &plan.to_bytes(), Some(Plan::SEED_AT)))
}

/// Has the drivers of a script do what the command line says.
pub fn ask(args: &Run, script: &mut Script) -> Result<(), String> {
    const NOBODY: &str = "softndk.sys and softndknic.sys record and let faults happen";
    let recording = device::Recording { slots: args.record.slots, keep: args.record.last.into() };
    if args.record.is_wanted() && !recording.is_valid() {
        return Err("a driver records 256 to 1M slots (--record-slots)".to_owned());
    }
    let is_seeded = args.threads.is_none() && !script.kernel.threads;
    let mut machines = machines(script);
    for name in args.fault.iter().filter_map(|fault| fault.machine.as_deref()) {
        if !machines.iter().any(|(machine, _)| machine.as_deref() == Some(name)) {
            let names: Vec<_> = machines.iter().filter_map(|(machine, _)| machine.as_deref()).collect();
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(format!("--fault {name}: the script has no machine of that name; those with a name: {there}"));
        }
    }
    let (mut is_heard, mut is_recorded) = (vec![false; args.fault.len()], false);
    for (name, script) in &mut machines {
        let mine: Vec<usize> =
            (0..args.fault.len()).filter(|&index| args.fault[index].is_for(name.as_deref())).collect();
        if !mine.is_empty() {
            let rules: Vec<_> = mine.iter().map(|&index| args.fault[index].rule).collect();
            if tell_faults(script, &rules)? {
                for index in mine {
                    is_heard[index] = true;
                }
            }
        } else if !args.no_advise && is_seeded {
            // A run without these drivers has nobody to tell.
            tell_faults(script, &[fault_rule::parse(BY_DEFAULT)?])?;
        }
        if args.record.is_wanted() {
            is_recorded |= tell(script, SET_RECORDING, &recording.to_bytes(), None);
        }
    }
    if let Some(index) = is_heard.iter().position(|is_heard| !is_heard) {
        let machine = args.fault[index].machine.as_deref();
        let whose = machine.map_or_else(|| "the run".to_owned(), |name| format!("machine {name}"));
        return Err(format!("{NOBODY}, and {whose} has neither"));
    }
    if args.record.is_wanted() && !is_recorded {
        return Err(format!("{NOBODY}, and the run has neither"));
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        run: Run,
    }

    /// Two machines with our driver, and one without.
    const SCRIPT: &str = r#"
        [[machine]]
        name = "server"
        addresses = ["192.0.2.1/24"]
        image = [{ name = "softndknic", file = "softndknic.sys" }]
        step = [{ do = "load", image = "softndknic" }]

        [[machine]]
        name = "client"
        addresses = ["192.0.2.2/24"]
        image = [{ name = "softndknic", file = "softndknic.sys" }]
        step = [{ do = "load", image = "softndknic" }]

        [[machine]]
        name = "other"
        addresses = ["192.0.2.3/24"]
        image = [{ name = "consumer", file = "consumer.sys" }]
        step = [{ do = "load", image = "consumer" }]
    "#;

    /// How many rules the driver of each machine is told, after these arguments; none if it is told nothing.
    fn told(arguments: &str) -> Result<Vec<Option<usize>>, String> {
        let mut script = runner::parse::parse(SCRIPT).expect("a script");
        let arguments = ["run", "image.sys"].into_iter().chain(arguments.split_whitespace());
        ask(&Command::try_parse_from(arguments).map_err(|error| error.to_string())?.run, &mut script)?;
        let of = |node: &runner::script::Node| {
            let ioctls = node.script.images.iter().flat_map(|image| &image.ioctls);
            ioctls
                .filter(|ioctl| ioctl.code == SET_FAULT_PLAN)
                .map(|ioctl| Plan::from_bytes(&ioctl.input).expect("a plan").rules().count())
                .next()
        };
        Ok(script.machines.iter().map(of).collect())
    }

    #[test]
    fn a_fault_is_for_all_machines_or_for_the_one_that_it_names() {
        assert_eq!(told("--no-advise"), Ok(vec![None, None, None]));
        assert_eq!(told("--no-advise --fault late"), Ok(vec![Some(1), Some(1), None]));
        assert_eq!(told("--no-advise --fault client:late,object=CQ:3"), Ok(vec![None, Some(1), None]));
        assert_eq!(
            told("--no-advise --fault client:late --fault server:late --fault early"),
            Ok(vec![Some(2), Some(2), None])
        );
        assert_eq!(told("--fault client:late --fault early"), Ok(vec![Some(1), Some(2), None]));
        assert_eq!(told("--fault client:late"), Ok(vec![Some(1), Some(1), None]), "the others keep what is by default");
    }

    #[test]
    fn a_fault_that_nobody_lets_happen_is_refused() {
        let of = |arguments| told(arguments).expect_err("it is refused");
        assert!(of("--fault nobody:late").contains("server, client, other"));
        assert!(of("--fault other:late").contains("machine other has neither"));
        assert!(of("--fault client:nonsense").contains("there is no fault `nonsense`"));
    }
}
