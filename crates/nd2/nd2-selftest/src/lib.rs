//! The self-test of the user-mode interface: a case for each sentence of the two documents of its completion queues, and for
//! what a client needs to reach one.
//!
//! A case is a client: it calls the tables of functions through raw pointers, as a program in C++ would, and knows of the
//! provider only what the documents say. Where it runs is an [`Environment`]: [`run`] has the host's machine, with threads or seeded; the
//! tests of the driver have a process of a simulated kernel. The equivalents of events, file handles and completion ports are in
//! [`host`](OverlappedHost).
//!
//! ```
//! let rows = nd2_selftest::run(&nd2_selftest::Options { filter: Some("notify.eleven"), ..Default::default() });
//! assert!(rows.iter().all(|row| row.outcome.is_pass()));
//! ```

mod case;
mod cases;
pub mod client;
mod codes;
pub mod environment;
mod host;
mod memory;
mod stream;
mod world;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

pub use case::{Case, Failure, Outcome, Row};
pub use cases::all as cases;
pub use client::{Client, Com, Overlapped};
pub use engine::nic::NicMode;
pub use environment::Environment;
pub use host::{CompletionPort, Handle, HostFile, OverlappedHost, Packet};
pub use memory::Memory;
use nd2::{CompletionPolicy, Faults};
pub use stream::Stream;
pub use world::{Schedule, World};

/// What to run, and on what.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// Only cases whose name contains this.
    pub filter: Option<&'a str>,
    /// The machine.
    pub schedule: Schedule,
    /// How requests that wait for nothing end.
    pub policy: CompletionPolicy,
    /// Which engine carries work requests out.
    pub nic: NicMode,
    /// Where the adapters are.
    pub back_end: BackEnd,
    /// What the adapters do wrong on purpose: no case expects that.
    pub faults: Faults,
}

/// Where the adapters are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackEnd {
    /// In the client's process.
    #[default]
    Process,
    /// Behind control codes, as in the driver.
    Codes,
}

/// Runs the cases, each on a machine of its own.
#[must_use]
pub fn run(options: &Options<'_>) -> Vec<Row> {
    let wanted = |case: &&Case| options.filter.is_none_or(|filter| case.name.contains(filter));
    cases().iter().filter(wanted).map(|case| run_one(case, options)).collect()
}

/// Runs one case, whatever the filter.
#[must_use]
pub fn run_one(case: &Case, options: &Options<'_>) -> Row {
    run_in(case, || World::with(options))
}

/// Runs one case in a world of its own.
#[must_use]
pub fn run_in(case: &Case, world: impl FnOnce() -> Result<World, Failure>) -> Row {
    let started = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let world = world()?;
        let seen = (case.run)(&world)?;
        world.end()?;
        Ok::<_, Failure>(seen)
    }));
    let outcome = match outcome {
        Ok(Ok(seen)) => Outcome::Passed(seen),
        Ok(Err(failure)) => Outcome::Failed(failure.0),
        Err(panic) => Outcome::Failed(format!("panic: {}", words(&*panic))),
    };
    Row { name: case.name, place: case.place, outcome, time: started.elapsed() }
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}

/// The rows as a table for people, with a line that counts at the end.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    use std::fmt::Write;
    let widest = |width: fn(&Row) -> usize| rows.iter().map(width).max().unwrap_or(0);
    let (names, places) = (widest(|row| row.name.len()), widest(|row| row.place.len()));
    let mut text = String::new();
    for row in rows {
        let (result, seen) = match &row.outcome {
            Outcome::Passed(seen) => ("passed", seen),
            Outcome::Failed(seen) => ("FAILED", seen),
        };
        let (name, place, micros) = (row.name, row.place, row.time.as_micros());
        let _ = writeln!(text, "{name:names$}  {place:places$}  {result}  {micros:>8} us  {seen}");
    }
    let failed = rows.iter().filter(|row| !row.outcome.is_pass()).count();
    let time: Duration = rows.iter().map(|row| row.time).sum();
    let _ = writeln!(text, "{} passed, {failed} failed, {} ms", rows.len() - failed, time.as_millis());
    text
}
