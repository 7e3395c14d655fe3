//! Requests that filters send, and answer: their own, and clones of those that come from above.

use std::{
    mem::offset_of,
    sync::{Arc, Mutex},
};

use host::machine::{self, Irql};
use litemap::LiteMap;
use ndis::{
    NDIS_OBJECT_TYPE_OID_REQUEST, NDIS_OID_REQUEST, NDIS_OID_REQUEST_REVISION_2, NDIS_SIZEOF_OID_REQUEST_REVISION_2,
    NDIS_STATUS,
};
use ndkpi::{
    NDIS_HANDLE, NDIS_OBJECT_HEADER,
    status::{NDIS_STATUS_PENDING, NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS},
};

use super::{oid::Path, structure::ndis_routine};
use crate::{
    argument::Word,
    pool,
    report::bug_check,
    rule::Rule,
    state::{Part, State},
    wdm::system_thread,
};

/// The clones of requests, by their addresses, and the modules that have made them.
#[derive(Default)]
pub struct Clones(LiteMap<usize, usize>);

impl Part for Mutex<Clones> {}

impl State {
    /// A module is gone: it may have no clones.
    pub fn check_no_clones(&self, module: usize, name: &str) {
        let left = self.locked::<Clones>().0.values().filter(|&&owner| owner == module).count();
        if left > 0 {
            bug_check(Rule::ReferenceLeak, format_args!("{name} left {left} clones of requests"));
        }
    }

    /// A filter sends a request to those below it.
    fn ask_below(self: &Arc<Self>, handle: NDIS_HANDLE, place: *mut NDIS_OID_REQUEST, path: Path) -> NDIS_STATUS {
        let module = self.module(handle);
        if place.is_null() {
            bug_check(Rule::BadArgument, format_args!("a filter sends no request"));
        }
        // SAFETY: the driver's structure begins with a header.
        let header = unsafe { place.cast::<NDIS_OBJECT_HEADER>().read() };
        let is_short = usize::from(header.Size) < offset_of!(NDIS_OID_REQUEST, NdisReserved);
        if header.Type != NDIS_OBJECT_TYPE_OID_REQUEST || ![1, 2].contains(&header.Revision) || is_short {
            bug_check(Rule::NdisHeader, format_args!("NDIS_OID_REQUEST begins with {header:?}"));
        }
        if self.is_on_its_way(place) {
            let words =
                "a filter sends a request that is on its way: it must send a clone of one that comes from above";
            bug_check(Rule::NdisPlace, format_args!("{words}"));
        }
        if !module.begin_request() {
            bug_check(Rule::NdisPlace, format_args!("{} sends a request, and is being detached", module.in_words()));
        }
        let can_wait = machine::current_irql() == Irql::PASSIVE_LEVEL && machine::no_locks_held();
        // Who is at `DISPATCH_LEVEL` cannot wait for the turn of its request.
        if path == Path::Direct || can_wait && !self.is_late() {
            let (_, status) = self.send_request(&module.adapter, Some(&module), path, place);
            if status != NDIS_STATUS_PENDING {
                module.end_request();
            }
            return status;
        }
        let (state, owner, word) = (self.clone(), module.filter.owner, Word::of(place));
        system_thread::spawn_for_work_item(self, owner, move || {
            let place = word.pointer();
            let (_, status) = state.send_request(&module.adapter, Some(&module), path, place);
            if status != NDIS_STATUS_PENDING {
                module.hear(path == Path::Direct, place, status);
                state.dispatcher.signal();
            }
        });
        NDIS_STATUS_PENDING
    }

    fn answered_by(&self, handle: NDIS_HANDLE, place: *mut NDIS_OID_REQUEST, status: NDIS_STATUS, path: Path) {
        let module = self.module(handle);
        self.request_completed(&module.adapter, Some(&module), place, status, path);
    }
}

#[unsafe(no_mangle)]
extern "system" fn NdisFOidRequest(handle: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    ndis_routine!("NdisFOidRequest", DISPATCH_LEVEL, |state| state.ask_below(handle, request, Path::Regular))
}

