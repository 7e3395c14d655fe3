//! The framework's work items: a call in a system thread, which a device's driver can wait for.

use std::sync::{
    Arc,
    atomic::{
        AtomicBool,
        Ordering::{AcqRel, Acquire, Release},
    },
};

use host::machine::{self, Irql};
use wdk_bindings::{
    NTSTATUS, PFN_WDF_WORKITEM, PWDF_DRIVER_GLOBALS, PWDF_OBJECT_ATTRIBUTES, PWDF_WORKITEM_CONFIG,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER, STATUS_SUCCESS, WDF_WORKITEM_CONFIG, WDFOBJECT,
    WDFWORKITEM,
};

use super::{
    device::check_parent,
    function::function,
    object::{Kind, Object, Part},
};
use crate::{
    argument::check_size, calls::Calls, context, report::bug_check, rule::Rule, state::State, waiting,
    wdm::system_thread,
};

/// A work item.
pub struct WorkItemObject {
    routine: PFN_WDF_WORKITEM,
    calls: Calls,
    /// It is in the system's queue, and its routine is not called yet. A call is in `calls` before this ends.
    queued: AtomicBool,
}

impl Part for WorkItemObject {
    const NAME: &'static str = "work item";
}

impl Kind for WorkItemObject {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    /// The work item is being deleted: what is queued or runs comes to its end before, unless it is what deletes it.
    fn end(&self, state: &Arc<State>, _object: &Object) {
        if self.calls.are_here() || self.is_idle() {
            return;
        }
        if machine::current_irql() > Irql::APC_LEVEL {
            let irql = machine::current_irql();
            bug_check(Rule::NotSimulated, format_args!("the deletion at {irql} of a work item that is queued or runs"));
        }
        waiting::until(state, None, "the deletion of a work item, for its routine,", || self.is_idle());
    }
}

impl WorkItemObject {
    fn is_idle(&self) -> bool {
        !self.queued.load(Acquire) && self.calls.are_over()
    }

    fn queue(self: &Arc<Self>, state: &Arc<State>, object: &Object) {
        if self.queued.swap(true, AcqRel) {
            return;
        }
        let (mine, owner, handle, of_thread) = (self.clone(), object.owner, object.handle, state.clone());
        system_thread::spawn_for_work_item(state, owner, move || {
            mine.calls.make(&of_thread, || {
                mine.queued.store(false, Release);
                let Some(routine) = mine.routine else { return };
                context::call(owner, "EvtWorkItem", || {
                    // SAFETY: the driver's own callback, with the handle of its work item.
                    unsafe { routine(std::ptr::without_provenance_mut(handle)) };
                });
            });
        });
        state.preempt();
    }
}

fn work_item(state: &State, handle: WDFWORKITEM) -> (Arc<Object>, Arc<WorkItemObject>) {
    state.usable(handle, Object::is_there)
}

pub extern "C" fn WdfWorkItemCreate(
    _globals: PWDF_DRIVER_GLOBALS,
    config: PWDF_WORKITEM_CONFIG,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    place: *mut WDFWORKITEM,
) -> NTSTATUS {
    function!("WdfWorkItemCreate", |state| {
        // SAFETY: the driver's structure, which lives until the call returns.
        let config = unsafe { config.read() };
        check_size::<WDF_WORKITEM_CONFIG>(config.Size, "WDF_WORKITEM_CONFIG");
        if config.EvtWorkItemFunc.is_none() {
            return STATUS_INVALID_PARAMETER;
        }
        if let Err(status) = check_parent(state, attributes) {
            return status;
        }
        let kind =
            WorkItemObject { routine: config.EvtWorkItemFunc, calls: Calls::default(), queued: AtomicBool::new(false) };
        let Some(object) = state.create_object(Arc::new(kind), attributes, None) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(object.pointer()) };
        STATUS_SUCCESS
    })
}

/// One that is in the queue already stays there once.
pub extern "C" fn WdfWorkItemEnqueue(_globals: PWDF_DRIVER_GLOBALS, handle: WDFWORKITEM) {
    function!("WdfWorkItemEnqueue", |state| {
        let (object, work_item) = work_item(state, handle);
        // While it is deleted its routine may still run, and ask for the next call.
        if object.is_live() {
            work_item.queue(state, &object);
        }
    });
}

pub extern "C" fn WdfWorkItemFlush(_globals: PWDF_DRIVER_GLOBALS, handle: WDFWORKITEM) {
    function!("WdfWorkItemFlush", |state| {
        let (_, work_item) = work_item(state, handle);
        if work_item.calls.are_here() {
            bug_check(Rule::Deadlock, format_args!("WdfWorkItemFlush waits for the routine that calls it"));
        }
        if !work_item.is_idle() {
            waiting::until(state, None, "WdfWorkItemFlush", || work_item.is_idle());
        }
    });
}

pub extern "C" fn WdfWorkItemGetParentObject(_globals: PWDF_DRIVER_GLOBALS, handle: WDFWORKITEM) -> WDFOBJECT {
    function!("WdfWorkItemGetParentObject", |state| work_item(state, handle).0.parent_pointer())
}
