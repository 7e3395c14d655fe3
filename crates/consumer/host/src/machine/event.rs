//! Events, for which a thread at `PASSIVE_LEVEL` waits.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    core::MachineRef,
    irql::{Irql, assert_irql_at_most, assert_no_locks_held},
    rules::{Rule, broken},
    threads::LOOK_AGAIN,
};

/// What a wait does to the event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventKind {
    /// It stays set until it is reset.
    #[default]
    Notification,
    /// It is reset: it wakes one waiter.
    Synchronization,
}

/// An event object: `KEVENT`.
pub struct Event {
    machine: MachineRef,
    kind: EventKind,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_set: bool,
    /// Threads that sleep until it is. Without one, setting it is no call of the system.
    sleepers: u32,
}

impl Event {
    /// An event that is not set: `KeInitializeEvent`.
    #[must_use]
    pub fn new(machine: &MachineRef, kind: EventKind) -> Self {
        Self { machine: machine.clone(), kind, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the event: `KeSetEvent`. Returns true if it was set before.
    ///
    /// # Panics
    ///
    /// [`Rule::IrqlTooHigh`] above `DISPATCH_LEVEL`.
    #[track_caller]
    pub fn set(&self) -> bool {
        assert_irql_at_most(Irql::DISPATCH_LEVEL);
        let (before, sleepers) = {
            let mut state = self.lock();
            (std::mem::replace(&mut state.is_set, true), state.sleepers)
        };
        if sleepers > 0 {
            self.changed.notify_all();
        }
        self.machine.preempt();
        before
    }

    /// Resets the event: `KeResetEvent`. Returns true if it was set before.
    ///
    /// # Panics
    ///
    /// [`Rule::IrqlTooHigh`] above `DISPATCH_LEVEL`.
    #[track_caller]
    pub fn reset(&self) -> bool {
        assert_irql_at_most(Irql::DISPATCH_LEVEL);
        std::mem::replace(&mut self.lock().is_set, false)
    }

    /// Returns true if the event is set: `KeReadStateEvent`.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.lock().is_set
    }

    /// Takes the event if it is set, as a wait with a timeout of zero does. Callable at `DISPATCH_LEVEL`.
    #[must_use]
    pub fn try_wait(&self) -> bool {
        self.take(&mut self.lock())
    }

    fn take(&self, state: &mut State) -> bool {
        let was_set = state.is_set;
        if self.kind == EventKind::Synchronization {
            state.is_set = false;
        }
        was_set
    }

    /// Waits until the event is set: `KeWaitForSingleObject`.
    ///
    /// # Panics
    ///
    /// [`Rule::IrqlTooHigh`] above `APC_LEVEL`, [`Rule::LockHeld`], [`Rule::RoutinePanicked`], [`Rule::Hang`]; seeded,
    /// [`Rule::Deadlock`] when nothing is left that could set the event, and [`Rule::Livelock`].
    #[track_caller]
    pub fn wait(&self) {
        assert_irql_at_most(Irql::APC_LEVEL);
        assert_no_locks_held();
        if self.machine.core.seeded.is_some() {
            loop {
                self.machine.run_while(u64::MAX, || !self.is_set());
                if self.try_wait() {
                    return;
                }
                if !self.machine.is_busy() && !self.machine.wait_for_outside() {
                    broken(Rule::Deadlock, format_args!("nothing left to run: {:?}", self.machine));
                }
                std::thread::yield_now();
            }
        }
        let watch = self.machine.watch();
        while !self.wait_in_real_time(LOOK_AGAIN) {
            watch.check("a wait for an event");
        }
    }

    /// Waits until the event is set, but no longer than this. Returns true if it was set.
    ///
    /// # Panics
    ///
    /// Like [`Event::wait`], but it is no deadlock when nothing is left to run.
    #[track_caller]
    pub fn wait_for(&self, microseconds: u64) -> bool {
        assert_irql_at_most(Irql::APC_LEVEL);
        assert_no_locks_held();
        if self.machine.core.seeded.is_some() {
            let end = self.machine.now().saturating_add(microseconds);
            self.machine.run_while(end, || !self.is_set() && self.machine.now() < end);
            if !self.is_set() {
                self.machine.let_pass(end.saturating_sub(self.machine.now()));
            }
            return self.try_wait();
        }
        let set = self.wait_in_real_time(self.machine.in_real_time(microseconds));
        if !set {
            self.machine.check_failures();
        }
        set
    }

    fn wait_in_real_time(&self, longest: Duration) -> bool {
        let mut state = self.lock();
        if self.take(&mut state) {
            return true;
        }
        let started = Instant::now();
        while let Some(left) = longest.checked_sub(started.elapsed()).filter(|left| !left.is_zero()) {
            state.sleepers += 1;
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            state.sleepers -= 1;
            if self.take(&mut state) {
                return true;
            }
        }
        false
    }
}
