//! Processes that carry out seeds.
//!
//! A rule that a driver breaks ends the process that the driver runs in. So the seeds are carried out by other processes, the
//! workers, which say on their standard output how far they are; when one of them ends before its seeds do, what it wrote last to its
//! standard error is the finding, and the next worker goes on behind that seed.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    net::IpAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use network::lockstep::{Exchange, Grant, Report, Timed};
use serde::{Deserialize, Serialize};

use crate::{
    Script,
    drive::drive,
    faults::{Faults, Portion, RunFaults},
    machine::{Machine, Machines},
    nodes,
    report::{Finding, Outcome},
    script::Prefix,
};

/// How a worker's line begins, so that what drivers print is told from it.
const MARK: &str = "run: ";
/// The words before the name of a rule.
const BROKEN: &str = "rule broken: ";
/// What a bug check says if something was made to fail before.
const INJECTED: &str = "; after an injected failure";
/// What a finding is called if the worker ended without naming a rule.
pub(crate) const CRASH: &str = "crash";
/// Bytes of a worker's standard error that are kept, the last ones.
const KEPT: usize = 64 << 10;

/// What a worker has to do. It comes as a line of JSON by its standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The script. Files of images are as the worker is to open them.
    pub script: Script,
    /// What is to fail.
    pub faults: Faults,
    /// Which runs.
    pub portions: Vec<Portion>,
    /// What becomes of recordings.
    pub recordings: Option<Recordings>,
    /// Which machine it is, if there are several.
    pub place: Option<Place>,
}

/// One of several machines, as its worker knows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Place {
    /// Its number, from 0.
    pub number: u64,
    /// How many others there are.
    pub others: usize,
    /// The addresses that it has in the network between them.
    pub addresses: Vec<Prefix>,
    /// The names of all machines, with each of their addresses.
    pub names: Vec<(String, IpAddr)>,
}

impl Place {
    /// The seed of the machine in the run with that seed. Machines that do the same should not do it at the same moments.
    #[must_use]
    pub const fn seed(&self, seed: u64) -> u64 {
        seed ^ self.number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// Where workers put what drivers have recorded of their consumers: of each run in which something was found, and of one that passed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recordings {
    /// The folder, as the worker is to open it.
    pub folder: PathBuf,
    /// The seed of the one that passed.
    pub passing: u64,
    /// The machine, if there are several.
    pub machine: Option<String>,
}

impl Recordings {
    /// The file of the run with that seed, and with that failure; of that machine, if there are several.
    #[must_use]
    pub fn file(folder: &Path, seed: u64, fault: Option<u64>, machine: Option<&str>) -> PathBuf {
        let machine = machine.map_or_else(String::new, |machine| format!("-{machine}"));
        folder.join(format!("{seed}-{}{machine}.slots", fault.unwrap_or(0)))
    }

    /// The file of that run, if its recording is wanted.
    fn of(&self, run: &Portion, fault: Option<u64>) -> PathBuf {
        Self::file(&self.folder, run.seed, fault, self.machine.as_deref())
    }
}

impl Job {
    /// A job without runs.
    #[must_use]
    pub const fn new(script: Script, faults: Faults) -> Self {
        Self { script, faults, portions: Vec::new(), recordings: None, place: None }
    }

    /// Reads what [`supervise`] writes to a worker.
    ///
    /// # Errors
    ///
    /// One line.
    pub fn read(mut from: impl BufRead) -> Result<Self, String> {
        let mut line = String::new();
        // What comes behind it is for a machine that is one of several.
        let read = from.read_line(&mut line).map_err(|error| error.to_string());
        let job = read.and_then(|_| serde_json::from_str(&line).map_err(|error| error.to_string()));
        job.map_err(|error| format!("the standard input is no job for a worker: {error}"))
    }
}

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Message {
    /// A run begins. `fault` is the number of what is to fail.
    Began { seed: u64, fault: Option<u64> },
    /// A step begins.
    Step(usize),
    /// The run has come to its end. One of several machines has sent this last.
    Passed {
        hash: u64,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sent: Vec<Timed>,
    },
    /// The run has come to its end, and there was nothing any more that could have failed.
    Beyond,
    /// A step has ended otherwise than the script says; the worker ends.
    Unexpected { words: String, failed: bool },
    /// One of several machines waits until it hears that it may go on.
    Waits(Report),
}

/// What a machine that is one of several hears, each a line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// It may go on.
    Go(Grant),
    /// The run is over.
    End,
}

/// The way of such a machine to [`nodes`]: the worker's standard output and input.
struct Line;

