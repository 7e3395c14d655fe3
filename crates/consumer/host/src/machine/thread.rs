//! The state of each operating-system thread: its IRQL, the locks it holds, the processor it is on.

use std::{cell::Cell, panic::Location};

use super::{dispatch::Interrupted, irql::Irql, spin_lock::LockName};

/// The most spin locks that a thread may hold.
pub const MOST_LOCKS: usize = 16;

/// True if locks are remembered with their place and their order: with the feature `checked` or debug assertions.
pub const CHECKED: bool = cfg!(any(feature = "checked", debug_assertions));

/// What tells a thread's token in the word of a spin lock from the address of a place in its queue.
pub const PLAIN: usize = 1;

/// A spin lock that the thread holds.
#[derive(Clone, Copy)]
pub struct HeldLock {
    /// The address of the lock.
    pub address: usize,
    /// Its name.
    pub name: LockName,
    /// Where it was acquired.
    pub place: &'static Location<'static>,
}

/// The state of one thread. Plain cells without a destructor, so that access is cheap.
pub struct ThreadState {
    /// The current IRQL.
    pub irql: Cell<Irql>,
    /// The number of spin locks held.
    pub locks: Cell<usize>,
    /// The locks held, in the order of acquisition. Only kept when [`CHECKED`].
    pub held: [Cell<Option<HeldLock>>; MOST_LOCKS],
    /// The machine (its number) and the processor that the thread was put on, if any.
    processor: Cell<(u64, u32)>,
    /// The processor whose DPCs interrupt the thread, if there is one.
    pub interrupted: Interrupted,
    /// Registered bytes that were copied in the DPC that runs. Counts outside of one as well, and means nothing there.
    pub copied: Cell<usize>,
}

/// No machine has this number.
const NOWHERE: (u64, u32) = (0, 0);

thread_local! {
    static STATE: ThreadState = const {
        ThreadState {
            irql: Cell::new(Irql::PASSIVE_LEVEL),
            locks: Cell::new(0),
            held: [const { Cell::new(None) }; MOST_LOCKS],
            processor: Cell::new(NOWHERE),
            interrupted: Interrupted::none(),
            copied: Cell::new(0),
        }
    };
    /// A small number for the thread, in the order in which threads first asked.
    static NUMBER: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Counts registered bytes that are copied.
#[inline]
pub fn count_copied(bytes: usize) {
    with(|state| state.copied.set(state.copied.get().wrapping_add(bytes)));
}

/// Runs `work` on the state of the current thread.
#[inline]
pub fn with<U>(work: impl FnOnce(&ThreadState) -> U) -> U {
    STATE.with(work)
}

impl ThreadState {
    /// A number that no other live thread has. Never zero, and [odd](PLAIN).
    #[inline]
    pub fn token(&self) -> usize {
        std::ptr::from_ref(self).addr() | PLAIN
    }

    /// Notes a lock as held.
    #[inline]
    pub fn push(&self, address: usize, name: LockName, place: &'static Location<'static>) {
        let count = self.locks.get();
        self.locks.set(count + 1);
        if CHECKED {
            assert!(count < MOST_LOCKS, "more than {MOST_LOCKS} spin locks held by one thread");
            self.held[count].set(Some(HeldLock { address, name, place }));
        }
    }

    /// Forgets a lock. Locks may be released in any order.
    #[inline]
    pub fn pop(&self, address: usize) {
        let count = self.locks.get();
        self.locks.set(count.saturating_sub(1));
        if CHECKED {
            let held = &self.held[..count.min(MOST_LOCKS)];
            if let Some(index) = held.iter().rposition(|lock| lock.get().is_some_and(|lock| lock.address == address)) {
                for next in index + 1..held.len() {
                    held[next - 1].set(held[next].get());
                }
            }
        }
    }

    /// The locks held, the first acquired first. Empty unless [`CHECKED`].
    pub fn held(&self) -> impl Iterator<Item = HeldLock> + '_ {
        let count = if CHECKED { self.locks.get().min(MOST_LOCKS) } else { 0 };
        self.held[..count].iter().filter_map(Cell::get)
    }

    /// The processor of machine `machine` on which the thread was put.
    pub fn processor_of(&self, machine: u64) -> Option<u32> {
        let (bound, processor) = self.processor.get();
        (bound == machine).then_some(processor)
    }

    /// Returns true if the thread is below `DISPATCH_LEVEL`.
    #[inline]
    pub fn is_interruptible(&self) -> bool {
        self.irql.get() < Irql::DISPATCH_LEVEL
    }

    /// Raises to `to`, which is not below the current level. At `DISPATCH_LEVEL` and above, the thread has its processor for
    /// itself. Gives the level before.
    #[inline]
    pub fn raise(&self, to: Irql) -> Irql {
        let before = self.irql.replace(to);
        if before < Irql::DISPATCH_LEVEL && to >= Irql::DISPATCH_LEVEL {
            self.interrupted.mask();
        }
        before
    }

    /// Lowers to `to`, which is not above the current level. Below `DISPATCH_LEVEL`, DPCs of the thread's processor
    /// run first.
    #[inline]
    pub fn lower(&self, to: Irql) {
        if self.irql.get() >= Irql::DISPATCH_LEVEL && to < Irql::DISPATCH_LEVEL {
            self.irql.set(Irql::DISPATCH_LEVEL);
            self.interrupted.unmask(self);
        }
        self.irql.set(to);
    }

    /// Lowers to `to` while the thread unwinds: nothing is run that could panic as well.
    pub fn lower_in_panic(&self, to: Irql) {
        if self.irql.get() >= Irql::DISPATCH_LEVEL && to < Irql::DISPATCH_LEVEL {
            self.interrupted.unmask_in_panic();
        }
        self.irql.set(to);
    }

    /// Puts the thread on a processor of machine `machine`.
    pub fn bind(&self, machine: u64, processor: u32) {
        self.processor.set((machine, processor));
    }
}

/// A small number that stays the same as long as the thread lives.
pub fn number() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NUMBER.with(|number| {
        number.get().unwrap_or_else(|| {
            let new = NEXT.fetch_add(1, Relaxed);
            number.set(Some(new));
            new
        })
    })
}

/// The thread as it was before it began to run something on a processor. Dropping this restores it.
pub struct Entered<'thread> {
    state: &'thread ThreadState,
    irql: Irql,
    locks: usize,
    processor: (u64, u32),
    copied: usize,
}

impl<'thread> Entered<'thread> {
    /// Puts the current thread on a processor, at `DISPATCH_LEVEL`.
    #[inline]
    pub fn new(state: &'thread ThreadState, machine: u64, processor: u32) -> Self {
        Self {
            irql: state.irql.replace(Irql::DISPATCH_LEVEL),
            locks: state.locks.get(),
            processor: state.processor.replace((machine, processor)),
            copied: state.copied.get(),
            state,
        }
    }
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        self.state.irql.set(self.irql);
        self.state.locks.set(self.locks);
        self.state.processor.set(self.processor);
        self.state.copied.set(self.copied);
    }
}
