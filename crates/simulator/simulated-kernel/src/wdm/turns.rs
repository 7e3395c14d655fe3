//! Whose turn it is: what resources and push locks have in common. One thread writes, or several read, and others wait.
//!
//! Who waits is handed the lock by its release, as by Windows, and does not take it: so a thread that reads is behind one that waits to
//! write, and two threads can deadlock that would not if readers were let by.

use std::sync::{Arc, Mutex};

use host::machine::{self, Irql};
use litemap::LiteMap;

use crate::{
    context,
    report::bug_check,
    rule::Rule,
    state::{State, lock},
    waiting::{self, Wait},
};

/// Who has such a lock may not be stopped by a normal APC, from before it is acquired until it is released.
pub fn without_apcs(what: &str) {
    if context::critical() == 0 && machine::current_irql() < Irql::APC_LEVEL {
        bug_check(Rule::CriticalRegion, format_args!("{what} called outside of a critical region"));
    }
}

/// How a thread wants a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    Write,
    /// To read, behind those that wait to write, unless the thread reads already.
    Read,
    /// To read, also before those that wait to write.
    ReadFirst,
    /// To read, behind those that wait to write, also if the thread reads already.
    ReadLast,
}

impl Want {
    const fn is_write(self) -> bool {
        matches!(self, Self::Write)
    }
}

/// Who is next when nobody writes any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// All that wait to read: a resource.
    Readers,
    /// Who came first, and if it reads, those behind it that read too: a push lock.
    Oldest,
}

/// Who has a lock, and who waits for it.
#[derive(Default)]
struct Threads {
    /// Who has it, and how often.
    holders: LiteMap<u64, u32>,
    /// There is one holder, and it writes.
    exclusive: bool,
    /// Those that wait, in the order in which they came. True: to write.
    waiting: Vec<(u64, bool)>,
}

impl Threads {
    fn hold(&mut self, thread: u64, exclusive: bool) {
        *self.holders.entry(thread).or_default() += 1;
        self.exclusive |= exclusive;
    }

    fn try_acquire(&mut self, thread: u64, want: Want) -> bool {
        let is_mine = self.holders.contains_key(&thread);
        let is_writer_waiting = || self.waiting.iter().any(|&(_, writes)| writes);
        let can = match want {
            _ if self.exclusive => is_mine,
            Want::Write => self.holders.is_empty(),
            Want::Read => is_mine || !is_writer_waiting(),
            Want::ReadFirst => true,
            Want::ReadLast => !is_writer_waiting(),
        };
        if can {
            self.hold(thread, want.is_write());
        }
        can
    }

    /// Hands a lock that a thread has just let go to those whose turn it is.
    fn pass_on(&mut self, next: Next, was_exclusive: bool) {
        if !self.holders.is_empty() {
            return;
        }
        match next {
            // Who waits to read waits behind a writer, unless one has just been there.
            Next::Readers if was_exclusive => self.admit_readers(self.waiting.len()),
            Next::Readers => {}
            Next::Oldest => self.admit_readers(self.waiting.iter().take_while(|(_, writes)| !writes).count()),
        }
        if self.holders.is_empty()
            && let Some(index) = self.waiting.iter().position(|&(_, writes)| writes)
        {
            let (writer, _) = self.waiting.remove(index);
            self.hold(writer, true);
        }
    }

    /// Those of the first `count` that wait have the lock from now on if they want to read.
    fn admit_readers(&mut self, count: usize) {
        let rest = self.waiting.split_off(count);
        for waiting @ (thread, writes) in std::mem::take(&mut self.waiting) {
            if writes {
                self.waiting.push(waiting);
            } else {
                self.hold(thread, false);
            }
        }
        self.waiting.extend(rest);
    }
}

/// A lock for one writer or several readers.
pub struct Turns {
    next: Next,
    threads: Mutex<Threads>,
}

impl Turns {
    pub fn new(next: Next) -> Self {
        Self { next, threads: Mutex::default() }
    }

    /// Acquires it for the current thread, if nobody is in the way.
    pub fn try_acquire(&self, want: Want) -> bool {
        lock(&self.threads).try_acquire(context::thread(), want)
    }

    /// Acquires the lock at that address for the current thread, and waits for its turn.
    pub fn acquire(&self, state: &Arc<State>, want: Want, what: &'static str, address: usize) {
        let me = context::thread();
        let is_queued = || lock(&self.threads).waiting.iter().any(|&(thread, _)| thread == me);
        {
            let mut threads = lock(&self.threads);
            if threads.try_acquire(me, want) {
                return;
            }
            threads.waiting.push((me, want.is_write()));
        }
        let objects = [address];
        waiting::until(state, None, Wait::of(what, &objects), || !is_queued());
    }

    /// The current thread has it once less. Returns false, and nothing changes, if it does not have it.
    pub fn release(&self) -> bool {
        let (mut threads, me) = (lock(&self.threads), context::thread());
        let Some(count) = threads.holders.get_mut(&me) else { return false };
        *count -= 1;
        if *count == 0 {
            threads.holders.remove(&me);
            let was_exclusive = std::mem::take(&mut threads.exclusive);
            threads.pass_on(self.next, was_exclusive);
        }
        true
    }

    /// The current thread, which writes, reads from now on, and with it those that wait to. Returns false if it does not write.
    pub fn share(&self) -> bool {
        let mut threads = lock(&self.threads);
        if !threads.exclusive || !threads.holders.contains_key(&context::thread()) {
            return false;
        }
        threads.exclusive = false;
        let all = threads.waiting.len();
        threads.admit_readers(all);
        true
    }

    /// How often the current thread has it.
    pub fn count_here(&self) -> u32 {
        lock(&self.threads).holders.get(&context::thread()).copied().unwrap_or(0)
    }

    /// A thread has it, and writes.
    pub fn is_exclusive(&self) -> bool {
        lock(&self.threads).exclusive
    }

    /// A thread has it, or waits for it.
    pub fn is_used(&self) -> bool {
        let threads = lock(&self.threads);
        !threads.holders.is_empty() || !threads.waiting.is_empty()
    }

    /// How many threads wait to write, or to read.
    pub fn waiting(&self, to_write: bool) -> u32 {
        let count = lock(&self.threads).waiting.iter().filter(|&&(_, writes)| writes == to_write).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}
