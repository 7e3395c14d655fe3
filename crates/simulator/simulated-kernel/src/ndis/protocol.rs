//! What protocols call: registration, adapters that they open and close, requests, and frames.

use std::{
    ffi::c_void,
    sync::{Arc, Mutex},
};

use host::machine::{self, Irql};
use ndis::{
    NDIS_OBJECT_TYPE_OID_REQUEST, NDIS_OID_REQUEST, NDIS_REQUEST_TYPE, NDIS_RETURN_FLAGS_DISPATCH_LEVEL,
    NDIS_SEND_FLAGS_DISPATCH_LEVEL, NDIS_STATUS, NDIS_STATUS_PAUSED, NET_BUFFER, NET_BUFFER_LIST,
    OID_GEN_CURRENT_PACKET_FILTER,
};
use ndkpi::{
    NDIS_HANDLE, NDIS_OBJECT_HEADER, NET_PNP_EVENT_NOTIFICATION, NtStatus,
    status::{NDIS_STATUS_PENDING, NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS},
};
use wdk_bindings::{NTSTATUS, STATUS_SUCCESS, UNICODE_STRING};

use super::{
    adapter::owed,
    bind::Binds,
    binding::{Binding, BindingPhase, Bindings, Bound},
    frame,
    oid::{OidAnswer, Path, Question},
    pool::{Holder, Pools},
    structure::{ndis_routine, pointer},
};
use crate::{
    argument::Word,
    context, pool,
    report::bug_check,
    rule::Rule,
    state::{State, lock},
    text,
    wdm::system_thread,
};

/// `NDIS_OBJECT_TYPE_OPEN_PARAMETERS`, and the bytes up to the last field.
const OPEN_TYPE: u8 = 0x87;
const OPEN_SIZE: u16 = 52;
/// `NDIS_STATUS_UNSUPPORTED_MEDIA`, `NDIS_STATUS_ADAPTER_NOT_FOUND`.
const UNSUPPORTED_MEDIA: NDIS_STATUS = NtStatus(0xC001_0019_u32.cast_signed());
const ADAPTER_NOT_FOUND: NDIS_STATUS = NtStatus(0xC001_0006_u32.cast_signed());
/// `NDIS_SEND_FLAGS_CHECK_FOR_LOOPBACK`: no protocol hears here what another one sends.
const CHECK_FOR_LOOPBACK: u32 = 2;
/// The tag of names that protocols free.
const TAG: u32 = u32::from_ne_bytes(*b"NDna");

/// What NDIS answers itself, of what the miniport has reported at its initialisation: `OID_GEN_MAXIMUM_FRAME_SIZE`, `OID_GEN_LINK_SPEED`,
/// `OID_GEN_MAXIMUM_TOTAL_SIZE`, `OID_GEN_MAC_OPTIONS`, `OID_GEN_MEDIA_CONNECT_STATUS`, `OID_802_3_PERMANENT_ADDRESS`,
/// `OID_802_3_CURRENT_ADDRESS`.
const FRAME_SIZE: u32 = 0x0001_0106;
const LINK_SPEED: u32 = 0x0001_0107;
const TOTAL_SIZE: u32 = 0x0001_0111;
const MAC_OPTIONS: u32 = 0x0001_0113;
const CONNECT_STATUS: u32 = 0x0001_0114;
const ADDRESSES: [u32; 2] = [0x0101_0101, 0x0101_0102];

/// `NDIS_OPEN_PARAMETERS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct OpenParameters {
    header: NDIS_OBJECT_HEADER,
    name: *const UNICODE_STRING,
    media: *const u32,
    media_count: u32,
    selected: *mut u32,
    types: *const u16,
    types_count: u32,
}

