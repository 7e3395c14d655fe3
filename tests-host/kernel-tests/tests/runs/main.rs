//! Scripts of `ndkctl run` with drivers that are linked into this program: those of `SoftNDK`, and the sample consumer in C with its
//! wrong variants. What a run is made of is the crate `runner`.

#![cfg(unix)]

mod files;
mod filters;
mod linked;
mod nodes;
mod observed;
mod own;
mod sample;
mod sockets;
mod wire;

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use linked::Linked;
use runner::{
    Faults, Results, Seeds,
    parse::read,
    worker::{Job, Workers, supervise, work},
};
use script_machine::Simulated;

/// Nobody wants an end.
static NEVER: AtomicBool = AtomicBool::new(false);

const CONSUMER: &str = "RUNS_CONSUMER";

/// Not a test of its own: what the processes do that [`run`] starts.
#[test]
fn worker() {
    let Ok(wanted) = std::env::var(CONSUMER) else { return };
    let job = Job::read(std::io::stdin().lock()).expect("a job");
    let variant = consumer_c::VARIANTS.iter().find(|variant| variant.name == wanted);
    work(&job, &Simulated(Linked { consumer: variant.map(|variant| variant.entry) }));
}

/// Carries out a script with each of the seeds, with that variant of the sample.
fn run(script: &Path, seeds: &str, consumer: &str) -> Results {
    run_with(script, seeds, consumer, Faults::None)
}

/// The same, with failures.
fn run_with(script: &Path, seeds: &str, consumer: &str, faults: Faults) -> Results {
    let mut script = read(script).expect("a script");
    // As ndkctl run does.
    script.advise();
    carry_out(&Job::new(script, faults), seeds, consumer)
}

/// Carries out a job.
fn carry_out(job: &Job, seeds: &str, consumer: &str) -> Results {
    let program = std::env::current_exe().expect("a test knows its own program");
    // The sample bears another kernel in the same process; a replay of the drivers in Rust needs a new one.
    let batch = if consumer == "right" { 4 } else { 1 };
    let workers = Workers { jobs: 2, batch, limit: Duration::from_mins(5), shown: false, stop: &NEVER };
    let command = || {
        let mut command = Command::new(&program);
        command.args(["--exact", "worker", "--nocapture", "--test-threads=1"]);
        command.env(CONSUMER, consumer);
        command
    };
    let began = Instant::now();
    let seeds: Seeds = seeds.parse().expect("seeds");
    let outcomes = supervise(job, seeds.iter(), &workers, command, |_| ()).expect("workers start");
    Results { name: consumer.to_owned(), outcomes, took: began.elapsed() }
}

/// A path in the repository.
fn path(relative: &str) -> PathBuf {
    sources::root().join(relative)
}

/// A file with that text, for this test only.
fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("a file");
    path
}
