use anyhow::Result;
use xshell::cmd;

use crate::context::Context;

const CRATES: [&str; 7] = [
    "provider/fallible",
    "provider/engine",
    "provider/provider",
    "drivers/kernel",
    "drivers/driver-common",
    "drivers/softndk",
    "drivers/softndknic",
];

/// Tests that are about other things, and the stress tests of the simulation, reach nothing that these do not.
const TESTS: &str = "rules memory adviser conformance conformance_cancel connection cq_model cq_rules cq_stress driver_os \
    driver_runs drivers faults host_machine interpose kernel_rules layers limits mdl_chains nd2 nd2_observe nd2_processes \
    nd2_unload ndis_rules ndk_in_kernel nic notify_decision out_of_memory profiles programs protocol_model provider_notes \
    provider_objects provider_rules qp_rules reasons replay runs soak wdm_rules wrong_drivers";

/// The packages of those tests.
const PACKAGES: &str = "fallible engine provider host interpose replay conformance kernel driver-common softndk softndknic \
    models programs tests-host";

/// Changes the product in one place at a time, and sees if a test notices
///
/// Changes fallible, engine, provider and the drivers, and runs the tests that reach the place. A change that no test
/// notices is a hole in the tests. Fails and names the mutants that no test
/// notices. Those that no test could notice stand in tests-host/mutants/survivors.toml, each with its reason. Hours for all of them,
/// minutes for those of a change.
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
        let mut only = Vec::new();
        if let Some(base) = &self.diff {
            let crates = CRATES.map(|folder| format!("crates/{folder}/"));
            let diff = cmd!(sh, "git diff {base} -- {crates...}").read()?;
            if diff.is_empty() {
                println!("nothing of {} differs from {base}", CRATES.join(" "));
                return Ok(());
            }
            let file = results.join("diff");
            sh.write_file(&file, diff + "\n")?;
            only.extend(["--in-diff".into(), file.into_os_string()]);
        }
        if self.again {
            sh.remove_path(results.join("results.jsonl"))?;
        }
        let all = || CRATES.iter().map(|folder| format!("crates/{folder}/src/**")).collect();
        let files: Vec<String> = if self.files.is_empty() { all() } else { self.files.clone() };

        context.cargo_tool("cargo-mutants", &[])?;
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
        let known = "tests-host/mutants/survivors.toml";
        let run = cmd!(
            sh,
            "cargo run --quiet -p mutants --example mutants -- --list {list_file} --out {results} --known {known}"
        );
        run.args(options)
            .arg("--")
            .args(PACKAGES.split_whitespace().map(|package| format!("--package={package}")))
            .args(["--features", "softndk/faults", "--lib"])
            .args(TESTS.split_whitespace().map(|test| format!("--test={test}")))
            .env("CARGO_INCREMENTAL", "0")
            .env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only")
            .run()?;
        Ok(())
    }
}
