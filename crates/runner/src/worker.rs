//! Processes that carry out seeds.
//!
//! A rule that a driver breaks ends the process that the driver runs in. So the seeds are carried out by other processes, the
//! workers, which say on their standard output how far they are; when one of them ends before its seeds do, what it wrote last to its
//! standard error is the finding, and the next worker goes on behind that seed.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{
    Script,
    drive::drive,
    machine::{Machine, Machines},
    report::{Finding, Outcome},
};

/// How a worker's line begins, so that what drivers print is told from it.
const MARK: &str = "run: ";
/// The words before the name of a rule.
const BROKEN: &str = "rule broken: ";
/// Bytes of a worker's standard error that are kept, the last ones.
const KEPT: usize = 64 << 10;

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Message {
    Seed(u64),
    Step(usize),
    Passed { hash: u64 },
    Unexpected { words: String },
}

fn say(line: &Message) {
    let text = serde_json::to_string(line).unwrap_or_default();
    // Not through the macro, whose output a test harness would keep to itself. Nobody reads it if this fails.
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "\n{MARK}{text}");
    let _ = out.flush();
}

/// What a worker does: carries out the script with each of the seeds. Ends the process with 1 at the first step that does not end as
/// it has to, because drivers are still loaded then.
pub fn work(script: &Script, machines: &impl Machines, seeds: impl IntoIterator<Item = u64>) {
    for seed in seeds {
        say(&Message::Seed(seed));
        let mut machine = machines.machine(seed, script.kernel);
        if let Err(unexpected) = drive(script, &mut machine, |step| say(&Message::Step(step))) {
            say(&Message::Unexpected { words: unexpected.words });
            std::process::exit(1);
        }
        say(&Message::Passed { hash: machine.finish() });
    }
}

/// How seeds are given to workers.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many workers there are at a time.
    pub jobs: usize,
    /// How many seeds a worker carries out. 1 for drivers that are linked into the program: their static variables outlive an unload.
    pub batch: usize,
    /// How long one step may take in real time before its worker is ended.
    pub limit: Duration,
}

/// Has workers carry out the seeds. `command` makes the command of a worker for some seeds; `done` hears of each outcome as it comes.
/// The outcomes, in the order of the seeds.
///
/// # Errors
///
/// One line, if a worker cannot be started.
pub fn supervise(
    seeds: impl IntoIterator<Item = u64>,
    plan: &Plan,
    command: impl Fn(&[u64]) -> Command + Sync,
    done: impl Fn(&Outcome) + Sync,
) -> Result<Vec<Outcome>, String> {
    let waiting: Mutex<VecDeque<u64>> = Mutex::new(seeds.into_iter().collect());
    let outcomes = Mutex::new(Vec::new());
    let run = || -> Result<(), String> {
        loop {
            let mut batch = VecDeque::new();
            {
                let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let count = plan.batch.max(1).min(waiting.len());
                batch.extend(waiting.drain(..count));
            }
            if batch.is_empty() {
                return Ok(());
            }
            while !batch.is_empty() {
                one_worker(&mut batch, plan.limit, &command, &mut |outcome| {
                    done(&outcome);
                    outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
                })?;
            }
        }
    };
    thread::scope(|scope| {
        let mut jobs = Vec::new();
        jobs.extend((0..plan.jobs.max(1)).map(|_| scope.spawn(run)));
        jobs.into_iter().try_for_each(|job| job.join().unwrap_or_else(|_| Err("a thread panicked".to_owned())))
    })?;
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_by_key(|outcome| outcome.seed);
    Ok(outcomes)
}

