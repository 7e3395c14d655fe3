//! `ndkctl driver run`: a stress or performance run of the driver `ndktest`.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use control::client::Event;
use control::test_device::Kind;
use host::{note, say};
use serde::Serialize;

use crate::{
    End,
    args::{DriverRun, DriverRunKind},
    driver::{ELSEWHERE, follow, open},
    driver_interface::not_cancelled,
    output::{duration, print_json, progress},
};

/// A step, for a program.
#[derive(Debug, Serialize)]
struct Step {
    name: String,
    outcome: String,
    micros: u64,
    text: String,
}

/// All of it, for a program.
#[derive(Debug, Serialize)]
struct Run {
    seed: u64,
    seconds: u32,
    interrupted: bool,
    passed: u32,
    failed: u32,
    steps: Vec<Step>,
}

/// Runs the command.
///
/// # Errors
///
/// The reason, in one line.
pub fn run(args: &DriverRun, interrupted: &AtomicBool) -> Result<End, String> {
    if !cfg!(windows) {
        note!("ndkctl driver run: {ELSEWHERE}");
        return Ok(End::Refused);
    }
    let driver = open()?;
    let kind = match args.kind {
        DriverRunKind::Stress => Kind::Stress,
        DriverRunKind::Performance => Kind::Performance,
    };
    let bar = progress(0, "{spinner} {pos} steps {elapsed} {wide_msg}");
    let mut steps = Vec::new();
    let show = |event: Event<'_>| match event {
        Event::Step(line) => {
            // Of a stress run there are many, and only those that failed say something.
            if !args.json && (kind == Kind::Performance || line.is_failure()) {
                let took = duration(Duration::from_micros(line.micros));
                bar.suspend(|| say!("{:22} {:9} {took:>8}  {}", line.name, line.outcome, line.text));
            }
            bar.set_message(line.name.to_owned());
            let (name, outcome, text) = (line.name.to_owned(), line.outcome.to_owned(), line.text.to_owned());
            steps.push(Step { name, outcome, micros: line.micros, text });
        }
        Event::Remark(_) => {}
        Event::Progress(progress) => bar.set_position(progress.done.into()),
    };
    let last = follow(&driver, (kind, args.seconds, args.seed), interrupted, show)?;
    bar.finish_and_clear();
    let interrupted = interrupted.load(Relaxed);
    if args.json {
        let (passed, failed) = (last.passed, last.failed);
        print_json(&Run { seed: args.seed, seconds: args.seconds, interrupted, passed, failed, steps })?;
    } else {
        say!("{} steps, {} failed", last.done, last.failed);
    }
    if interrupted {
        return Ok(End::Interrupted);
    }
    not_cancelled(&last)?;
    Ok(if last.failed == 0 { End::Good } else { End::Bad })
}

#[cfg(test)]
mod tests {
    use super::{Run, Step};
    use crate::schema;

    #[test]
    fn what_programs_get_is_as_documented() {
        let step =
            Step { name: "arm.any".to_owned(), outcome: "failed".to_owned(), micros: 7, text: "seen".to_owned() };
        let run = Run { seed: 1, seconds: 60, interrupted: false, passed: 0, failed: 1, steps: vec![step] };
        schema::check("driver run", &serde_json::to_value(&run).expect("JSON"));
    }
}