#[unsafe(no_mangle)]
extern "system" fn NdisFDirectOidRequest(handle: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    ndis_routine!("NdisFDirectOidRequest", DISPATCH_LEVEL, |state| state.ask_below(handle, request, Path::Direct))
}

#[unsafe(no_mangle)]
extern "system" fn NdisFOidRequestComplete(handle: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST, status: NDIS_STATUS) {
    ndis_routine!("NdisFOidRequestComplete", DISPATCH_LEVEL, |state| {
        state.answered_by(handle, request, status, Path::Regular);
    });
}

#[unsafe(no_mangle)]
extern "system" fn NdisFDirectOidRequestComplete(
    handle: NDIS_HANDLE,
    request: *mut NDIS_OID_REQUEST,
    status: NDIS_STATUS,
) {
    ndis_routine!("NdisFDirectOidRequestComplete", DISPATCH_LEVEL, |state| {
        state.answered_by(handle, request, status, Path::Direct);
    });
}

#[unsafe(no_mangle)]
extern "system" fn NdisFCancelOidRequest(handle: NDIS_HANDLE, id: NDIS_HANDLE) {
    ndis_routine!("NdisFCancelOidRequest", DISPATCH_LEVEL, |state| {
        state.cancel_requests_of(&state.module(handle), id.addr());
    });
}

#[unsafe(no_mangle)]
extern "system" fn NdisFCancelDirectOidRequest(handle: NDIS_HANDLE, id: NDIS_HANDLE) {
    ndis_routine!("NdisFCancelDirectOidRequest", DISPATCH_LEVEL, |state| {
        state.cancel_requests_of(&state.module(handle), id.addr());
    });
}

#[unsafe(no_mangle)]
extern "system" fn NdisAllocateCloneOidRequest(
    handle: NDIS_HANDLE,
    request: *const NDIS_OID_REQUEST,
    tag: u32,
    place: *mut *mut NDIS_OID_REQUEST,
) -> NDIS_STATUS {
    ndis_routine!("NdisAllocateCloneOidRequest", DISPATCH_LEVEL, |state| {
        let module = state.module(handle);
        if tag == 0 {
            bug_check(Rule::PoolTag, format_args!("a clone of a request without a tag"));
        }
        if request.is_null() || place.is_null() {
            bug_check(Rule::BadArgument, format_args!("a clone of no request, or without a place"));
        }
        let size = size_of::<NDIS_OID_REQUEST>();
        let block = if state.strikes() { None } else { pool::allocate(module.filter.owner, size, tag, true) };
        let Some(block) = block else { return NDIS_STATUS_RESOURCES };
        let clone: *mut NDIS_OID_REQUEST = std::ptr::with_exposed_provenance_mut(block);
        // SAFETY: a new block of that size, of zeros; a request that the driver has, whose first fields are in every revision.
        unsafe {
            (*clone).Header = NDIS_OBJECT_HEADER::new(
                NDIS_OBJECT_TYPE_OID_REQUEST,
                NDIS_OID_REQUEST_REVISION_2,
                NDIS_SIZEOF_OID_REQUEST_REVISION_2,
            );
            (*clone).RequestType = (*request).RequestType;
            (*clone).PortNumber = (*request).PortNumber;
            (*clone).Timeout = (*request).Timeout;
            (*clone).RequestId = (*request).RequestId;
            (*clone).RequestHandle = (*request).RequestHandle;
            (*clone).DATA = (*request).DATA;
        }
        state.locked::<Clones>().0.insert(block, module.handle);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(clone) };
        NDIS_STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdisFreeCloneOidRequest(handle: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) {
    ndis_routine!("NdisFreeCloneOidRequest", DISPATCH_LEVEL, |state| {
        let module = state.module(handle);
        if state.locked::<Clones>().0.get(&request.addr()) != Some(&module.handle) {
            bug_check(Rule::BadHandle, format_args!("{request:p} is no clone of a request of the module, or was one"));
        }
        if state.is_on_its_way(request) {
            bug_check(Rule::NdisPlace, format_args!("a clone of a request is freed, and is on its way"));
        }
        state.locked::<Clones>().0.remove(&request.addr());
        pool::free(request.expose_provenance(), None);
    });
}
