//! Who waits, and for what: one lock and one condition for all objects, as the kernel's dispatcher has.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Condvar, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use litemap::LiteMap;

use crate::{report::bug_check, rule::Rule, running, sites::site_in_words, sync::lock};

/// Whoever waits looks again when something was signalled.
#[derive(Default)]
pub struct Dispatcher {
    /// How many signals there were.
    signals: Mutex<u64>,
    changed: Condvar,
    /// Those who wait, by numbers of their own.
    waits: Mutex<LiteMap<u64, Waiting>>,
    /// Events that were initialised again while they were set.
    lost: Mutex<BTreeSet<usize>>,
    /// What else is said of a wait without an end: a function of whoever knows that.
    besides: OnceLock<fn() -> String>,
}

/// What somebody waits for.
#[derive(Clone, Copy)]
pub struct Wait<'what> {
    /// In words.
    pub what: &'what str,
    /// The addresses of the objects.
    pub objects: &'what [usize],
    /// Not everything that may end it is named, or signalled: any signal has it look again.
    pub polls: bool,
    /// The rule that somebody has broken if the wait never ends, where that is certain.
    pub rule: Option<Rule>,
}

impl<'what> Wait<'what> {
    /// For these objects, and nothing else.
    pub const fn of(what: &'what str, objects: &'what [usize]) -> Self {
        Self { what, objects, polls: false, rule: None }
    }

    /// For a time to come.
    pub const fn time(what: &'what str) -> Self {
        Self::of(what, &[])
    }
}

/// For something that any signal may bring.
impl<'what> From<&'what str> for Wait<'what> {
    fn from(what: &'what str) -> Self {
        Self { polls: true, ..Self::of(what, &[]) }
    }
}

/// Somebody who waits.
struct Waiting {
    /// In words: for what, and where.
    words: String,
    objects: Vec<usize>,
    polls: bool,
    rule: Option<Rule>,
    /// It may have ended: something that could end it was signalled since it was looked at.
    may_have_ended: bool,
}

/// A wait in the list, as long as it goes on.
pub struct Listed<'state> {
    dispatcher: &'state Dispatcher,
    number: u64,
    polls: bool,
}

impl Listed<'_> {
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns true if it may be for something that nobody signals.
    pub fn polls(&self) -> bool {
        self.polls
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        lock(&self.dispatcher.waits).remove(&self.number);
    }
}

impl Dispatcher {
    pub fn list(&self, number: u64, wait: &Wait<'_>) -> Listed<'_> {
        let words = format!("{}{}", wait.what, site_in_words(running::current_site()));
        let Wait { polls, rule, .. } = *wait;
        let waiting = Waiting { words, objects: wait.objects.to_vec(), polls, rule, may_have_ended: true };
        lock(&self.waits).insert(number, waiting);
        Listed { dispatcher: self, number, polls }
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

    /// Notes that an event is set: what was lost before does not matter any more.
    pub fn note_set(&self, event: usize) {
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
        self.signal_if(|_| true);
    }

    /// Has those look again who wait for the object at that address, or for more than they have named.
    pub fn signal_of(&self, object: usize) {
        self.signal_if(|waiting| waiting.polls || waiting.objects.contains(&object));
    }

    fn signal_if(&self, ends: impl Fn(&Waiting) -> bool) {
        for (_, waiting) in lock(&self.waits).iter_mut() {
            waiting.may_have_ended |= ends(waiting);
        }
        *lock(&self.signals) += 1;
        self.changed.notify_all();
    }

    /// Whoever waits looks now: what is signalled from now on is new.
    pub fn looks(&self, wait: &Listed<'_>) {
        if let Some(waiting) = lock(&self.waits).get_mut(&wait.number) {
            waiting.may_have_ended = false;
        }
    }

    /// Returns true if something that could end the wait was signalled since it was looked at.
    pub fn may_have_ended(&self, wait: u64) -> bool {
        lock(&self.waits).get(&wait).is_none_or(|waiting| waiting.may_have_ended)
    }

    /// How many signals there were.
    pub fn signals(&self) -> u64 {
        *lock(&self.signals)
    }

    /// Returns when there was a signal since there were so many, or after `longest`.
    pub fn wait_for_signal(&self, since: u64, longest: Duration) {
        let signals = lock(&self.signals);
        if *signals == since {
            drop(self.changed.wait_timeout(signals, longest).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Has a wait without an end say this besides.
    pub fn say_besides(&self, besides: fn() -> String) {
        self.besides.get_or_init(|| besides);
    }

    /// Ends the test because something waits that will not come: for the rule that explains it, or for `rule`.
    pub fn stuck(&self, rule: Rule, words: fmt::Arguments<'_>) -> ! {
        if let Some((rule, why)) = self.explanation() {
            bug_check(rule, format_args!("{why}; {words}"));
        }
        let waits: Vec<_> = lock(&self.waits).values().map(|waiting| waiting.words.clone()).collect();
        let besides = self.besides.get().map(|besides| besides()).unwrap_or_default();
        bug_check(rule, format_args!("{words}; waiting: {}{besides}", waits.join("; ")))
    }
}
