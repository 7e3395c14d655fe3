use anyhow::{Result, bail, ensure};
use regex::Regex;
use xshell::cmd;

use crate::context::{Context, files};

/// The function that runs a DPC (crates/consumer/host/src/machine/dpc.rs).
const CALL: &str = "host::machine::dpc::run_entry";

/// Cases with large transfers, long rows of requests, overruns and flushes.
const LONG: &str = "transfer.,rdma.,overrun.,flush.,srq.";

/// Finds the longest DPCs: by the bytes that one copies, and by its instructions
///
/// Bytes are counted over every case of the suite and random traffic, instructions (callgrind) over the cases with large transfers, long
/// rows of requests, overruns and flushes: on a machine of one thread, where nobody gets into a call. That no call copies more than a
/// quantum may is also watched by the machine of the suite, of the soak and of the programs (`HostPlatform`): one that does breaks a rule.
/// Instructions are those of the host's code, its locks included. A copied byte counts as one where memmove is the processor's own (`rep
/// movsb`), as valgrind counts. Minutes.
#[derive(clap::Args)]
pub struct Dpcs {
    /// Fail above so many instructions
    #[arg(long, value_name = "INSTRUCTIONS", default_value_t = 600_000)]
    most: u64,
    /// Count the instructions of all cases and of random traffic, too: many minutes
    #[arg(long)]
    all: bool,
}

impl Dpcs {
    pub fn run(&self, context: &Context) -> Result<()> {
        context.need(&[("valgrind", "valgrind")])?;
        let sh = &context.sh;
        let program = context.optimised_example(&["conformance", "--features", "host"], "dpcs")?;
        cmd!(sh, "{program} '' 3").run()?;

        let (filter, rounds) = if self.all { ("", "1") } else { (LONG, "0") };
        // A file for each call; the one without a number is what came after the last of them.
        let folder = sh.create_temp_dir()?;
        let calls = folder.path();
        let to = format!("--callgrind-out-file={}", calls.join("call").display());
        let at = [format!("--zero-before={CALL}"), format!("--dump-after={CALL}")];
        let count =
            cmd!(sh, "valgrind --quiet --tool=callgrind {to} --dump-line=no {at...} {program} {filter} {rounds}");
        let output = count.ignore_status().output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            bail!("{said}{}", String::from_utf8_lossy(&output.stderr));
        }
        let (mut found, mut longest) = (0, 0);
        for file in files(calls)?.iter().filter(|file| file.extension().is_some()) {
            for total in sh.read_file(file)?.lines().filter_map(|line| line.strip_prefix("totals: ")) {
                found += 1;
                longest = longest.max(total.trim().parse()?);
            }
        }
        let cases = if self.all { "all cases and random traffic" } else { LONG };
        println!("{found} DPCs of {cases}: the longest takes {longest} instructions, of {}", self.most);
        // Those that ran while a machine was shut down are not in its count.
        let counted = counted(&said)?;
        ensure!(found >= counted, "there were {counted}: is `{CALL}` still the function that runs one?");
        ensure!(longest <= self.most, "the longest DPC takes too many instructions");
        Ok(())
    }
}

/// How many DPCs the program says that there were.
fn counted(said: &str) -> Result<u64> {
    let line = Regex::new(r"(?m)^\w+: (\d+) DPCs;")?;
    Ok(line.captures_iter(said).filter_map(|found| found[1].parse::<u64>().ok()).sum())
}
