//! Locks of NDIS for readers and writers.
//!
//! A reader has the lock's slot of its processor, a writer has every slot, in their order. So readers on different processors
//! share the lock, and those that find their slot taken wait, which the real one allows too.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
};

use host::machine::{self, Irql, LockName, RawSpinLock};
use litemap::LiteMap;
use ndkpi::NDIS_HANDLE;

use super::{
    owner::Owner,
    structure::{ndis_routine, pointer},
};
use crate::{
    context, pool,
    report::bug_check,
    rule::Rule,
    sites::Site,
    state::{Part, State, lock},
    wdm::lock::{at_dispatch, hold, let_go},
};

/// Two, for a machine's thread can hold a few locks only, and a writer holds all of them.
const SLOTS: usize = 2;
const CLASS: &str = "NDIS lock for readers and writers";
/// `NDIS_RWL_AT_DISPATCH_LEVEL`.
const AT_DISPATCH_LEVEL: u8 = 1;

/// `LOCK_STATE_EX`: the level before, how the lock was acquired, and the flags.
type LockState = [u8; 3];

/// A thread that has the lock, once or more often.
struct Holder {
    thread: usize,
    writes: bool,
    /// The slot of a reader, the first one of a writer.
    slot: usize,
    /// The level before the first acquisition.
    before: Irql,
    /// The `LOCK_STATE_EX` of its acquisitions, the first in front: where each is, and what was written there.
    states: Vec<(usize, LockState)>,
    site: Site,
}

/// What a writer takes besides the first slot.
const fn others(writes: bool) -> Range<usize> {
    1..if writes { SLOTS } else { 1 }
}

/// A lock.
struct RwLock {
    owner: Owner,
    handle: usize,
    slots: [RawSpinLock; SLOTS],
    holders: Mutex<Vec<Holder>>,
    site: Site,
}

impl RwLock {
    const fn name(&self, slot: usize) -> LockName {
        LockName { class: CLASS, instance: self.handle as u64 + slot as u64 }
    }

    /// Raises to `DISPATCH_LEVEL` and takes what a reader on this processor needs, or a writer: the slot and the level before.
    fn take(&self, state: &State, writes: bool) -> (usize, Irql) {
        let slot = if writes { 0 } else { state.machine.current_processor() as usize % SLOTS };
        let before = hold(state, &self.slots[slot], self.name(slot));
        for other in others(writes) {
            self.slots[other].acquire_at_dispatch(self.name(other));
        }
        (slot, before)
    }

    /// Gives back what was taken, and goes back to the level before.
    fn give_back(&self, state: &State, holder: &Holder) {
        for other in others(holder.writes).rev() {
            self.slots[other].release_from_dispatch();
        }
        let_go(state, &self.slots[holder.slot], holder.before);
    }
}

/// The locks that are not freed, by what drivers have as their addresses.
#[derive(Default)]
pub struct RwLocks(LiteMap<usize, Arc<RwLock>>);

impl Part for Mutex<RwLocks> {}

impl RwLocks {
    /// Where one was allocated that is left of those that `of` recognises.
    pub fn left(&self, of: impl Fn(Owner) -> bool) -> Option<Site> {
        self.0.values().find(|lock| of(lock.owner)).map(|lock| lock.site.clone())
    }
}

fn find(state: &State, handle: NDIS_HANDLE) -> Arc<RwLock> {
    let found = state.locked::<RwLocks>().0.get(&handle.addr()).cloned();
    found.unwrap_or_else(|| {
        bug_check(Rule::BadHandle, format_args!("{handle:p} is no lock of NdisAllocateRWLock, or was freed"))
    })
}

