//! `ndkctl replay`: a recording, run again on the host's provider.

use std::path::PathBuf;

use clap::Args;
use host::say;
use serde::Serialize;

use crate::{
    End,
    advise::Advice,
    output::{print_json, working},
    record::load,
};

/// `ndkctl replay`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Exit code: 0 if nothing differs and nothing is found, 1 otherwise or if the recording cannot be repeated, 2 for a wrong argument."
)]
pub struct Replay {
    /// The recording
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Seed that determines the order of events where any order is allowed
    #[arg(long, default_value = "0", value_name = "SEED", value_parser = crate::size::parse_seed)]
    pub seed: u64,
    /// Run under the adviser, and show which rules the consumer breaks
    #[arg(long)]
    pub advise: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct DifferenceJson<'a> {
    record: u64,
    what: &'a str,
}

#[derive(Serialize)]
struct ReplayJson<'a> {
    records: usize,
    calls: u64,
    left_out: u64,
    either_way: u64,
    differences: Vec<DifferenceJson<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    findings: Vec<FindingJson>,
}

#[derive(Serialize)]
struct FindingJson {
    finding: String,
    times: u32,
}

/// Runs the command.
pub fn run(args: &Replay) -> Result<End, String> {
    let recording = load(&args.file)?;
    let running = working("running the recording again");
    let advice = if args.advise { Some(Advice::new(!args.json)?) } else { None };
    let report = advice.as_ref().map_or_else(
        || replay::run(&recording, args.seed),
        |advice| replay::run_behind(&recording, args.seed, advice.hooks()),
    );
    drop(running);
    let report = report.map_err(|error| format!("{}: {error}", args.file.display()))?;
    let findings: Vec<_> = advice.iter().flat_map(Advice::made).collect();
    let good = report.differences.is_empty() && findings.is_empty();
    if args.json {
        let differences = report.differences.iter();
        print_json(&ReplayJson {
            records: recording.records.len(),
            calls: report.calls,
            left_out: report.left_out,
            either_way: report.either_way,
            findings: findings
                .iter()
                .map(|(finding, times)| FindingJson { finding: finding.to_string(), times: *times })
                .collect(),
            differences: differences.map(|one| DifferenceJson { record: one.record, what: &one.what }).collect(),
        })?;
    } else {
        for difference in &report.differences {
            say!("record {}: {}", difference.record, difference.what);
        }
        let left_out = if report.left_out == 0 { String::new() } else { format!(", {} left out", report.left_out) };
        let either_way = if report.either_way == 0 {
            String::new()
        } else {
            format!(
                ", {} posts not made that found their queue full and could find room: allowed either way",
                report.either_way
            )
        };
        say!("{} calls run again{left_out}{either_way}: {} differences", report.calls, report.differences.len());
        for (finding, times) in &findings {
            let page = finding.page();
            say!("{finding} ({}), {times} times: {}; ndkctl explain {finding}", page.section, page.title);
        }
    }
    Ok(if good { End::Good } else { End::Bad })
}
