//! What drivers want called at a bug check. None is ever called: a bug check ends the process.

use std::{ops::Range, ptr, sync::Mutex};

use litemap::LiteMap;
use wdk_bindings::{BOOLEAN, LIST_ENTRY, PVOID, ULONG, ULONG_PTR};

use crate::{
    context::{self, DriverId},
    paged, pool,
    report::bug_check,
    routine::routine,
    rule::Rule,
    sites::Site,
    state::{Part, State, Watch, lock},
};

/// `KBUGCHECK_CALLBACK_RECORD`.
#[repr(C)]
struct Record {
    entry: LIST_ENTRY,
    routine: PVOID,
    buffer: PVOID,
    length: ULONG,
    component: *const u8,
    checksum: ULONG_PTR,
    state: u8,
}

/// `KBUGCHECK_REASON_CALLBACK_RECORD`.
#[repr(C)]
struct ReasonRecord {
    entry: LIST_ENTRY,
    routine: PVOID,
    component: *const u8,
    checksum: ULONG_PTR,
    reason: ULONG,
    state: u8,
}

/// `BufferEmpty` and `BufferInserted`: the states of a record.
const EMPTY: u8 = 0;
const INSERTED: u8 = 1;

/// A record that is registered.
struct Registered {
    owner: DriverId,
    /// By `KeRegisterBugCheckReasonCallback`.
    has_reason: bool,
    site: Site,
}

/// The records that are registered, by their addresses.
#[derive(Default)]
pub struct BugCheckCallbacks(LiteMap<usize, Registered>);

impl Part for Mutex<BugCheckCallbacks> {
    fn watch(&self) -> Option<&dyn Watch> {
        Some(self)
    }
}

impl Watch for Mutex<BugCheckCallbacks> {
    fn memory_is_gone(&self, _state: &State, range: &Range<usize>) {
        let callbacks = lock(self);
        let gone = callbacks.0.iter().find(|(address, _)| range.contains(address));
        let site = gone.map(|(_, registered)| registered.site.clone());
        drop(callbacks);
        if let Some(site) = site {
            let words = "memory is freed with the record of a bug check callback in it that is registered";
            bug_check(Rule::ReferenceLeak, format_args!("{words}; registered{site}"));
        }
    }
}

impl State {
    /// A driver is unloaded: its callbacks must be removed.
    pub fn check_bug_check_callbacks(&self, owner: DriverId, name: &str) {
        let callbacks = self.locked::<BugCheckCallbacks>();
        let left = callbacks.0.values().find(|registered| registered.owner == owner);
        let site = left.map(|registered| registered.site.clone());
        drop(callbacks);
        if let Some(site) = site {
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} left a bug check callback; registered{site}"));
        }
    }

    /// A record is to be registered. Returns false if it is already, or was not initialised.
    fn register_callback(
        &self,
        record: usize,
        routine: PVOID,
        component: *const u8,
        has_reason: bool,
        now: u8,
    ) -> bool {
        if routine.is_null() || component.is_null() {
            bug_check(Rule::BadArgument, format_args!("a bug check callback without a routine or a component"));
        }
        pool::check_live(record, format_args!("the record of a bug check callback at {record:#x} is in"));
        if paged::contains(record) {
            let words = format_args!("the record of a bug check callback at {record:#x} is in pageable memory");
            bug_check(Rule::PagedAtDispatch, words);
        }
        if now != EMPTY {
            return false;
        }
        let registered = Registered { owner: context::caller(), has_reason, site: Site::here() };
        self.locked::<BugCheckCallbacks>().0.insert(record, registered);
        true
    }

    /// A record is to be removed. Returns false if it is not registered in this way.
    fn deregister_callback(&self, record: usize, has_reason: bool) -> bool {
        let mut callbacks = self.locked::<BugCheckCallbacks>();
        let is_there = callbacks.0.get(&record).is_some_and(|registered| registered.has_reason == has_reason);
        if is_there {
            callbacks.0.remove(&record);
        }
        is_there
    }
}

#[unsafe(no_mangle)]
extern "C" fn KeRegisterBugCheckCallback(
    record: PVOID,
    routine: PVOID,
    buffer: PVOID,
    length: ULONG,
    component: *const u8,
) -> BOOLEAN {
    routine!("KeRegisterBugCheckCallback", HIGH_LEVEL, |state| {
        let record: *mut Record = record.cast();
        // SAFETY: the driver's record, which lives until it is removed.
        let now = unsafe { (*record).state };
        if !state.register_callback(record.expose_provenance(), routine, component, false, now) {
            return 0;
        }
        let entry = LIST_ENTRY { Flink: ptr::null_mut(), Blink: ptr::null_mut() };
        let new = Record { entry, routine, buffer, length, component, checksum: 0, state: INSERTED };
        // SAFETY: the driver's record, which lives until it is removed.
        unsafe { record.write(new) };
        1
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeDeregisterBugCheckCallback(record: PVOID) -> BOOLEAN {
    routine!("KeDeregisterBugCheckCallback", HIGH_LEVEL, |state| {
        let record: *mut Record = record.cast();
        let was_there = state.deregister_callback(record.addr(), false);
        if was_there {
            // SAFETY: the driver's record, which lives until it is removed.
            unsafe { (*record).state = EMPTY };
        }
        BOOLEAN::from(was_there)
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeRegisterBugCheckReasonCallback(
    record: PVOID,
    routine: PVOID,
    reason: ULONG,
    component: *const u8,
) -> BOOLEAN {
    routine!("KeRegisterBugCheckReasonCallback", HIGH_LEVEL, |state| {
        let record: *mut ReasonRecord = record.cast();
        // SAFETY: the driver's record, which lives until it is removed.
        let now = unsafe { (*record).state };
        if !state.register_callback(record.expose_provenance(), routine, component, true, now) {
            return 0;
        }
        let entry = LIST_ENTRY { Flink: ptr::null_mut(), Blink: ptr::null_mut() };
        let new = ReasonRecord { entry, routine, component, checksum: 0, reason, state: INSERTED };
        // SAFETY: the driver's record, which lives until it is removed.
        unsafe { record.write(new) };
        1
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeDeregisterBugCheckReasonCallback(record: PVOID) -> BOOLEAN {
    routine!("KeDeregisterBugCheckReasonCallback", HIGH_LEVEL, |state| {
        let record: *mut ReasonRecord = record.cast();
        let was_there = state.deregister_callback(record.addr(), true);
        if was_there {
            // SAFETY: the driver's record, which lives until it is removed.
            unsafe { (*record).state = EMPTY };
        }
        BOOLEAN::from(was_there)
    })
}
