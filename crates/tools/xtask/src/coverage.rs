//! What ran: programs with counters in them, and what LLVM's tools make of those.

mod lines;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use xshell::cmd;

use crate::context::{Context, absolute, executables, have, llvm_version};
use lines::{Known, Lines};

/// The crates whose lines are looked at.
const CRATES: [&str; 6] =
    ["provider/engine", "provider/provider", "provider/fallible", "provider/roce", "provider/crc32", "drivers/cable"];

/// Crates whose own tests are run, all of them: the wire, what has no other tests, and the host that drives its wire itself.
const WITH_TESTS: [&str; 5] = ["fallible", "roce", "crc32", "cable", "ndk"];

/// Those of [`TESTS`].
const OF_TESTS: [&str; 6] = ["conformance", "engine", "host", "kernel-tests", "provider", "tests-host"];

/// The tests of the rules, the user-mode interface and the drivers.
const TESTS: [&str; 21] = [
    "cq_rules",
    "qp_rules",
    "memory",
    "connection",
    "notify_decision",
    "cq_model",
    "out_of_memory",
    "provider",
    "faults",
    "mdl_chains",
    "conformance",
    "conformance_cancel",
    "soak",
    "host_machine",
    "reasons",
    "nd2",
    "drivers",
    "nic",
    "slab",
    "wire",
    "wire_engine",
];

/// The list of lines that no test runs, with reasons.
const LIST: &str = "tests-host/uncovered.toml";

/// Finds the lines of engine, provider and wire that no test runs
///
/// Runs random programs against the oracle, the suite under both engines, wrong providers, and the tests of the rules, the wire, the user-mode
/// interface and the drivers. tests-host/uncovered.toml has the reason for each line that was not run. Fails and names the line where the
/// two disagree: a line that was not run and has no reason, or a reason whose line was run or is gone. Ten minutes.
///
/// Needs llvm-profdata and llvm-cov of the compiler's LLVM: Debian's package llvm-22, which this installs.
#[derive(clap::Args)]
pub struct Coverage {
    /// Only programs and the suite, a quarter of the time: prints the lines that were not run, and compares nothing
    #[arg(long)]
    short: bool,
}

impl Coverage {
    pub fn run(&self, context: &Context) -> Result<()> {
        let sh = &context.sh;
        let rustc = cmd!(sh, "rustc -vV").quiet().read()?;
        let llvm = llvm_version(&rustc).context("rustc does not say which LLVM it has")?;
        let tool = |name: &str| format!("{name}-{llvm}");
        if !have(&tool("llvm-cov")) {
            context.install(&[&tool("llvm")]).context("this compiler's profiles need the llvm-cov of its LLVM")?;
        }

        let folder = absolute("target/coverage");
        let profiles = folder.join("profiles");
        sh.remove_path(&profiles)?;
        sh.create_dir(&profiles)?;
        let _flags = sh.push_env("RUSTFLAGS", "-Cinstrument-coverage");
        let _incremental = sh.push_env("CARGO_INCREMENTAL", "0");
        let _profiles = sh.push_env("LLVM_PROFILE_FILE", profiles.join("%p-%m.profraw"));
        let programs = self.run_programs(context, &folder)?;

        let (merged, profdata) = (folder.join("all.profdata"), tool("llvm-profdata"));
        let raw = crate::context::files(&profiles)?;
        cmd!(sh, "{profdata} merge -sparse {raw...} -o {merged}").quiet().run()?;
        // One program at a time: of several, llvm-cov takes a function's record from the first that has one, and that is one of zeros
        // where the compiler has inlined the function everywhere.
        let mut lines = Lines::default();
        for program in &programs {
            let (cov, sources) = (tool("llvm-cov"), CRATES.map(|folder| absolute(&format!("crates/{folder}/src"))));
            let export =
                cmd!(sh, "{cov} export --format=lcov --instr-profile {merged} {program} --sources {sources...}");
            lines.add(&export.quiet().ignore_stderr().read()?)?;
        }
        // A part of the tests leaves more lines than the list has reasons for.
        let known = if self.short { None } else { Some(Known::read(&sh.read_file(LIST)?).context(LIST)?) };
        let report = lines.compare(known, |file| Ok(sh.read_file(file)?))?;
        report.lines.iter().for_each(|line| println!("{line}"));
        println!("{}", report.total);
        ensure!(self.short || report.lines.is_empty(), "{} lines disagree with {LIST}", report.lines.len());
        Ok(())
    }

    /// Builds the programs, runs them, and returns them.
    fn run_programs(&self, context: &Context, folder: &Path) -> Result<Vec<PathBuf>> {
        let sh = &context.sh;
        let mut programs =
            executables(cmd!(sh, "cargo build --quiet --target-dir {folder} -p programs --example programs"))?;
        programs.extend(executables(cmd!(sh, "cargo build --quiet --target-dir {folder} -p ndkctl --bin ndkctl"))?);
        let [oracle, ndkctl] = &programs[..] else {
            anyhow::bail!("two programs were to be built, and are {programs:?}")
        };
        cmd!(sh, "{oracle} --programs 5000 --report 0").run()?;
        for nic in ["deferred", "direct"] {
            let said = cmd!(sh, "{ndkctl} selftest --deterministic --nic {nic} --completion mixed").read()?;
            println!("{}", said.lines().last().unwrap_or_default());
        }
        if !self.short {
            let tests = TESTS.map(|test| format!("--test={test}"));
            let packages = OF_TESTS.map(|package| format!("--package={package}"));
            let build = cmd!(sh, "cargo test --quiet --target-dir {folder} --no-run {packages...} {tests...}");
            let mut tests = executables(build)?;
            let packages = WITH_TESTS.map(|package| format!("--package={package}"));
            tests.extend(executables(cmd!(
                sh,
                "cargo test --quiet --target-dir {folder} --no-run --tests {packages...}"
            ))?);
            for test in &tests {
                let output = cmd!(sh, "{test} --quiet").quiet().ignore_status().output()?;
                let said = String::from_utf8_lossy(&output.stdout);
                ensure!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
                let result = said.lines().find(|line| line.starts_with("test result")).unwrap_or_default();
                println!("{}: {result}", test.file_stem().unwrap_or_default().display());
            }
            programs.extend(tests);
        }
        Ok(programs)
    }
}
