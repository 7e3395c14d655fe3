//! The seeded scheduler of threads: one runs at a time, and a random number decides which is next.

use std::{
    collections::VecDeque,
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

use crate::{
    dispatcher::{Dispatcher, Listed},
    report::bug_check,
    rule::Rule,
    running,
    sync::lock,
};

/// Whose turn it is.
pub struct Baton {
    turns: Mutex<Turns>,
    preemption: u8,
    /// How long, in real time, a thread may not get its turn.
    patience: Duration,
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
    /// Those that have looked in vain at what they wait for. They need no turn before it is signalled.
    looked: LiteMap<u64, Looked>,
    /// How many signals there had been when these were last gone through.
    signals: u64,
    /// Who has looked in vain once more since anything was done.
    again: Again,
}

/// Who waits, and has looked in vain.
struct Looked {
    /// The number of the wait.
    wait: u64,
    /// The time at which it ends.
    end: Option<u64>,
    /// Not everything that may end it is signalled.
    polls: bool,
}

/// Who has looked once more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    Nobody,
    /// Those who wait for what is not always signalled.
    Polling,
    Everybody,
}

impl Turns {
    /// Something was done that nobody signals.
    fn poll_again(&mut self) {
        self.looked.retain(|_, looked| !looked.polls);
    }

    /// Those look again for whom something was signalled, or whose time has come: it also passes while others run.
    fn note(&mut self, machine: &MachineRef, dispatcher: &Dispatcher) {
        let (now, signals, before) = (machine.now(), dispatcher.signals(), self.looked.len());
        self.looked.retain(|_, looked| looked.end.is_none_or(|end| now < end));
        if signals != self.signals {
            self.signals = signals;
            self.looked.retain(|_, looked| !dispatcher.may_have_ended(looked.wait));
        }
        if self.looked.len() != before {
            self.again = Again::Nobody;
        }
    }

    /// Returns true if something was signalled for somebody who has looked in vain.
    fn is_signalled(&self, dispatcher: &Dispatcher) -> bool {
        dispatcher.signals() != self.signals
            && self.looked.values().any(|looked| dispatcher.may_have_ended(looked.wait))
    }

    /// The earliest time that somebody waits for.
    fn earliest(&self) -> Option<u64> {
        self.looked.iter().filter_map(|(_, looked)| looked.end).min()
    }
}

/// Returns true if DPCs or timers ran meanwhile.
fn ran(machine: &MachineRef, work: impl FnOnce()) -> bool {
    let before = machine.steps();
    work();
    machine.steps() != before
}

/// Lets time pass until something happens, at most until then. Not all at once: a timer that is due earlier may wake somebody. Whoever is
/// signalled goes on at once; what nobody signals is looked at after a while.
fn let_pass(machine: &MachineRef, until: u64, is_signalled: impl Fn() -> bool) {
    loop {
        let left = until.saturating_sub(machine.now());
        let some = (left / 16).max(200).min(left);
        if left == 0 || ran(machine, || machine.run_for_while(some, || !is_signalled())) || is_signalled() {
            return;
        }
    }
}

