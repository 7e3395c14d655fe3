//! The calls of a routine that a driver has registered: whoever ends the registration waits for those on other threads.

use std::{
    sync::Mutex,
    thread::{self, ThreadId},
};

use crate::state::{State, lock};

/// The calls of a routine.
#[derive(Default)]
pub struct Calls(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// The threads that run it; one that runs it from within itself is there more than once.
    running: Vec<ThreadId>,
    has_ended: bool,
}

impl Calls {
    /// Calls the routine on this thread, unless [`Calls::end`] was called.
    pub fn make(&self, state: &State, call: impl FnOnce()) {
        let me = thread::current().id();
        {
            let mut inner = lock(&self.0);
            if inner.has_ended {
                return;
            }
            inner.running.push(me);
        }
        call();
        let mut inner = lock(&self.0);
        if let Some(place) = inner.running.iter().rposition(|&thread| thread == me) {
            inner.running.remove(place);
        }
        drop(inner);
        state.dispatcher.signal_of(std::ptr::from_ref(self).addr());
    }

    /// No call begins any more. Those that were begun go on.
    pub fn end(&self) {
        lock(&self.0).has_ended = true;
    }

    /// The routine runs on this thread.
    pub fn are_here(&self) -> bool {
        lock(&self.0).running.contains(&thread::current().id())
    }

    /// The routine runs on another thread.
    pub fn are_elsewhere(&self) -> bool {
        lock(&self.0).running.iter().any(|&thread| thread != thread::current().id())
    }

    /// The routine runs on no thread.
    pub fn are_over(&self) -> bool {
        lock(&self.0).running.is_empty()
    }
}
