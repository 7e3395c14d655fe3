//! OID requests: one at a time to an adapter, and direct ones beside them.

use std::{
    cell::Cell,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
};

use host::machine::{self, Irql};
use litemap::LiteMap;
use ndis::{
    METHOD, NDIS_DEVICE_POWER_STATE, NDIS_OBJECT_TYPE_OID_REQUEST, NDIS_OID_REQUEST, NDIS_OID_REQUEST_REVISION_2,
    NDIS_REQUEST_TYPE, NDIS_SIZEOF_OID_REQUEST_REVISION_2, NDIS_STATUS, OID_PNP_SET_POWER, QUERY, REQUEST_DATA, SET,
};
use ndkpi::{
    NDIS_HANDLE, NDIS_OBJECT_HEADER, NtStatus, OID_NDK_SET_STATE,
    status::{NDIS_STATUS_BUFFER_TOO_SHORT, NDIS_STATUS_PENDING, NDIS_STATUS_SUCCESS},
};

use super::{
    adapter::{Adapter, owed},
    module::Module,
    structure::{check_no_lock, ndis_routine},
};
use crate::{
    context,
    ndis::structure::pointer,
    pool,
    report::bug_check,
    rule::Rule,
    state::{Part, State, lock},
    waiting,
};

/// The tag of requests and their buffers.
const TAG: u32 = u32::from_ne_bytes(*b"NDrq");
/// Requests that must not pend.
const NEVER_PENDS: [u32; 1] = [OID_NDK_SET_STATE];

thread_local! {
    /// How many OID handlers run on this thread.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Returns true if the current thread runs an OID handler.
pub fn is_inside() -> bool {
    INSIDE.get() > 0
}

/// What a miniport answers to an OID request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct OidAnswer {
    /// The outcome.
    pub status: NDIS_STATUS,
    /// The bytes that were written, of a query or a method.
    pub bytes: Vec<u8>,
    /// The bytes that were read, of a set request or a method.
    pub read: u32,
    /// The bytes that the buffer must have, if the miniport says.
    pub needed: u32,
}

/// Which handler a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    Regular,
    Direct,
    Synchronous,
}

/// A request on its way.
pub struct Request {
    adapter: Arc<Adapter>,
    /// The module that has sent it; `None` if it comes from above them all.
    from: Option<Arc<Module>>,
    /// The module that is to answer; `None` if the miniport is.
    to: Option<Arc<Module>>,
    path: Path,
    oid: u32,
    /// By which it is cancelled.
    id: usize,
    /// The structure.
    place: usize,
    room: Room,
    /// The handler has returned, and the request is not complete.
    pends: AtomicBool,
    outcome: Mutex<Option<NDIS_STATUS>>,
}

/// How many bytes of a buffer there are.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// For the answer.
    output: usize,
    /// Of what the miniport is told.
    input: usize,
    /// A miniport that needs no more than this has enough.
    enough: usize,
}

/// What is asked.
pub struct Question<'input> {
    pub oid: u32,
    pub kind: NDIS_REQUEST_TYPE,
    pub input: &'input [u8],
    /// The bytes of the buffer.
    pub length: usize,
}

/// A request that is on its way, or complete. It has to be waited for.
#[must_use]
pub struct PendingOid {
    state: Arc<State>,
    request: Arc<Request>,
    /// The buffer of the request.
    buffer: usize,
}

impl Question<'_> {
    /// The structure, with its buffer at that address.
    fn request(&self, buffer: *mut u8, id: usize) -> NDIS_OID_REQUEST {
        let length = u32::try_from(self.length).unwrap_or(u32::MAX);
        let (oid, buffer) = (self.oid, buffer.cast());
        let data = match self.kind {
            NDIS_REQUEST_TYPE::SET_INFORMATION => REQUEST_DATA {
                SET_INFORMATION: SET {
                    Oid: oid,
                    InformationBuffer: buffer,
                    InformationBufferLength: length,
                    BytesRead: 0,
                    BytesNeeded: 0,
                },
            },
            NDIS_REQUEST_TYPE::METHOD => REQUEST_DATA {
                METHOD_INFORMATION: METHOD {
                    Oid: oid,
                    InformationBuffer: buffer,
                    InputBufferLength: u32::try_from(self.input.len()).unwrap_or(u32::MAX),
                    OutputBufferLength: length,
                    MethodId: 0,
                    BytesWritten: 0,
                    BytesRead: 0,
                    BytesNeeded: 0,
                },
            },
            _ => REQUEST_DATA {
                QUERY_INFORMATION: QUERY {
                    Oid: oid,
                    InformationBuffer: buffer,
                    InformationBufferLength: length,
                    BytesWritten: 0,
                    BytesNeeded: 0,
                },
            },
        };
        NDIS_OID_REQUEST {
            Header: NDIS_OBJECT_HEADER::new(
                NDIS_OBJECT_TYPE_OID_REQUEST,
                NDIS_OID_REQUEST_REVISION_2,
                NDIS_SIZEOF_OID_REQUEST_REVISION_2,
            ),
            RequestType: self.kind,
            PortNumber: 0,
            Timeout: 0,
            RequestId: pointer(id),
            RequestHandle: pointer(id),
            DATA: data,
            NdisReserved: [0; 128],
            MiniportReserved: [0; 16],
            SourceReserved: [0; 16],
            SupportedRevision: 0,
            Reserved1: 0,
            Reserved2: 0,
            SwitchId: 0,
            VPortId: 0,
            Flags: 0,
        }
    }
}

