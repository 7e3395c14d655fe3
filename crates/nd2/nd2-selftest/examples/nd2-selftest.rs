//! The self-test alone: `cargo run --release -p nd2-selftest --example nd2-selftest [filter [seed]]`.

use host::say;
use nd2::CompletionPolicy;
use nd2_selftest::{Options, Schedule, run, table};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let filter = arguments.next();
    let schedule = arguments
        .next()
        .and_then(|seed| seed.parse().ok())
        .map_or(Schedule::Threads, |seed| Schedule::Seeded(seed, 20));
    let mut failed = false;
    for policy in CompletionPolicy::ALL {
        let rows = run(&Options { filter: filter.as_deref(), schedule, policy, ..Options::default() });
        say!("policy {policy}");
        say!("{}", table(&rows).trim_end());
        failed |= !rows.iter().all(|row| row.outcome.is_pass());
    }
    std::process::exit(i32::from(failed));
}
