//! [`SpinLock`] of the engine.

use std::{
    any::type_name,
    cell::UnsafeCell,
    hint,
    sync::atomic::{
        AtomicU8, AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    thread,
};

use engine::os::SpinLock;
use fallible::{AllocError, try_box};

use crate::machine::{Irql, LockName, MachineRef, RawSpinLock};

/// A spin lock around a value.
///
/// Its class, for the order of locks, is the type of the value.
#[repr(C)]
pub struct HostLock<T> {
    /// First, and so in the cache line of what the value begins with. [`FREE`], [`TAKEN`], or always [`WATCHED`].
    ///
    /// Four bytes, because an exchange of one byte takes a cycle or two longer (measured).
    state: AtomicU32,
    value: UnsafeCell<T>,
    /// In a box, so that locks that are not watched are small.
    watched: Option<Box<Watched>>,
}

/// A lock that does nothing but lock, and that nobody has.
const FREE: u32 = 0;
/// A lock that does nothing but lock, and that somebody has.
const TAKEN: u32 = 1;
/// A lock that keeps the rules of the machine.
const WATCHED: u32 = 2;

/// Rounds of the first wait for a lock: about as long as its cache line takes to another core and back, several times, so that
/// the holder can do some work meanwhile.
const FIRST_PAUSE: u32 = 64;
/// Rounds of the longest wait for a lock before the core is lent to others.
const LONGEST_PAUSE: u32 = 256;

/// The number of the next lock. The orders that are known outlive a machine and are those of all of them, so two locks of
/// different machines must not have one number.
static NEXT: AtomicU64 = AtomicU64::new(1);

struct Watched {
    raw: RawSpinLock,
    /// The IRQL before, of who holds the lock.
    before: AtomicU8,
    /// Tells the locks of one class apart.
    instance: u64,
    /// The machine, if it wants to get in between (a seeded one).
    preempts: Option<MachineRef>,
}

// SAFETY: the lock gives the value to one thread at a time.
unsafe impl<T: Send> Sync for HostLock<T> {}

impl<T> HostLock<T> {
    pub(super) fn try_new(machine: &MachineRef, value: T) -> Result<Self, AllocError> {
        let watched = Watched {
            raw: RawSpinLock::new(),
            before: AtomicU8::new(0),
            instance: NEXT.fetch_add(1, Relaxed),
            preempts: machine.preempts().then(|| machine.clone()),
        };
        let watched = Some(try_box(watched)?);
        Ok(Self { state: AtomicU32::new(WATCHED), watched, value: UnsafeCell::new(value) })
    }

    pub(super) const fn plain(value: T) -> Self {
        Self { state: AtomicU32::new(FREE), watched: None, value: UnsafeCell::new(value) }
    }
}

impl Watched {
    fn before(&self) -> Irql {
        Irql(self.before.load(Relaxed))
    }

    fn preempt(&self) {
        if let Some(machine) = &self.preempts {
            machine.preempt_at_lock();
        }
    }

    /// The lock is free.
    fn released(&self) {
        if let Some(machine) = &self.preempts {
            machine.released(&self.raw);
            machine.preempt_at_lock();
        }
    }
}

impl<T> HostLock<T> {
    /// Acquires a lock that is watched, or that somebody has.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn acquire_slowly(&self) {
        if let Some(watched) = &self.watched {
            watched.preempt();
            let name = LockName { class: type_name::<T>(), instance: watched.instance };
            watched.before.store(watched.raw.acquire(name).0, Relaxed);
            self.preempt_inside(watched);
            return;
        }
        let mut pause = FIRST_PAUSE;
        while self.state.load(Relaxed) != FREE
            || self.state.compare_exchange_weak(FREE, TAKEN, Acquire, Relaxed).is_err()
        {
            // Who has come in vain stays away longer and longer: each look takes the lock's cache line from its holder.
            if pause > LONGEST_PAUSE {
                // The holder's thread may have been taken off its core.
                thread::yield_now();
            } else {
                (0..pause).for_each(|_| hint::spin_loop());
                pause *= 2;
            }
        }
    }

    /// Lets others in between while this thread holds the lock. If one of them panics, the lock is released.
    fn preempt_inside(&self, watched: &Watched) {
        let unwinding = Unwinding(self);
        watched.preempt();
        std::mem::forget(unwinding);
    }

    /// Runs `work` on the value.
    ///
    /// # Safety
    ///
    /// This thread holds the lock.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `with`")]
    unsafe fn while_held<U>(&self, work: impl FnOnce(&mut T) -> U) -> U {
        let unwinding = Unwinding(self);
        // SAFETY: this thread holds the lock (`# Safety`). Acquiring it again from inside `work` panics or never
        // succeeds, so nobody else has a reference to the value.
        let value = unsafe { &mut *self.value.get() };
        let result = work(value);
        std::mem::forget(unwinding);
        result
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn release_watched(&self) {
        if let Some(watched) = &self.watched {
            self.preempt_inside(watched);
            watched.raw.release(watched.before());
            watched.released();
        }
    }
}

/// Releases the lock if the work panics.
struct Unwinding<'lock, T>(&'lock HostLock<T>);

impl<T> Drop for Unwinding<'_, T> {
    fn drop(&mut self) {
        match &self.0.watched {
            Some(watched) => watched.raw.release_in_panic(watched.before()),
            None => self.0.state.store(FREE, Release),
        }
    }
}

impl<T: Send> SpinLock<T> for HostLock<T> {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: what is done under the lock is to become part of the caller")]
    #[track_caller]
    fn with<U>(&self, work: impl FnOnce(&mut T) -> U) -> U {
        if self.state.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_err() {
            self.acquire_slowly();
        }
        // SAFETY: the lock was acquired just now.
        let result = unsafe { self.while_held(work) };
        // Asked of the state, not kept from before: then nothing of the acquisition has to be remembered in a register.
        if self.state.load(Relaxed) == TAKEN {
            self.state.store(FREE, Release);
        } else {
            self.release_watched();
        }
        result
    }
}
