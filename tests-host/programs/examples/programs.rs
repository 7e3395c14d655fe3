//! Runs programs of NDKPI calls against the sequential oracle: a campaign, or one program that has failed.
//!
//!     cargo run --release -p programs --example programs -- --programs 1000000 --seed 1
//!     cargo run --release -p programs --example programs -- --program 0011223344
//!     cargo run --release -p programs --example programs -- --wire loss --programs 1000

use std::{process::ExitCode, time::Instant};

use pico_args::Arguments;
use programs::{Counts, Way, generate};

/// What is to be run.
struct Plan {
    /// How many random programs, and the number of the first.
    programs: u64,
    first: u64,
    /// Determines the programs.
    seed: u64,
    /// Says how far it is after so many programs; 0 never.
    report: u64,
    /// This one only, given as hex digits.
    program: Option<String>,
    /// Says what that one does.
    verbose: bool,
    /// How the adapters reach each other.
    way: Way,
}

impl Plan {
    fn parse(mut from: Arguments) -> Result<Self, String> {
        let mut number = |name, otherwise| {
            let value = from.opt_value_from_str(name).map_err(|error| error.to_string())?;
            Ok::<u64, String>(value.unwrap_or(otherwise))
        };
        let (programs, first) = (number("--programs", 100_000)?, number("--first", 0)?);
        let (seed, report) = (number("--seed", 1)?, number("--report", 1_000_000)?);
        let program = from.opt_value_from_str("--program").map_err(|error| error.to_string())?;
        let verbose = from.contains("--verbose");
        let wire: Option<String> = from.opt_value_from_str("--wire").map_err(|error| error.to_string())?;
        let way = wire.map_or(Ok(Way::Memory), |name| {
            let cables = Way::cables();
            let names = cables.map(|(name, _)| name).join(", ");
            cables
                .into_iter()
                .find(|(known, _)| *known == name)
                .map(|(_, way)| way)
                .ok_or_else(|| format!("--wire {name} is none of {names}"))
        })?;
        if let Some(unknown) = from.finish().first() {
            return Err(format!("{} is no option", unknown.display()));
        }
        Ok(Self { programs, first, seed, report, program, verbose, way })
    }
}

/// The processor time of this process, in seconds, where the system says so.
fn processor_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    let nanoseconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanoseconds / 1e9)
}

fn report(counts: &Counts, started: Instant) {
    let processor =
        processor_seconds().map_or_else(String::new, |seconds| format!(", {seconds:.0} s of processor time"));
    println!("{counts} in {} s{processor}", started.elapsed().as_secs());
}

fn main() -> ExitCode {
    let plan = match Plan::parse(Arguments::from_env()) {
        Ok(plan) => plan,
        Err(words) => {
            eprintln!(
                "{words}: programs [--programs N] [--first N] [--seed N] [--report N] [--wire CABLE] | --program DIGITS [--verbose]"
            );
            return ExitCode::from(2);
        }
    };
    let started = Instant::now();
    let mut counts = Counts::default();
    if let Some(text) = &plan.program {
        let Some(program) = generate::from_digits(text) else {
            eprintln!("a program is an even number of hex digits");
            return ExitCode::from(2);
        };
        return match programs::run_on(&program, &mut counts, plan.way, plan.verbose) {
            Ok(()) => {
                report(&counts, started);
                ExitCode::SUCCESS
            }
            Err(words) => {
                eprintln!("{words}");
                ExitCode::FAILURE
            }
        };
    }
    for number in plan.first..plan.first.saturating_add(plan.programs) {
        let program = generate::program(plan.seed, number);
        if let Err(words) = programs::run_on(&program, &mut counts, plan.way, false) {
            let shorter = generate::shrink_on(program, plan.way);
            let words = programs::run_on(&shorter, &mut Counts::default(), plan.way, false).err().unwrap_or(words);
            eprintln!("program {number}: {words}\nagain: --program {}", generate::digits(&shorter));
            return ExitCode::FAILURE;
        }
        if plan.report > 0 && counts.programs.is_multiple_of(plan.report) {
            report(&counts, started);
        }
    }
    report(&counts, started);
    ExitCode::SUCCESS
}
