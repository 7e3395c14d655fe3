//! Runs of several machines: a worker for each, and what carries their datagrams and their time.
//!
//! A worker says what its machine has sent and when it has something to do next, and waits ([`Exchange`](network::lockstep::Exchange)).
//! [`Lockstep`] says which of them go on, and until when. All that a machine is told depends on the seed and on the times of the machines,
//! never on how fast their processes are: a seed repeats. The first finding ends the run, as soon as the others stand still too.

use std::{
    collections::VecDeque,
    io::Write,
    process::{Child, ChildStdin, Command},
    sync::mpsc::{Receiver, RecvTimeoutError},
    thread,
    time::Instant,
};

use network::lockstep::{Grant, Lockstep, Next, Report};

use crate::{
    faults::Portion,
    report::{Finding, Outcome, Stood},
    script::{Node, Script},
    worker::{
        Answer, CRASH, Crash, Job, LOOK, Message, Place, Recordings, Workers, finding, last_words, lines, never_began,
        start,
    },
};

/// The worker of a machine.
struct Member<'job> {
    node: &'job Node,
    place: Place,
    program: String,
    child: Child,
    to: Option<ChildStdin>,
    said: Receiver<Message>,
    errors: Option<thread::JoinHandle<String>>,
    has_begun: bool,
    /// Of the run that goes on.
    step: Option<usize>,
    hash: Option<u64>,
    finding: Option<Finding>,
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        // Nothing happens to one that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Why a machine is not heard any more.
enum Heard {
    /// It waits, or has come to its end.
    Enough,
    /// It is too late.
    Late,
    /// Somebody wants an end.
    Stopped,
}

impl<'job> Member<'job> {
    fn start(
        job: &Job,
        (number, node): (usize, &'job Node),
        portions: &VecDeque<Portion>,
        workers: &Workers<'_>,
        mut command: Command,
    ) -> Result<Self, String> {
        let others = job.script.machines.len() - 1;
        let names = job
            .script
            .machines
            .iter()
            .flat_map(|node| node.addresses.iter().map(|(address, _)| (node.name.clone(), *address)));
        let (number, addresses, names) = (number as u64, node.addresses.clone(), names.collect());
        let place = Place { number, others, addresses, names };
        let recordings = job.recordings.clone();
        let input = Job {
            portions: portions.iter().copied().collect(),
            recordings: recordings.map(|kept| Recordings { machine: Some(node.name.clone()), ..kept }),
            place: Some(place.clone()),
            ..Job::new(node.script.clone(), job.faults)
        };
        let mut child = start(&input, &mut command)?;
        Ok(Self {
            node,
            place,
            program: command.get_program().to_string_lossy().into_owned(),
            to: child.stdin.take(),
            said: lines(&mut child),
            errors: Some(last_words(&mut child, workers.shown, Some(node.name.clone()))),
            child,
            has_begun: false,
            step: None,
            hash: None,
            finding: None,
        })
    }

    /// Tells the machine something. One that has ended is seen by its end.
    fn tell(&mut self, answer: &Answer) {
        let mut line = serde_json::to_vec(answer).unwrap_or_default();
        line.push(b'\n');
        if let Some(to) = &mut self.to {
            let _ = to.write_all(&line).and_then(|()| to.flush());
        }
    }

    /// Hears the machine until it waits, or has come to its end. `heard` is when a machine last got on with its script.
    fn hear(
        &mut self,
        own: usize,
        network: &mut Lockstep,
        run: Portion,
        workers: &Workers<'_>,
        heard: &mut Instant,
    ) -> Result<Heard, String> {
        loop {
            if workers.is_stopped() {
                return Ok(Heard::Stopped);
            }
            match self.said.recv_timeout(LOOK.min(workers.limit)) {
                Ok(Message::Began { .. }) => {
                    *heard = Instant::now();
                    self.has_begun = true;
                }
                Ok(Message::Step(number)) => {
                    *heard = Instant::now();
                    self.step = Some(number);
                }
                Ok(Message::Waits(report)) => {
                    network.report(own, report);
                    return Ok(Heard::Enough);
                }
                Ok(Message::Passed { hash, sent }) => {
                    *heard = Instant::now();
                    network.report(own, Report { next: None, sent });
                    self.hash = Some(hash);
                    network.end(own);
                    return Ok(Heard::Enough);
                }
                // Only with failures, which are for one machine.
                Ok(Message::Beyond) => {}
                Ok(Message::Unexpected { words, .. }) => {
                    self.finding = Some(self.finding_of(Finding::new("script", words, self.step), run));
                    network.end(own);
                    return Ok(Heard::Enough);
                }
                Err(RecvTimeoutError::Timeout) if heard.elapsed() < workers.limit => {}
                Err(RecvTimeoutError::Timeout) => return Ok(Heard::Late),
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait().map_err(|error| format!("{}: {error}", self.program))?;
                    let output = self.output();
                    if !self.has_begun && !status.success() {
                        return Err(never_began(&self.program, status, &output));
                    }
                    let found = finding(&output, &status.to_string(), false, self.step);
                    self.finding = Some(self.finding_of(found, run));
                    network.end(own);
                    return Ok(Heard::Enough);
                }
            }
        }
    }

    /// What the worker wrote to its standard error, which has ended.
    fn output(&mut self) -> String {
        self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default()
    }

