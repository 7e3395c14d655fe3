//! References that drivers have to objects of the system's, and give back before they are unloaded.

use std::sync::Mutex;

use litemap::LiteMap;

use crate::{
    context::{self, DriverId},
    report::bug_check,
    rule::Rule,
    state::{Part, State},
};

/// What a reference is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    Process,
    Thread,
    Wmi,
    Subject,
    Event,
}

impl To {
    const fn in_words(self) -> &'static str {
        match self {
            Self::Process => "a process",
            Self::Thread => "a thread that it has looked up",
            Self::Wmi => "a data block of WMI",
            Self::Subject => "the context of a subject that it has captured",
            Self::Event => "an event",
        }
    }
}

/// References that drivers have, by object and driver.
#[derive(Default)]
pub struct References(LiteMap<(usize, DriverId), (To, i64)>);

impl Part for Mutex<References> {}

impl State {
    /// The calling driver has a reference more, or one less. How many it has then; `None` if it had none to give back.
    pub fn refer(&self, object: usize, to: To, by: i64) -> Option<i64> {
        let mut references = self.locked::<References>();
        let key = (object, context::caller());
        let after = references.0.get(&key).map_or(0, |&(_, count)| count) + by;
        if after < 0 {
            return None;
        }
        if after == 0 {
            references.0.remove(&key);
        } else {
            references.0.insert(key, (to, after));
        }
        Some(after)
    }

    /// Returns true if the calling driver refers to an object.
    pub fn refers_to(&self, object: usize) -> bool {
        self.locked::<References>().0.contains_key(&(object, context::caller()))
    }

    /// A driver is unloaded: it must not refer to anything any more.
    pub fn check_references(&self, owner: DriverId, name: &str) {
        let left = self.locked::<References>().0.iter().find(|((_, of), _)| *of == owner).map(|(_, &(to, _))| to);
        if let Some(to) = left {
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} left a reference to {}", to.in_words()));
        }
    }
}
