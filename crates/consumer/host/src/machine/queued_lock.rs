//! The queued spin lock (of Mellor-Crummey and Scott): `KeAcquireInStackQueuedSpinLock`.
//!
//! Who wants the lock brings a [`LockQueue`] along, in memory of its own. The lock's word has the address of the last one, and each
//! has that of the next. Who releases finds out whether somebody waits by comparing the word with the address of its own. So the
//! release with another one, a copy of it, say, does not find itself at the end of the queue and waits for a successor: for ever.

use std::{
    hint,
    panic::Location,
    ptr,
    sync::atomic::{
        AtomicPtr, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
    time::Instant,
};

use super::{
    irql::Irql,
    lock_order,
    rules::{Rule, broken},
    spin_lock::{LONGEST_SPIN, LockName, RawSpinLock, not_restored, wrong_level},
    thread::{self, CHECKED, ThreadState},
};

/// A bit of [`LockQueue::lock`]: its owner waits. The kit names it `LOCK_QUEUE_WAIT` (`wdm.h`).
const WAIT: usize = 1;
/// A bit of [`LockQueue::lock`]: its owner has the lock. The kit names it `LOCK_QUEUE_OWNER` (`wdm.h`).
const OWNER: usize = 2;

/// A place in the queue for a lock: `KSPIN_LOCK_QUEUE`, which it equals in size and layout.
#[derive(Debug, Default)]
#[repr(C)]
pub struct LockQueue {
    /// Whose turn it is next.
    next: AtomicPtr<Self>,
    /// The address of the lock, and [`WAIT`] or [`OWNER`].
    lock: AtomicUsize,
}

impl LockQueue {
    /// The address of the lock that it was used for last.
    #[must_use]
    pub fn lock(&self) -> usize {
        self.lock.load(Relaxed) & !(WAIT | OWNER)
    }
}

impl RawSpinLock {
    /// Raises to `DISPATCH_LEVEL` and acquires the lock: `KeAcquireInStackQueuedSpinLock`. Gives the IRQL before.
    ///
    /// # Panics
    ///
    /// Like [`RawSpinLock::acquire`], and [`Rule::LockPrimitive`] if somebody holds it who has not come by the queue.
    ///
    /// # Safety
    ///
    /// `place` is in no queue. It stays where it is, and nobody else uses it, until the lock is released with it. The lock stays where
    /// it is as long.
    #[track_caller]
    pub unsafe fn acquire_queued(&self, place: *const LockQueue, name: LockName) -> Irql {
        let caller = Location::caller();
        thread::with(|state| {
            let before = state.irql.get();
            if before > Irql::DISPATCH_LEVEL {
                wrong_level(before, name, caller);
            }
            state.raise(Irql::DISPATCH_LEVEL);
            // SAFETY: `place` is in no queue, and lock and place stay where they are until the release (`# Safety`).
            unsafe { self.queue(state, place, name, caller) };
            before
        })
    }

    /// Acquires the lock at `DISPATCH_LEVEL`: `KeAcquireInStackQueuedSpinLockAtDpcLevel`.
    ///
    /// # Panics
    ///
    /// Like [`RawSpinLock::acquire_queued`], and [`Rule::IrqlNotRaised`] below `DISPATCH_LEVEL`.
    ///
    /// # Safety
    ///
    /// As for [`RawSpinLock::acquire_queued`].
    #[track_caller]
    pub unsafe fn acquire_queued_at_dispatch(&self, place: *const LockQueue, name: LockName) {
        let caller = Location::caller();
        thread::with(|state| {
            if state.irql.get() != Irql::DISPATCH_LEVEL {
                wrong_level(state.irql.get(), name, caller);
            }
            // SAFETY: `place` is in no queue, and lock and place stay where they are until the release (`# Safety`).
            unsafe { self.queue(state, place, name, caller) };
        });
    }

    /// # Safety
    ///
    /// As for [`RawSpinLock::acquire_queued`].
    unsafe fn queue(
        &self,
        state: &ThreadState,
        place: *const LockQueue,
        name: LockName,
        caller: &'static Location<'static>,
    ) {
        if CHECKED && state.locks.get() > 0 {
            self.not_acquired_here(state, name, caller);
            lock_order::check(state, name, caller);
        }
        // SAFETY: `place` stays where it is until the lock is released with it (`# Safety`).
        let own = unsafe { &*place };
        own.next.store(ptr::null_mut(), Relaxed);
        own.lock.store(self.address() | WAIT, Relaxed);
        let last = self.swap_last(place, name, caller);
        if last.is_null() {
            own.lock.store(self.address() | OWNER, Relaxed);
        } else {
            // SAFETY: who is last in the queue keeps its place until it has released the lock (`# Safety` of its call, not of this
            // one). It does not before it has seen who comes next, which is said here.
            let last = unsafe { &*last };
            last.next.store(place.cast_mut(), Release);
            own.wait(name, caller);
        }
        state.push(self.address(), name, caller);
    }

    /// Releases the lock and returns to `before`: `KeReleaseInStackQueuedSpinLock`.
    ///
    /// # Panics
    ///
    /// [`Rule::IrqlNotRestored`] if the IRQL was changed meanwhile, [`Rule::Hang`] if somebody who waits does not say so.
    ///
    /// # Safety
    ///
    /// This thread has acquired this lock with `place`, which has been where it is since.
    #[track_caller]
    pub unsafe fn release_queued(&self, place: *const LockQueue, before: Irql) {
        // SAFETY: this thread has acquired the lock with `place` (`# Safety`).
        unsafe { self.release_queued_from_dispatch(place) };
        thread::with(|state| state.lower(before));
    }

    /// Releases the lock and stays at `DISPATCH_LEVEL`: `KeReleaseInStackQueuedSpinLockFromDpcLevel`.
    ///
    /// # Panics
    ///
    /// As for [`RawSpinLock::release_queued`].
    ///
    /// # Safety
    ///
    /// As for [`RawSpinLock::release_queued`].
    #[track_caller]
    pub unsafe fn release_queued_from_dispatch(&self, place: *const LockQueue) {
        let caller = Location::caller();
        thread::with(|state| {
            if state.irql.get() != Irql::DISPATCH_LEVEL {
                not_restored(caller);
            }
            state.pop(self.address());
        });
        // SAFETY: `place` has been where it is since this thread acquired the lock with it (`# Safety`).
        let own = unsafe { &*place };
        own.lock.store(self.address(), Relaxed);
        let mut next = own.next.load(Acquire);
        if next.is_null() {
            if self.forget_last(place) {
                return;
            }
            // Somebody has come and is about to say so.
            spin(
                || format!("{caller} releases a queued spin lock, and who waits for it is not linked"),
                || {
                    next = own.next.load(Acquire);
                    !next.is_null()
                },
            );
        }
        own.next.store(ptr::null_mut(), Relaxed);
        // SAFETY: it waits, and so stays where it is (the promise of who waits).
        let next = unsafe { &*next };
        next.lock.store(self.address() | OWNER, Release);
    }
}

impl LockQueue {
    fn wait(&self, name: LockName, caller: &'static Location<'static>) {
        spin(|| format!("{caller} spins for {name}"), || self.lock.load(Acquire) & WAIT == 0);
    }
}

/// Spins until `condition` holds.
fn spin(what: impl Fn() -> String, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    let mut rounds = 0_u32;
    while !condition() {
        rounds = rounds.wrapping_add(1);
        if rounds < 128 {
            hint::spin_loop();
            continue;
        }
        // The other thread may have been taken off its core, which a kernel at DISPATCH_LEVEL cannot be.
        std::thread::yield_now();
        if rounds.is_multiple_of(1024) && started.elapsed() > LONGEST_SPIN {
            broken(Rule::Hang, format_args!("{}, for {LONGEST_SPIN:?} or longer", what()));
        }
    }
}
