//! Work items of NDIS: a call in a system thread.

use std::{
    ffi::c_void,
    sync::{Arc, Mutex},
};

use litemap::LiteMap;
use ndis::NDIS_IO_WORKITEM_FUNCTION;
use ndkpi::NDIS_HANDLE;

use super::{
    owner::Owner,
    structure::{ndis_routine, pointer},
};
use crate::{
    argument::Argument,
    report::bug_check,
    rule::Rule,
    state::{Part, State},
    wdm::io::work_item::Queued,
};

/// A work item.
pub struct WorkItem {
    pub owner: Owner,
    queued: Arc<Queued>,
}

/// The work items, by their handles.
#[derive(Default)]
pub struct WorkItems(pub LiteMap<usize, Arc<WorkItem>>);

impl Part for Mutex<WorkItems> {}

fn find(state: &State, handle: NDIS_HANDLE) -> Arc<WorkItem> {
    let found = state.locked::<WorkItems>().0.get(&handle.addr()).cloned();
    found.unwrap_or_else(|| bug_check(Rule::BadHandle, format_args!("{handle:p} is no work item, or was one")))
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisAllocateIoWorkItem(handle: NDIS_HANDLE) -> NDIS_HANDLE {
    ndis_routine!("NdisAllocateIoWorkItem", DISPATCH_LEVEL, |state| {
        let owner = state.owner_of(handle);
        if state.strikes() {
            return std::ptr::null_mut();
        }
        let item = state.new_handle();
        state.locked::<WorkItems>().0.insert(item, Arc::new(WorkItem { owner, queued: Arc::default() }));
        pointer(item)
    })
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisQueueIoWorkItem(
    handle: NDIS_HANDLE,
    work: Option<NDIS_IO_WORKITEM_FUNCTION>,
    argument: *mut c_void,
) {
    ndis_routine!("NdisQueueIoWorkItem", DISPATCH_LEVEL, |state| {
        let item = find(state, handle);
        let Some(work) = work else { bug_check(Rule::BadArgument, format_args!("a work item without a routine")) };
        let (argument, handle) = (Argument::of(argument), handle.addr());
        item.queued.queue(state, item.owner.driver, move || {
            // SAFETY: the driver's own routine and argument, at `PASSIVE_LEVEL`.
            unsafe { work(argument.pointer("a work item"), pointer(handle)) };
        });
    });
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisFreeIoWorkItem(handle: NDIS_HANDLE) {
    ndis_routine!("NdisFreeIoWorkItem", DISPATCH_LEVEL, |state| {
        find(state, handle).queued.check_free();
        state.locked::<WorkItems>().0.remove(&handle.addr());
    });
}
