//! Waiting, for whatever it is: one lock and one condition for all objects, as the kernel's dispatcher has.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use host::machine::{Irql, assert_irql_at_most, assert_no_locks_held};

use crate::{
    kernel::{State, lock},
    report::bug_check,
    rule::Rule,
    wdm::processor,
};

/// Whoever waits looks again when something was signalled.
#[derive(Default)]
pub struct Dispatcher {
    /// How many signals there were.
    signals: Mutex<u64>,
    changed: Condvar,
}

impl Dispatcher {
    /// Has everybody who waits look again.
    pub fn signal(&self) {
        *lock(&self.signals) += 1;
        self.changed.notify_all();
    }
}

/// Waits until `condition` holds or that time has come (in microseconds since the start). Whether it holds.
///
/// `condition` may change what it looks at, when it says that it holds.
pub fn until(state: &Arc<State>, end: Option<u64>, what: &str, mut condition: impl FnMut() -> bool) -> bool {
    if end.is_some_and(|end| end <= state.machine.now()) {
        return condition();
    }
    assert_irql_at_most(Irql::APC_LEVEL);
    assert_no_locks_held();
    if let Some(baton) = &state.baton {
        return baton.wait(state, end, what, condition);
    }
    let started = Instant::now();
    loop {
        let before = *lock(&state.dispatcher.signals);
        if condition() {
            return true;
        }
        let now = state.machine.now();
        let left = end.map_or(u64::MAX, |end| end.saturating_sub(now));
        if left == 0 {
            return false;
        }
        // A thread that is bound to a processor serves it, and may have nothing to do. Who waits for such a thread is watched.
        if end.is_none() && processor::bound().is_none() && started.elapsed() > state.hang_limit {
            bug_check(Rule::Hang, format_args!("{what} has waited for {:?}: {:?}", state.hang_limit, state.machine));
        }
        let failures = state.machine.take_failures();
        if let Some(failure) = failures.first() {
            crate::report::bug_check_panic(&failure.to_string());
        }
        let signals = lock(&state.dispatcher.signals);
        if *signals == before {
            let longest = Duration::from_micros(left.min(20_000));
            drop(state.dispatcher.changed.wait_timeout(signals, longest).unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl State {
    /// A point at which others may get in between.
    pub fn preempt(&self) {
        self.machine.preempt();
        if let Some(baton) = &self.baton {
            baton.preempt();
        }
    }
}
