//! The timers that are set, in the order in which they are due.

use std::{
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use fallible::{AllocError, Arc};

use super::{
    dpc::Arguments,
    queue::Life,
    rules::{Rule, broken},
    timer::TimerInner,
};

/// After this many microseconds the clock ticks, and processors begin with queues that nobody wanted begun.
const TICK: u64 = 1_000;
/// No time.
const NEVER: u64 = u64::MAX;

/// A timer that is set.
#[derive(Clone)]
struct Armed {
    key: (u64, u64),
    period: u64,
    timer: Arc<TimerInner>,
    arguments: Arguments,
    processor: u32,
}

/// A timer whose time has come.
pub struct Expired {
    pub timer: Arc<TimerInner>,
    pub arguments: Arguments,
    /// The processor that has set it.
    pub processor: u32,
}

/// # Invariants
///
/// `armed` is sorted by falling key, so that the next one due is the last one; it has room for every timer of the machine,
/// so that setting one does not allocate. A timer has a key if and only if it is in `armed`, under that key.
struct State {
    armed: Vec<Armed>,
    timers: usize,
    next_order: u64,
    /// When the clock ticks.
    tick: u64,
    /// The time until which the thread of timers sleeps.
    sleeping_until: u64,
    /// The number of timers that the thread has let expire or is about to; odd while it is at it.
    expiring: u64,
    life: Life,
}

/// The queue of timers.
pub struct TimerQueue {
    state: Mutex<State>,
    changed: Condvar,
    expired: Condvar,
    fired: AtomicU64,
}

/// What the thread of timers does next.
pub enum NextTimer {
    /// Let this one expire.
    Expire(Expired),
    /// Begin with all queues.
    Tick,
    /// The machine is shut down.
    Stop,
}

impl TimerQueue {
    pub const fn new() -> Self {
        let state = State {
            armed: Vec::new(),
            timers: 0,
            next_order: 0,
            tick: NEVER,
            sleeping_until: 0,
            expiring: 0,
            life: Life::Runs,
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), expired: Condvar::new(), fired: AtomicU64::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for one more timer.
    pub fn expect(&self) -> Result<(), AllocError> {
        let mut state = self.lock();
        let more = (state.timers + 1).saturating_sub(state.armed.len());
        state.armed.try_reserve(more)?;
        state.timers += 1;
        drop(state);
        Ok(())
    }

    /// Takes back [`TimerQueue::expect`].
    pub fn forget(&self) {
        self.lock().timers -= 1;
    }

    /// Sets a timer. Gives the arguments for which it was set before, if it was.
    pub fn insert(
        &self,
        timer: &Arc<TimerInner>,
        due: u64,
        period: u64,
        arguments: Arguments,
        processor: u32,
    ) -> Option<Arguments> {
        let mut state = self.lock();
        if state.life == Life::Closed {
            drop(state);
            broken(Rule::MachineStopped, format_args!("timer `{}` set after the shutdown", timer.name));
        }
        let before = state.take(timer);
        let key = state.new_key(due);
        state.put(Armed { key, period, timer: timer.clone(), arguments, processor });
        let wake = due < state.sleeping_until;
        drop(state);
        if wake {
            self.changed.notify_one();
        }
        before.map(|armed| armed.arguments)
    }

    /// Takes a timer out. Gives its arguments if it was set.
    pub fn remove(&self, timer: &TimerInner) -> Option<Arguments> {
        let taken = self.lock().take(timer);
        taken.map(|armed| armed.arguments)
    }

    /// Lets the clock tick soon.
    pub fn request_tick(&self, now: u64) {
        let mut state = self.lock();
        if state.tick != NEVER {
            return;
        }
        state.tick = now + TICK;
        let wake = state.tick < state.sleeping_until;
        drop(state);
        if wake {
            self.changed.notify_one();
        }
    }

    /// Waits for the next timer, for the thread of timers. `now` tells the time, `in_real_time` how long so many microseconds of it are.
    pub fn next(&self, now: impl Fn() -> u64, in_real_time: impl Fn(u64) -> Duration) -> NextTimer {
        let mut state = self.lock();
        state.sleeping_until = 0;
        if !state.expiring.is_multiple_of(2) {
            state.expiring += 1;
            self.expired.notify_all();
        }
        loop {
            if state.life != Life::Runs {
                return NextTimer::Stop;
            }
            let time = now();
            if let Some(expired) = state.pop(time, 0) {
                state.expiring += 1;
                self.fired.fetch_add(1, Relaxed);
                return NextTimer::Expire(expired);
            }
            if state.tick <= time {
                state.tick = NEVER;
                return NextTimer::Tick;
            }
            let until = state.tick.min(state.armed.last().map_or(NEVER, |armed| armed.key.0));
            state.sleeping_until = until;
            state = if until == NEVER {
                self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                let wait = in_real_time(until - time);
                self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
            };
            state.sleeping_until = 0;
        }
    }

    /// Returns true if the thread of timers has done what it is at now. Waits for that, but not longer than `wait`.
    pub fn is_flushed(&self, wait: Duration) -> bool {
        let before = self.lock().expiring;
        let same = |state: &mut State| state.expiring == before;
        before.is_multiple_of(2) || {
            let waited = self.expired.wait_timeout_while(self.lock(), wait, same);
            !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
        }
    }

    /// How many timers are due at `now`.
    pub fn due(&self, now: u64) -> usize {
        self.lock().armed.iter().rev().take_while(|armed| armed.key.0 <= now).count()
    }

    /// When the next timer is due.
    pub fn next_due(&self) -> Option<u64> {
        self.lock().armed.last().map(|armed| armed.key.0)
    }

    /// Takes one of the timers that are due at `now`: the one after `skip` others.
    pub fn expire(&self, now: u64, skip: usize) -> Option<Expired> {
        let expired = self.lock().pop(now, skip)?;
        self.fired.fetch_add(1, Relaxed);
        Some(expired)
    }

    /// Lets no timer expire any more, or refuses to set one.
    pub fn set_life(&self, life: Life) {
        self.lock().life = life;
        self.changed.notify_all();
    }

    /// How many timers have expired.
    pub fn fired(&self) -> u64 {
        self.fired.load(Relaxed)
    }

    /// The names and due times of the timers that are set.
    pub fn set_timers(&self) -> Vec<(&'static str, u64)> {
        self.lock().armed.iter().rev().map(|armed| (armed.timer.name, armed.key.0)).collect()
    }
}

impl State {
    const fn new_key(&mut self, due: u64) -> (u64, u64) {
        self.next_order += 1;
        (due, self.next_order)
    }

    fn put(&mut self, armed: Armed) {
        debug_assert!(self.armed.len() < self.armed.capacity(), "no room (invariant)");
        armed.timer.set_key(Some(armed.key));
        let index = self.armed.partition_point(|other| other.key > armed.key);
        self.armed.insert(index, armed);
    }

    fn take(&mut self, timer: &TimerInner) -> Option<Armed> {
        let key = timer.key()?;
        timer.set_key(None);
        let index = self.armed.partition_point(|other| other.key > key);
        Some(self.armed.remove(index))
    }

    /// Takes the timer after `skip` others that are due at `now`, and sets it again if it is periodic.
    fn pop(&mut self, now: u64, skip: usize) -> Option<Expired> {
        let index = self.armed.len().checked_sub(skip + 1)?;
        if self.armed[index].key.0 > now {
            return None;
        }
        let armed = self.armed.remove(index);
        if armed.period > 0 {
            // `Timer::is_set` asks without the lock: a periodic timer is set all the time.
            let key = self.new_key(armed.key.0.saturating_add(armed.period));
            self.put(Armed { key, ..armed.clone() });
        } else {
            armed.timer.set_key(None);
        }
        Some(Expired { timer: armed.timer, arguments: armed.arguments, processor: armed.processor })
    }
}
