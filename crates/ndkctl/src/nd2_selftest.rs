//! `ndkctl nd2-selftest`: a case for each sentence of the documents of NetworkDirect's completion queues.

use ::nd2::CompletionPolicy;
use clap::{Args, ValueEnum};
use host::say;
use nd2_selftest::{Case, Options, Outcome, Row, Schedule, cases, run_one};
use serde::Serialize;

use crate::{
    End,
    args::Nic,
    output::{align_right, duration, print_json, print_table, progress, table},
    size::parse_seed,
};

/// What to check.
#[derive(Clone, Debug, Args)]
pub struct Nd2Selftest {
    /// Only cases whose name or sentence contains this
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// List the cases and do not run them
    #[arg(long, conflicts_with = "json")]
    pub list: bool,
    /// Run on a deterministic machine with this seed, instead of threads
    #[arg(long, value_name = "N", value_parser = parse_seed, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// How requests end that wait for nothing: pending and reported, in the call, or any of both; all three if not given
    #[arg(long, value_enum, value_name = "POLICY")]
    pub completion: Option<Policy>,
    /// Which engine carries work requests out: deferred calls as hardware would, or the post if possible
    #[arg(long, value_enum, default_value = "deferred", value_name = "WHERE")]
    pub nic: Nic,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How requests end that wait for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// The method answers that it pends, and the end is reported.
    Pending,
    /// The method answers.
    Inline,
    /// One or the other.
    Mixed,
}

impl From<Policy> for CompletionPolicy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Pending => Self::Pending,
            Policy::Inline => Self::Inline,
            Policy::Mixed => Self::Mixed,
        }
    }
}

/// A case, as JSON shows it.
#[derive(Serialize)]
struct RowJson<'a> {
    name: &'a str,
    completion: &'a str,
    sentence: &'a str,
    result: &'a str,
    seen: &'a str,
    microseconds: u64,
}

const fn parts(outcome: &Outcome) -> (&str, &String) {
    match outcome {
        Outcome::Passed(seen) => ("passed", seen),
        Outcome::Failed(seen) => ("FAILED", seen),
    }
}

/// Runs the command.
pub fn run(args: &Nd2Selftest) -> Result<End, String> {
    let wanted = |case: &Case| {
        args.filter.as_deref().is_none_or(|filter| case.name.contains(filter) || case.place.contains(filter))
    };
    let selected: Vec<_> = cases().into_iter().filter(wanted).collect();
    if selected.is_empty() {
        return Err("no case matches the filter".to_owned());
    }
    if args.list {
        let mut listed = table(&["case", "sentence"]);
        for case in &selected {
            listed.add_row([case.name, case.place]);
        }
        print_table(&listed);
        return Ok(End::Good);
    }
    let schedule = args.seed.map_or(Schedule::Threads, |seed| Schedule::Seeded(seed, 20));
    let nic = args.nic.into();
    let policies = args.completion.map_or_else(|| CompletionPolicy::ALL.to_vec(), |policy| vec![policy.into()]);
    let bar = progress((policies.len() * selected.len()) as u64, "{bar:30} {pos}/{len} {elapsed} {wide_msg}");
    let mut rows = Vec::with_capacity(policies.len() * selected.len());
    for policy in policies {
        for case in &selected {
            bar.set_message(case.name);
            rows.push((policy, run_one(case, &Options { schedule, policy, nic, ..Options::default() })));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    if args.json {
        print_json(&rows.iter().map(json).collect::<Vec<_>>())?;
    } else {
        print(&rows);
    }
    Ok(if rows.iter().all(|(_, row)| row.outcome.is_pass()) { End::Good } else { End::Bad })
}

fn json((policy, row): &(CompletionPolicy, Row)) -> RowJson<'_> {
    let (result, seen) = parts(&row.outcome);
    let microseconds = u64::try_from(row.time.as_micros()).unwrap_or(u64::MAX);
    RowJson { name: row.name, completion: policy.name(), sentence: row.place, result, seen, microseconds }
}

fn print(rows: &[(CompletionPolicy, Row)]) {
    let mut printed = table(&["case", "completion", "sentence", "result", "time", "seen"]);
    for (policy, row) in rows {
        let (result, seen) = parts(&row.outcome);
        printed.add_row([row.name, policy.name(), row.place, result, &duration(row.time), seen]);
    }
    align_right(&mut printed, 4);
    print_table(&printed);
    let failed = rows.iter().filter(|(_, row)| !row.outcome.is_pass()).count();
    say!("\n{} passed, {failed} failed", rows.len() - failed);
}
