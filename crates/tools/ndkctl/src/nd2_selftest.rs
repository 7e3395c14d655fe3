//! `ndkctl nd2-selftest`: a case for each sentence of the documents of NetworkDirect's completion queues.

use ::nd2::CompletionPolicy;
use clap::{Args, ValueEnum};
use host::{note, say};
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
    /// Run only cases whose name or sentence contains this
    #[arg(long, value_name = "TEXT", value_parser = crate::words::filter)]
    pub filter: Option<String>,
    /// List the cases instead of running them
    #[arg(long, conflicts_with = "json")]
    pub list: bool,
    /// Run on one thread in an order that this seed determines, instead of on many threads
    #[arg(long, value_name = "N", value_parser = parse_seed, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// How requests complete that could complete within the call; by default all three, one after the other
    #[arg(long, value_enum, value_name = "POLICY")]
    pub completion: Option<Policy>,
    /// Where work requests are carried out
    #[arg(long, value_enum, default_value = "deferred", value_name = "WHERE")]
    pub nic: Nic,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
}

/// How requests complete that could complete within the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// The method returns `ND_PENDING`, and the completion is reported.
    Pending,
    /// The method returns the result.
    Inline,
    /// Either.
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
        note!("ndkctl nd2-selftest: no case matches the filter; ndkctl nd2-selftest --list shows all");
        return Ok(End::Refused);
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
