//! Sections of a driver's image that may be paged, and are locked for a time. Nothing is paged out here: what is counted are the locks.

use std::{ptr, sync::Mutex};

use litemap::LiteMap;
use wdk_bindings::PVOID;

use crate::{
    context::{self, DriverId},
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State},
};

/// Bytes of a page.
const PAGE: usize = 4096;

/// How often drivers have locked sections, by driver and handle. A handle is valid for ever, also with no lock.
#[derive(Default)]
pub struct Sections(LiteMap<(DriverId, usize), i64>);

impl Part for Mutex<Sections> {}

fn lock_section(state: &State, handle: usize) {
    *state.locked::<Sections>().0.entry((context::caller(), handle)).or_default() += 1;
}

/// Also for code: `MmLockPagableCodeSection` is this routine.
#[unsafe(no_mangle)]
extern "C" fn MmLockPagableDataSection(address: PVOID) -> PVOID {
    routine!("MmLockPagableDataSection", APC_LEVEL, |state| {
        let handle = address.addr() & !(PAGE - 1);
        if handle == 0 {
            bug_check(
                Rule::BadArgument,
                format_args!("MmLockPagableDataSection with {address:p}, which is in no image"),
            );
        }
        lock_section(state, handle);
        ptr::without_provenance_mut(handle)
    })
}

/// Ends the test unless that is a handle that the driver was given.
fn check_handle(state: &State, handle: PVOID, what: &str) {
    if !state.locked::<Sections>().0.contains_key(&(context::caller(), handle.addr())) {
        bug_check(Rule::BadHandle, format_args!("{what} with {handle:p}, which is the handle of no section"));
    }
}

#[unsafe(no_mangle)]
extern "C" fn MmLockPagableSectionByHandle(handle: PVOID) {
    routine!("MmLockPagableSectionByHandle", APC_LEVEL, |state| {
        check_handle(state, handle, "MmLockPagableSectionByHandle");
        lock_section(state, handle.addr());
    });
}

#[unsafe(no_mangle)]
extern "C" fn MmUnlockPagableImageSection(handle: PVOID) {
    routine!("MmUnlockPagableImageSection", APC_LEVEL, |state| {
        check_handle(state, handle, "MmUnlockPagableImageSection");
        let caller = context::caller();
        let mut sections = state.locked::<Sections>();
        // Another address that was locked may be in the same section, whose handle is one on Windows.
        let locked: i64 = sections.0.iter().filter(|((of, _), _)| *of == caller).map(|(_, count)| count).sum();
        if locked == 0 {
            drop(sections);
            bug_check(Rule::ReferenceUnderflow, format_args!("a section is unlocked, and none is locked"));
        }
        *sections.0.entry((caller, handle.addr())).or_default() -= 1;
    });
}

/// The driver may be paged as a whole.
#[unsafe(no_mangle)]
extern "C" fn MmPageEntireDriver(address: PVOID) -> PVOID {
    routine!("MmPageEntireDriver", APC_LEVEL, |_| ptr::without_provenance_mut(address.addr() & !(PAGE - 1)))
}

/// It may be paged as its sections say.
#[unsafe(no_mangle)]
extern "C" fn MmResetDriverPaging(_address: PVOID) {
    routine!("MmResetDriverPaging", APC_LEVEL, |_| ());
}
