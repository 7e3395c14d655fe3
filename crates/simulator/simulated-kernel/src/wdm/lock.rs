//! Spin locks and the IRQL.
//!
//! A lock's word is the machine's lock itself: zero, whose thread has it, or the end of the queue of handles. The word is all that
//! Windows has, and so it finds nothing wrong with one that was overwritten, or with a handle that was moved: it spins, or lets two in.
//! Here it is written down beside it who holds a lock, and with which handle, and a release or a word that contradicts is a finding.
//! Of a lock that nobody holds nothing is kept by its address: it is a zero, and the kit initialises it inline for some targets, unseen.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use host::machine::{self, Irql, LockName, LockQueue, RawSpinLock};
use wdk_bindings::{BOOLEAN, KIRQL, KLOCK_QUEUE_HANDLE, KSPIN_LOCK};

use crate::{
    context,
    kernel::Kernel,
    paged, pool,
    report::bug_check,
    routine::routine,
    rule::Rule,
    sites::{self, site_in_words},
    stack,
    state::{Part, State, Watch, lock},
};

/// A driver's memory for a lock or a handle must not be free, nor such that it can be paged out.
fn check_memory(what: &str, address: usize) {
    pool::check_live(address, format_args!("the {what} at {address:#x} is in"));
    if paged::contains(address) {
        bug_check(Rule::PagedAtDispatch, format_args!("the {what} at {address:#x} is in pageable memory"));
    }
}

/// The word of a lock must not be in memory that is free, nor in memory that can be paged out.
pub fn check_word(address: usize) {
    check_memory("spin lock", address);
}

/// The lock that the driver's word is.
fn lock_at<'lock>(word: *mut KSPIN_LOCK) -> (&'lock RawSpinLock, LockName) {
    let address = word.expose_provenance();
    check_word(address);
    // SAFETY: the driver's word for a lock, which has the size and alignment of this type, for which each value is one.
    (unsafe { &*word.cast::<RawSpinLock>() }, LockName { class: CLASS, instance: address as u64 })
}

const CLASS: &str = "driver's spin lock";

/// What a driver's lock is called that is not a word of the driver's: the framework's handle.
pub const fn name_of(handle: usize) -> LockName {
    LockName { class: CLASS, instance: handle as u64 }
}

/// A lock that comes to lie in this range, or to have a handle in it, is another one.
pub fn forget_order(range: &Range<usize>) {
    machine::forget_lock_order(CLASS, &(range.start as u64..range.end as u64));
}

/// By what a lock was acquired.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Primitive {
    /// By a routine that knows no handle.
    Plain,
    /// As a queued lock, with the handle at this address.
    Queued(usize),
}

/// Who holds a lock.
#[derive(Clone, Copy)]
struct Holding {
    by: Primitive,
    thread: usize,
    /// The driver's code that acquired it, if that is known.
    site: usize,
}

/// How often a queued spin lock was held by another thread when somebody wanted it.
#[derive(Default)]
pub struct LockWaits(AtomicU64);

impl Part for LockWaits {}

impl Kernel {
    /// How often a queued spin lock was held by another thread when a driver wanted it. Zero with a seed: there nobody is taken off
    /// while he holds one.
    #[must_use]
    pub fn lock_waits(&self) -> u64 {
        self.state.part::<LockWaits>().0.load(Relaxed)
    }
}

/// The spin locks of drivers in use.
#[derive(Default)]
pub struct SpinLocks {
    /// Those that are held, by the addresses of their words.
    held: BTreeMap<usize, Holding>,
    /// The handles in queues, by their addresses, each with the word.
    queued: BTreeMap<usize, usize>,
    /// For each lock that was acquired since it was last initialised: true if as a queued one.
    is_queued: BTreeMap<usize, bool>,
}

impl Part for Mutex<SpinLocks> {
    fn watch(&self) -> Option<&dyn Watch> {
        Some(self)
    }
}

impl Watch for Mutex<SpinLocks> {
    fn memory_is_gone(&self, _state: &State, range: &Range<usize>) {
        forget_order(range);
        forget(&mut lock(self), range);
    }
}

/// The memory of so many bytes is free: a lock that comes to lie there is another one.
fn forget(locks: &mut SpinLocks, range: &Range<usize>) {
    if let Some((&word, held)) = locks.held.range(range.clone()).next() {
        let words = site_in_words(held.site);
        bug_check(
            Rule::LockHeld,
            format_args!(
                "memory is freed with a spin lock in it that is held, at offset {}{words}",
                word - range.start
            ),
        );
    }
    if let Some((&handle, _)) = locks.queued.range(range.clone()).next() {
        let words = "memory is freed with the handle of a queued spin lock in it that is held";
        bug_check(Rule::LockHeld, format_args!("{words}, at offset {}", handle - range.start));
    }
    while let Some((&word, _)) = locks.is_queued.range(range.clone()).next() {
        locks.is_queued.remove(&word);
    }
}

