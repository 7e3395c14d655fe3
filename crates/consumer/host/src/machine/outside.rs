//! What lies outside of a seeded machine: other machines, whose time goes on with its own.
//!
//! Each of several machines has a clock, and may do what its seed says as long as nothing can come from the others that would have come
//! before it. The others say until when that is. So a machine asks them before its time goes beyond that, and waits for the answer: what
//! is called conservative parallel simulation.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Who is asked before the time of a machine goes on.
pub trait Outside: Send + Sync {
    /// The machine does nothing before `next`, in microseconds of its time, unless something comes; `u64::MAX` if it has nothing to do at
    /// all. Returns the time before which nothing will come that has not come yet; `u64::MAX` if nothing will any more.
    ///
    /// What has come by the return is set as a timer ([`Timer::set_at`](super::Timer::set_at)). Either that is due before the time that is
    /// returned, or the time is later than `next`: a machine that asks can go on.
    ///
    /// Called in the middle of a step of the machine, on any thread, at any level up to `DISPATCH_LEVEL` and with locks held; nothing else
    /// of the machine runs meanwhile.
    fn wait(&self, next: u64) -> u64;
}

/// No time.
pub const NEVER: u64 = u64::MAX;

/// What a machine has of its outside.
pub struct Horizon {
    /// The time before which nothing comes.
    limit: AtomicU64,
    outside: Mutex<Option<Arc<dyn Outside>>>,
    waited: Mutex<Waited>,
}

/// Real time in which others were waited for.
struct Waited {
    /// Until the last answer.
    before: Duration,
    /// Since when an answer is waited for.
    since: Option<Instant>,
}

impl Horizon {
    /// That of a machine that is alone.
    pub const fn new() -> Self {
        Self {
            limit: AtomicU64::new(NEVER),
            outside: Mutex::new(None),
            waited: Mutex::new(Waited { before: Duration::ZERO, since: None }),
        }
    }

    /// The time before which nothing comes.
    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// From now on somebody is asked; or nobody any more.
    pub fn set(&self, outside: Option<Arc<dyn Outside>>) {
        let limit = if outside.is_some() { 0 } else { NEVER };
        let before = std::mem::replace(&mut *self.outside.lock().unwrap_or_else(PoisonError::into_inner), outside);
        self.limit.store(limit, Relaxed);
        // It may have timers, which are the machine's.
        drop(before);
    }

    /// Asks.
    pub fn ask(&self, next: u64) {
        let outside = self.outside.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(outside) = outside else { return };
        self.waited().since = Some(Instant::now());
        let limit = outside.wait(next);
        let mut waited = self.waited();
        waited.before = waited.total();
        waited.since = None;
        drop(waited);
        self.limit.fetch_max(limit, Relaxed);
    }

    fn waited(&self) -> MutexGuard<'_, Waited> {
        self.waited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long others were waited for, the wait that goes on included: another thread asks meanwhile.
    pub fn waited_for(&self) -> Duration {
        self.waited().total()
    }
}

impl Waited {
    fn total(&self) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}
