//! The seeded scheduler of threads: one runs at a time, and a random number decides which is next.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use host::machine::{Irql, current_irql, no_locks_held};
use rand_xoshiro::{
    SplitMix64,
    rand_core::{Rng, SeedableRng},
};

use crate::{
    context,
    kernel::{State, lock},
    report::bug_check,
    rule::Rule,
    waiting,
};

/// Whose turn it is.
pub struct Baton {
    turns: Mutex<Turns>,
    changed: Condvar,
    preemption: u8,
}

struct Turns {
    /// The thread that runs: the number of a system thread, zero for the test's.
    holder: u64,
    /// All threads, the holder included.
    threads: VecDeque<u64>,
    random: SplitMix64,
    trace: u64,
    /// How many turns have passed without anything being done.
    idle: usize,
    /// The earliest time that a waiting thread waits for, since something was done last.
    earliest: Option<u64>,
}

impl Baton {
    pub fn new(seed: u64, preemption: u8) -> Self {
        let turns = Turns {
            holder: 0,
            threads: VecDeque::new(),
            random: SplitMix64::seed_from_u64(!seed),
            trace: 0,
            idle: 0,
            earliest: None,
        };
        Self { turns: Mutex::new(turns), changed: Condvar::new(), preemption }
    }

    /// The current thread is the test's.
    pub fn begin(&self) {
        context::set_thread(0);
        lock(&self.turns).threads.push_back(0);
    }

    pub fn trace(&self) -> u64 {
        lock(&self.turns).trace
    }

    /// There is one more thread, which waits for its turn. Called by its maker.
    pub fn expect(&self, thread: u64) {
        lock(&self.turns).threads.push_back(thread);
    }

    /// Waits for the current thread's turn.
    pub fn take(&self) {
        let me = context::thread();
        let started = Instant::now();
        let mut turns = lock(&self.turns);
        while turns.holder != me {
            let waited = self.changed.wait_timeout(turns, Duration::from_secs(1));
            turns = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            if started.elapsed() > Duration::from_mins(5) {
                bug_check(Rule::Hang, format_args!("thread {me} did not get its turn: {} has it", turns.holder));
            }
        }
    }

    /// The current thread ends.
    pub fn end(&self) {
        let me = context::thread();
        let mut turns = lock(&self.turns);
        turns.threads.retain(|&thread| thread != me);
        turns.idle = 0;
        let count = turns.threads.len() as u64;
        let pick = turns.random.next_u64() % count;
        turns.holder = turns.threads[usize::try_from(pick).unwrap_or(0)];
        drop(turns);
        self.changed.notify_all();
    }

    /// Lets another thread go on, if there is one, and waits for the turn to come back.
    fn pass(&self) {
        let me = context::thread();
        let mut turns = lock(&self.turns);
        if turns.threads.len() < 2 {
            return;
        }
        // Round and round, so that nobody is left out, and beginning anywhere.
        let skip = turns.random.next_u64() % 4;
        turns.threads.retain(|&thread| thread != me);
        turns.threads.push_back(me);
        if skip == 0 && turns.threads.len() > 2 {
            turns.threads.swap(0, 1);
        }
        let next = turns.threads[0];
        turns.holder = next;
        turns.trace = SplitMix64::seed_from_u64(turns.trace ^ next).next_u64();
        drop(turns);
        self.changed.notify_all();
        self.take();
    }

    /// Something was done: whoever waits may look again.
    fn progress(&self) {
        let mut turns = lock(&self.turns);
        turns.idle = 0;
        turns.earliest = None;
    }

    /// Waits until `condition` holds or that time has come. Whether it holds.
    pub fn wait(&self, state: &Arc<State>, end: Option<u64>, what: &str, mut condition: impl FnMut() -> bool) -> bool {
        loop {
            if condition() {
                self.progress();
                return true;
            }
            let now = state.machine.now();
            if end.is_some_and(|end| now >= end) {
                self.progress();
                return false;
            }
            let step = {
                let mut turns = lock(&self.turns);
                if let Some(end) = end {
                    turns.earliest = Some(turns.earliest.map_or(end, |earliest| earliest.min(end)));
                }
                turns.threads.len() < 2 || turns.random.next_u64().is_multiple_of(2)
            };
            if step {
                let before = state.machine.statistics().steps;
                state.machine.run_until_idle();
                if state.machine.statistics().steps != before {
                    self.progress();
                    continue;
                }
            }
            let (idle, count, earliest) = {
                let mut turns = lock(&self.turns);
                turns.idle += 1;
                (turns.idle, turns.threads.len(), turns.earliest)
            };
            // Everybody has had more than one turn, and nobody could do anything with it.
            if idle > 3 * count + 2 {
                let now = state.machine.now();
                match earliest {
                    Some(earliest) => {
                        self.progress();
                        // Not all at once: a timer that is due earlier may wake somebody.
                        let left = earliest.saturating_sub(now);
                        state.machine.run_for((left / 16).max(200).min(left).max(1));
                    }
                    None if state.machine.step() => self.progress(),
                    None => {
                        let words = format_args!("{what}: nothing is left that could end the wait");
                        waiting::stuck(state, Rule::Deadlock, words);
                    }
                }
            }
            self.pass();
        }
    }

    /// Lets another thread go on, if there is one.
    pub fn yield_now(&self) {
        self.progress();
        self.pass();
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