/// What a request is about, and how much room it has.
fn room_of(request: &NDIS_OID_REQUEST) -> (u32, Room) {
    match request.RequestType {
        NDIS_REQUEST_TYPE::SET_INFORMATION => {
            // SAFETY: the type says which arm it is; every value of its numbers is one.
            let set = unsafe { request.DATA.SET_INFORMATION };
            let input = set.InformationBufferLength as usize;
            (set.Oid, Room { output: 0, input, enough: input })
        }
        NDIS_REQUEST_TYPE::METHOD => {
            // SAFETY: the type says which arm it is; every value of its numbers is one.
            let method = unsafe { request.DATA.METHOD_INFORMATION };
            let (output, input) = (method.OutputBufferLength as usize, method.InputBufferLength as usize);
            // What is needed may be needed of either.
            (method.Oid, Room { output, input, enough: output.min(input) })
        }
        _ => {
            // SAFETY: the type says which arm it is; every value of its numbers is one.
            let query = unsafe { request.DATA.QUERY_INFORMATION };
            let output = query.InformationBufferLength as usize;
            (query.Oid, Room { output, input: 0, enough: output })
        }
    }
}

/// Requests that are not complete, by the address of the structure.
#[derive(Default)]
pub struct Requests(LiteMap<usize, Arc<Request>>);

impl Part for Mutex<Requests> {}

impl State {
    /// Sends a request to whoever is below the protocols.
    pub fn ask(self: &Arc<Self>, adapter: &Arc<Adapter>, path: Path, question: &Question<'_>) -> PendingOid {
        let length = question.length.max(question.input.len());
        let size = size_of::<NDIS_OID_REQUEST>() + length;
        // Two blocks, so that a miniport that writes beyond the buffer is seen.
        let (Some(place), Some(buffer)) = (
            pool::allocate(context::NOBODY, size_of::<NDIS_OID_REQUEST>() + size_of::<usize>(), TAG, true),
            pool::allocate(context::NOBODY, length.max(1), TAG, false),
        ) else {
            bug_check(Rule::NotSimulated, format_args!("no memory for a request of {size} bytes"));
        };
        let start: *mut u8 = std::ptr::with_exposed_provenance_mut(buffer);
        // SAFETY: a new block with room for the input.
        unsafe { start.copy_from_nonoverlapping(question.input.as_ptr(), question.input.len()) };
        let structure: *mut NDIS_OID_REQUEST = std::ptr::with_exposed_provenance_mut(place);
        // SAFETY: a new block of that size.
        unsafe { structure.write(question.request(start, place)) };
        let (request, _) = self.send_request(adapter, None, path, structure);
        PendingOid { state: self.clone(), request, buffer }
    }