impl State {
    /// The current thread, for [`Holding`].
    fn this_thread(&self) -> usize {
        self.machine.here().0
    }

    /// A lock is about to be acquired: one that is acquired as a queued lock is so always.
    fn wants(&self, word: usize, by: Primitive) {
        let is_queued = by != Primitive::Plain;
        let mut locks = self.locked::<SpinLocks>();
        if *locks.is_queued.entry(word).or_insert(is_queued) != is_queued {
            let (before, now) = if is_queued { ("another", "a queued") } else { ("a queued", "another") };
            bug_check(
                Rule::LockPrimitive,
                format_args!("the spin lock at {word:#x} was acquired as {before} one before, and is now as {now} one"),
            );
        }
        if let Primitive::Queued(handle) = by
            && let Some(other) = locks.queued.insert(handle, word)
        {
            bug_check(
                Rule::Uninitialised,
                format_args!("the handle at {handle:#x} is in the queue of the lock at {other:#x}, and is used again"),
            );
        }
    }

    /// The lock was acquired.
    fn holds(&self, word: usize, by: Primitive) {
        let holding = Holding { by, thread: self.this_thread(), site: context::current_site() };
        let before = self.locked::<SpinLocks>().held.insert(word, holding);
        if let Some(before) = before {
            overwritten(word, before.site);
        }
    }

    /// The lock is about to be released in a way in which the current thread has acquired it.
    fn gives_up(&self, word: usize, by: Primitive) {
        let mut locks = self.locked::<SpinLocks>();
        let held = locks.held.get(&word).copied().filter(|held| held.thread == self.this_thread());
        match held.map(|held| (held, held.by, by)) {
            Some((_, before, now)) if before == now => {}
            Some((held, Primitive::Queued(before), Primitive::Queued(now))) => bug_check(
                Rule::MovedObject,
                format_args!(
                    "the queued spin lock at {word:#x} was acquired with the handle at {before:#x}{}, and is released with that at \
                     {now:#x}: a copy, or moved",
                    site_in_words(held.site)
                ),
            ),
            Some((held, ..)) => bug_check(
                Rule::LockPrimitive,
                format_args!(
                    "the spin lock at {word:#x} is released by a routine that does not belong to that which acquired it{}",
                    site_in_words(held.site)
                ),
            ),
            None => bug_check(
                Rule::LockNotHeld,
                format_args!("the spin lock at {word:#x} is released by a thread that does not hold it"),
            ),
        }
        locks.held.remove(&word);
    }

    /// Returns true if the lock's word is that of a lock that nobody holds, or has the address of a handle in its queue.
    fn is_a_queue(&self, lock: &RawSpinLock, word: usize) -> bool {
        // A handle is noted before it comes to the queue, and forgotten after it has left. So the word is looked at meanwhile.
        let locks = self.locked::<SpinLocks>();
        lock.last_in_queue().is_none_or(|last| locks.queued.get(&last) == Some(&word))
    }

    /// Forgets a handle that is in no queue any more.
    fn forget_queued(&self, handle: *mut KLOCK_QUEUE_HANDLE) {
        self.locked::<SpinLocks>().queued.remove(&handle.addr());
    }

    /// Notes that a lock is initialised.
    fn note_initialised(&self, word: usize) {
        let mut locks = self.locked::<SpinLocks>();
        if let Some(held) = locks.held.get(&word) {
            let words = site_in_words(held.site);
            bug_check(
                Rule::Uninitialised,
                format_args!("the spin lock at {word:#x} is initialised again while it is held{words}"),
            );
        }
        locks.is_queued.remove(&word);
    }
}

#[cold]
fn overwritten(word: usize, site: usize) -> ! {
    bug_check(
        Rule::Uninitialised,
        format_args!(
            "the word of the spin lock at {word:#x} was initialised again, or overwritten, while the lock was held{}",
            site_in_words(site)
        ),
    )
}

/// Raises to `DISPATCH_LEVEL` and acquires. The level before.
pub fn hold(state: &State, lock: &RawSpinLock, name: LockName) -> Irql {
    state.preempt();
    let before = lock.acquire(name);
    note_raise(before);
    before
}

/// Notes that the level was raised from this one.
fn note_raise(before: Irql) {
    if before < Irql::DISPATCH_LEVEL {
        paged::trim();
    }
}

/// Releases and goes back to the level before.
pub fn let_go(state: &State, lock: &RawSpinLock, before: Irql) {
    at_most_dispatch(before);
    lock.release(before);
    state.preempt();
}

fn at_most_dispatch(before: Irql) {
    if before > Irql::DISPATCH_LEVEL {
        bug_check(Rule::IrqlNotRestored, format_args!("a spin lock is released to {before}"));
    }
}

