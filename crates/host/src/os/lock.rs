//! [`SpinLock`] of the engine.

use std::{
    any::type_name,
    cell::UnsafeCell,
    hint,
    sync::atomic::{
        AtomicU8,
        Ordering::{Acquire, Relaxed, Release},
    },
    thread,
};

use engine::os::SpinLock;

use crate::machine::{Irql, LockName, MachineRef, RawSpinLock};

/// A spin lock around a value.
///
/// Its class, for the order of locks, is the type of the value.
#[repr(C)]
pub struct HostLock<T> {
    /// First, and so in the cache line of what the value begins with. [`FREE`], [`TAKEN`], or always [`WATCHED`].
    state: AtomicU8,
    value: UnsafeCell<T>,
    watched: Option<Watched>,
}

/// A lock that does nothing but lock, and that nobody has.
const FREE: u8 = 0;
/// A lock that does nothing but lock, and that somebody has.
const TAKEN: u8 = 1;
/// A lock that keeps the rules of the machine.
const WATCHED: u8 = 2;

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
        Self { state: AtomicU8::new(WATCHED), watched: Some(watched), value: UnsafeCell::new(value) }
    }

    pub(super) const fn plain(value: T) -> Self {
        Self { state: AtomicU8::new(FREE), watched: None, value: UnsafeCell::new(value) }
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
        if self.state.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok() {
            return None;
        }
        self.acquire_slowly()
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn acquire_slowly(&self) -> Option<Irql> {
        if let Some(watched) = &self.watched {
            watched.preempt();
            let name = LockName { class: type_name::<T>(), instance: watched.instance };
            return Some(watched.raw.acquire(name));
        }
        let mut rounds = 0_u32;
        while self.state.load(Relaxed) != FREE
            || self.state.compare_exchange_weak(FREE, TAKEN, Acquire, Relaxed).is_err()
        {
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(128) {
                // The holder's thread may have been taken off its core.
                thread::yield_now();
            } else {
                hint::spin_loop();
            }
        }
        None
    }

    #[inline]
    #[track_caller]
    fn release(&self, before: Option<Irql>) {
        match before {
            None => self.state.store(FREE, Release),
            Some(before) => self.release_watched(before),
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn release_watched(&self, before: Irql) {
        if let Some(watched) = &self.watched {
            watched.raw.release(before);
            watched.preempt();
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
        match (self.before, &self.lock.watched) {
            (Some(before), Some(watched)) => watched.raw.release_in_panic(before),
            _ => self.lock.state.store(FREE, Release),
        }
    }
}

impl<T: Send> SpinLock<T> for HostLock<T> {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: what is done under the lock is to become part of the caller")]
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
