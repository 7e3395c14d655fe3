//! The machine as one of several, each in a process of its own: what it sends them, what comes from them, and how far its time may go on
//! meanwhile. What joins them is `network::lockstep`.

use std::{
    collections::{BTreeMap, VecDeque},
    process,
    sync::{Arc, Mutex, Weak},
};

use host::machine::{Dpc, Outside, Timer};
use network::lockstep::{Content, Exchange, Report, Timed};

use super::medium::Carrier;
use crate::{
    context,
    netio::network::Network,
    recordings::Recordings,
    report::bug_check,
    rule::Rule,
    state::{Part, State, current, lock},
    waiting,
};

/// The exit code of a process whose run another machine has ended.
const ENDED: i32 = 1;
/// Datagrams, segments and signals that one DPC takes in at most, before others get the processor.
const BATCH: usize = 16;
/// What messages call it.
const NAME: &str = "what other machines send";

/// The way to the other machines. The machine has it until the end of the kernel.
struct Line {
    state: Weak<State>,
    exchange: Mutex<Box<dyn Exchange>>,
    /// What has come and is not due yet, in order.
    inbox: Mutex<VecDeque<Timed>>,
    dpc: Dpc,
    timer: Timer,
}

/// What the kernel has of it.
#[derive(Default)]
pub struct Joined {
    line: Weak<Line>,
    /// How many machines have come to each barrier.
    signals: BTreeMap<String, usize>,
}

impl Part for Mutex<Joined> {}

impl Outside for Line {
    fn wait(&self, next: u64) -> u64 {
        // Whoever's code it is that is in the middle of something here, what is allocated is not the driver's.
        let _inside = context::Inside::new("the network of the machines");
        let Some(state) = self.state.upgrade() else { return u64::MAX };
        let sent = state.locked::<Carrier>().sent();
        let report = Report { next: (next != u64::MAX).then_some(next), sent };
        let Some(grant) = lock(&self.exchange).exchange(report) else {
            // Another machine has ended the run. What was recorded here until now is worth having.
            if let Err(error) = state.part::<Recordings>().write() {
                eprintln!("the recording was not written: {error}");
            }
            process::exit(ENDED)
        };
        let mut inbox = lock(&self.inbox);
        inbox.extend(grant.came);
        if let Some(first) = inbox.front() {
            self.timer.set_at(first.time);
        }
        grant.until.unwrap_or(u64::MAX)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // What is left was for a machine that has ended.
        let _ = self.timer.cancel();
        let _ = self.dpc.remove();
    }
}

impl Network {
    /// From now on the machine is one of several: what it sends to addresses that are not its own goes to the others, and its time goes on with
    /// theirs. Before any driver is loaded.
    ///
    /// # Panics
    ///
    /// In a kernel without a seed, whose time is real.
    pub fn join(&self, exchange: Box<dyn Exchange>) {
        let _inside = context::Inside::new("the network of the machines");
        let state = self.state();
        assert!(state.seed.is_some(), "machines whose time is real have the host's network");
        let dpc = Dpc::try_new(&state.machine, NAME, |_| arrive(&current()));
        let made = dpc.and_then(|dpc| Ok((Timer::queueing(&state.machine, NAME, &dpc)?, dpc)));
        let Ok((timer, dpc)) = made else {
            bug_check(Rule::NotSimulated, format_args!("no memory for the network of the machines"));
        };
        let line = Arc::new(Line {
            state: Arc::downgrade(state),
            exchange: Mutex::new(exchange),
            inbox: Mutex::default(),
            dpc,
            timer,
        });
        state.locked::<Joined>().line = Arc::downgrade(&line);
        state.locked::<Carrier>().join();
        state.machine.join(line);
    }

    /// What the machine has sent to others and has not reported: for one that ends.
    #[must_use]
    pub fn unsent(&self) -> Vec<Timed> {
        self.state().locked::<Carrier>().sent()
    }

    /// The machine has no way to the other ones any more, as when its cable is pulled: what is sent to it is lost, and what it sends. Its
    /// words at barriers arrive all the same.
    pub fn unplug(&self) {
        self.state().locked::<Carrier>().unplug();
    }

    /// Tells the other machines, of which there are so many, that this one has come to the barrier of that name, and waits until each of them
    /// has. A name is good for one time.
    pub fn meet(&self, name: &str, others: usize) {
        let _inside = context::Inside::new("the network of the machines");
        let state = self.state();
        let now = state.machine.now();
        state.locked::<Carrier>().signal(now, name);
        let what = format!("the other machines at the barrier `{name}`");
        waiting::until(state, None, what.as_str(), || {
            others == 0 || state.locked::<Joined>().signals.get(name).is_some_and(|count| *count >= others)
        });
    }
}

/// Takes in what is due.
fn arrive(state: &Arc<State>) {
    let _inside = context::Inside::new("the network of the machines");
    let Some(line) = state.locked::<Joined>().line.upgrade() else { return };
    for _ in 0..BATCH {
        let now = state.machine.now();
        let due = {
            let mut inbox = lock(&line.inbox);
            let is_due = inbox.front().is_some_and(|first| first.time <= now);
            if is_due { inbox.pop_front() } else { None }
        };
        let is_unplugged = state.locked::<Carrier>().is_unplugged();
        match due.map(|due| due.content) {
            Some(Content::Datagram { .. } | Content::Segment { .. }) if is_unplugged => {}
            Some(Content::Datagram { source, destination, bytes }) => state.take_in(source, destination, bytes),
            Some(Content::Segment { source, destination, bytes }) => state.take_in_segment(source, destination, &bytes),
            Some(Content::Signal(name)) => *state.locked::<Joined>().signals.entry(name).or_default() += 1,
            None => break,
        }
    }
    state.dispatcher.signal();
    let next = lock(&line.inbox).front().map(|first| first.time);
    if let Some(next) = next {
        line.timer.set_at(next);
    }
}
