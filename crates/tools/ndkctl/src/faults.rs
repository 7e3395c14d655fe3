//! `ndkctl selftest --faults each-call`: every call that a provider may fail, failed once.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use conformance::{
    Case, Outcome, Run,
    host::{Scheduler, Setup, run_behind},
};
use host::{HostOs, say};
use interpose::faults::{Faults, Kind, Plan, Rule, Tally, Which, legitimate};

use crate::{
    End,
    args::Selftest,
    output::{align_right, print_table, progress, table},
};

/// Runs a case with the n-th call refused; with none for 0.
fn run_case(
    args: &Selftest,
    case: &'static Case,
    nth: u32,
) -> Result<(fallible::Arc<Tally>, Result<Outcome, String>), String> {
    // In an order that the seed determines: what does not come to an end says so.
    let setup = Setup { scheduler: Scheduler::Seeded { seed: args.seed, preemption: 0 }, ..args.setup() };
    let version = args.machine.profile.version(args.ndkpi)?;
    let how = Run { version, seed: args.seed, hostile: true };
    let plan =
        Plan::new(args.seed).with(Rule::new(Kind::Refuse, Which::Nth(nth))).map_err(|wrong| wrong.to_string())?;
    let tally = fallible::Arc::try_new(Tally::new(plan)).map_err(|error| error.to_string())?;
    let kept = tally.clone();
    let make = move |os: &HostOs| Faults::new(os.clone(), kept.clone());
    Ok((tally, run_behind(setup, case, how, Box::new(make))))
}

/// Runs each case once for each of its calls that may fail.
pub fn run(args: &Selftest, selected: &[&'static Case], interrupted: &Arc<AtomicBool>) -> Result<End, String> {
    let bar = progress(selected.len() as u64, "{bar:30} {pos}/{len} {elapsed} {wide_msg}");
    let (mut calls, mut wrong) = (0_u64, Vec::new());
    for case in selected {
        bar.set_message(case.name);
        let (whole, outcome) = run_case(args, case, 0)?;
        if let Err(what) = outcome {
            wrong.push(format!("{}: without a fault: {what}", case.name));
            continue;
        }
        for nth in 1..=u32::try_from(whole.calls()).unwrap_or(u32::MAX) {
            if interrupted.load(Relaxed) {
                bar.finish_and_clear();
                return Ok(End::Interrupted);
            }
            let (tally, outcome) = run_case(args, case, nth)?;
            calls += tally.made();
            let Err(what) = outcome else { continue };
            let function = tally.last().map_or("nothing", interpose::Function::name);
            let rule = tally.last().and_then(legitimate).map_or("", |(_, section)| section);
            wrong.push(format!("{}: call {nth}, {function} ({rule}), was refused: {what}", case.name));
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    for line in &wrong {
        say!("{line}");
    }
    let mut counts = table(&["cases", "calls refused", "wrong", "seed"]);
    counts.add_row([selected.len().to_string(), calls.to_string(), wrong.len().to_string(), args.seed.to_string()]);
    (0..4).for_each(|column| align_right(&mut counts, column));
    print_table(&counts);
    Ok(if wrong.is_empty() { End::Good } else { End::Bad })
}