/// Raises to `DISPATCH_LEVEL` and acquires the lock that a driver's word is. The level before.
pub fn acquire(state: &State, word: *mut KSPIN_LOCK) -> Irql {
    let (lock, name) = lock_at(word);
    state.wants(word.addr(), Primitive::Plain);
    let before = hold(state, lock, name);
    state.holds(word.addr(), Primitive::Plain);
    before
}

/// Releases the lock that a driver's word is, and goes back to the level before.
pub fn release(state: &State, word: *mut KSPIN_LOCK, before: Irql) {
    let lock = given_up(state, word);
    let_go(state, lock, before);
}

/// The lock that a driver's word is, which was acquired without a handle and is about to be released.
fn given_up<'lock>(state: &State, word: *mut KSPIN_LOCK) -> &'lock RawSpinLock {
    let (lock, _) = lock_at(word);
    state.gives_up(word.addr(), Primitive::Plain);
    if !lock.is_held_here() {
        overwritten(word.addr(), 0);
    }
    lock
}

/// Nothing below `DISPATCH_LEVEL` may call this.
pub fn at_dispatch(name: &str) {
    let now = machine::current_irql();
    if now < Irql::DISPATCH_LEVEL {
        bug_check(Rule::IrqlNotRaised, format_args!("{name} called at {now}"));
    }
}

/// The place in the queue that a driver's handle is.
const fn place_of(handle: *mut KLOCK_QUEUE_HANDLE) -> *const LockQueue {
    // It begins with the place, of the same layout.
    handle.cast_const().cast()
}

/// Acquires a queued lock with the driver's handle. The level before is written into it.
fn acquire_queued(
    state: &State,
    word: *mut KSPIN_LOCK,
    handle: *mut KLOCK_QUEUE_HANDLE,
    acquire: impl FnOnce(&RawSpinLock, *const LockQueue, LockName) -> Irql,
) {
    let (lock, name) = lock_at(word);
    let by = Primitive::Queued(handle.expose_provenance());
    check_memory("handle of a queued spin lock", handle.addr());
    state.wants(word.addr(), by);
    if !state.is_a_queue(lock, word.addr()) {
        let words = "was not initialised: its word is neither zero nor the address of a handle";
        bug_check(Rule::Uninitialised, format_args!("the spin lock at {:#x} {words}", word.addr()));
    }
    if lock.last_in_queue().is_some() {
        state.part::<LockWaits>().0.fetch_add(1, Relaxed);
    }
    let before = acquire(lock, place_of(handle), name);
    state.holds(word.addr(), by);
    // SAFETY: the driver's memory for a handle. This part of it is the holder's.
    unsafe { (&raw mut (*handle).OldIrql).write(before.0) };
}

/// The lock that a driver's handle holds and is about to release, and the level before.
fn taken<'lock>(state: &State, handle: *mut KLOCK_QUEUE_HANDLE) -> (&'lock RawSpinLock, Irql) {
    let address = handle.addr();
    check_memory("handle of a queued spin lock", address);
    if stack::is_here(address) && sites::known_stack().is_some_and(|stack| address < stack) {
        let words = "lay on the stack of a function that has returned";
        bug_check(Rule::StackObject, format_args!("the handle of a queued spin lock at {address:#x} {words}"));
    }
    // SAFETY: the driver's handle, in the memory that it says.
    let level = unsafe { &raw const (*handle).OldIrql };
    // SAFETY: as above; others who come to the queue write into another part of it.
    let before = Irql(unsafe { level.read() });
    // SAFETY: it begins with a place in a queue, whose owner this thread is.
    let says = unsafe { &*place_of(handle) }.lock();
    let (word, is_held) = {
        let locks = state.locked::<SpinLocks>();
        (locks.queued.get(&address).copied(), locks.held.contains_key(&says))
    };
    if word.is_none() && !is_held {
        bug_check(
            Rule::LockNotHeld,
            format_args!(
                "a spin lock is released by the handle at {address:#x}, which holds none: it has released it, or never had it"
            ),
        );
    }
    let word = word.unwrap_or(says);
    state.gives_up(word, Primitive::Queued(address));
    if says != word {
        let words = "was overwritten while it held the lock";
        bug_check(
            Rule::Uninitialised,
            format_args!("the handle of a queued spin lock at {address:#x} {words} at {word:#x}"),
        );
    }
    let (lock, _) = lock_at(std::ptr::with_exposed_provenance_mut(word));
    // Its end is this handle, or one that has come later.
    if lock.last_in_queue().is_none() || !state.is_a_queue(lock, word) {
        overwritten(word, 0);
    }
    (lock, before)
}