    /// Sends a request to whoever is next below a module, or below the protocols. What is said of it at once.
    pub fn send_request(
        self: &Arc<Self>,
        adapter: &Arc<Adapter>,
        from: Option<&Arc<Module>>,
        path: Path,
        structure: *mut NDIS_OID_REQUEST,
    ) -> (Arc<Request>, NDIS_STATUS) {
        let takes = |module: &Module| {
            path != Path::Synchronous && module.requests(path == Path::Direct).ask.is_some() && module.begin_request()
        };
        let to = self.next_below(adapter, from.map(|module| &**module), takes);
        if path == Path::Regular {
            // One at a time: the others wait for their turn.
            let asks = to.as_ref().map_or(&adapter.asks, |module| &module.asks);
            waiting::until(self, None, "an OID request, for its turn", || !asks.swap(true, AcqRel));
        }
        // SAFETY: the structure of the request, which lives until it is complete. What is read is in every revision.
        let (id, (oid, room)) = unsafe { ((*structure).RequestId.addr(), room_of(&*structure)) };
        let request = Arc::new(Request {
            adapter: adapter.clone(),
            from: from.cloned(),
            to,
            path,
            oid,
            id,
            place: structure.expose_provenance(),
            room,
            pends: AtomicBool::new(false),
            outcome: Mutex::default(),
        });
        self.locked::<Requests>().0.insert(request.place, request.clone());
        let status = call(&request, structure);
        if status == NDIS_STATUS_PENDING {
            let must_not = request.to.is_none() && NEVER_PENDS.contains(&request.oid);
            if path == Path::Synchronous || must_not {
                bug_check(Rule::OidPended, format_args!("the request {:#x} pended, which it must not", request.oid));
            }
            request.pends.store(true, Release);
        } else {
            self.finish_oid(&request, status);
        }
        (request, status)
    }

    /// Whether that is a request on its way.
    pub fn is_on_its_way(&self, place: *mut NDIS_OID_REQUEST) -> bool {
        self.locked::<Requests>().0.contains_key(&place.addr())
    }

    /// A request is complete. Called once for each.
    fn finish_oid(&self, request: &Request, status: NDIS_STATUS) {
        check_answer(request, status);
        let before = lock(&request.outcome).replace(status);
        if before.is_some() {
            bug_check(Rule::OidCompletedTwice, format_args!("the request {:#x} is completed twice", request.oid));
        }
        // Who has sent it may free the structure, or send it again.
        if request.from.is_some() {
            self.locked::<Requests>().0.remove(&request.place);
        }
        if request.path == Path::Regular {
            request.to.as_ref().map_or(&request.adapter.asks, |module| &module.asks).store(false, Release);
        }
        if let Some(module) = &request.to {
            module.end_request();
        }
        self.dispatcher.signal();
    }

    /// The miniport of an adapter, or a module above it, has completed a request.
    pub fn request_completed(
        &self,
        adapter: &Adapter,
        module: Option<&Module>,
        place: *mut NDIS_OID_REQUEST,
        status: NDIS_STATUS,
        path: Path,
    ) {
        check_no_lock("the completion of an OID request");
        let found = self.locked::<Requests>().0.get(&place.addr()).cloned();
        let handle = module.map(|module| module.handle);
        let is_of = |request: &Arc<Request>| {
            request.adapter.handle == adapter.handle && request.to.as_ref().map(|module| module.handle) == handle
        };
        let Some(request) = found.filter(is_of) else {
            bug_check(
                Rule::OidCompletedTwice,
                format_args!("{place:p} is no request of the adapter or module, or was one"),
            );
        };
        if request.path != path {
            bug_check(Rule::BadArgument, format_args!("a request is completed by the other kind's routine"));
        }
        if status == NDIS_STATUS_PENDING {
            bug_check(Rule::OidAnswer, format_args!("the request {:#x} is completed as pending", request.oid));
        }
        self.finish_oid(&request, status);
        if let Some(module) = &request.from {
            module.hear(path == Path::Direct, place, status);
            self.dispatcher.signal();
        }
    }

    /// Has a request cancelled by whoever has it. It may be completed nevertheless.
    fn cancel_oid(&self, request: &Request) {
        let (direct, id) = (request.path == Path::Direct, pointer(request.id));
        let Some(module) = &request.to else {
            cancel_at_miniport(request);
            return;
        };
        let Some(handler) = module.requests(direct).cancel else {
            // What the module has sent for it is cancelled in its place.
            self.cancel_requests_of(module, request.id);
            return;
        };
        let before = machine::raise(Irql::DISPATCH_LEVEL);
        module.call("FilterCancelOidRequest", |context| {
            // SAFETY: the driver's own handler and context.
            unsafe { handler(context, id) };
        });
        machine::lower(before);
    }

    /// Has those requests cancelled that a module has sent with that identifier.
    pub fn cancel_requests_of(&self, module: &Module, id: usize) {
        let sent: Vec<Arc<Request>> = {
            let requests = self.locked::<Requests>();
            let is_of = |request: &&Arc<Request>| {
                request.id == id && request.from.as_ref().is_some_and(|from| from.handle == module.handle)
            };
            requests.0.values().filter(is_of).cloned().collect()
        };
        for request in sent {
            self.cancel_oid(&request);
        }
    }

