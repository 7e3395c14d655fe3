//! Mutexes: what one thread has, as often as it has waited for it.

use std::sync::{
    Arc,
    atomic::{
        AtomicI32, AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use wdk_bindings::{BOOLEAN, LONG, PRKMUTEX, ULONG};

use crate::{
    context,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::State,
    tracked::{Kind, Object, Structure},
};

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

impl Structure for Mutex {
    fn rule_if_freed(&self) -> Option<Rule> {
        (self.owner.load(Acquire) != 0).then_some(Rule::LockHeld)
    }

    /// Returns true if the current thread would not have to wait.
    fn is_signalled(&self) -> bool {
        [0, me()].contains(&self.owner.load(Acquire))
    }

    /// Takes it for the current thread, which gets no normal kernel APCs as long as it has it.
    fn try_wait(&self) -> bool {
        let free = self.owner.compare_exchange(0, me(), AcqRel, Acquire);
        if free.is_err_and(|owner| owner != me()) {
            return false;
        }
        self.depth.fetch_add(1, Relaxed);
        context::set_critical(context::critical() + 1);
        true
    }
}

impl Mutex {
    /// What the routines call its state: 1 if nobody has it.
    fn state(&self) -> LONG {
        1 - self.depth.load(Acquire)
    }
}

fn find(state: &State, place: PRKMUTEX) -> Arc<Mutex> {
    state.structure(place.expose_provenance(), Kind::Mutex)
}

#[unsafe(no_mangle)]
extern "C" fn KeInitializeMutex(place: PRKMUTEX, _level: ULONG) {
    routine!("KeInitializeMutex", |state| {
        state.track(place.expose_provenance(), context::caller(), Object::new(Kind::Mutex, Mutex::default()));
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeReleaseMutex(place: PRKMUTEX, _wait: BOOLEAN) -> LONG {
    routine!("KeReleaseMutex", |state| {
        let mutex = find(state, place);
        if mutex.owner.load(Acquire) != me() {
            bug_check(Rule::LockNotHeld, format_args!("a mutex is released by a thread that does not have it"));
        }
        let before = mutex.state();
        context::set_critical(context::critical().saturating_sub(1));
        if mutex.depth.fetch_sub(1, Relaxed) == 1 {
            mutex.owner.store(0, Release);
            state.dispatcher.signal_of(place.addr());
            state.preempt();
        }
        before
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeReadStateMutex(place: PRKMUTEX) -> LONG {
    routine!("KeReadStateMutex", |state| find(state, place).state())
}
