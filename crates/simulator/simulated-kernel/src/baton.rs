//! The seeded scheduler of threads: one runs at a time, and a random number decides which is next.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Mutex, MutexGuard},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use host::machine::{Irql, MachineRef, current_irql, no_locks_held};
use litemap::LiteMap;
use rand_xoshiro::{
    SplitMix64,
    rand_core::{Rng, SeedableRng},
};

use crate::{dispatcher::Dispatcher, report::bug_check, rule::Rule, running, sync::lock};

/// Whose turn it is.
pub struct Baton {
    turns: Mutex<Turns>,
    preemption: u8,
}

struct Turns {
    /// The thread that runs: the number of a system thread, zero for the test's.
    holder: u64,
    /// All threads, the holder included.
    threads: VecDeque<u64>,
    /// Those that wait for their turn: only the one whose turn it is gets woken.
    asleep: LiteMap<u64, Thread>,
    random: SplitMix64,
    trace: u64,
    /// Those that wait and have looked in vain since something was done last: they need no turn.
    looked: BTreeSet<u64>,
    /// The earliest time that a waiting thread waits for, since something was done last.
    earliest: Option<u64>,
}

/// Returns true if DPCs or timers ran meanwhile.
fn ran(machine: &MachineRef, work: impl FnOnce()) -> bool {
    let before = machine.statistics().steps;
    work();
    machine.statistics().steps != before
}

/// Lets time pass until something happens, at most until then. Not all at once: a timer that is due earlier may wake somebody.
fn let_pass(machine: &MachineRef, until: u64) {
    loop {
        let left = until.saturating_sub(machine.now());
        if left == 0 || ran(machine, || machine.run_for((left / 16).max(200).min(left))) {
            return;
        }
    }
}

impl Baton {
    pub fn new(seed: u64, preemption: u8) -> Self {
        let turns = Turns {
            holder: 0,
            threads: VecDeque::new(),
            asleep: LiteMap::new(),
            random: SplitMix64::seed_from_u64(!seed),
            trace: 0,
            looked: BTreeSet::new(),
            earliest: None,
        };
        Self { turns: Mutex::new(turns), preemption }
    }

    /// The current thread is the test's.
    pub fn begin(&self) {
        running::set_thread(0);
        lock(&self.turns).threads.push_back(0);
    }

    pub fn trace(&self) -> u64 {
        lock(&self.turns).trace
    }

    /// There is one more thread, which waits for its turn. Called by its maker.
    pub fn expect(&self, thread: u64) {
        lock(&self.turns).threads.push_back(thread);
    }

    /// A new thread waits for its first turn.
    pub fn start(&self) {
        self.take();
        self.progress();
    }

    /// Waits for the current thread's turn.
    fn take(&self) {
        let me = running::thread();
        let started = Instant::now();
        loop {
            let mut turns = lock(&self.turns);
            if turns.holder == me {
                turns.asleep.remove(&me);
                return;
            }
            let holder = turns.holder;
            turns.asleep.entry(me).or_insert_with(thread::current);
            drop(turns);
            if started.elapsed() > Duration::from_mins(5) {
                bug_check(Rule::Hang, format_args!("thread {me} did not get its turn: {holder} has it"));
            }
            thread::park_timeout(Duration::from_secs(1));
        }
    }

    /// It is that thread's turn. One that does not sleep yet looks before it does.
    fn give(mut turns: MutexGuard<'_, Turns>, next: u64) {
        turns.holder = next;
        let sleeper = turns.asleep.get(&next).cloned();
        drop(turns);
        if let Some(sleeper) = sleeper {
            sleeper.unpark();
        }
    }

    /// The current thread ends.
    pub fn end(&self) {
        let me = running::thread();
        let mut turns = lock(&self.turns);
        turns.threads.retain(|&thread| thread != me);
        turns.looked.clear();
        let count = turns.threads.len() as u64;
        let pick = turns.random.next_u64() % count;
        let next = turns.threads[usize::try_from(pick).unwrap_or(0)];
        Self::give(turns, next);
    }

    /// Lets another thread go on, if there is one that may have something to do, and waits for the turn to come back.
    fn pass(&self) {
        let me = running::thread();
        let mut turns = lock(&self.turns);
        // Round and round, so that nobody is left out, and beginning anywhere.
        let skip = turns.random.next_u64().is_multiple_of(4);
        turns.threads.retain(|&thread| thread != me);
        let mut others = turns.threads.iter().copied().filter(|thread| !turns.looked.contains(thread));
        let (first, second) = (others.next(), others.next());
        turns.threads.push_back(me);
        let Some(next) = second.filter(|_| skip).or(first) else { return };
        turns.trace = SplitMix64::seed_from_u64(turns.trace ^ next).next_u64();
        Self::give(turns, next);
        self.take();
    }

    /// Something was done: whoever waits may look again.
    fn progress(&self) {
        let mut turns = lock(&self.turns);
        turns.looked.clear();
        turns.earliest = None;
    }

    /// Waits until `condition` holds or that time has come. Whether it holds.
    pub fn wait(
        &self,
        machine: &MachineRef,
        dispatcher: &Dispatcher,
        end: Option<u64>,
        what: &str,
        condition: &mut dyn FnMut() -> bool,
    ) -> bool {
        loop {
            let mut holds = false;
            let acted = ran(machine, || holds = condition());
            if holds {
                self.progress();
                return true;
            }
            let now = machine.now();
            if end.is_some_and(|end| now >= end) {
                self.progress();
                return false;
            }
            // Who asks a driver lets it act, perhaps after it has answered: what has come of that is looked at once more.
            if acted {
                self.yield_now();
                continue;
            }
            let (runs, everybody, earliest) = {
                let mut turns = lock(&self.turns);
                turns.looked.insert(running::thread());
                if let Some(end) = end {
                    turns.earliest = Some(turns.earliest.map_or(end, |earliest| earliest.min(end)));
                }
                let everybody = turns.threads.iter().all(|thread| turns.looked.contains(thread));
                (turns.random.next_u64().is_multiple_of(2), everybody, turns.earliest)
            };
            if (runs || everybody) && ran(machine, || machine.run_until_idle()) {
                self.progress();
                continue;
            }
            // Nobody can do anything before time passes.
            if everybody {
                match earliest {
                    Some(earliest) => let_pass(machine, earliest),
                    None if machine.step() || machine.wait_for_outside() => {}
                    None => {
                        let words = format_args!("{what}: nothing is left that could end the wait");
                        dispatcher.stuck(Rule::Deadlock, words);
                    }
                }
                self.progress();
            }
            self.pass();
        }
    }

    /// Lets another thread go on, if there is one.
    pub fn yield_now(&self) {
        self.progress();
        self.pass();
        // What this thread does next may be what others wait for.
        self.progress();
    }

    /// A point at which other threads may get in between.
    pub fn preempt(&self) {
        if current_irql() != Irql::PASSIVE_LEVEL || !no_locks_held() {
            return;
        }
        let yields = lock(&self.turns).random.next_u64() % 100 < u64::from(self.preemption);
        if yields {
            self.yield_now();
        }
    }
}
