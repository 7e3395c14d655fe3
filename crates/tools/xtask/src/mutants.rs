use std::path::Path;

use anyhow::{Result, ensure};
use xshell::cmd;

use crate::context::Context;

/// Crates, and the tests that are asked about changes of them.
struct Part {
    /// Their folders.
    crates: &'static [&'static str],
    /// The packages of the tests.
    packages: &'static str,
    features: &'static [&'static str],
    tests: &'static str,
}

const PARTS: [Part; 2] = [
    Part {
        crates: &[
            "crates/provider/fallible/",
            "crates/provider/engine/",
            "crates/provider/provider/",
            "crates/drivers/kernel/",
            "crates/drivers/driver-common/",
            "crates/drivers/softndk/",
            "crates/drivers/softndknic/",
        ],
        packages: "fallible engine provider host interpose replay conformance kernel driver-common softndk softndknic \
            programs kernel-tests tests-host",
        features: &["--features", "softndk/faults"],
        // Tests that are about other things, and the stress tests of the simulation, reach nothing that these do not.
        tests: "rules memory adviser conformance conformance_cancel connection cq_model cq_rules cq_stress driver_os \
            driver_runs drivers faults host_machine interpose kernel_rules mdl_chains nd2 nd2_observe \
            nd2_processes nd2_unload ndis_rules ndk_in_kernel nic notify_decision out_of_memory programs \
            provider qp_rules reasons replay runs slab soak wdm_rules \
            wire wire_engine wrong_drivers",
    },
    // What is packets in and packets out has its tests beside it. They are built in a minute.
    Part {
        crates: &["crates/provider/crc32/", "crates/provider/delay/", "crates/provider/roce/", "crates/drivers/cable/"],
        packages: "crc32 delay roce cable",
        features: &[],
        tests: "allocations roce",
    },
];

/// Changes the product in one place at a time, and sees if a test notices
///
/// Changes fallible, engine, provider, the drivers, and the wire (roce, crc32, cable, delay), and runs the tests that reach the place. A change
/// that no test notices is a hole in the tests. Fails and names the mutants that no test notices. Those that no test could notice stand in
/// tests-host/mutants/survivors.toml, each with its reason. Hours for all of them, minutes for those of a change.
///
/// cargo-mutants says what the mutants are. All of them are built at once, and a number chooses one when a test program begins
/// (tests-host/mutants), so thousands take hours rather than days. A mutant that was caught is not tried again while its file is the
/// same: target/mutants/results.jsonl has what became of each, and by which test.
#[derive(clap::Args)]
pub struct Mutants {
    /// Only those in lines that differ from this commit
    #[arg(long, value_name = "BASE")]
    diff: Option<String>,
    /// Seconds of tests for each mutant, the quickest first [default: 40]
    #[arg(long, value_name = "SECONDS")]
    budget: Option<u32>,
    /// Only those that no test reaches
    #[arg(long)]
    reach: bool,
    /// Also those with a reason: which of them are caught, or are no mutants any more
    #[arg(long)]
    known_too: bool,
    /// Also those that were caught before
    #[arg(long)]
    again: bool,
    /// Those of these files, globs too: 'crates/provider/engine/src/cq/*' [default: all]
    files: Vec<String>,
}

impl Mutants {
    pub fn run(&self, context: &Context) -> Result<()> {
        let sh = &context.sh;
        let results = sh.create_dir("target/mutants")?;
        if self.again {
            sh.remove_path(results.join("results.jsonl"))?;
        }
        for file in &self.files {
            let is_known = PARTS.iter().any(|part| part.has(file));
            ensure!(
                is_known,
                "{file} is in no crate that is changed: {}",
                PARTS.map(|part| part.crates.join(" ")).join(" ")
            );
        }
        context.cargo_tool("cargo-mutants", &[])?;
        // A part that has a hole does not hide those of the next.
        let outcomes = PARTS.each_ref().map(|part| self.run_part(context, part, &results));
        outcomes.into_iter().collect()
    }

    fn run_part(&self, context: &Context, part: &Part, results: &Path) -> Result<()> {
        let sh = &context.sh;
        let mut only = Vec::new();
        if let Some(base) = &self.diff {
            let crates = part.crates;
            let diff = cmd!(sh, "git diff {base} -- {crates...}").read()?;
            if diff.is_empty() {
                println!("nothing of {} differs from {base}", crates.join(" "));
                return Ok(());
            }
            let file = results.join("diff");
            sh.write_file(&file, diff + "\n")?;
            only.extend(["--in-diff".into(), file.into_os_string()]);
        }
        let files: Vec<String> = if self.files.is_empty() {
            part.crates.iter().map(|folder| format!("{folder}src/**")).collect()
        } else {
            self.files.iter().filter(|file| part.has(file)).cloned().collect()
        };
        if files.is_empty() {
            return Ok(());
        }

        let file = files.iter().map(|file| format!("--file={file}"));
        let list = cmd!(sh, "cargo mutants --list --json --workspace --config tests-host/mutants/cargo-mutants.toml");
        let list = list.args(only).args(file).read()?;
        if list.trim() == "[]" {
            println!("there are no mutants in {}", files.join(" "));
            return Ok(());
        }
        let list_file = results.join("list.json");
        sh.write_file(&list_file, list)?;

        let mut options = Vec::new();
        if let Some(seconds) = self.budget {
            options.extend(["--budget".to_owned(), seconds.to_string()]);
        }
        options.extend(self.reach.then(|| "--reach".to_owned()));
        options.extend(self.known_too.then(|| "--known-too".to_owned()));
        // Of a part of a crate nobody can say what is no mutant any more.
        if self.diff.is_none() && self.files.is_empty() {
            options.extend(part.crates.iter().map(|folder| format!("--whole={folder}")));
        }
        let known = "tests-host/mutants/survivors.toml";
        let run = cmd!(
            sh,
            "cargo run --quiet -p mutants --example mutants -- --list {list_file} --out {results} --known {known}"
        );
        run.args(options)
            .arg("--")
            .args(part.packages.split_whitespace().map(|package| format!("--package={package}")))
            .args(part.features)
            .arg("--lib")
            .args(part.tests.split_whitespace().map(|test| format!("--test={test}")))
            .env("CARGO_INCREMENTAL", "0")
            .run()?;
        Ok(())
    }
}

impl Part {
    /// Whether a file, or a glob of files, is of these crates.
    fn has(&self, file: &str) -> bool {
        self.crates.iter().any(|folder| file.starts_with(folder))
    }
}