#[unsafe(no_mangle)]
extern "system" fn NdisRegisterProtocolDriver(
    context: NDIS_HANDLE,
    characteristics: *const u8,
    place: *mut NDIS_HANDLE,
) -> NDIS_STATUS {
    ndis_routine!("NdisRegisterProtocolDriver", PASSIVE_LEVEL, |state| {
        let status = state.register_protocol(context, characteristics, place);
        if status == NDIS_STATUS_SUCCESS {
            // SAFETY: the driver's place, which was just written.
            state.bind_protocol_soon(unsafe { place.read() }.addr());
            state.preempt();
        }
        status
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdisDeregisterProtocolDriver(handle: NDIS_HANDLE) {
    ndis_routine!("NdisDeregisterProtocolDriver", PASSIVE_LEVEL, |state| {
        state.unbind_protocol(handle.addr());
        state.deregister_protocol(handle);
    });
}

#[unsafe(no_mangle)]
extern "system" fn NdisOpenAdapterEx(
    protocol: NDIS_HANDLE,
    binding_context: NDIS_HANDLE,
    parameters: *const OpenParameters,
    bind_context: NDIS_HANDLE,
    place: *mut NDIS_HANDLE,
) -> NDIS_STATUS {
    ndis_routine!("NdisOpenAdapterEx", PASSIVE_LEVEL, |state| {
        let Some(protocol) = state.protocol(protocol.addr()) else {
            bug_check(Rule::BadHandle, format_args!("{protocol:p} is no registration of a protocol"));
        };
        if parameters.is_null() || place.is_null() {
            bug_check(Rule::BadArgument, format_args!("NdisOpenAdapterEx without parameters or a place"));
        }
        // SAFETY: the driver's structure begins with a header.
        let header = unsafe { parameters.cast::<NDIS_OBJECT_HEADER>().read() };
        if (header.Type, header.Revision) != (OPEN_TYPE, 1) || header.Size < OPEN_SIZE {
            bug_check(Rule::NdisHeader, format_args!("NDIS_OPEN_PARAMETERS begins with {header:?}"));
        }
        // SAFETY: the header says that the structure is all there.
        let wanted = unsafe { parameters.read_unaligned() };
        let found = {
            let binds = state.locked::<Binds>();
            let bind = binds.running.get(&bind_context.addr()).filter(|bind| bind.protocol == protocol.handle);
            bind.map(|bind| (bind.adapter.clone(), bind.name.clone(), bind.opened))
        };
        let Some((Some(adapter), name, None)) = found else {
            bug_check(
                Rule::NdisPlace,
                format_args!("an adapter is opened outside of ProtocolBindAdapterEx, or twice in it"),
            );
        };
        if !text::text(wanted.name).eq_ignore_ascii_case(&name) {
            return ADAPTER_NOT_FOUND;
        }
        let media = array(wanted.media, wanted.media_count);
        let own = lock(&adapter.changing).attributes.general.as_ref().map(|general| general.medium.0.cast_unsigned());
        let Some(medium) = media.iter().position(|&medium| Some(medium) == own) else { return UNSUPPORTED_MEDIA };
        if state.strikes() {
            return NDIS_STATUS_RESOURCES;
        }
        let (handle, is_late) = (state.new_handle(), state.is_late());
        let binding = Arc::new(Binding {
            handle,
            protocol,
            adapter,
            context: binding_context.expose_provenance(),
            types: array(wanted.types, wanted.types_count),
            changing: Mutex::new(Bound {
                phase: if is_late { BindingPhase::Opening } else { BindingPhase::Paused },
                sent: 0,
                requests: 0,
                held: 0,
                filter: 0,
                answered: None,
            }),
        });
        // SAFETY: the driver's places, which live until the adapter is open.
        unsafe {
            wanted.selected.write(u32::try_from(medium).unwrap_or(0));
            place.write(pointer(handle));
        }
        state.locked::<Bindings>().open.insert(handle, binding.clone());
        if let Some(bind) = state.locked::<Binds>().running.get_mut(&bind_context.addr()) {
            bind.opened = Some(handle);
        }
        if !is_late {
            return NDIS_STATUS_SUCCESS;
        }
        let owner = binding.protocol.owner;
        system_thread::spawn_for_work_item(state, owner, move || {
            lock(&binding.changing).phase = BindingPhase::Paused;
            let handler = owed(binding.protocol.handlers.open_complete, "OpenAdapterCompleteHandlerEx");
            binding.call("ProtocolOpenAdapterCompleteEx", |context| {
                // SAFETY: the driver's own handler and context.
                unsafe { handler(context, NDIS_STATUS_SUCCESS) };
            });
        });
        NDIS_STATUS_PENDING
    })
}

/// A driver's array. Empty if there is none.
fn array<T: Copy>(first: *const T, count: u32) -> Vec<T> {
    if first.is_null() || count == 0 {
        return Vec::new();
    }
    // SAFETY: the driver's array has as many elements as it says, and lives until the call returns.
    unsafe { std::slice::from_raw_parts(first, count as usize) }.to_vec()
}

#[unsafe(no_mangle)]
extern "system" fn NdisCloseAdapterEx(handle: NDIS_HANDLE) -> NDIS_STATUS {
    ndis_routine!("NdisCloseAdapterEx", PASSIVE_LEVEL, |state| {
        let binding = state.binding(handle.addr());
        let (phase, left) = {
            let changing = lock(&binding.changing);
            (changing.phase, [changing.sent, changing.requests, changing.held])
        };
        if phase == BindingPhase::Closing {
            bug_check(Rule::BadHandle, format_args!("{} is closed twice", binding.in_words()));
        }
        if left != [0; 3] {
            let [sent, requests, held] = left;
            let words = format!("{sent} sends and {requests} requests not complete, and {held} received lists kept");
            bug_check(Rule::BindingInUse, format_args!("{} is closed with {words}", binding.in_words()));
        }
        if !state.is_late() {
            state.forget_binding(&binding);
            return NDIS_STATUS_SUCCESS;
        }
        lock(&binding.changing).phase = BindingPhase::Closing;
        let (of_thread, owner) = (state.clone(), binding.protocol.owner);
        system_thread::spawn_for_work_item(state, owner, move || {
            of_thread.forget_binding(&binding);
            let handler = owed(binding.protocol.handlers.close_complete, "CloseAdapterCompleteHandlerEx");
            binding.call("ProtocolCloseAdapterCompleteEx", |context| {
                // SAFETY: the driver's own handler and context.
                unsafe { handler(context) };
            });
        });
        NDIS_STATUS_PENDING
    })
}

impl State {
    /// Which frames the others above an adapter want.
    fn filter_of_others(&self, binding: &Binding) -> u32 {
        let others = self.bindings_of(&binding.adapter).into_iter().filter(|other| other.handle != binding.handle);
        let own = lock(&binding.adapter.changing).filter;
        others.fold(own, |filter, other| filter | lock(&other.changing).filter)
    }

    /// A binding is closed.
    fn forget_binding(&self, binding: &Binding) {
        lock(&binding.changing).phase = BindingPhase::Closed;
        let mut bindings = self.locked::<Bindings>();
        bindings.open.remove(&binding.handle);
        bindings.closed.push(binding.handle);
    }
}

#[unsafe(no_mangle)]
extern "system" fn NdisCompleteBindAdapterEx(bind_context: NDIS_HANDLE, status: NDIS_STATUS) {
    ndis_routine!("NdisCompleteBindAdapterEx", PASSIVE_LEVEL, |state| {
        state.end_bind(bind_context.addr(), status, "NdisCompleteBindAdapterEx");
    });
}

#[unsafe(no_mangle)]
extern "system" fn NdisCompleteUnbindAdapterEx(unbind_context: NDIS_HANDLE) {
    ndis_routine!("NdisCompleteUnbindAdapterEx", PASSIVE_LEVEL, |state| {
        state.end_bind(unbind_context.addr(), NDIS_STATUS_SUCCESS, "NdisCompleteUnbindAdapterEx");
    });
}

#[unsafe(no_mangle)]
extern "system" fn NdisCompleteNetPnPEvent(
    handle: NDIS_HANDLE,
    _event: *const NET_PNP_EVENT_NOTIFICATION,
    status: NDIS_STATUS,
) {
    ndis_routine!("NdisCompleteNetPnPEvent", PASSIVE_LEVEL, |state| {
        if status == NDIS_STATUS_PENDING {
            bug_check(Rule::BadArgument, format_args!("an event is completed as pending"));
        }
        lock(&state.binding(handle.addr()).changing).answered = Some(status);
        state.dispatcher.signal();
    });
}

/// What a request is about, and where its buffer is: the identifier, the buffer, and the bytes that go in and may come out.
fn asked(request: &NDIS_OID_REQUEST) -> (u32, *mut c_void, usize, usize) {
    match request.RequestType {
        NDIS_REQUEST_TYPE::SET_INFORMATION => {
            // SAFETY: the type says which arm it is; every value of its numbers is one.
            let set = unsafe { request.DATA.SET_INFORMATION };
            (set.Oid, set.InformationBuffer.cast(), set.InformationBufferLength as usize, 0)
        }
        NDIS_REQUEST_TYPE::METHOD => {
            // SAFETY: the type says which arm it is; every value of its numbers is one.
            let method = unsafe { request.DATA.METHOD_INFORMATION };
            let lengths = (method.InputBufferLength as usize, method.OutputBufferLength as usize);
            (method.Oid, method.InformationBuffer.cast(), lengths.0, lengths.1)
        }
        NDIS_REQUEST_TYPE::QUERY_INFORMATION | NDIS_REQUEST_TYPE::QUERY_STATISTICS => {
            // SAFETY: the type says which arm it is; every value of its numbers is one.
            let query = unsafe { request.DATA.QUERY_INFORMATION };
            (query.Oid, query.InformationBuffer.cast(), 0, query.InformationBufferLength as usize)
        }
        other => bug_check(Rule::BadArgument, format_args!("a protocol's request of the type {other:?}")),
    }
}

/// What NDIS says of the adapter without asking the miniport. `None` if that is for the miniport.
fn known(binding: &Binding, oid: u32) -> Option<Vec<u8>> {
    let changing = lock(&binding.adapter.changing);
    let general = changing.attributes.general.as_ref()?;
    if general.oids.contains(&oid) {
        return None;
    }
    let number = match oid {
        FRAME_SIZE => general.mtu,
        LINK_SPEED => u32::try_from(general.link_speed / 100).unwrap_or(u32::MAX),
        TOTAL_SIZE => general.mtu + 14,
        MAC_OPTIONS => general.mac_options,
        CONNECT_STATUS => 0,
        oid if ADDRESSES.contains(&oid) => return Some(general.mac.clone()),
        _ => return None,
    };
    Some(number.to_le_bytes().to_vec())
}

/// Carries out a protocol's request, and writes the answer into it.
fn carry_out(state: &Arc<State>, binding: &Binding, place: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    // SAFETY: the driver's request, which lives until it is complete.
    let request = unsafe { place.read() };
    let (oid, buffer, input, output) = asked(&request);
    let bytes = if input == 0 || buffer.is_null() {
        Vec::new()
    } else {
        // SAFETY: the driver's buffer has as many bytes as it says, and lives until the request is complete.
        unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), input) }.to_vec()
    };
    // The miniport passes up what anybody wants, and NDIS to each what it has asked for.
    let filter = <[u8; 4]>::try_from(bytes.as_slice()).ok().filter(|_| oid == OID_GEN_CURRENT_PACKET_FILTER);
    let filter = filter.map(u32::from_le_bytes);
    let bytes = filter.map_or(bytes, |filter| (filter | state.filter_of_others(binding)).to_le_bytes().to_vec());
    let is_query = input == 0 && request.RequestType != NDIS_REQUEST_TYPE::SET_INFORMATION;
    let answer = match known(binding, oid).filter(|_| is_query) {
        Some(value) if value.len() > output => OidAnswer {
            status: ndkpi::status::NDIS_STATUS_BUFFER_TOO_SHORT,
            bytes: Vec::new(),
            read: 0,
            needed: u32::try_from(value.len()).unwrap_or(u32::MAX),
        },
        Some(bytes) => OidAnswer { status: NDIS_STATUS_SUCCESS, bytes, read: 0, needed: 0 },
        None => {
            let length = output.max(input);
            let question = Question { oid, kind: request.RequestType, input: &bytes, length };
            state.ask(&binding.adapter, Path::Regular, &question).wait()
        }
    };
    if let Some(filter) = filter.filter(|_| answer.status == NDIS_STATUS_SUCCESS) {
        lock(&binding.changing).filter = filter;
    }
    let written = answer.bytes.len().min(output);
    if written > 0 {
        // SAFETY: the driver's buffer has room for as many bytes as it says.
        unsafe { buffer.cast::<u8>().copy_from_nonoverlapping(answer.bytes.as_ptr(), written) };
    }
    let written = u32::try_from(written).unwrap_or(u32::MAX);
    // SAFETY: the driver's request, which lives until it is complete.
    let data = unsafe { &mut (*place).DATA };
    match request.RequestType {
        NDIS_REQUEST_TYPE::SET_INFORMATION => {
            data.SET_INFORMATION.BytesRead = answer.read;
            data.SET_INFORMATION.BytesNeeded = answer.needed;
        }
        NDIS_REQUEST_TYPE::METHOD => {
            data.METHOD_INFORMATION.BytesWritten = written;
            data.METHOD_INFORMATION.BytesRead = answer.read;
            data.METHOD_INFORMATION.BytesNeeded = answer.needed;
        }
        _ => {
            data.QUERY_INFORMATION.BytesWritten = written;
            data.QUERY_INFORMATION.BytesNeeded = answer.needed;
        }
    }
    answer.status
}

