//! Fast mutexes. Their state is in the driver's structure, which `ExInitializeFastMutex` fills in without a call but for its event's.

use std::{
    ffi::c_void,
    ptr,
    sync::atomic::{
        AtomicI32, AtomicPtr,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use host::machine::{self, Irql};
use wdk_bindings::{BOOLEAN, PFAST_MUTEX};

use super::misc::{enter_guarded_region, leave_guarded_region};
use crate::{
    context,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::State,
    tracked::Kind,
    waiting::{self, Wait},
};

/// The count of a mutex that nobody has.
const FREE: i32 = 1;
const TAKEN: i32 = 0;
/// In place of the level that an owner goes back to, when the owner's level was not changed.
const UNCHANGED: u32 = u32::MAX;

/// What the routines use of a mutex.
#[derive(Clone, Copy)]
struct Fields<'mutex> {
    place: PFAST_MUTEX,
    count: &'mutex AtomicI32,
    owner: &'mutex AtomicPtr<c_void>,
    /// The address of its event, which waits are listed by.
    event: usize,
}

fn fields<'mutex>(state: &State, place: PFAST_MUTEX) -> Fields<'mutex> {
    // SAFETY: the driver's structure; only the address is taken.
    let event = unsafe { &raw mut (*place).Event };
    state.find(event.expose_provenance(), Kind::Event);
    // SAFETY: the driver's structure; only addresses are taken.
    let (count, owner) = unsafe { (&raw mut (*place).Count, &raw mut (*place).Owner) };
    Fields {
        place,
        // SAFETY: the driver's structure lives as long as it is used, and only these routines use the field.
        count: unsafe { AtomicI32::from_ptr(count) },
        // SAFETY: the driver's structure lives as long as it is used, and only these routines use the field.
        owner: unsafe { AtomicPtr::from_ptr(owner) },
        event: event.addr(),
    }
}

/// How the current thread is noted as an owner.
fn me() -> *mut c_void {
    ptr::without_provenance_mut(usize::try_from(context::thread() + 1).unwrap_or(usize::MAX))
}

impl Fields<'_> {
    fn try_acquire(self) -> bool {
        let taken = self.count.compare_exchange(FREE, TAKEN, AcqRel, Acquire).is_ok();
        if taken {
            self.owner.store(me(), Relaxed);
        }
        taken
    }

    fn acquire(self, state: &std::sync::Arc<State>, what: &'static str) {
        if self.owner.load(Relaxed) == me() {
            let words = format_args!("{what}: the thread has the fast mutex at {:p} already", self.place);
            bug_check(Rule::RecursiveLock, words);
        }
        state.preempt();
        if !self.try_acquire() {
            let objects = [self.event];
            let wait = Wait::of(what, &objects);
            waiting::until(state, None, wait, || self.try_acquire());
        }
    }

    fn release(self, state: &State, what: &str) {
        if self.owner.load(Relaxed) != me() {
            let words = format_args!("{what}: the thread does not have the fast mutex at {:p}", self.place);
            bug_check(Rule::LockNotHeld, words);
        }
        self.owner.store(ptr::null_mut(), Relaxed);
        self.count.store(FREE, Release);
        state.dispatcher.signal_of(self.event);
    }

    /// The level that the owner goes back to.
    fn level(self) -> *mut u32 {
        // SAFETY: the driver's structure; only the address is taken.
        unsafe { &raw mut (*self.place).OldIrql }
    }

    fn note(self, before: u32) {
        // SAFETY: the owner's field, and the current thread is the owner.
        unsafe { self.level().write(before) };
    }

    /// What the owner has noted, if the current thread is the owner.
    fn noted(self) -> Option<u32> {
        // SAFETY: the owner's field.
        (self.owner.load(Relaxed) == me()).then(|| unsafe { self.level().read() })
    }
}