impl Exchange for Line {
    fn exchange(&mut self, report: Report) -> Option<Grant> {
        say(&Message::Waits(report));
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        match read.ok().and_then(|_| serde_json::from_str(&line).ok()) {
            Some(Answer::Go(grant)) => Some(grant),
            // Whoever has started this process is gone.
            Some(Answer::End) | None => None,
        }
    }
}

fn say(line: &Message) {
    let text = serde_json::to_string(line).unwrap_or_default();
    // Not through the macro, whose output a test harness would keep to itself. Nobody reads it if this fails.
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "\n{MARK}{text}");
    let _ = out.flush();
}

/// What a worker does: carries out its job. Ends the process with 1 at the first step that does not end as it has to, because drivers
/// are still loaded then.
pub fn work(job: &Job, machines: &impl Machines) {
    for &portion in &job.portions {
        let mut left = Some(portion);
        while let Some(run) = left {
            let plan = run.plan(job.faults);
            let fault = if let RunFaults::Nth(number) = plan { Some(number) } else { None };
            say(&Message::Began { seed: run.seed, fault });
            let seed = job.place.as_ref().map_or(run.seed, |place| place.seed(run.seed));
            let mut machine = machines.machine(seed, job.script.kernel);
            if let Some(place) = &job.place {
                machine.join(place, Box::new(Line));
            }
            machine.inject(plan);
            let recording = job.recordings.as_ref().map(|recordings| recordings.of(&run, fault));
            if let Some(file) = &recording {
                machine.keep_recording(file);
            }
            let outcome = drive(&job.script, run.seed, &mut machine, |step| say(&Message::Step(step)));
            // With a broken rule the machine has written it.
            let is_wanted = outcome.is_err()
                || job.recordings.as_ref().is_some_and(|kept| kept.passing == run.seed && run.is_first(job.faults));
            if let Some(file) = recording.filter(|_| is_wanted)
                && let Err(error) = machine.write_recording()
            {
                eprintln!("the recording was not written: {}: {error}", file.display());
            }
            if let Err(unexpected) = outcome {
                say(&Message::Unexpected { words: unexpected.words, failed: machine.failures() > 0 });
                std::process::exit(1);
            }
            let failed = machine.failures() > 0;
            let sent = if job.place.is_some() { machine.unsent() } else { Vec::new() };
            let hash = machine.finish();
            let beyond = job.faults == Faults::EachCall && run.first > 0 && !failed;
            say(&if beyond { Message::Beyond } else { Message::Passed { hash, sent } });
            left = run.rest(job.faults, failed);
        }
    }
}

/// How seeds are given to workers.
#[derive(Clone, Copy, Debug)]
pub struct Workers<'run> {
    /// How many workers there are at a time.
    pub jobs: usize,
    /// How many seeds a worker carries out at most. 1 for drivers that are linked into the program: their static variables outlive an
    /// unload.
    pub batch: usize,
    /// How long one step may take in real time before its worker is ended.
    pub limit: Duration,
    /// Passes the standard error of workers on.
    pub shown: bool,
    /// Somebody wants an end once it is true: workers are ended, and their runs count for nothing.
    pub stop: &'run AtomicBool,
}

impl Workers<'_> {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

/// How often it is looked if somebody wants an end.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// Has workers carry out a job with each of the seeds.
///
/// `command` makes the command of a worker; `done` hears of each outcome as it comes. Returns the outcomes, in the order of the seeds; those that there are if somebody wants an end.
///
/// # Errors
///
/// One line, if a worker cannot be started.
pub fn supervise(
    job: &Job,
    seeds: impl IntoIterator<Item = u64>,
    workers: &Workers<'_>,
    command: impl Fn() -> Command + Sync,
    done: impl Fn(&Outcome) + Sync,
) -> Result<Vec<Outcome>, String> {
    let portions = seeds.into_iter().flat_map(|seed| Portion::of(seed, job.faults, workers.jobs));
    let waiting: Mutex<VecDeque<Portion>> = Mutex::new(portions.collect());
    let outcomes = Mutex::new(Vec::new());
    let run = || -> Result<(), String> {
        loop {
            let mut batch = VecDeque::new();
            {
                let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
                // The last ones are shared by all.
                let share = waiting.len().div_ceil(workers.jobs.max(1));
                let count = workers.batch.clamp(1, share.max(1)).min(waiting.len());
                batch.extend(waiting.drain(..count));
            }
            if batch.is_empty() || workers.is_stopped() {
                return Ok(());
            }
            while !batch.is_empty() && !workers.is_stopped() {
                let mut ended = |outcome| {
                    done(&outcome);
                    outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
                };
                let crash = if job.script.machines.is_empty() {
                    one_worker(job, &mut batch, workers, command(), &mut ended)?
                } else {
                    nodes::one_group(job, &mut batch, workers, &command, &mut ended)?
                };
                if let Some(Crash { run, outcome }) = crash.filter(|_| !workers.is_stopped()) {
                    ended(once_more(job, run, outcome, workers, &command)?);
                }
            }
        }
    };
    if !job.script.machines.is_empty() && job.faults != Faults::None {
        return Err("failures are for scripts of one machine".to_owned());
    }
    thread::scope(|scope| {
        let mut jobs = Vec::new();
        jobs.extend((0..workers.jobs.max(1)).map(|_| scope.spawn(run)));
        jobs.into_iter().try_for_each(|job| job.join().unwrap_or_else(|_| Err("a thread panicked".to_owned())))
    })?;
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_by_key(|outcome| (outcome.seed, outcome.fault));
    Ok(outcomes)
}

