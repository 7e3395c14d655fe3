//! Memory that requests need until their IRPs are complete: whoever frees, unlocks or unmaps it before, or returns from the function on whose stack
//! it lies, is found out at once.

use std::{ops::Range, sync::Mutex};

use litemap::LiteMap;

use crate::{
    report::bug_check,
    rule::Rule,
    stack,
    state::{Part, State, Watch, lock},
};

/// What requests need.
#[derive(Default)]
pub struct Pins {
    all: LiteMap<u64, Pin>,
}

/// What one request needs.
pub struct Pin {
    /// The function that was called.
    pub routine: &'static str,
    /// Memory, and what it is.
    pub memory: Vec<(Range<usize>, &'static str)>,
    /// Addresses of MDLs, whose pages stay locked, and mapped if they are.
    pub mdls: Vec<usize>,
}

impl Pins {
    fn find(&self, hits: impl Fn(&Range<usize>) -> bool) -> Option<(&'static str, &'static str)> {
        let mut all =
            self.all.values().flat_map(|pin| pin.memory.iter().map(|(range, what)| (pin.routine, range, what)));
        all.find(|(_, range, _)| hits(range)).map(|(routine, _, what)| (routine, *what))
    }
}

impl Part for Mutex<Pins> {
    fn watch(&self) -> Option<&dyn Watch> {
        Some(self)
    }
}

impl Watch for Mutex<Pins> {
    fn memory_is_to_go(&self, freed: &Range<usize>) {
        let found = lock(self).find(|range| range.start < freed.end && freed.start < range.end);
        if let Some((routine, what)) = found {
            let words = format_args!("{what} of {routine} at {:#x} is freed before the IRP is complete", freed.start);
            bug_check(Rule::WskMemoryInUse, words);
        }
    }

    fn stack_is_gone(&self, _state: &State, gone: &[usize]) {
        let found = lock(self).find(|range| gone.contains(&range.start));
        if let Some((routine, what)) = found {
            let words = "lay on the stack of a function that has returned before the IRP is complete";
            bug_check(Rule::WskMemoryInUse, format_args!("{what} of {routine} {words}"));
        }
    }
}

impl State {
    /// A request is under way.
    pub fn pin(&self, pin: Pin) -> u64 {
        for (range, _) in &pin.memory {
            stack::note(range.start);
        }
        let number = self.next();
        self.locked::<Pins>().all.insert(number, pin);
        number
    }

    /// A request is about to be completed.
    pub fn unpin(&self, number: u64) {
        self.locked::<Pins>().all.remove(&number);
    }

    /// The pages of an MDL are about to be unlocked, unmapped or freed.
    pub fn check_pinned_mdl(&self, mdl: usize, how: &str) {
        let found = self.locked::<Pins>().all.values().find(|pin| pin.mdls.contains(&mdl)).map(|pin| pin.routine);
        if let Some(routine) = found {
            let words =
                format_args!("the pages of the MDL at {mdl:#x} are {how} before the IRP of {routine} is complete");
            bug_check(Rule::WskMemoryInUse, words);
        }
    }
}