/// The handle may be a null pointer in `DriverEntry`, where there is none yet.
#[unsafe(no_mangle)]
extern "system" fn NdisAllocateRWLock(handle: NDIS_HANDLE) -> NDIS_HANDLE {
    ndis_routine!("NdisAllocateRWLock", DISPATCH_LEVEL, |state| {
        let owner =
            if handle.is_null() { Owner { driver: context::caller(), handle: 0 } } else { state.owner_of(handle) };
        if state.strikes() {
            return std::ptr::null_mut();
        }
        let handle = state.new_handle();
        let (slots, holders) = (Default::default(), Mutex::default());
        let lock = RwLock { owner, handle, slots, holders, site: Site::here() };
        state.locked::<RwLocks>().0.insert(handle, Arc::new(lock));
        pointer(handle)
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdisFreeRWLock(handle: NDIS_HANDLE) {
    ndis_routine!("NdisFreeRWLock", DISPATCH_LEVEL, |state| {
        let freed = find(state, handle);
        let site = lock(&freed.holders).first().map(|holder| holder.site.clone());
        if let Some(site) = site {
            bug_check(Rule::LockHeld, format_args!("a lock of NDIS is freed while it is held; acquired{site}"));
        }
        state.locked::<RwLocks>().0.remove(&handle.addr());
        machine::forget_lock_order(CLASS, &(freed.handle as u64..(freed.handle + SLOTS) as u64));
    });
}

/// Acquires a lock, again if the current thread has it in the same way.
fn acquire(state: &State, name: &str, handle: NDIS_HANDLE, place: *mut LockState, flags: u8, writes: bool) {
    if flags & !AT_DISPATCH_LEVEL != 0 {
        bug_check(Rule::BadArgument, format_args!("{name} with the flags {flags:#x}"));
    }
    if flags & AT_DISPATCH_LEVEL != 0 {
        at_dispatch(name);
    }
    let found = find(state, handle);
    let (thread, address) = (state.machine.here().0, place.expose_provenance());
    pool::check_live(address, format_args!("the LOCK_STATE_EX at {address:#x} is in"));
    if is_used(state, address) {
        bug_check(Rule::BadArgument, format_args!("the LOCK_STATE_EX at {address:#x} is that of a lock that is held"));
    }
    let lock_state = [machine::current_irql().0, 1 + u8::from(writes), flags];
    let with = (address, lock_state);
    if !again(&found, thread, with, writes) {
        let (slot, before) = found.take(state, writes);
        let holder = Holder { thread, writes, slot, before, states: vec![with], site: Site::here() };
        lock(&found.holders).push(holder);
    }
    // SAFETY: the driver's structure, which lives until the lock is released with it.
    unsafe { place.write(lock_state) };
}

/// Returns true if the thread has the lock already, and now once more.
fn again(found: &RwLock, thread: usize, with: (usize, LockState), writes: bool) -> bool {
    let mut holders = lock(&found.holders);
    let Some(holder) = holders.iter_mut().find(|holder| holder.thread == thread) else { return false };
    let (wrote, site) = (holder.writes, holder.site.clone());
    if wrote == writes {
        holder.states.push(with);
        return true;
    }
    drop(holders);
    if writes {
        let words = "a lock of NDIS is acquired to write by a thread that has it to read";
        bug_check(Rule::RecursiveLock, format_args!("{words}, and would wait for itself; acquired{site}"));
    }
    let words = "a lock of NDIS is acquired to read by a thread that has it to write";
    bug_check(Rule::NotSimulated, format_args!("{words}, of which the reference says nothing; acquired{site}"));
}

/// Returns true if a lock that is held was acquired with the structure at this address.
fn is_used(state: &State, address: usize) -> bool {
    let has_it = |holder: &Holder| holder.states.iter().any(|&(one, _)| one == address);
    state.locked::<RwLocks>().0.values().any(|one| lock(&one.holders).iter().any(has_it))
}

#[unsafe(no_mangle)]
extern "system" fn NdisAcquireRWLockRead(handle: NDIS_HANDLE, place: *mut u8, flags: u8) {
    ndis_routine!("NdisAcquireRWLockRead", DISPATCH_LEVEL, |state| {
        acquire(state, "NdisAcquireRWLockRead", handle, place.cast(), flags, false);
    });
}

#[unsafe(no_mangle)]
extern "system" fn NdisAcquireRWLockWrite(handle: NDIS_HANDLE, place: *mut u8, flags: u8) {
    ndis_routine!("NdisAcquireRWLockWrite", DISPATCH_LEVEL, |state| {
        acquire(state, "NdisAcquireRWLockWrite", handle, place.cast(), flags, true);
    });
}

#[unsafe(no_mangle)]
extern "system" fn NdisReleaseRWLock(handle: NDIS_HANDLE, place: *mut u8) {
    ndis_routine!("NdisReleaseRWLock", DISPATCH_LEVEL, |state| {
        let (found, thread) = (find(state, handle), state.machine.here().0);
        let mut holders = lock(&found.holders);
        let held = holders.iter().position(|holder| holder.thread == thread);
        let last = held.and_then(|held| Some((held, holders[held].states.pop()?)));
        let Some((held, (address, written))) = last else {
            drop(holders);
            bug_check(Rule::LockNotHeld, format_args!("a lock of NDIS is released by a thread that does not hold it"));
        };
        let holder = if holders[held].states.is_empty() { Some(holders.swap_remove(held)) } else { None };
        drop(holders);
        check_state(place.cast(), address, written);
        if let Some(holder) = holder {
            found.give_back(state, &holder);
        }
    });
}

/// Ends the test if a lock is released with something else than the structure at this address, as it was written.
fn check_state(place: *mut LockState, address: usize, written: LockState) {
    if place.addr() != address {
        let words = "a lock of NDIS was acquired last with the LOCK_STATE_EX at";
        bug_check(Rule::LockNotHeld, format_args!("{words} {address:#x}, and is released with that at {place:p}"));
    }
    // SAFETY: the driver's structure, which it has acquired the lock with.
    if unsafe { place.read() } != written {
        let words = "was overwritten while the lock was held";
        bug_check(Rule::Uninitialised, format_args!("the LOCK_STATE_EX at {address:#x} {words}"));
    }
}