/// A run in which a worker ended without naming a rule.
pub(crate) struct Crash {
    pub run: Portion,
    pub outcome: Outcome,
}

/// Has a worker carry out the run of a crash once more, and says in the finding what came of it: something that happens once in
/// thousands of runs is hard to believe, and harder to look into.
fn once_more(
    job: &Job,
    run: Portion,
    mut crash: Outcome,
    workers: &Workers<'_>,
    command: &(impl Fn() -> Command + Sync),
) -> Result<Outcome, String> {
    let faults = match run.plan(job.faults) {
        RunFaults::None => Faults::None,
        RunFaults::Nth(number) => Faults::Nth(number),
        RunFaults::EachSite => Faults::EachSite,
    };
    let mut portions: VecDeque<_> = Portion::of(run.seed, faults, 1).collect();
    let mut again = None;
    let job = Job { recordings: job.recordings.clone(), ..Job::new(job.script.clone(), faults) };
    let mut done = |outcome| again = Some(outcome);
    let crashed = if job.script.machines.is_empty() {
        one_worker(&job, &mut portions, workers, command(), &mut done)?
    } else {
        nodes::one_group(&job, &mut portions, workers, command, &mut done)?
    };
    let again =
        again.or_else(|| crashed.map(|crash| crash.outcome)).and_then(|outcome| outcome.findings.into_iter().next());
    let crashed = crash.findings.iter_mut().find(|finding| finding.rule == CRASH);
    if let Some(finding) = crashed {
        let came = again.map_or_else(|| "it passes".to_owned(), |again| format!("{}: {}", again.rule, again.words));
        finding.words = format!("{}; the same run once more: {came}", finding.words);
    }
    Ok(crash)
}