impl Baton {
    pub fn new(seed: u64, preemption: u8, patience: Duration) -> Self {
        let turns = Turns {
            holder: 0,
            threads: VecDeque::new(),
            asleep: LiteMap::new(),
            random: SplitMix64::seed_from_u64(!seed),
            trace: 0,
            looked: LiteMap::new(),
            signals: 0,
            again: Again::Nobody,
        };
        Self { turns: Mutex::new(turns), preemption, patience }
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
    pub fn start(&self, machine: &MachineRef) {
        self.take(machine);
    }

    /// Waits for the current thread's turn.
    fn take(&self, machine: &MachineRef) {
        let me = running::thread();
        let (started, others_before) = (Instant::now(), machine.waited_outside());
        loop {
            let mut turns = lock(&self.turns);
            if turns.holder == me {
                turns.asleep.remove(&me);
                return;
            }
            let holder = turns.holder;
            turns.asleep.entry(me).or_insert_with(thread::current);
            drop(turns);
            // The time of other machines is not this one's.
            let others = machine.waited_outside().saturating_sub(others_before);
            if started.elapsed().saturating_sub(others) > self.patience {
                bug_check(Rule::Hang, format_args!("thread {me} did not get its turn: {holder} has it"));
            }
            thread::park_timeout(self.patience.min(Duration::from_secs(1)));
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
        turns.poll_again();
        let count = turns.threads.len() as u64;
        let pick = turns.random.next_u64() % count;
        let next = turns.threads[usize::try_from(pick).unwrap_or(0)];
        Self::give(turns, next);
    }

    /// Lets another thread go on, if there is one that may have something to do, and waits for the turn to come back.
    fn pass(&self, machine: &MachineRef, dispatcher: &Dispatcher) {
        let me = running::thread();
        let mut turns = lock(&self.turns);
        turns.note(machine, dispatcher);
        // Round and round, so that nobody is left out, and beginning anywhere.
        let skip = turns.random.next_u64().is_multiple_of(4);
        turns.threads.retain(|&thread| thread != me);
        let mut others = turns.threads.iter().copied().filter(|thread| !turns.looked.contains_key(thread));
        let (first, second) = (others.next(), others.next());
        turns.threads.push_back(me);
        let Some(next) = second.filter(|_| skip).or(first) else { return };
        turns.trace = SplitMix64::seed_from_u64(turns.trace ^ next).next_u64();
        Self::give(turns, next);
        self.take(machine);
    }

    /// Waits until `condition` holds or that time has come. Whether it holds.
    pub fn wait(
        &self,
        machine: &MachineRef,
        dispatcher: &Dispatcher,
        end: Option<u64>,
        (what, wait): (&str, &Listed<'_>),
        condition: &mut dyn FnMut() -> bool,
    ) -> bool {
        loop {
            let mut holds = false;
            lock(&self.turns).looked.remove(&running::thread());
            dispatcher.looks(wait);
            let acted = ran(machine, || holds = condition());
            if holds || end.is_some_and(|end| machine.now() >= end) {
                lock(&self.turns).again = Again::Nobody;
                return holds;
            }
            // Who asks a driver lets it act, perhaps after it has answered: what has come of that is looked at once more.
            if acted {
                self.yield_now(machine, dispatcher);
                continue;
            }
            let (runs, everybody) = {
                let mut turns = lock(&self.turns);
                turns.note(machine, dispatcher);
                turns.looked.insert(running::thread(), Looked { wait: wait.number(), end, polls: wait.polls() });
                let everybody = turns.threads.iter().all(|thread| turns.looked.contains_key(thread));
                (turns.random.next_u64().is_multiple_of(2), everybody)
            };
            if (runs || everybody) && ran(machine, || machine.run_until_idle()) {
                continue;
            }
            if everybody {
                self.all_wait(machine, dispatcher, what);
            }
            self.pass(machine, dispatcher);
        }
    }

    /// All threads have looked in vain. Those who wait for what nobody may signal look once more, and then time passes.
    fn all_wait(&self, machine: &MachineRef, dispatcher: &Dispatcher, what: &str) {
        let (again, earliest) = {
            let mut turns = lock(&self.turns);
            let before = turns.looked.len();
            let again = turns.again;
            if again == Again::Nobody {
                turns.again = Again::Polling;
                turns.poll_again();
                if turns.looked.len() != before {
                    return;
                }
            }
            (again, turns.earliest())
        };
        match earliest {
            Some(earliest) => let_pass(machine, earliest, || lock(&self.turns).is_signalled(dispatcher)),
            None if machine.step() || machine.wait_for_outside() => {}
            None if again == Again::Everybody => {
                let words = format_args!("{what}: nothing is left that could end the wait");
                dispatcher.stuck(Rule::Deadlock, words);
            }
            None => {
                let mut turns = lock(&self.turns);
                turns.again = Again::Everybody;
                turns.looked.clear();
                return;
            }
        }
        let mut turns = lock(&self.turns);
        turns.again = Again::Nobody;
        turns.poll_again();
    }

    /// Lets another thread go on, if there is one. Whoever waits looks again, before and after it.
    pub fn yield_now(&self, machine: &MachineRef, dispatcher: &Dispatcher) {
        lock(&self.turns).poll_again();
        self.pass(machine, dispatcher);
        lock(&self.turns).poll_again();
    }

    /// A point at which other threads may get in between.
    pub fn preempt(&self, machine: &MachineRef, dispatcher: &Dispatcher) {
        if current_irql() != Irql::PASSIVE_LEVEL || !no_locks_held() {
            return;
        }
        let yields = lock(&self.turns).random.next_u64() % 100 < u64::from(self.preemption);
        if yields {
            self.pass(machine, dispatcher);
        }
    }
}