    /// NDIS may wait for the request that an adapter has not completed before it passes an event on.
    pub fn check_no_request_pends(&self, adapter: &Adapter) {
        let requests = self.locked::<Requests>();
        let pends = |request: &&Arc<Request>| {
            request.adapter.handle == adapter.handle
                && request.to.is_none()
                && request.path == Path::Regular
                && request.pends.load(Acquire)
                && lock(&request.outcome).is_none()
        };
        if let Some(request) = requests.0.values().find(pends) {
            bug_check(
                Rule::PnpEventInOid,
                format_args!("NdisMNetPnPEvent is called while the request {:#x} pends", request.oid),
            );
        }
    }

    /// The adapter is about to be paused for good: its requests are cancelled, and must come to their end.
    pub fn end_oids(self: &Arc<Self>, adapter: &Arc<Adapter>) {
        let left: Vec<Arc<Request>> = {
            let requests = self.locked::<Requests>();
            requests.0.values().filter(|request| request.adapter.handle == adapter.handle).cloned().collect()
        };
        for request in left {
            let pending = PendingOid { state: self.clone(), request, buffer: 0 };
            if !pending.is_complete() {
                pending.cancel();
            }
            pending.complete();
        }
    }
}

fn call(request: &Request, structure: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    if let Some(module) = &request.to {
        let handler = owed(module.requests(request.path == Path::Direct).ask, "OidRequestHandler");
        return module.call("FilterOidRequest", |context| {
            // SAFETY: the driver's own handler and context, and a request that lives until it is complete.
            unsafe { handler(context, structure) }
        });
    }
    let handlers = &request.adapter.handlers;
    INSIDE.set(INSIDE.get() + 1);
    let status = match request.path {
        Path::Regular => {
            let handler = owed(handlers.OidRequestHandler, "OidRequestHandler");
            request.adapter.call("MiniportOidRequest", |context| {
                // SAFETY: the driver's own handler and context, and a request that lives until it is complete.
                unsafe { handler(context, structure) }
            })
        }
        Path::Direct => {
            let handler = owed(handlers.DirectOidRequestHandler, "DirectOidRequestHandler");
            request.adapter.call("MiniportDirectOidRequest", |context| {
                // SAFETY: the driver's own handler and context, and a request that lives until it is complete.
                unsafe { handler(context, structure) }
            })
        }
        Path::Synchronous => {
            let handler = owed(handlers.SynchronousOidRequestHandler, "SynchronousOidRequestHandler");
            request.adapter.call("MiniportSynchronousOidRequest", |context| {
                // SAFETY: the driver's own handler and context, and a request that lives until it is complete.
                unsafe { handler(context, structure) }
            })
        }
    };
    INSIDE.set(INSIDE.get() - 1);
    status
}

/// Has a miniport cancel a request.
fn cancel_at_miniport(request: &Request) {
    let handlers = &request.adapter.handlers;
    let id = pointer(request.id);
    let before = machine::raise(Irql::DISPATCH_LEVEL);
    match request.path {
        Path::Regular => {
            let handler = owed(handlers.CancelOidRequestHandler, "CancelOidRequestHandler");
            request.adapter.call("MiniportCancelOidRequest", |context| {
                // SAFETY: the driver's own handler and context.
                unsafe { handler(context, id) };
            });
        }
        Path::Direct => {
            let handler = owed(handlers.CancelDirectOidRequestHandler, "CancelDirectOidRequestHandler");
            request.adapter.call("MiniportCancelDirectOidRequest", |context| {
                // SAFETY: the driver's own handler and context.
                unsafe { handler(context, id) };
            });
        }
        // It was complete when it came back.
        Path::Synchronous => {}
    }
    machine::lower(before);
}

/// The structure as the miniport left it.
fn structure(request: &Request) -> NDIS_OID_REQUEST {
    let place: *const NDIS_OID_REQUEST = std::ptr::with_exposed_provenance(request.place);
    // SAFETY: the request's own block, which lives until the answer is collected.
    unsafe { place.read() }
}

/// Bytes written, bytes read and bytes needed, as the miniport left them.
fn lengths(request: &NDIS_OID_REQUEST) -> (u32, u32, u32) {
    match request.RequestType {
        NDIS_REQUEST_TYPE::SET_INFORMATION => {
            // SAFETY: the type says which arm it is; every value of its numbers is one.
            let set = unsafe { request.DATA.SET_INFORMATION };
            (0, set.BytesRead, set.BytesNeeded)
        }
        NDIS_REQUEST_TYPE::METHOD => {
            // SAFETY: the type says which arm it is; every value of its numbers is one.
            let method = unsafe { request.DATA.METHOD_INFORMATION };
            (method.BytesWritten, method.BytesRead, method.BytesNeeded)
        }
        _ => {
            // SAFETY: the type says which arm it is; every value of its numbers is one.
            let query = unsafe { request.DATA.QUERY_INFORMATION };
            (query.BytesWritten, 0, query.BytesNeeded)
        }
    }
}

