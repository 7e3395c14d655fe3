//! Scripts of `ndkctl run` with drivers that are linked into this program: those of `SoftNDK`, and the sample consumer in C with its
//! wrong variants. What a run is made of is the crate `runner`.

#![cfg(unix)]

#[path = "runs/linked.rs"]
mod linked;
#[path = "runs/own.rs"]
mod own;
#[path = "runs/sample.rs"]
mod sample;

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use linked::Linked;
use runner::{
    Results, Seeds,
    parse::read,
    worker::{Plan, supervise, work},
};

const SCRIPT: &str = "RUNS_SCRIPT";
const SEEDS: &str = "RUNS_SEEDS";
const CONSUMER: &str = "RUNS_CONSUMER";

/// Not a test of its own: what the processes do that [`run`] starts.
#[test]
fn worker() {
    let (Some(script), Ok(seeds)) = (std::env::var_os(SCRIPT), std::env::var(SEEDS)) else { return };
    let script = read(&PathBuf::from(script)).expect("the test that started this has read it");
    let wanted = std::env::var(CONSUMER).unwrap_or_default();
    let variant = consumer_c::VARIANTS.iter().find(|variant| variant.name == wanted);
    let seeds: Seeds = seeds.parse().expect("seeds");
    work(&script, &Linked { consumer: variant.map(|variant| variant.entry) }, seeds.iter());
}

/// Carries out a script with each of the seeds, with that variant of the sample.
fn run(script: &Path, seeds: &str, consumer: &str) -> Results {
    let program = std::env::current_exe().expect("a test knows its own program");
    // The sample bears another kernel in the same process; a replay of the drivers in Rust needs a new one.
    let batch = if consumer == "right" { 4 } else { 1 };
    let plan = Plan { jobs: 2, batch, limit: Duration::from_mins(5) };
    let command = |seeds: &[u64]| {
        let seeds = seeds.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let mut command = Command::new(&program);
        command.args(["--exact", "worker", "--nocapture", "--test-threads=1"]);
        command.env(SCRIPT, script).env(SEEDS, seeds).env(CONSUMER, consumer);
        command
    };
    let began = Instant::now();
    let seeds: Seeds = seeds.parse().expect("seeds");
    let outcomes = supervise(seeds.iter(), &plan, command, |_| ()).expect("workers start");
    Results { name: consumer.to_owned(), outcomes, took: began.elapsed() }
}

/// A path in the repository.
fn path(relative: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(relative)
}

/// A file with that text, for this test only.
fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("a file");
    path
}
