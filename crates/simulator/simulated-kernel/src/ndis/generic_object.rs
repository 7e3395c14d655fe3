//! Objects whose addresses are the handles of drivers of NDIS that have no other.

use std::{ptr, sync::Mutex};

use litemap::LiteMap;
use ndkpi::NDIS_OBJECT_HEADER;
use wdk_bindings::{PDRIVER_OBJECT, PVOID, ULONG, USHORT};

use super::structure::ndis_routine;
use crate::{
    context::{self, DriverId},
    pool,
    report::bug_check,
    rule::Rule,
    state::{Part, State},
};

/// `NDIS_GENERIC_OBJECT`, which the driver's own bytes follow.
#[repr(C)]
struct GenericObject {
    header: NDIS_OBJECT_HEADER,
    caller: PVOID,
    callers_caller: PVOID,
    driver: PDRIVER_OBJECT,
}

const _: () = assert!(size_of::<GenericObject>() == 32);

/// `NDIS_OBJECT_TYPE_GENERIC_OBJECT`: no public document has its number, and nobody is asked for it.
const TYPE: u8 = 0;
const HEADER: NDIS_OBJECT_HEADER = NDIS_OBJECT_HEADER::new(TYPE, 1, 32);

/// Those that are not freed, by their addresses, with the drivers that have them.
#[derive(Default)]
pub struct GenericObjects(pub LiteMap<usize, DriverId>);

impl Part for Mutex<GenericObjects> {}

/// The driver's own bytes are zero.
#[unsafe(no_mangle)]
extern "system" fn NdisAllocateGenericObject(driver: PDRIVER_OBJECT, tag: ULONG, size: USHORT) -> PVOID {
    ndis_routine!("NdisAllocateGenericObject", DISPATCH_LEVEL, |state| {
        if tag == 0 {
            bug_check(Rule::PoolTag, format_args!("a generic object without a tag"));
        }
        let (owner, size) = (context::caller(), size_of::<GenericObject>() + usize::from(size));
        let block = if state.strikes() { None } else { pool::allocate(owner, size, tag, true) };
        let Some(block) = block else { return ptr::null_mut() };
        let place: *mut GenericObject = ptr::with_exposed_provenance_mut(block);
        let none = ptr::null_mut();
        // SAFETY: a new block with room for it.
        unsafe { place.write(GenericObject { header: HEADER, caller: none, callers_caller: none, driver }) };
        state.locked::<GenericObjects>().0.insert(block, owner);
        place.cast()
    })
}

/// Nothing that was allocated by its handle may be left.
#[unsafe(no_mangle)]
extern "system" fn NdisFreeGenericObject(object: PVOID) {
    ndis_routine!("NdisFreeGenericObject", DISPATCH_LEVEL, |state| {
        if state.locked::<GenericObjects>().0.remove(&object.addr()).is_none() {
            bug_check(Rule::BadHandle, format_args!("{object:p} is no generic object, or was one"));
        }
        state.check_nothing_left(|owner| owner.handle == object.addr(), "a generic object that is freed");
        pool::free(object.addr(), None);
    });
}

impl State {
    /// The driver whose generic object that is.
    pub fn generic_object(&self, handle: usize) -> Option<DriverId> {
        self.locked::<GenericObjects>().0.get(&handle).copied()
    }
}