/// Returns true if this is a request to go to a state of power that there is, whole: one that a miniport may not fail.
fn sets_power(request: &Request) -> bool {
    let structure = structure(request);
    if request.oid != OID_PNP_SET_POWER || structure.RequestType != NDIS_REQUEST_TYPE::SET_INFORMATION {
        return false;
    }
    // SAFETY: the type says which arm it is; every value of its numbers is one.
    let set = unsafe { structure.DATA.SET_INFORMATION };
    if (set.InformationBufferLength as usize) < size_of::<NDIS_DEVICE_POWER_STATE>() {
        return false;
    }
    let state: *const NDIS_DEVICE_POWER_STATE = set.InformationBuffer.cast_const().cast();
    // SAFETY: the buffer has as many bytes, and is there until the answer is collected.
    let state = unsafe { state.read_unaligned() };
    (NDIS_DEVICE_POWER_STATE::D0..=NDIS_DEVICE_POWER_STATE::D3).contains(&state)
}

fn check_answer(request: &Request, status: NDIS_STATUS) {
    let (written, read, needed) = lengths(&structure(request));
    let Room { output, input, enough } = request.room;
    let oid = request.oid;
    if request.to.is_none() && sets_power(request) && status != NDIS_STATUS_SUCCESS {
        bug_check(Rule::OidAnswer, format_args!("OID_PNP_SET_POWER is answered with {status}, and must not fail"));
    }
    if written as usize > output || read as usize > input {
        bug_check(
            Rule::OidAnswer,
            format_args!(
                "the request {oid:#x} has {input} bytes and room for {output}, and {read} are said to be read and \
                 {written} written"
            ),
        );
    }
    if status == NDIS_STATUS_BUFFER_TOO_SHORT && needed as usize <= enough {
        bug_check(
            Rule::OidAnswer,
            format_args!("the request {oid:#x} has {enough} bytes, is too short, and {needed} are needed"),
        );
    }
}

impl PendingOid {
    /// Returns true if the request is complete.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        lock(&self.request.outcome).is_some()
    }

    /// Has the miniport cancel the request, which it may complete nevertheless.
    pub fn cancel(&self) {
        self.state.cancel_oid(&self.request);
    }

    /// Waits until it is complete, which must happen in time.
    fn complete(&self) {
        let state = &self.state;
        let end = state.machine.now().saturating_add(state.request_limit());
        if !waiting::until(state, Some(end), "an OID request", || self.is_complete()) {
            bug_check(Rule::OidNeverCompleted, format_args!("the request {:#x} is not completed", self.request.oid));
        }
    }

    /// Waits for the answer. A request that is not completed in time is a broken rule.
    pub fn wait(self) -> OidAnswer {
        self.complete();
        let (state, request) = (&self.state, &self.request);
        let status = lock(&request.outcome).unwrap_or(NtStatus::UNSUCCESSFUL);
        let (written, read, needed) = lengths(&structure(request));
        let start: *const u8 = std::ptr::with_exposed_provenance(self.buffer);
        // SAFETY: the request's own buffer, of which so many bytes are written, which was checked.
        let bytes = unsafe { std::slice::from_raw_parts(start, written as usize) }.to_vec();
        state.locked::<Requests>().0.remove(&request.place);
        pool::free(self.buffer, Some(TAG));
        pool::free(request.place, Some(TAG));
        OidAnswer { status, bytes, read, needed }
    }
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisMOidRequestComplete(
    handle: NDIS_HANDLE,
    request: *mut NDIS_OID_REQUEST,
    status: NDIS_STATUS,
) {
    ndis_routine!("NdisMOidRequestComplete", DISPATCH_LEVEL, |state| {
        state.request_completed(&state.adapter(handle), None, request, status, Path::Regular);
    });
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisMDirectOidRequestComplete(
    handle: NDIS_HANDLE,
    request: *mut NDIS_OID_REQUEST,
    status: NDIS_STATUS,
) {
    ndis_routine!("NdisMDirectOidRequestComplete", DISPATCH_LEVEL, |state| {
        state.request_completed(&state.adapter(handle), None, request, status, Path::Direct);
    });
}
