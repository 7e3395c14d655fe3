//! Waiting, for whatever it is: one lock and one condition for all objects, as the kernel's dispatcher has.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use host::machine::{Irql, assert_irql_at_most, assert_no_locks_held, current_irql, lower, raise};

use crate::{
    context,
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
    /// Those who wait, by numbers of their own.
    waits: Mutex<BTreeMap<u64, Waiting>>,
    /// Events that were initialised again while they were set.
    lost: Mutex<BTreeSet<usize>>,
}

/// What somebody waits for.
#[derive(Clone, Copy)]
pub struct Wait<'what> {
    /// In words.
    pub what: &'what str,
    /// The addresses of the objects.
    pub objects: &'what [usize],
    /// The rule that somebody has broken if the wait never ends, where that is certain.
    pub rule: Option<Rule>,
}

impl<'what> From<&'what str> for Wait<'what> {
    fn from(what: &'what str) -> Self {
        Self { what, objects: &[], rule: None }
    }
}

/// Somebody who waits.
struct Waiting {
    /// In words: for what, and where.
    words: String,
    objects: Vec<usize>,
    rule: Option<Rule>,
}

/// A wait in the list, as long as it goes on.
struct Listed<'state>(&'state Dispatcher, u64);

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        lock(&self.0.waits).remove(&self.1);
    }
}

impl Dispatcher {
    fn list(&self, number: u64, wait: &Wait<'_>) -> Listed<'_> {
        let words = format!("{}{}", wait.what, context::site_in_words(context::current_site()));
        let waiting = Waiting { words, objects: wait.objects.to_vec(), rule: wait.rule };
        lock(&self.waits).insert(number, waiting);
        Listed(self, number)
    }

    /// An event is initialised. Whoever waits for it may wait for ever, and so may who comes later, if it was set before.
    pub fn initialised_again(&self, event: usize, was_set: bool) {
        if self.is_waited_for(event) {
            bug_check(Rule::EventReinitialised, format_args!("the event at {event:#x}, for which a thread waits"));
        }
        let mut lost = lock(&self.lost);
        if was_set {
            lost.insert(event);
        } else {
            lost.remove(&event);
        }
    }

    /// Returns true if a thread waits for the object at that address.
    pub fn is_waited_for(&self, object: usize) -> bool {
        lock(&self.waits).values().any(|waiting| waiting.objects.contains(&object))
    }

    /// An event is set: what was lost before does not matter any more.
    pub fn was_set(&self, event: usize) {
        lock(&self.lost).remove(&event);
    }

    /// The rule that explains a wait without an end, with words.
    fn explanation(&self) -> Option<(Rule, String)> {
        let (waits, lost) = (lock(&self.waits), lock(&self.lost));
        for waiting in waits.values() {
            if let Some(event) = waiting.objects.iter().find(|object| lost.contains(object)) {
                let words = format!("the event at {event:#x} was set and then initialised again: {}", waiting.words);
                return Some((Rule::EventReinitialised, words));
            }
        }
        waits.values().find_map(|waiting| Some((waiting.rule?, waiting.words.clone())))
    }

    /// Has everybody who waits look again.
    pub fn signal(&self) {
        *lock(&self.signals) += 1;
        self.changed.notify_all();
    }
}

/// Waits until `condition` holds or that time has come (in microseconds since the start). Whether it holds.
///
/// `condition` may change what it looks at, when it says that it holds.
pub fn until<'what>(
    state: &Arc<State>,
    end: Option<u64>,
    what: impl Into<Wait<'what>>,
    mut condition: impl FnMut() -> bool,
) -> bool {
    let wait = what.into();
    let what = wait.what;
    if end.is_some_and(|end| end <= state.machine.now()) {
        return condition();
    }
    assert_irql_at_most(Irql::APC_LEVEL);
    assert_no_locks_held();
    let _listed = state.dispatcher.list(state.next(), &wait);
    if let Some(baton) = &state.baton {
        // Others run on this thread meanwhile.
        let level = current_irql();
        lower(Irql::PASSIVE_LEVEL);
        let holds = baton.wait(state, end, what, condition);
        let _ = raise(level);
        return holds;
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
            let words = format_args!("{what} has waited for {:?}: {:?}", state.hang_limit, state.machine);
            stuck(state, Rule::Hang, words);
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

/// Ends the test because something waits that will not come: for the rule that explains it, or for `rule`.
pub fn stuck(state: &State, rule: Rule, words: fmt::Arguments<'_>) -> ! {
    if let Some((rule, why)) = state.dispatcher.explanation() {
        bug_check(rule, format_args!("{why}; {words}"));
    }
    let waits: Vec<_> = lock(&state.dispatcher.waits).values().map(|waiting| waiting.words.clone()).collect();
    bug_check(rule, format_args!("{words}; waiting: {}", waits.join("; ")))
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
