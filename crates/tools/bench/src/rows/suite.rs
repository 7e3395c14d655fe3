//! The conformance suite through both drivers, in the simulated kernel, beside the same on the host's provider.

use std::{env, path::PathBuf, process::Command};

use crate::{
    Context,
    measure::Samples,
    row::{Goal, Row, Unit},
};

/// The program that runs both. It is one of its own because the simulated kernel brings its own allocator.
const PROGRAM: &str = "driver_suite";

/// Fewer than elsewhere: a round takes many seconds, and the row has no goal.
const ROUNDS: usize = 3;

/// The rows of this part.
pub fn rows(context: &mut Context<'_>) {
    context.row("conformance through the drivers", |context| vec![suite(context)]);
}

fn suite(context: &Context<'_>) -> Row {
    let (name, against) =
        ("conformance through the simulated kernel's drivers, a run, deferred engine, checked lock", "host provider");
    let (unit, goal) = (Unit::Milliseconds, Goal::Reported);
    match run(if context.is_quick() { 1 } else { ROUNDS }) {
        Ok([drivers, host]) => Row::measured(name, against, unit, goal, &drivers, &host),
        Err(why) => Row::skipped(name, against, unit, goal, &why),
    }
}

fn program() -> Option<PathBuf> {
    let folder = env::current_exe().ok()?.parent()?.to_path_buf();
    let name = format!("{PROGRAM}{}", env::consts::EXE_SUFFIX);
    // A program of `cargo bench` lies beside the examples' folder, not above it.
    let places = [folder.join("examples").join(&name), folder.parent()?.join("examples").join(&name)];
    places.into_iter().find(|place| place.is_file())
}

/// Nanoseconds of each round: through the drivers, and on the host.
fn run(rounds: usize) -> Result<[Samples; 2], String> {
    let Some(program) = program() else {
        return Err(format!("not built (cargo build --release -p kernel-tests --example {PROGRAM})"));
    };
    let output = Command::new(program).arg(rounds.to_string()).output().map_err(|error| error.to_string())?;
    let words = String::from_utf8_lossy(&output.stdout);
    let (mut drivers, mut host) = (Vec::new(), Vec::new());
    for line in words.lines() {
        let mut figures = line.split_whitespace().map(str::parse::<f64>);
        if let (Some(Ok(through)), Some(Ok(without))) = (figures.next(), figures.next()) {
            drivers.push(through);
            host.push(without);
        }
    }
    if !output.status.success() || drivers.is_empty() {
        return Err(format!("{PROGRAM} fails: {}", output.status));
    }
    Ok([Samples::new(drivers), Samples::new(host)])
}
