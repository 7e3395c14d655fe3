//! The processor's extended state (AVX), which a driver saves before it uses it, and restores.

use std::sync::Mutex;

use host::machine;
use litemap::LiteMap;
use wdk_bindings::{NTSTATUS, STATUS_INSUFFICIENT_RESOURCES, STATUS_SUCCESS};

use crate::{
    context::{self, DriverId},
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State},
};

/// What was saved and not restored: by the driver's place for it, the driver, the thread and the level.
#[derive(Default)]
pub struct Saved(LiteMap<usize, (DriverId, u64, u8)>);

impl Part for Mutex<Saved> {}

impl State {
    /// A driver is unloaded: it must have restored what it saved.
    pub fn check_extended_state(&self, owner: DriverId, name: &str) {
        if self.locked::<Saved>().0.values().any(|(of, ..)| *of == owner) {
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} left an extended processor state saved"));
        }
    }
}

fn here() -> (DriverId, u64, u8) {
    (context::caller(), context::thread(), machine::current_irql().0)
}

/// `place` is an `XSTATE_SAVE`, which is the system's until the state is restored.
#[unsafe(no_mangle)]
extern "C" fn KeSaveExtendedProcessorState(_mask: u64, place: *mut u8) -> NTSTATUS {
    routine!("KeSaveExtendedProcessorState", DISPATCH_LEVEL, |state| {
        if place.is_null() {
            bug_check(Rule::BadArgument, format_args!("KeSaveExtendedProcessorState without a place"));
        }
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        if state.locked::<Saved>().0.insert(place.addr(), here()).is_some() {
            bug_check(Rule::BadArgument, format_args!("a state is saved where one is that was not restored"));
        }
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeRestoreExtendedProcessorState(place: *mut u8) {
    routine!("KeRestoreExtendedProcessorState", DISPATCH_LEVEL, |state| {
        let saved = state.locked::<Saved>().0.remove(&place.addr());
        match saved {
            None => bug_check(Rule::BadArgument, format_args!("a state is restored that was not saved, or twice")),
            Some(saved) if saved != here() => {
                bug_check(Rule::BadArgument, format_args!("a state is restored in another thread or at another level"));
            }
            Some(_) => {}
        }
    });
}
