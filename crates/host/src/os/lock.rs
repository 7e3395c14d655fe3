//! [`SpinLock`] of the engine.

use std::{
    any::type_name,
    cell::UnsafeCell,
    hint,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Relaxed, Release},
    },
    thread,
};

use engine::os::SpinLock;

use crate::machine::{Irql, LockName, MachineRef, RawSpinLock};

/// A spin lock around a value.
///
/// Its class, for the order of locks, is the type of the value.
pub struct HostLock<T> {
    kind: Kind,
    value: UnsafeCell<T>,
}

enum Kind {
    /// A lock and nothing else.
    Plain(AtomicBool),
    /// A lock that keeps the rules of the machine.
    Watched(Watched),
}

struct Watched {
    raw: RawSpinLock,
    /// Tells the locks of one class apart.
    instance: u64,
    /// The machine, if it wants to get in between (a seeded one).
    preempts: Option<MachineRef>,
}

// SAFETY: the lock gives the value to one thread at a time.
unsafe impl<T: Send> Sync for HostLock<T> {}

impl<T> HostLock<T> {
    pub(super) fn new(machine: &MachineRef, value: T) -> Self {
        let watched = Watched {
            raw: RawSpinLock::new(),
            instance: machine.next_number(),
            preempts: machine.preempts().then(|| machine.clone()),
        };
        Self { kind: Kind::Watched(watched), value: UnsafeCell::new(value) }
    }

    pub(super) const fn plain(value: T) -> Self {
        Self { kind: Kind::Plain(AtomicBool::new(false)), value: UnsafeCell::new(value) }
    }
}

impl Watched {
    fn preempt(&self) {
        if let Some(machine) = &self.preempts {
            machine.preempt();
        }
    }
}

impl<T> HostLock<T> {
    /// Acquires the lock. The IRQL before, if the lock is watched.
    #[inline]
    #[track_caller]
    fn acquire(&self) -> Option<Irql> {
        match &self.kind {
            Kind::Plain(taken) => {
                if taken.compare_exchange(false, true, Acquire, Relaxed).is_err() {
                    spin(taken);
                }
                None
            }
            Kind::Watched(watched) => {
                watched.preempt();
                Some(watched.raw.acquire(LockName { class: type_name::<T>(), instance: watched.instance }))
            }
        }
    }

    #[inline]
    #[track_caller]
    fn release(&self, before: Option<Irql>) {
        match &self.kind {
            Kind::Plain(taken) => taken.store(false, Release),
            Kind::Watched(watched) => {
                watched.raw.release(before.unwrap_or(Irql::PASSIVE_LEVEL));
                watched.preempt();
            }
        }
    }
}

#[cold]
fn spin(taken: &AtomicBool) {
    let mut rounds = 0_u32;
    while taken.load(Relaxed) || taken.compare_exchange_weak(false, true, Acquire, Relaxed).is_err() {
        rounds = rounds.wrapping_add(1);
        if rounds.is_multiple_of(128) {
            // The holder's thread may have been taken off its core.
            thread::yield_now();
        } else {
            hint::spin_loop();
        }
    }
}

/// Releases the lock if the work panics.
struct Unwinding<'lock, T> {
    lock: &'lock HostLock<T>,
    before: Option<Irql>,
}

impl<T> Drop for Unwinding<'_, T> {
    fn drop(&mut self) {
        match (&self.lock.kind, self.before) {
            (Kind::Plain(taken), _) => taken.store(false, Release),
            (Kind::Watched(watched), before) => watched.raw.release_in_panic(before.unwrap_or(Irql::PASSIVE_LEVEL)),
        }
    }
}

impl<T: Send> SpinLock<T> for HostLock<T> {
    #[inline]
    #[track_caller]
    fn with<U>(&self, work: impl FnOnce(&mut T) -> U) -> U {
        let before = self.acquire();
        let unwinding = Unwinding { lock: self, before };
        // SAFETY: this thread holds the lock. Acquiring it again from inside `work` panics or never succeeds, so nobody else
        // has a reference to the value.
        let value = unsafe { &mut *self.value.get() };
        let result = work(value);
        std::mem::forget(unwinding);
        self.release(before);
        result
    }
}
