//! What Winsock Kernel does later: at a time, in a DPC.

use std::{
    cmp::Ordering,
    collections::BinaryHeap,
    sync::{Arc, Mutex},
};

use fallible::AllocError;
use host::machine::{Arguments, Dpc, MachineRef, Timer};

use crate::{
    context,
    state::{Part, State, current, lock},
};

/// Jobs that one DPC does at most, before others get the processor.
const BATCH: usize = 16;

/// Something to do, at `DISPATCH_LEVEL`.
type Job = Box<dyn FnOnce(&Arc<State>) + Send>;

/// Jobs, and what has them done in time.
pub struct Clockwork {
    jobs: Mutex<BinaryHeap<Entry>>,
    dpc: Dpc,
    timer: Timer,
}

/// The clockwork, while there are clients or sockets of programs.
#[derive(Default)]
pub struct Going {
    clockwork: Option<Arc<Clockwork>>,
    /// Who needs it.
    users: usize,
}

impl Part for Mutex<Going> {}

/// There is a user more: the clockwork goes from here on, unless it does.
pub fn begin(state: &State, clockwork: Option<Arc<Clockwork>>) {
    let mut going = state.locked::<Going>();
    going.users += 1;
    if going.clockwork.is_none() {
        going.clockwork = clockwork;
    }
}

/// There is a user less. The clockwork, if that was the last one.
pub fn end(state: &State) -> Option<Arc<Clockwork>> {
    let mut going = state.locked::<Going>();
    going.users -= 1;
    if going.users == 0 { going.clockwork.take() } else { None }
}

struct Entry {
    due: u64,
    number: u64,
    job: Job,
}

impl Entry {
    const fn key(&self) -> (u64, u64) {
        (self.due, self.number)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The one that is due first is the greatest.
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl Clockwork {
    /// One without jobs.
    pub fn try_new(machine: &MachineRef) -> Result<Self, AllocError> {
        let dpc = Dpc::try_new(machine, "Winsock Kernel", |_| work(&current()))?;
        let timer = Timer::queueing(machine, "Winsock Kernel", &dpc)?;
        Ok(Self { jobs: Mutex::default(), dpc, timer })
    }

    /// Has the next job done when it is due. Others may get in between, so nobody may hold a lock.
    fn wind(&self, state: &State) {
        let next = lock(&self.jobs).peek().map(|entry| entry.due);
        let Some(due) = next else { return };
        match due.saturating_sub(state.machine.now()) {
            0 => {
                self.dpc.queue(Arguments::NONE);
            }
            delay => {
                let _ = self.timer.set(delay, 0, Arguments::NONE);
            }
        }
    }
}

impl Drop for Clockwork {
    fn drop(&mut self) {
        // Nobody winds it any more, and what is left are datagrams for sockets that are gone.
        let _ = self.timer.cancel();
        let _ = self.dpc.remove();
    }
}

/// Does what is due.
fn work(state: &Arc<State>) {
    let _inside = context::Inside::new("Winsock Kernel");
    for _ in 0..BATCH {
        let Some(clockwork) = state.clockwork() else { return };
        let due = {
            let mut jobs = lock(&clockwork.jobs);
            let is_due = jobs.peek().is_some_and(|entry| entry.due <= state.machine.now());
            if is_due { jobs.pop() } else { None }
        };
        let Some(due) = due else { break };
        (due.job)(state);
    }
    state.dispatcher.signal();
    if let Some(clockwork) = state.clockwork() {
        clockwork.wind(state);
    }
}

impl State {
    fn clockwork(&self) -> Option<Arc<Clockwork>> {
        self.locked::<Going>().clockwork.clone()
    }

    /// Does something so many microseconds from now, unless nobody needs the clockwork any more then.
    pub fn after(&self, delay: u64, job: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let Some(clockwork) = self.clockwork() else { return };
        let entry = Entry { due: self.machine.now().saturating_add(delay), number: self.next(), job: Box::new(job) };
        lock(&clockwork.jobs).push(entry);
        clockwork.wind(self);
    }

    /// A number of microseconds for something that Winsock Kernel does later.
    pub fn a_while(&self) -> u64 {
        self.machine.random() % 20
    }

    /// Returns true, by the seed, for something that is done in the call and not later.
    pub fn at_once(&self) -> bool {
        self.machine.random().is_multiple_of(3)
    }
}
