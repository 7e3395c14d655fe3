//! The framework's work items: a call in a system thread, which a device's driver can wait for.

use std::{
    sync::{Arc, Mutex},
    thread::{self, ThreadId},
};

use host::machine::{self, Irql};
use wdk_bindings::{
    NTSTATUS, PFN_WDF_WORKITEM, PWDF_DRIVER_GLOBALS, PWDF_OBJECT_ATTRIBUTES, PWDF_WORKITEM_CONFIG,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER, STATUS_SUCCESS, WDF_WORKITEM_CONFIG, WDFOBJECT,
    WDFWORKITEM,
};

use super::{
    Kind, Object, function,
    object::{check_parent, check_size},
};
use crate::{
    context,
    kernel::{State, lock},
    report::bug_check,
    rule::Rule,
    waiting, wdm,
};

/// A work item.
pub struct WorkItemObject {
    routine: PFN_WDF_WORKITEM,
    calls: Mutex<Calls>,
}

/// The calls of a work item's routine.
#[derive(Default)]
struct Calls {
    /// It is in the system's queue, and its routine is not called yet.
    queued: bool,
    /// The threads that run it.
    running: Vec<ThreadId>,
}

impl WorkItemObject {
    fn is_idle(&self) -> bool {
        let calls = lock(&self.calls);
        !calls.queued && calls.running.is_empty()
    }

    fn is_running_here(&self) -> bool {
        lock(&self.calls).running.contains(&thread::current().id())
    }

    /// The work item is being deleted: what is queued or runs comes to its end before, unless it is what deletes it.
    pub fn end(&self, state: &Arc<State>) {
        if self.is_running_here() || self.is_idle() {
            return;
        }
        if machine::current_irql() > Irql::APC_LEVEL {
            let irql = machine::current_irql();
            bug_check(Rule::NotSimulated, format_args!("the deletion at {irql} of a work item that is queued or runs"));
        }
        waiting::until(state, None, "the deletion of a work item, for its routine,", || self.is_idle());
    }

    fn queue(self: &Arc<Self>, state: &Arc<State>, object: &Object) {
        if std::mem::replace(&mut lock(&self.calls).queued, true) {
            return;
        }
        let (mine, owner, handle, of_thread) = (self.clone(), object.owner, object.handle, state.clone());
        wdm::spawn_for_work_item(state, owner, move || {
            let me = thread::current().id();
            {
                let mut calls = lock(&mine.calls);
                calls.queued = false;
                calls.running.push(me);
            }
            if let Some(routine) = mine.routine {
                context::call(owner, "EvtWorkItem", || {
                    // SAFETY: the driver's own callback, with the handle of its work item.
                    unsafe { routine(std::ptr::without_provenance_mut(handle)) };
                });
            }
            lock(&mine.calls).running.retain(|&thread| thread != me);
            of_thread.dispatcher.signal();
        });
        state.preempt();
    }
}

fn work_item(state: &State, handle: WDFWORKITEM) -> (Arc<Object>, Arc<WorkItemObject>) {
    let object = state.given(handle);
    match &object.kind {
        Kind::WorkItem(_) if object.is_gone() => {
            bug_check(Rule::BadHandle, format_args!("a work item of the framework is used after its deletion"));
        }
        Kind::WorkItem(work_item) => {
            let work_item = work_item.clone();
            (object, work_item)
        }
        other => bug_check(Rule::BadHandle, format_args!("a {} where a work item is wanted", other.name())),
    }
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
        let kind = WorkItemObject { routine: config.EvtWorkItemFunc, calls: Mutex::default() };
        let Some(object) = state.create_object(Kind::WorkItem(Arc::new(kind)), attributes, None) else {
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
        if work_item.is_running_here() {
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