/// Starts a worker for the seeds and takes out those that it has ended, be it only by its own end.
fn one_worker(
    seeds: &mut VecDeque<u64>,
    limit: Duration,
    command: &impl Fn(&[u64]) -> Command,
    done: &mut impl FnMut(Outcome),
) -> Result<(), String> {
    let mut command = command(seeds.make_contiguous());
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("{program}: {error}"))?;
    let (errors, lines) = (last_words(&mut child), lines(&mut child));
    let (mut step, mut began, mut late) = (None, Instant::now(), false);
    loop {
        match lines.recv_timeout(limit) {
            Ok(Message::Seed(_)) => (step, began) = (None, Instant::now()),
            Ok(Message::Step(number)) => step = Some(number),
            Ok(Message::Passed { hash }) => {
                let Some(seed) = seeds.pop_front() else { continue };
                done(Outcome { seed, hash: Some(hash), finding: None, took: began.elapsed() });
            }
            Ok(Message::Unexpected { words }) => {
                let Some(seed) = seeds.pop_front() else { continue };
                let finding = Finding { rule: "script".to_owned(), words, step, output: String::new() };
                done(Outcome { seed, hash: None, finding: Some(finding), took: began.elapsed() });
                let _ = child.wait();
                return Ok(());
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                late = true;
                let _ = child.kill();
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.wait().map_err(|error| format!("{program}: {error}"))?;
    let output = errors.join().unwrap_or_default();
    // Every seed that it was given has passed, or the first that is left is the one that it ended in.
    if let Some(seed) = seeds.pop_front() {
        let how = if late { format!("nothing happened for {} seconds", limit.as_secs()) } else { status.to_string() };
        let finding = finding(&output, &how, late, step);
        done(Outcome { seed, hash: None, finding: Some(finding), took: began.elapsed() });
    }
    Ok(())
}

/// What a worker that ended too early has to say.
fn finding(output: &str, how: &str, late: bool, step: Option<usize>) -> Finding {
    let broken =
        output.lines().rev().find_map(|line| Some(line.split_once(BROKEN)?.1.split_once(": ").unwrap_or((line, ""))));
    let (rule, words) = match broken {
        Some((rule, words)) if !late => (rule.to_owned(), words.to_owned()),
        _ if late => ("no-end".to_owned(), how.to_owned()),
        _ => ("crash".to_owned(), how.to_owned()),
    };
    Finding { rule, words, step, output: output.to_owned() }
}

/// Reads what a worker says, in a thread.
fn lines(child: &mut Child) -> mpsc::Receiver<Message> {
    let (send, receive) = mpsc::channel();
    let output = child.stdout.take();
    thread::spawn(move || {
        let Some(output) = output else { return };
        let mut reader = BufReader::new(output);
        let mut bytes = Vec::new();
        // Drivers may print what is no UTF-8.
        while reader.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
            let line = String::from_utf8_lossy(&bytes);
            let said = line.trim_end().strip_prefix(MARK).and_then(|text| serde_json::from_str(text).ok());
            if said.is_some_and(|line| send.send(line).is_err()) {
                return;
            }
            bytes.clear();
        }
    });
    receive
}

/// Reads a worker's standard error, in a thread, and keeps the end of it.
fn last_words(child: &mut Child) -> thread::JoinHandle<String> {
    let errors = child.stderr.take();
    thread::spawn(move || {
        let Some(mut errors) = errors else { return String::new() };
        let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = errors.read(&mut buffer) {
            all.extend_from_slice(&buffer[..count]);
            let surplus = all.len().saturating_sub(KEPT);
            all.drain(..surplus);
        }
        String::from_utf8_lossy(&all).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::finding;

    #[test]
    fn a_bug_check_names_its_rule() {
        let output =
            "noise\nsimulated kernel: bug check: rule broken: pool-leak: driver x left 1 block; the seed is 7\n";
        let finding = finding(output, "exit status: 188", false, Some(3));
        assert_eq!(
            (finding.rule.as_str(), finding.words.as_str()),
            ("pool-leak", "driver x left 1 block; the seed is 7")
        );
        assert_eq!(finding.step, Some(3));
    }

    #[test]
    fn an_end_without_words_is_a_crash() {
        let ended = finding("", "signal: 11 (SIGSEGV)", false, None);
        assert_eq!((ended.rule.as_str(), ended.words.as_str()), ("crash", "signal: 11 (SIGSEGV)"));
        let late = finding("rule broken: x: y", "nothing happened for 5 seconds", true, None);
        assert_eq!(late.rule, "no-end");
    }
}