/// Starts a worker for the portions and takes out what it has ended, be it only by its own end. A run that ended in a crash comes back.
///
/// # Errors
///
/// One line: the worker could not be started, or ended before its first run.
fn one_worker(
    job: &Job,
    portions: &mut VecDeque<Portion>,
    workers: &Workers<'_>,
    mut command: Command,
    done: &mut impl FnMut(Outcome),
) -> Result<Option<Crash>, String> {
    let input = Job { portions: portions.iter().copied().collect(), ..job.clone() };
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = start(&input, &mut command)?;
    drop(child.stdin.take());
    let (errors, lines) = (last_words(&mut child, workers.shown, None), lines(&mut child));
    let (mut step, mut began, mut fault, mut late, mut has_begun) = (None, Instant::now(), None, false, false);
    let is_over = |portions: &mut VecDeque<Portion>, failed: bool| {
        let run = portions.pop_front()?;
        portions.extend(run.rest(job.faults, failed));
        // What is left of it is next.
        portions.rotate_right(usize::from(run.rest(job.faults, failed).is_some()));
        Some(run)
    };
    let limit = workers.limit;
    let mut heard = Instant::now();
    loop {
        if workers.is_stopped() {
            let _ = child.kill();
            let _ = child.wait();
            return Ok(None);
        }
        let message = lines.recv_timeout(LOOK.min(limit));
        if message.is_ok() {
            heard = Instant::now();
        }
        match message {
            Ok(Message::Began { fault: number, .. }) => {
                (step, began, fault, has_begun) = (None, Instant::now(), number, true);
            }
            Ok(Message::Step(number)) => step = Some(number),
            Ok(Message::Passed { hash, .. }) => {
                let Some(Portion { seed, .. }) = is_over(portions, true) else { continue };
                done(Outcome { hash: Some(hash), ..Outcome::new(seed, fault, began.elapsed()) });
            }
            Ok(Message::Beyond) => {
                is_over(portions, false);
            }
            Ok(Message::Unexpected { words, failed }) => {
                let Some(Portion { seed, .. }) = is_over(portions, failed) else { continue };
                let finding = Finding::new("script", words, step);
                done(Outcome { findings: vec![finding], ..Outcome::new(seed, fault, began.elapsed()) });
                let _ = child.wait();
                return Ok(None);
            }
            // Only of one of several machines.
            Ok(Message::Waits(_)) => {}
            Err(mpsc::RecvTimeoutError::Timeout) if heard.elapsed() < limit => {}
            Err(mpsc::RecvTimeoutError::Timeout) => {
                late = true;
                let _ = child.kill();
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.wait().map_err(|error| format!("{program}: {error}"))?;
    let output = errors.join().unwrap_or_default();
    if !has_begun && !late && !status.success() {
        return Err(never_began(&program, status, &output));
    }
    // Everything that it was given has passed, or the first that is left is what it ended in. If nobody knows whether something had
    // failed by then, later failures are not tried: a run that ends so without a failure would be tried for ever.
    if let Some(run) = is_over(portions, output.contains(INJECTED)) {
        let how = if late { format!("nothing happened for {} seconds", limit.as_secs()) } else { status.to_string() };
        let finding = finding(&output, &how, late, step);
        let is_crash = finding.rule == CRASH;
        let outcome = Outcome { findings: vec![finding], ..Outcome::new(run.seed, fault, began.elapsed()) };
        if is_crash {
            return Ok(Some(Crash { run, outcome }));
        }
        done(outcome);
    }
    Ok(None)
}

/// Starts a worker, and gives it its job.
///
/// # Errors
///
/// One line.
pub(crate) fn start(job: &Job, command: &mut Command) -> Result<Child, String> {
    let mut input = serde_json::to_vec(job).map_err(|error| error.to_string())?;
    input.push(b'\n');
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))?;
    if let Some(to) = &mut child.stdin {
        // A worker that ends before it has read its job is seen by its end.
        let _ = to.write_all(&input);
    }
    Ok(child)
}

/// What is said of a worker that ended before its first run: the drivers have no part in that.
pub(crate) fn never_began(program: &str, status: ExitStatus, output: &str) -> String {
    let why = last_line(output).unwrap_or("it wrote nothing");
    format!("{program} ended before its first run ({status}): {why}; build ndkctl and the worker from the same sources")
}

/// What a worker that ended too early has to say.
pub(crate) fn finding(output: &str, how: &str, late: bool, step: Option<usize>) -> Finding {
    let broken =
        output.lines().rev().find_map(|line| Some(line.split_once(BROKEN)?.1.split_once(": ").unwrap_or((line, ""))));
    let (rule, words) = match broken {
        Some((rule, words)) if !late => (rule.to_owned(), words.to_owned()),
        _ if late => ("no-end".to_owned(), how.to_owned()),
        _ => (
            CRASH.to_owned(),
            last_line(output).map_or_else(|| how.to_owned(), |line| format!("{how}, after {line:?}")),
        ),
    };
    Finding { output: output.to_owned(), ..Finding::new(rule, words, step) }
}

/// The last line that is not empty.
fn last_line(output: &str) -> Option<&str> {
    output.lines().map(str::trim).rfind(|line| !line.is_empty())
}

/// Reads what a worker says, in a thread.
pub(crate) fn lines(child: &mut Child) -> mpsc::Receiver<Message> {
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

/// Reads a worker's standard error, in a thread, keeps the end of it, and passes it on if it is to be shown: of one of several machines with its
/// name in front of each line.
pub(crate) fn last_words(child: &mut Child, shown: bool, machine: Option<String>) -> thread::JoinHandle<String> {
    let errors = child.stderr.take();
    thread::spawn(move || {
        let Some(mut errors) = errors else { return String::new() };
        let (mut all, mut buffer, mut line) = (Vec::new(), [0; 4096], Vec::new());
        while let Ok(count @ 1..) = errors.read(&mut buffer) {
            all.extend_from_slice(&buffer[..count]);
            match (&machine, shown) {
                (None, true) => drop(std::io::stderr().write_all(&buffer[..count])),
                (Some(machine), true) => {
                    line.extend_from_slice(&buffer[..count]);
                    let whole = line.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
                    for shown in String::from_utf8_lossy(&line[..whole]).lines() {
                        eprintln!("{machine}: {shown}");
                    }
                    line.drain(..whole);
                }
                (_, false) => {}
            }
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
        let after = finding("a driver's line\n\n", "exit status: 1", false, None);
        assert_eq!(after.words, "exit status: 1, after \"a driver's line\"");
        let late = finding("rule broken: x: y", "nothing happened for 5 seconds", true, None);
        assert_eq!(late.rule, "no-end");
    }
}