#[unsafe(no_mangle)]
extern "C" fn KeInitializeSpinLock(word: *mut KSPIN_LOCK) {
    routine!("KeInitializeSpinLock", |state| {
        state.note_initialised(word.addr());
        // SAFETY: the driver's memory for a lock.
        unsafe { word.write(0) };
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeAcquireSpinLockRaiseToDpc(word: *mut KSPIN_LOCK) -> KIRQL {
    routine!("KeAcquireSpinLockRaiseToDpc", |state| acquire(state, word).0)
}

#[unsafe(no_mangle)]
extern "C" fn KeReleaseSpinLock(word: *mut KSPIN_LOCK, before: KIRQL) {
    routine!("KeReleaseSpinLock", |state| release(state, word, Irql(before)));
}

#[unsafe(no_mangle)]
extern "C" fn KeAcquireSpinLockAtDpcLevel(word: *mut KSPIN_LOCK) {
    routine!("KeAcquireSpinLockAtDpcLevel", |state| {
        at_dispatch("KeAcquireSpinLockAtDpcLevel");
        let (lock, name) = lock_at(word);
        state.wants(word.addr(), Primitive::Plain);
        lock.acquire_at_dispatch(name);
        state.holds(word.addr(), Primitive::Plain);
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeReleaseSpinLockFromDpcLevel(word: *mut KSPIN_LOCK) {
    routine!("KeReleaseSpinLockFromDpcLevel", |state| given_up(state, word).release_from_dispatch());
}

#[unsafe(no_mangle)]
extern "C" fn KeTryToAcquireSpinLockAtDpcLevel(word: *mut KSPIN_LOCK) -> BOOLEAN {
    routine!("KeTryToAcquireSpinLockAtDpcLevel", |state| {
        at_dispatch("KeTryToAcquireSpinLockAtDpcLevel");
        let (lock, name) = lock_at(word);
        state.wants(word.addr(), Primitive::Plain);
        let acquired = lock.try_acquire_at_dispatch(name);
        if acquired {
            state.holds(word.addr(), Primitive::Plain);
        }
        BOOLEAN::from(acquired)
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeAcquireInStackQueuedSpinLock(word: *mut KSPIN_LOCK, handle: *mut KLOCK_QUEUE_HANDLE) {
    routine!("KeAcquireInStackQueuedSpinLock", |state| {
        state.preempt();
        acquire_queued(state, word, handle, |lock, place, name| {
            // SAFETY: the handle is in no queue, as was seen. That it stays where it is, and so the lock, is watched.
            let before = unsafe { lock.acquire_queued(place, name) };
            note_raise(before);
            before
        });
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeReleaseInStackQueuedSpinLock(handle: *mut KLOCK_QUEUE_HANDLE) {
    routine!("KeReleaseInStackQueuedSpinLock", |state| {
        let (lock, before) = taken(state, handle);
        at_most_dispatch(before);
        // SAFETY: this thread has acquired the lock with the handle at this address, as was seen.
        unsafe { lock.release_queued(place_of(handle), before) };
        state.forget_queued(handle);
        state.preempt();
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeAcquireInStackQueuedSpinLockAtDpcLevel(word: *mut KSPIN_LOCK, handle: *mut KLOCK_QUEUE_HANDLE) {
    routine!("KeAcquireInStackQueuedSpinLockAtDpcLevel", |state| {
        at_dispatch("KeAcquireInStackQueuedSpinLockAtDpcLevel");
        acquire_queued(state, word, handle, |lock, place, name| {
            // SAFETY: as for the routine that raises the level.
            unsafe { lock.acquire_queued_at_dispatch(place, name) };
            Irql::DISPATCH_LEVEL
        });
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeReleaseInStackQueuedSpinLockFromDpcLevel(handle: *mut KLOCK_QUEUE_HANDLE) {
    routine!("KeReleaseInStackQueuedSpinLockFromDpcLevel", |state| {
        let (lock, _) = taken(state, handle);
        // SAFETY: this thread has acquired the lock with the handle at this address, as was seen.
        unsafe { lock.release_queued_from_dispatch(place_of(handle)) };
        state.forget_queued(handle);
    });
}

#[unsafe(no_mangle)]
extern "C" fn KfRaiseIrql(to: KIRQL) -> KIRQL {
    routine!("KfRaiseIrql", |_| {
        let before = machine::raise(Irql(to));
        if Irql(to) >= Irql::DISPATCH_LEVEL {
            paged::trim();
        }
        before.0
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeLowerIrql(to: KIRQL) {
    routine!("KeLowerIrql", |_| {
        let entered = context::entered_at();
        if Irql(to) < entered {
            let words = format_args!("KeLowerIrql to {}, by what was called at {entered}", Irql(to));
            bug_check(Rule::IrqlNotRestored, words);
        }
        machine::lower(Irql(to));
    });
}
