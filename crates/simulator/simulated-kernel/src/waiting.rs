//! Waiting, for whatever it is: with threads on the dispatcher's signals, with a seed by the baton.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use host::machine::{Irql, assert_irql_at_most, assert_no_locks_held, current_irql, lower, raise};

use crate::{processors, report::bug_check_panic, rule::Rule, state::State};

pub use crate::dispatcher::Wait;

/// Waits until `condition` holds or that time has come (in microseconds since the start). Whether it holds.
///
/// `condition` may change what it looks at, when it says that it holds.
pub fn until<'what>(
    state: &Arc<State>,
    end: Option<u64>,
    what: impl Into<Wait<'what>>,
    mut condition: impl FnMut() -> bool,
) -> bool {
    until_any(state, end, &what.into(), &mut condition)
}

/// One for all conditions.
fn until_any(state: &Arc<State>, end: Option<u64>, wait: &Wait<'_>, condition: &mut dyn FnMut() -> bool) -> bool {
    let what = wait.what;
    if end.is_some_and(|end| end <= state.machine.now()) {
        return condition();
    }
    assert_irql_at_most(Irql::APC_LEVEL);
    assert_no_locks_held();
    let listed = state.dispatcher.list(state.next(), wait);
    if let Some(baton) = &state.baton {
        // Others run on this thread meanwhile.
        let level = current_irql();
        lower(Irql::PASSIVE_LEVEL);
        let holds = baton.wait(&state.machine, &state.dispatcher, end, (what, &listed), condition);
        let _ = raise(level);
        return holds;
    }
    let started = Instant::now();
    loop {
        let before = state.dispatcher.signals();
        if condition() {
            return true;
        }
        let now = state.machine.now();
        let left = end.map_or(u64::MAX, |end| end.saturating_sub(now));
        if left == 0 {
            return false;
        }
        // A thread that is bound to a processor serves it, and may have nothing to do. Who waits for such a thread is watched.
        if end.is_none() && processors::bound().is_none() && started.elapsed() > state.limits.hang {
            let words = format_args!("{what} has waited for {:?}: {:?}", state.limits.hang, state.machine);
            state.dispatcher.stuck(Rule::Hang, words);
        }
        let failures = state.machine.take_failures();
        if let Some(failure) = failures.first() {
            bug_check_panic(&failure.to_string());
        }
        state.dispatcher.wait_for_signal(before, Duration::from_micros(left.min(20_000)));
    }
}