#[unsafe(no_mangle)]
extern "system" fn NdisOidRequest(handle: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    ndis_routine!("NdisOidRequest", DISPATCH_LEVEL, |state| {
        let binding = state.binding(handle.addr());
        if request.is_null() {
            bug_check(Rule::BadArgument, format_args!("NdisOidRequest without a request"));
        }
        // SAFETY: the driver's structure begins with a header.
        let header = unsafe { request.cast::<NDIS_OBJECT_HEADER>().read() };
        if header.Type != NDIS_OBJECT_TYPE_OID_REQUEST || ![1, 2].contains(&header.Revision) {
            bug_check(Rule::NdisHeader, format_args!("NDIS_OID_REQUEST begins with {header:?}"));
        }
        if [BindingPhase::Opening, BindingPhase::Closing].contains(&binding.phase()) {
            let words = format!("a request by {}, which is not open", binding.in_words());
            bug_check(Rule::NdisPlace, format_args!("{words}"));
        }
        lock(&binding.changing).requests += 1;
        // Who is at `DISPATCH_LEVEL` cannot wait for the turn of its request.
        if machine::current_irql() == Irql::PASSIVE_LEVEL && machine::no_locks_held() && !state.is_late() {
            let status = carry_out(state, &binding, request);
            lock(&binding.changing).requests -= 1;
            return status;
        }
        let (of_thread, owner, request) = (state.clone(), binding.protocol.owner, Word::of(request));
        system_thread::spawn_for_work_item(state, owner, move || {
            let place: *mut NDIS_OID_REQUEST = request.pointer();
            let status = carry_out(&of_thread, &binding, place);
            lock(&binding.changing).requests -= 1;
            let handler = owed(binding.protocol.handlers.oid_complete, "OidRequestCompleteHandler");
            binding.call("ProtocolOidRequestComplete", |context| {
                // SAFETY: the driver's own handler and context, and its own request.
                unsafe { handler(context, place, status) };
            });
        });
        NDIS_STATUS_PENDING
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdisSendNetBufferLists(handle: NDIS_HANDLE, first: *mut NET_BUFFER_LIST, port: u32, flags: u32) {
    ndis_routine!("NdisSendNetBufferLists", DISPATCH_LEVEL, |state| {
        let binding = state.binding(handle.addr());
        if port != 0 || flags & !(NDIS_SEND_FLAGS_DISPATCH_LEVEL | CHECK_FOR_LOOPBACK) != 0 {
            bug_check(Rule::NotSimulated, format_args!("a send by port {port} with the flags {flags:#x}"));
        }
        if flags & NDIS_SEND_FLAGS_DISPATCH_LEVEL != 0 && machine::current_irql() != Irql::DISPATCH_LEVEL {
            bug_check(Rule::BadArgument, format_args!("a send says DISPATCH_LEVEL, and is not at it"));
        }
        let lists = frame::lists_of(state, first, Rule::NblNotOwned);
        for &list in &lists {
            // SAFETY: the driver's list, which it has until it is sent.
            let source = unsafe { (*list).SourceHandle };
            if source.addr() != binding.handle {
                bug_check(Rule::BadHandle, format_args!("a list is sent whose SourceHandle is not the binding's"));
            }
            let (driver, adapter) = (binding.protocol.owner, binding.adapter.handle);
            state.locked::<Pools>().send_by(list.addr(), driver, adapter, binding.handle);
        }
        let phase = {
            let mut changing = lock(&binding.changing);
            changing.sent += lists.len();
            changing.phase
        };
        match phase {
            BindingPhase::Running => {
                for &list in &lists {
                    // SAFETY: the list is NDIS's now.
                    unsafe { (*list).Status = NDIS_STATUS_PENDING };
                }
                if !lists.is_empty() {
                    state.send_down(&binding.adapter, None, &lists);
                }
            }
            // Who sends may not have heard of the pause.
            BindingPhase::Pausing | BindingPhase::Restarting => {
                for list in lists {
                    // SAFETY: the list is NDIS's now.
                    unsafe { (*list).Status = NDIS_STATUS_PAUSED };
                    state.locked::<Pools>().list(list.addr()).is_home();
                    lock(&binding.changing).sent -= 1;
                    binding.give_sent(list);
                }
            }
            other => {
                let words = format!("a protocol sends by {}, which is {other:?}", binding.in_words());
                bug_check(Rule::SentWhilePaused, format_args!("{words}"));
            }
        }
        state.dispatcher.signal();
        state.preempt();
    });
}

#[unsafe(no_mangle)]
extern "system" fn NdisCancelSendNetBufferLists(handle: NDIS_HANDLE, cancel: *mut c_void) {
    ndis_routine!("NdisCancelSendNetBufferLists", DISPATCH_LEVEL, |state| {
        state.cancel_down(&state.binding(handle.addr()).adapter, None, cancel.addr());
    });
}

#[unsafe(no_mangle)]
extern "system" fn NdisReturnNetBufferLists(handle: NDIS_HANDLE, first: *mut NET_BUFFER_LIST, flags: u32) {
    ndis_routine!("NdisReturnNetBufferLists", DISPATCH_LEVEL, |state| {
        let binding = state.binding(handle.addr());
        if flags & NDIS_RETURN_FLAGS_DISPATCH_LEVEL != 0 && machine::current_irql() != Irql::DISPATCH_LEVEL {
            bug_check(Rule::BadArgument, format_args!("a return says DISPATCH_LEVEL, and is not at it"));
        }
        let lists = frame::lists_of(state, first, Rule::NblNotOwned);
        for &list in &lists {
            let mut pools = state.locked::<Pools>();
            if pools.list(list.addr()).holder != Holder::Binding(binding.handle) {
                drop(pools);
                let words = "a protocol returns a list that it does not have: it was lent, or has been returned";
                bug_check(Rule::NblNotOwned, format_args!("{words}"));
            }
        }
        lock(&binding.changing).held -= lists.len();
        let addresses: Vec<usize> = lists.iter().map(|list| list.expose_provenance()).collect();
        state.give_back(&binding.adapter, &addresses, false);
        state.dispatcher.signal();
        state.preempt();
    });
}

/// The name is a block of the driver's, which it frees.
#[unsafe(no_mangle)]
extern "system" fn NdisQueryAdapterInstanceName(place: *mut UNICODE_STRING, handle: NDIS_HANDLE) -> NDIS_STATUS {
    ndis_routine!("NdisQueryAdapterInstanceName", PASSIVE_LEVEL, |state| {
        let binding = state.binding(handle.addr());
        let units: Vec<u16> = binding.adapter.alias.encode_utf16().chain([0]).collect();
        let size = size_of_val(units.as_slice());
        let block = if state.strikes() { None } else { pool::allocate(context::caller(), size, TAG, false) };
        let Some(block) = block else { return NDIS_STATUS_RESOURCES };
        let buffer: *mut u16 = std::ptr::with_exposed_provenance_mut(block);
        let bytes = u16::try_from(size).unwrap_or(u16::MAX);
        // SAFETY: a new block of that size, and the driver's place.
        unsafe {
            buffer.copy_from_nonoverlapping(units.as_ptr(), units.len());
            place.write(UNICODE_STRING { Length: bytes - 2, MaximumLength: bytes, Buffer: buffer });
        }
        NDIS_STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdisCopyFromNetBufferToNetBuffer(
    target: *mut NET_BUFFER,
    target_offset: u32,
    count: u32,
    source: *const NET_BUFFER,
    source_offset: u32,
    copied: *mut u32,
) -> NTSTATUS {
    ndis_routine!("NdisCopyFromNetBufferToNetBuffer", DISPATCH_LEVEL, |_| {
        // SAFETY: net buffers that the driver has.
        let (target, source) = unsafe { (target.read(), source.read()) };
        let bytes = frame::bytes_of(&source);
        let bytes = bytes.get(source_offset as usize..).unwrap_or_default();
        let mut bytes = &bytes[..bytes.len().min(count as usize)];
        let (mut skip, mut done) = (target_offset as usize, 0);
        for (start, length) in frame::pieces(&target) {
            let skipped = skip.min(length);
            skip -= skipped;
            let part = bytes.len().min(length - skipped);
            // SAFETY: a piece of the driver's net buffer, behind what is skipped of it.
            unsafe { start.wrapping_add(skipped).copy_from_nonoverlapping(bytes.as_ptr(), part) };
            bytes = &bytes[part..];
            done += part;
        }
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { copied.write(u32::try_from(done).unwrap_or(0)) };
        STATUS_SUCCESS
    })
}