/// Without a change of the level the caller has to keep normal kernel APCs away itself.
fn without_apcs(name: &str) {
    if context::critical() == 0 && machine::current_irql() < Irql::APC_LEVEL {
        bug_check(Rule::CriticalRegion, format_args!("{name} called outside of a critical region"));
    }
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquireFastMutex(place: PFAST_MUTEX) {
    routine!("ExAcquireFastMutex", |state| {
        let mutex = fields(state, place);
        let before = machine::raise(Irql::APC_LEVEL);
        mutex.acquire(state, "ExAcquireFastMutex");
        mutex.note(before.0.into());
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExTryToAcquireFastMutex(place: PFAST_MUTEX) -> BOOLEAN {
    routine!("ExTryToAcquireFastMutex", |state| {
        let mutex = fields(state, place);
        let taken = mutex.try_acquire();
        if taken {
            mutex.note(machine::raise(Irql::APC_LEVEL).0.into());
        }
        BOOLEAN::from(taken)
    })
}

#[unsafe(no_mangle)]
extern "C" fn ExReleaseFastMutex(place: PFAST_MUTEX) {
    routine!("ExReleaseFastMutex", |state| {
        let mutex = fields(state, place);
        let before = mutex.noted();
        if before == Some(UNCHANGED) {
            let words =
                format_args!("a fast mutex is acquired by ExAcquireFastMutexUnsafe, and released by the other pair");
            bug_check(Rule::LockPrimitive, words);
        }
        let level = machine::current_irql();
        if level != Irql::APC_LEVEL {
            bug_check(Rule::IrqlNotRaised, format_args!("ExReleaseFastMutex at {level}, and not at APC_LEVEL"));
        }
        mutex.release(state, "ExReleaseFastMutex");
        machine::lower(Irql(before.and_then(|level| u8::try_from(level).ok()).unwrap_or(0)));
        state.preempt();
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquireFastMutexUnsafe(place: PFAST_MUTEX) {
    routine!("ExAcquireFastMutexUnsafe", |state| {
        without_apcs("ExAcquireFastMutexUnsafe");
        let mutex = fields(state, place);
        mutex.acquire(state, "ExAcquireFastMutexUnsafe");
        mutex.note(UNCHANGED);
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExReleaseFastMutexUnsafe(place: PFAST_MUTEX) {
    routine!("ExReleaseFastMutexUnsafe", |state| {
        without_apcs("ExReleaseFastMutexUnsafe");
        let mutex = fields(state, place);
        if mutex.noted().is_some_and(|before| before != UNCHANGED) {
            let words = format_args!("a fast mutex is acquired by ExAcquireFastMutex, and released by the other pair");
            bug_check(Rule::LockPrimitive, words);
        }
        mutex.release(state, "ExReleaseFastMutexUnsafe");
        state.preempt();
    });
}

/// A guarded mutex is a fast mutex whose owner is in a guarded region, at the level at which it was.
#[unsafe(no_mangle)]
extern "C" fn KeInitializeGuardedMutex(place: PFAST_MUTEX) {
    routine!("KeInitializeGuardedMutex", APC_LEVEL, |state| {
        // SAFETY: the driver's memory for a mutex; only addresses are taken.
        let (count, owner, event) =
            unsafe { (&raw mut (*place).Count, &raw mut (*place).Owner, &raw mut (*place).Event) };
        // SAFETY: fields of the driver's memory, which it has just said is one.
        unsafe {
            count.write(FREE);
            owner.write(ptr::null_mut());
        }
        super::event::initialise(state, event, super::event::SYNCHRONIZATION);
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeAcquireGuardedMutex(place: PFAST_MUTEX) {
    routine!("KeAcquireGuardedMutex", APC_LEVEL, |state| {
        let mutex = fields(state, place);
        enter_guarded_region();
        mutex.acquire(state, "KeAcquireGuardedMutex");
        mutex.note(UNCHANGED);
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeTryToAcquireGuardedMutex(place: PFAST_MUTEX) -> BOOLEAN {
    routine!("KeTryToAcquireGuardedMutex", APC_LEVEL, |state| {
        let mutex = fields(state, place);
        let taken = mutex.try_acquire();
        if taken {
            enter_guarded_region();
            mutex.note(UNCHANGED);
        }
        BOOLEAN::from(taken)
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeReleaseGuardedMutex(place: PFAST_MUTEX) {
    routine!("KeReleaseGuardedMutex", APC_LEVEL, |state| {
        let mutex = fields(state, place);
        if mutex.noted().is_some_and(|before| before != UNCHANGED) {
            let words = format_args!("a guarded mutex is acquired as a fast mutex, and released as what it is");
            bug_check(Rule::LockPrimitive, words);
        }
        mutex.release(state, "KeReleaseGuardedMutex");
        leave_guarded_region();
        state.preempt();
    });
}
