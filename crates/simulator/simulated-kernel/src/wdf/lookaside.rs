//! Lookaside lists of the framework, out of which a driver gets memory objects of one size. None keeps anything: each buffer is a block of
//! the pool, so that the pool's checks see it.

use std::sync::Arc;

use host::machine::{self, Irql};
use wdk_bindings::{
    NTSTATUS, POOL_TYPE, PWDF_DRIVER_GLOBALS, PWDF_OBJECT_ATTRIBUTES, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INVALID_PARAMETER, STATUS_SUCCESS, ULONG, WDF_OBJECT_ATTRIBUTES, WDFMEMORY, WDFOBJECT,
};

use super::{
    device::DeviceObject,
    function::entry,
    memory::MemoryObject,
    object::{Kind, Object, Part, read_attributes},
};
use crate::{context, report::bug_check, routine::routine, rule::Rule, state::State, wdm::memory::is_paged};

/// A lookaside list.
pub struct LookasideObject {
    /// How long each buffer is, in bytes.
    size: usize,
    paged: bool,
    tag: ULONG,
    /// What each memory object is made with.
    memory: WDF_OBJECT_ATTRIBUTES,
}

// SAFETY: the attributes hold handles, functions and a description that lives as long as the driver; nothing changes.
unsafe impl Send for LookasideObject {}
// SAFETY: as for `Send`.
unsafe impl Sync for LookasideObject {}

impl Part for LookasideObject {
    const NAME: &'static str = "lookaside list";
}

impl Kind for LookasideObject {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn check_deletion(&self, object: &Object) {
        if self.paged {
            object.require_passive_level();
        }
    }
}

/// Memory that may be paged out is not for `DISPATCH_LEVEL`.
fn check_level(name: &str, paged: bool) {
    let now = machine::current_irql();
    if paged && now > Irql::APC_LEVEL {
        bug_check(Rule::IrqlTooHigh, format_args!("{name} of paged pool at {now}"));
    }
}

/// The device that a parent is, or leads to.
fn device_above(state: &State, parent: WDFOBJECT) -> Option<usize> {
    let mut next = Some(parent.addr()).filter(|&parent| parent != 0);
    while let Some(handle) = next {
        let object = state.object(handle);
        if object.part::<DeviceObject>().is_some() {
            return Some(handle);
        }
        next = object.parent;
    }
    None
}

/// Returns true if the list and its memory lead to two devices.
fn are_of_two_devices(state: &State, list: &WDF_OBJECT_ATTRIBUTES, memory: &WDF_OBJECT_ATTRIBUTES) -> bool {
    let [list, memory] = [list, memory].map(|attributes| device_above(state, attributes.ParentObject));
    list.zip(memory).is_some_and(|(list, memory)| list != memory)
}

pub extern "C" fn WdfLookasideListCreate(
    _globals: PWDF_DRIVER_GLOBALS,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    size: usize,
    pool: POOL_TYPE,
    of_memory: PWDF_OBJECT_ATTRIBUTES,
    tag: ULONG,
    place: *mut WDFOBJECT,
) -> NTSTATUS {
    routine!("WdfLookasideListCreate", DISPATCH_LEVEL, |state| {
        let paged = is_paged(pool);
        check_level("WdfLookasideListCreate", paged);
        let (own, memory) = (read_attributes(attributes), read_attributes(of_memory));
        if size == 0 || (paged && are_of_two_devices(state, &own, &memory)) {
            return STATUS_INVALID_PARAMETER;
        }
        let owner = context::caller();
        let kind = Arc::new(LookasideObject { size, paged, tag, memory });
        let Some(object) = state.create_object_of(owner, kind, &own, state.driver_object(owner)) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(object.pointer()) };
        STATUS_SUCCESS
    })
}

/// Its parent is the driver, unless the list's attributes for memory say otherwise: it does not go with the list.
pub extern "C" fn WdfMemoryCreateFromLookaside(
    _globals: PWDF_DRIVER_GLOBALS,
    list: WDFOBJECT,
    place: *mut WDFMEMORY,
) -> NTSTATUS {
    routine!("WdfMemoryCreateFromLookaside", DISPATCH_LEVEL, |state| {
        let (object, list): (_, Arc<LookasideObject>) = state.usable(list, Object::is_live);
        check_level("WdfMemoryCreateFromLookaside", list.paged);
        let Some(kind) = MemoryObject::allocated(object.owner, list.size, list.tag, list.paged) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        let parent = state.driver_object(object.owner);
        let Some(made) = state.create_object_of(object.owner, Arc::new(kind), &list.memory, parent) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(made.pointer()) };
        STATUS_SUCCESS
    })
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 2] {
    [entry!(WdfLookasideListCreate), entry!(WdfMemoryCreateFromLookaside)]
}
