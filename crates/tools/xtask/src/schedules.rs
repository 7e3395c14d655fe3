use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use xshell::cmd;

use crate::context::Context;

/// Cases about completion queues, and those with several tasks.
const CASES: &str = "arm.,notify.,overrun.,resize.,moderation.,flush.,close.";

/// Runs random schedules: programs against an oracle, cases of the suite
///
/// Through the provider's dispatch tables, on a machine of one thread, where a seed decides who runs at each lock, DPC, timer and wait:
///
/// - random programs of NDKPI calls by two consumers, each step compared with a sequential oracle (tests-host/programs);
///
/// - the cases of the suite about completion queues and those with several tasks: a tenth as many, because each takes nine times as long.
///
/// A schedule is one program or one case with one seed. What fails says how to run it again: `programs --program ...`, `ndkctl selftest
/// --deterministic --seed ...`. Code between two such points runs as one step: interleavings of single loads and stores are those of
/// `cargo xtask loom`. A million takes seven minutes of two processors. NDKCTL names a build of ndkctl; without it one is made.
#[derive(clap::Args)]
pub struct Schedules {
    #[arg(default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(10..1_000_000_000))]
    schedules: u64,
    #[arg(default_value_t = 0, value_parser = clap::value_parser!(u64).range(..1_000_000_000))]
    first_seed: u64,
}

impl Schedules {
    pub fn run(&self, context: &Context) -> Result<()> {
        let sh = &context.sh;
        let ndkctl = context.ndkctl("release")?;
        let list = cmd!(sh, "{ndkctl} selftest --list --filter {CASES} --json").quiet().read()?;
        let cases = list.matches("\"name\"").count() as u64;
        ensure!(cases > 0, "the suite has no cases {CASES}");
        let repeat = (self.schedules / 10).div_ceil(cases);
        let from_cases = repeat * cases;
        let from_programs = self.schedules.saturating_sub(from_cases);

        let programs = context.optimised_example(&["programs"], "programs")?;
        let began = Instant::now();
        let seed = self.first_seed.to_string();
        let (count, repeats) = (from_programs.to_string(), repeat.to_string());
        let programs = cmd!(sh, "{programs} --programs {count} --seed {seed} --report 0");
        // Beside each other: each is one thread.
        let mut programs = std::process::Command::from(programs).spawn().context("programs")?;
        let suite =
            cmd!(sh, "{ndkctl} selftest --deterministic --filter {CASES} --repeat {repeats} --seed {seed}").read();
        let said = match suite {
            Ok(said) => said,
            Err(error) => {
                programs.kill()?;
                programs.wait()?;
                return Err(error.into());
            }
        };
        let last: Vec<_> = said.lines().rev().take(3).collect();
        last.iter().rev().for_each(|line| println!("{line}"));
        ensure!(programs.wait()?.success(), "a program failed: see above for how to run it again");
        println!(
            "{} schedules: {from_programs} programs, {cases} cases with {repeat} seeds from {seed}, in {} s",
            from_programs + from_cases,
            began.elapsed().as_secs(),
        );
        Ok(())
    }
}
