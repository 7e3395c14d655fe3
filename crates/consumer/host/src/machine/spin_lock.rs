//! The spin lock: one word, which holds the name of the thread that has it, or the end of a queue ([`super::queued_lock`]).

use std::{
    fmt, hint,
    panic::Location,
    sync::atomic::{
        AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
    time::{Duration, Instant},
};

use super::{
    irql::{Irql, current_irql},
    lock_order,
    queued_lock::LockQueue,
    rules::{Rule, broken},
    step_threads,
    thread::{self, CHECKED, PLAIN, ThreadState},
};

/// Spinning longer than this for one lock is a deadlock or an endless critical section.
pub(super) const LONGEST_SPIN: Duration = Duration::from_mins(1);

/// What a lock is called in messages and in the order of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockName {
    /// The kind of lock. The order of two kinds is learnt from whoever holds both first.
    pub class: &'static str,
    /// Which one of its kind. Two of one kind must be acquired in the same order always.
    pub instance: u64,
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` #{}", self.class, self.instance)
    }
}

/// A spin lock without a value: `KSPIN_LOCK`, which it equals in size and alignment. All zeros is a free lock.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct RawSpinLock {
    /// Zero, the token of the thread that holds the lock, or the address of the last place in its queue. A token is odd.
    holder: AtomicUsize,
}

impl RawSpinLock {
    /// A free lock.
    #[must_use]
    pub const fn new() -> Self {
        Self { holder: AtomicUsize::new(0) }
    }

    /// Raises to `DISPATCH_LEVEL` and acquires the lock: `KeAcquireSpinLockRaiseToDpc`. Gives the IRQL before.
    ///
    /// # Panics
    ///
    /// [`Rule::IrqlTooHigh`] above `DISPATCH_LEVEL`, [`Rule::RecursiveLock`] if this thread holds the lock,
    /// [`Rule::LockOrder`] if another thread has acquired it and one of those held in the other order, [`Rule::Hang`].
    #[inline]
    #[track_caller]
    pub fn acquire(&self, name: LockName) -> Irql {
        let place = Location::caller();
        thread::with(|state| {
            let before = state.irql.get();
            if before > Irql::DISPATCH_LEVEL {
                wrong_level(before, name, place);
            }
            state.raise(Irql::DISPATCH_LEVEL);
            self.lock(state, name, place);
            before
        })
    }

    /// Acquires the lock at `DISPATCH_LEVEL`: `KeAcquireSpinLockAtDpcLevel`.
    ///
    /// # Panics
    ///
    /// Like [`RawSpinLock::acquire`], and [`Rule::IrqlNotRaised`] below `DISPATCH_LEVEL`.
    #[inline]
    #[track_caller]
    pub fn acquire_at_dispatch(&self, name: LockName) {
        let place = Location::caller();
        thread::with(|state| {
            if state.irql.get() != Irql::DISPATCH_LEVEL {
                wrong_level(state.irql.get(), name, place);
            }
            self.lock(state, name, place);
        });
    }

    /// Acquires the lock at `DISPATCH_LEVEL` if it is free: `KeTryToAcquireSpinLockAtDpcLevel`.
    ///
    /// # Panics
    ///
    /// [`Rule::IrqlNotRaised`] below `DISPATCH_LEVEL`, [`Rule::IrqlTooHigh`] above.
    #[track_caller]
    #[must_use]
    pub fn try_acquire_at_dispatch(&self, name: LockName) -> bool {
        let place = Location::caller();
        thread::with(|state| {
            if state.irql.get() != Irql::DISPATCH_LEVEL {
                wrong_level(state.irql.get(), name, place);
            }
            let free = match self.holder.compare_exchange(0, state.token(), Acquire, Relaxed) {
                Ok(_) => true,
                Err(holder) if holder & PLAIN == 0 => wrong_primitive(name, place),
                Err(_) => false,
            };
            if free {
                state.push(self.address(), name, place);
            }
            free
        })
    }

    /// Releases the lock and returns to `before`: `KeReleaseSpinLock`.
    ///
    /// # Panics
    ///
    /// [`Rule::LockNotHeld`] if this thread does not hold it, [`Rule::IrqlNotRestored`] if the IRQL was changed meanwhile.
    #[inline]
    #[track_caller]
    pub fn release(&self, before: Irql) {
        self.release_from_dispatch();
        thread::with(|state| state.lower(before));
    }

    /// Releases the lock and stays at `DISPATCH_LEVEL`: `KeReleaseSpinLockFromDpcLevel`.
    ///
    /// # Panics
    ///
    /// Like [`RawSpinLock::release`].
    #[inline]
    #[track_caller]
    pub fn release_from_dispatch(&self) {
        let place = Location::caller();
        thread::with(|state| {
            if self.holder.load(Relaxed) != state.token() {
                not_held(place);
            }
            if state.irql.get() != Irql::DISPATCH_LEVEL {
                not_restored(place);
            }
            state.pop(self.address());
            self.holder.store(0, Release);
        });
    }

    /// Releases the lock because the critical section panicked: without a check that could panic again.
    pub fn release_in_panic(&self, before: Irql) {
        thread::with(|state| {
            state.pop(self.address());
            self.holder.store(0, Release);
            state.lower_in_panic(before);
        });
    }

    /// Returns true if the current thread holds the lock.
    #[must_use]
    pub fn is_held_here(&self) -> bool {
        thread::with(|state| self.holder.load(Relaxed) == state.token())
    }

    /// Returns true if nobody holds the lock.
    pub(crate) fn is_free(&self) -> bool {
        self.holder.load(Relaxed) == 0
    }

    /// Names the lock among those alive.
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    #[inline]
    fn lock(&self, state: &ThreadState, name: LockName, place: &'static Location<'static>) {
        if CHECKED && state.locks.get() > 0 {
            self.not_held_here(state, name, place);
            lock_order::check(state, name, place);
        }
        if self.holder.compare_exchange(0, state.token(), Acquire, Relaxed).is_err() {
            self.spin(state, name, place);
        }
        state.push(self.address(), name, place);
    }

    /// Acquires a lock that was not free.
    #[cold]
    fn spin(&self, state: &ThreadState, name: LockName, place: &'static Location<'static>) {
        self.not_held_here(state, name, place);
        let started = Instant::now();
        let mut rounds = 0_u32;
        while self.holder.load(Relaxed) != 0
            || self.holder.compare_exchange_weak(0, state.token(), Acquire, Relaxed).is_err()
        {
            let holder = self.holder.load(Relaxed);
            if holder != 0 && holder & PLAIN == 0 {
                wrong_primitive(name, place);
            }
            if holder != 0 {
                step_threads::wait_for(self.address(), holder);
            }
            rounds = rounds.wrapping_add(1);
            if rounds < 128 {
                hint::spin_loop();
                continue;
            }
            // The holder's thread may have been taken off its core, which a kernel at DISPATCH_LEVEL cannot be.
            std::thread::yield_now();
            if rounds.is_multiple_of(1024) && started.elapsed() > LONGEST_SPIN {
                broken(Rule::Hang, format_args!("{place} spins for {name}, held for {LONGEST_SPIN:?} or longer"));
            }
        }
    }

    /// Puts `place` at the end of the queue. The one before it, or null.
    pub(super) fn swap_last(
        &self,
        place: *const LockQueue,
        name: LockName,
        caller: &'static Location<'static>,
    ) -> *const LockQueue {
        let last = self.holder.swap(place.expose_provenance(), AcqRel);
        if last & PLAIN != 0 {
            wrong_primitive(name, caller);
        }
        std::ptr::with_exposed_provenance(last)
    }

    /// Makes the queue empty if `place` is its end. Returns true if it was.
    pub(super) fn forget_last(&self, place: *const LockQueue) -> bool {
        self.holder.compare_exchange(place.addr(), 0, Release, Relaxed).is_ok()
    }

    /// The address of the last place in the queue, if the lock is held by a queue.
    #[must_use]
    pub fn last_in_queue(&self) -> Option<usize> {
        Some(self.holder.load(Relaxed)).filter(|&holder| holder != 0 && holder & PLAIN == 0)
    }

    /// Panics if the thread holds the lock, in whichever way.
    pub(super) fn not_acquired_here(&self, state: &ThreadState, name: LockName, place: &'static Location<'static>) {
        if let Some(held) = state.held().find(|held| held.address == self.address()) {
            broken(
                Rule::RecursiveLock,
                format_args!("{name} acquired at {place}, but this thread acquired it at {} already", held.place),
            );
        }
    }

    /// Panics if the thread would wait for itself.
    fn not_held_here(&self, state: &ThreadState, name: LockName, place: &'static Location<'static>) {
        if self.holder.load(Relaxed) == state.token() {
            self.not_acquired_here(state, name, place);
            broken(Rule::RecursiveLock, format_args!("{name} acquired at {place} by the thread that holds it"));
        }
    }
}

#[cold]
fn wrong_primitive(name: LockName, place: &Location<'_>) -> ! {
    broken(
        Rule::LockPrimitive,
        format_args!(
            "{name} is acquired at {place} both as a queued spin lock and as another one, or is not initialised"
        ),
    )
}

#[cold]
pub(super) fn wrong_level(now: Irql, name: LockName, place: &Location<'_>) -> ! {
    let rule = if now > Irql::DISPATCH_LEVEL { Rule::IrqlTooHigh } else { Rule::IrqlNotRaised };
    broken(rule, format_args!("{name} acquired at {now}, at {place}"))
}

#[cold]
fn not_held(place: &Location<'_>) -> ! {
    broken(Rule::LockNotHeld, format_args!("a spin lock is released at {place} by a thread that does not hold it"))
}

#[cold]
pub(super) fn not_restored(place: &Location<'_>) -> ! {
    broken(Rule::IrqlNotRestored, format_args!("a spin lock is released at {} at {place}", current_irql()))
}
