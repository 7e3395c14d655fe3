//! Mutexes: what one thread has, as often as it has waited for it.

use std::sync::{
    Arc,
    atomic::{AtomicI32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release},
};

use wdk_bindings::{BOOLEAN, LONG, PRKMUTEX, ULONG};

use super::routine;
use crate::{context, kernel::State, report::bug_check, rule::Rule, tracked::Object};

/// A mutex.
#[derive(Default)]
pub struct Mutex {
    /// The number of the thread that has it, plus one; zero if nobody has.
    owner: AtomicU64,
    /// How often.
    depth: AtomicI32,
}

fn me() -> u64 {
    context::thread() + 1
}

impl Mutex {
    /// Returns true if the current thread would not have to wait.
    pub fn is_signalled(&self) -> bool {
        [0, me()].contains(&self.owner.load(Acquire))
    }

    pub fn is_held(&self) -> bool {
        self.owner.load(Acquire) != 0
    }

    /// Takes it for the current thread, which gets no normal kernel APCs as long as it has it.
    pub fn try_wait(&self) -> bool {
        let free = self.owner.compare_exchange(0, me(), AcqRel, Acquire);
        if free.is_err_and(|owner| owner != me()) {
            return false;
        }
        self.depth.fetch_add(1, Relaxed);
        context::set_critical(context::critical() + 1);
        true
    }

    /// What the routines call its state: 1 if nobody has it.
    fn state(&self) -> LONG {
        1 - self.depth.load(Acquire)
    }
}

fn find(state: &State, place: PRKMUTEX) -> Arc<Mutex> {
    state.mutex(place.expose_provenance())
}

#[unsafe(no_mangle)]
extern "C" fn KeInitializeMutex(place: PRKMUTEX, _level: ULONG) {
    routine!("KeInitializeMutex", |state| {
        state.track(place.expose_provenance(), context::caller(), Object::Mutex(Arc::default()));
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeReleaseMutex(place: PRKMUTEX, wait: BOOLEAN) -> LONG {
    routine!("KeReleaseMutex", |state| {
        if wait != 0 {
            bug_check(Rule::NotSimulated, format_args!("KeReleaseMutex with Wait"));
        }
        let mutex = find(state, place);
        if mutex.owner.load(Acquire) != me() {
            bug_check(Rule::LockNotHeld, format_args!("a mutex is released by a thread that does not have it"));
        }
        let before = mutex.state();
        context::set_critical(context::critical().saturating_sub(1));
        if mutex.depth.fetch_sub(1, Relaxed) == 1 {
            mutex.owner.store(0, Release);
            state.dispatcher.signal();
            state.preempt();
        }
        before
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeReadStateMutex(place: PRKMUTEX) -> LONG {
    routine!("KeReadStateMutex", |state| find(state, place).state())
}
