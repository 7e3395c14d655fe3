//! Entries of the error log: a driver gets one, fills it in, and writes or frees it. Nobody reads the log here.

use std::sync::Mutex;

use litemap::LiteMap;
use wdk_bindings::{PVOID, UCHAR};

use crate::{
    context::{self, DriverId},
    pool,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State},
};

/// The tag of entries.
const TAG: u32 = u32::from_ne_bytes(*b"IoEr");
/// `sizeof(IO_ERROR_LOG_PACKET)`, and `ERROR_LOG_MAXIMUM_SIZE`.
const LEAST: UCHAR = 48;
const MOST: UCHAR = 240;

/// Entries that are neither written nor freed, and whose they are.
#[derive(Default)]
pub struct LogEntries(LiteMap<usize, DriverId>);

impl Part for Mutex<LogEntries> {}

impl LogEntries {
    /// Returns true if a driver has one.
    pub fn are_of(&self, owner: DriverId) -> bool {
        self.0.values().any(|&one| one == owner)
    }
}

fn give_back(state: &State, entry: PVOID) {
    let found = state.locked::<LogEntries>().0.remove(&entry.addr());
    if found.is_none() {
        bug_check(Rule::BadHandle, format_args!("{entry:p} is no entry of the error log, or was written or freed"));
    }
    pool::free(entry.addr(), Some(TAG));
}

/// Null for a size that no entry has.
#[unsafe(no_mangle)]
extern "C" fn IoAllocateErrorLogEntry(object: PVOID, size: UCHAR) -> PVOID {
    routine!("IoAllocateErrorLogEntry", DISPATCH_LEVEL, |state| {
        if !state.is_device_or_driver(object.addr()) {
            bug_check(Rule::BadHandle, format_args!("{object:p} is no device or driver object, or was one"));
        }
        if !(LEAST..=MOST).contains(&size) || state.strikes() {
            return std::ptr::null_mut();
        }
        let owner = context::caller();
        let Some(entry) = pool::allocate(owner, size.into(), TAG, true) else { return std::ptr::null_mut() };
        state.locked::<LogEntries>().0.insert(entry, owner);
        std::ptr::with_exposed_provenance_mut(entry)
    })
}

#[unsafe(no_mangle)]
extern "C" fn IoWriteErrorLogEntry(entry: PVOID) {
    routine!("IoWriteErrorLogEntry", DISPATCH_LEVEL, |state| give_back(state, entry));
}

#[unsafe(no_mangle)]
extern "C" fn IoFreeErrorLogEntry(entry: PVOID) {
    routine!("IoFreeErrorLogEntry", DISPATCH_LEVEL, |state| give_back(state, entry));
}
