//! What kind of adapter a row is about: which engine carries requests out, and what its locks are.

use std::{
    cell::UnsafeCell,
    hint,
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    thread,
};

use engine::os::{Os, SpinLock};
use host::{HostMemory, HostOs};
use interpose::{InterposeOs, Phase, Stamp};
use ndkpi::{MDL, NtStatus};
use provider::{NdkOs, NicMode};

/// The spin locks of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// The host's, without its checks: an atomic exchange and a store in the code that locks.
    Inlined,
    /// The same by two calls, as a kernel's routines are.
    Called,
}

impl Lock {
    /// What rows say of it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Inlined => "inlined lock",
            Self::Called => "called lock",
        }
    }
}

/// A kind of adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Where requests are carried out.
    pub engine: NicMode,
    /// What its locks are.
    pub lock: Lock,
}

impl Kind {
    /// Requests are carried out in the post; locks are inlined.
    pub const DIRECT: Self = Self { engine: NicMode::Direct, lock: Lock::Inlined };
    /// Requests are carried out in DPCs; locks are inlined.
    pub const DEFERRED: Self = Self { engine: NicMode::Deferred, lock: Lock::Inlined };

    /// The same engine with locks that are called.
    #[must_use]
    pub const fn called(self) -> Self {
        Self { lock: Lock::Called, ..self }
    }

    /// What rows say of it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match (self.engine, self.lock) {
            (NicMode::Direct, Lock::Inlined) => "direct engine, inlined lock",
            (NicMode::Direct, Lock::Called) => "direct engine, called lock",
            (NicMode::Deferred, Lock::Inlined) => "deferred engine, inlined lock",
            (NicMode::Deferred, Lock::Called) => "deferred engine, called lock",
        }
    }
}

/// The host, with locks that are called.
#[derive(Clone)]
pub struct CalledOs(HostOs);

impl CalledOs {
    /// The operating system `os`, but for its locks.
    #[must_use]
    pub fn new(os: &HostOs) -> Self {
        Self(os.clone())
    }
}

impl Os for CalledOs {
    type Lock<T: Send + 'static> = CalledLock<T>;
    type Memory = HostMemory;

    fn lock<T: Send + 'static>(&self, value: T) -> Result<CalledLock<T>, NtStatus> {
        Ok(CalledLock { word: RawLock(AtomicU64::new(FREE)), value: UnsafeCell::new(value) })
    }

    host::from_host_os!();
}

impl NdkOs for CalledOs {
    unsafe fn memory_from_mdl(&self, mdl: *mut MDL, length: usize) -> Result<HostMemory, NtStatus> {
        // SAFETY: the same method of the same trait, with the same arguments.
        unsafe { self.0.memory_from_mdl(mdl, length) }
    }
}

impl InterposeOs for CalledOs {
    fn place(&self) -> Stamp {
        self.0.place()
    }

    #[inline]
    fn stamp(&self, phase: Phase) -> Stamp {
        self.0.stamp(phase)
    }

    fn ticks_per_unit(&self) -> u64 {
        self.0.ticks_per_unit()
    }

    fn irql(&self) -> u8 {
        self.0.irql()
    }
}

/// An operating system that a provider and a layer run on.
pub trait LayerOs: NdkOs + InterposeOs {
    /// The host that it is.
    fn host(&self) -> &HostOs;
}

impl LayerOs for HostOs {
    fn host(&self) -> &HostOs {
        self
    }
}

impl LayerOs for CalledOs {
    fn host(&self) -> &HostOs {
        &self.0
    }
}

/// A spin lock that is acquired by one call and released by another. It has the eight bytes of a kernel's, and like a kernel's
/// queued lock it cannot be had at once or not at all.
pub struct CalledLock<T> {
    word: RawLock,
    value: UnsafeCell<T>,
}

const FREE: u64 = 0;
const TAKEN: u64 = 1;
/// Rounds of a wait before the core is lent to others.
const ROUNDS: u32 = 1024;

struct RawLock(AtomicU64);

impl RawLock {
    #[inline(never)]
    fn acquire(&self) {
        let mut rounds = 0_u32;
        while self.0.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_err() {
            while self.0.load(Relaxed) != FREE {
                rounds = rounds.wrapping_add(1);
                if rounds.is_multiple_of(ROUNDS) {
                    thread::yield_now();
                } else {
                    hint::spin_loop();
                }
            }
        }
    }

    #[inline(never)]
    fn release(&self) {
        self.0.store(FREE, Release);
    }
}

// SAFETY: the lock gives the value to one thread at a time.
unsafe impl<T: Send> Sync for CalledLock<T> {}

/// Releases the lock, also if the work panics.
struct Guard<'lock>(&'lock RawLock);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl<T: Send> SpinLock<T> for CalledLock<T> {
    #[inline]
    fn with<U>(&self, work: impl FnOnce(&mut T) -> U) -> U {
        self.word.acquire();
        let _held = Guard(&self.word);
        // SAFETY: this thread holds the lock, so nobody else has a reference to the value.
        work(unsafe { &mut *self.value.get() })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use engine::os::{Os, SpinLock};
    use host::{HostOs, machine::Machine};

    use super::CalledOs;

    #[test]
    fn a_called_lock_excludes_and_is_released_by_a_panic() {
        let machine = Machine::threads().processors(1).start();
        let lock = CalledOs::new(&HostOs::unwatched(&machine)).lock(0_u32).expect("memory");
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..10_000).for_each(|_| lock.with(|value| *value += 1)));
            }
        });
        let panicked = thread::scope(|scope| scope.spawn(|| lock.with(|_| panic!("on purpose"))).join().is_err());
        assert!(panicked);
        assert_eq!(lock.with(|value| *value), 20_000);
        machine.shutdown();
    }
}