    /// A finding with the name of the machine. The seed of which it speaks is that of the run.
    fn finding_of(&self, found: Finding, run: Portion) -> Finding {
        let own = format!("the seed is {}", self.place.seed(run.seed));
        let said = format!("the seed is {}", run.seed);
        Finding {
            machine: Some(self.node.name.clone()),
            words: found.words.replace(&own, &said),
            output: found.output.replace(&own, &said),
            ..found
        }
    }

    /// Where it stands, in words.
    fn stands(&self) -> Stood {
        let words = match (self.hash, self.step) {
            (Some(_), _) => "had come to its end".to_owned(),
            (None, Some(step)) => format!("{}, when the run ended", of_step(&self.node.script, step)),
            (None, None) => "had not begun when the run ended".to_owned(),
        };
        Stood { machine: self.node.name.clone(), words }
    }
}

/// A step, as people find it.
fn of_step(script: &Script, number: usize) -> String {
    let Some(step) = script.steps.get(number) else { return format!("step {number}") };
    let (action, name) = step.action.words();
    let place = if step.line == 0 { "at the end".to_owned() } else { format!("line {}", step.line) };
    format!("{place}, {action} {name}").trim_end().to_owned()
}

/// Has a worker for each machine carry out the runs, one after the other, and takes out those that have ended. A run that ended in a crash
/// comes back; a run with a finding is the last one of these workers.
///
/// # Errors
///
/// One line: a worker could not be started, or ended before its first run.
pub(crate) fn one_group(
    job: &Job,
    portions: &mut VecDeque<Portion>,
    workers: &Workers<'_>,
    command: &(impl Fn() -> Command + Sync),
    done: &mut impl FnMut(Outcome),
) -> Result<Option<Crash>, String> {
    let nodes = job.script.machines.iter().enumerate();
    let members = nodes.map(|node| Member::start(job, node, portions, workers, command()));
    let mut members: Vec<_> = members.collect::<Result<_, _>>()?;
    while let Some(run) = portions.front().copied() {
        let Some(outcome) = one_run(job, &mut members, run, workers)? else { return Ok(None) };
        portions.pop_front();
        if outcome.findings.iter().any(|finding| finding.rule == CRASH) {
            return Ok(Some(Crash { run, outcome }));
        }
        let is_last = !outcome.findings.is_empty();
        done(outcome);
        if is_last {
            return Ok(None);
        }
    }
    // They end by themselves.
    for member in &mut members {
        let _ = member.child.wait();
    }
    Ok(None)
}

/// Carries out one run. `None` if somebody wants an end.
fn one_run(
    job: &Job,
    members: &mut [Member<'_>],
    run: Portion,
    workers: &Workers<'_>,
) -> Result<Option<Outcome>, String> {
    let addresses = members.iter().map(|member| member.node.addresses.iter().map(|(ip, _)| *ip).collect()).collect();
    let mut network = Lockstep::new(addresses, job.script.network.impairment(), run.seed);
    let began = Instant::now();
    let mut heard = began;
    for member in members.iter_mut() {
        (member.step, member.hash, member.finding) = (None, None, None);
    }
    loop {
        // Whoever goes on does so until it stands still, whatever becomes of another one: what is said of each depends on the seed alone.
        for (own, member) in members.iter_mut().enumerate() {
            if !network.runs(own) {
                continue;
            }
            match member.hear(own, &mut network, run, workers, &mut heard)? {
                Heard::Enough => {}
                Heard::Stopped => return Ok(None),
                Heard::Late => {
                    let words = format!("nothing happened for {} seconds", workers.limit.as_secs());
                    member.finding = Some(member.finding_of(Finding::new("no-end", words, member.step), run));
                    // Nobody waits for it any more.
                    let _ = member.child.kill();
                    let _ = member.child.wait();
                    let output = member.output();
                    if let Some(finding) = &mut member.finding {
                        finding.output = output;
                    }
                    network.end(own);
                }
            }
        }
        if members.iter().any(|member| member.finding.is_some()) {
            break;
        }
        match network.go_on() {
            Next::Go(grants) => {
                for (own, grant) in grants {
                    members[own].tell(&Answer::Go(grant));
                }
            }
            Next::Stuck(stuck) => {
                for own in stuck {
                    members[own].tell(&Answer::Go(Grant::default()));
                }
            }
            Next::Over => break,
        }
    }
    let mut outcome = Outcome::new(run.seed, None, began.elapsed());
    if members.iter().all(|member| member.finding.is_none()) {
        // Equal only if all of them are.
        let hashes = members.iter().filter_map(|member| member.hash);
        outcome.hash = Some(hashes.fold(0, |all: u64, hash| all.rotate_left(21).wrapping_mul(5) ^ hash));
        return Ok(Some(outcome));
    }
    for member in members.iter_mut() {
        match member.finding.take() {
            Some(finding) => outcome.findings.push(finding),
            None => outcome.stood.push(member.stands()),
        }
        // It writes what it has recorded, and ends. One that runs again already, because it had come to its end, does not wait for this.
        if member.hash.is_none() {
            member.tell(&Answer::End);
        }
    }
    for member in members.iter().filter(|member| member.hash.is_none()) {
        member.wait_for_end(workers);
    }
    Ok(Some(outcome))
}

impl Member<'_> {
    /// Waits until the worker has ended, which is told to, but not for ever.
    fn wait_for_end(&self, workers: &Workers<'_>) {
        let since = Instant::now();
        while !workers.is_stopped() && since.elapsed() < workers.limit {
            if matches!(self.said.recv_timeout(LOOK), Err(RecvTimeoutError::Disconnected)) {
                return;
            }
        }
    }
}
