//! How protocols are bound to adapters, paused, restarted and unbound.

use std::{
    ffi::c_void,
    sync::{
        Arc, Mutex,
        atomic::Ordering::{AcqRel, Release},
    },
};

use litemap::LiteMap;
use ndis::{DEVICE_OBJECT, NDIS_STATUS};
use ndkpi::{
    NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT,
    status::{NDIS_STATUS_PENDING, NDIS_STATUS_SUCCESS},
};
use wdk_bindings::UNICODE_STRING;

use super::{
    adapter::{Adapter, Phase, owed},
    attributes::General,
    binding::{Binding, BindingPhase, Bindings, event_of},
    clients::Protocol,
    restart::Attributes,
    structure::pointer,
};
use crate::{
    context,
    report::bug_check,
    rule::Rule,
    state::{Part, State, lock},
    text, waiting,
    wdm::system_thread,
};

/// `NetEventSetPower`, `NetEventQueryRemoveDevice`, `NetEventBindsComplete`, `NetEventPause`, `NetEventRestart`.
const SET_POWER: i32 = 0;
const QUERY_REMOVE: i32 = 2;
const BINDS_COMPLETE: i32 = 6;
const PAUSE: i32 = 8;
const RESTART: i32 = 9;
/// `NDIS_OBJECT_TYPE_BIND_PARAMETERS`, and the revision from NDIS 6.30 on.
const BIND_TYPE: u8 = 0x86;
const BIND_REVISION: u8 = 4;
/// Frames to itself, to several, to all, and any: what an Ethernet adapter can be asked for.
pub const FILTERS: u32 = 0x2F;
/// Addresses that an Ethernet adapter is asked to take, at most.
pub const ADDRESSES: u32 = 32;

/// `NDIS_BIND_PARAMETERS`, of an Ethernet adapter that offers nothing.
#[repr(C)]
struct BindParameters {
    header: NDIS_OBJECT_HEADER,
    section: *const UNICODE_STRING,
    adapter: *const UNICODE_STRING,
    device: *mut DEVICE_OBJECT,
    medium: u32,
    mtu: u32,
    /// Longest and present speed of sending, and of receiving.
    speeds: [u64; 4],
    connect_state: u32,
    duplex_state: u32,
    lookahead: u32,
    old_power: *const c_void,
    filters: u32,
    addresses: u32,
    mac_length: u16,
    mac: [u8; 32],
    physical_medium: u32,
    scaling: *const c_void,
    luid: u64,
    index: u32,
    lowest_luid: u64,
    lowest_index: u32,
    access: u32,
    direction: u32,
    connection: u32,
    kind: u16,
    has_connector: u8,
    ports: *const c_void,
    back_fill: u32,
    context_back_fill: u32,
    mac_options: u32,
    compartment: u32,
    offloads: [*const c_void; 2],
    bound: *const UNICODE_STRING,
    capabilities: [*const c_void; 4],
    ndk: u8,
    more: [*const c_void; 3],
}

const _: () = {
    assert!(size_of::<BindParameters>() == 312, "as long as the kit's");
    assert!(std::mem::offset_of!(BindParameters, mac) == 106, "as the kit has it");
    assert!(std::mem::offset_of!(BindParameters, mac_options) == 216, "as the kit has it");
};

/// `NDIS_PROTOCOL_PAUSE_PARAMETERS`.
#[repr(C)]
struct PauseParameters {
    header: NDIS_OBJECT_HEADER,
    flags: u32,
    reason: u32,
}

/// `NDIS_PROTOCOL_RESTART_PARAMETERS`. Which filters are below is not said.
#[repr(C)]
struct RestartParameters {
    header: NDIS_OBJECT_HEADER,
    filters: *const u8,
    filters_length: u32,
    attributes: *const c_void,
    index: u32,
    luid: u64,
    flags: u32,
}

/// A call of a bind or unbind handler that is not over.
pub struct Bind {
    pub protocol: usize,
    /// `None` of the search for adapters.
    pub adapter: Option<Arc<Adapter>>,
    /// What the adapter is called there.
    pub name: String,
    /// The binding that it has opened.
    pub opened: Option<usize>,
    /// How it has ended, if it pended.
    pub outcome: Option<NDIS_STATUS>,
}

impl Bind {
    /// Whether it is about that adapter.
    fn is_of(&self, adapter: &Adapter) -> bool {
        self.adapter.as_ref().is_some_and(|one| one.handle == adapter.handle)
    }
}

/// Those, by the handle that the handler gets, and whether the next call that may pend does.
#[derive(Default)]
pub struct Binds {
    pub running: LiteMap<usize, Bind>,
    is_late: bool,
}

impl Part for Mutex<Binds> {}

/// Who changes the stack of an adapter has the turn until this is dropped.
pub struct Turn {
    state: Arc<State>,
    adapter: Arc<Adapter>,
}

impl Turn {
    /// Waits for the turn.
    pub fn take(state: &Arc<State>, adapter: &Arc<Adapter>) -> Self {
        waiting::until(state, None, "a change of a stack, for its turn", || !adapter.turn.swap(true, AcqRel));
        Self { state: state.clone(), adapter: adapter.clone() }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.adapter.turn.store(false, Release);
        self.state.dispatcher.signal();
    }
}

/// The name by which an adapter is opened.
pub fn name_of(adapter: &Adapter) -> String {
    format!("\\DEVICE\\{{00000000-0000-0000-0000-{:012X}}}", adapter.if_index)
}

impl State {
    /// Whether a call that may pend does: every second one.
    pub fn is_late(&self) -> bool {
        let mut binds = self.locked::<Binds>();
        binds.is_late = !binds.is_late;
        binds.is_late
    }

    /// Binds every protocol to an adapter that has come.
    pub fn bind_adapter(self: &Arc<Self>, adapter: &Arc<Adapter>) {
        for protocol in self.protocols() {
            self.bind(&protocol, adapter);
        }
    }

    /// Binds a protocol that has just registered to the adapters that are there, by a thread of the system.
    pub fn bind_protocol_soon(self: &Arc<Self>, protocol: usize) {
        let Some(owner) = self.client(protocol) else { return };
        let state = self.clone();
        // Who deregisters meanwhile waits for all of it.
        let place = self.new_handle();
        let bind = Bind { protocol, adapter: None, name: String::new(), opened: None, outcome: None };
        self.locked::<Binds>().running.insert(place, bind);
        system_thread::spawn_for_work_item(self, owner, move || {
            let adapters: Vec<_> = state.locked::<super::adapter::Adapters>().live.values().cloned().collect();
            for adapter in adapters {
                let _turn = Turn::take(&state, &adapter);
                if let Some(protocol) = state.protocol(protocol)
                    && adapter.phase() == Phase::Running
                {
                    state.bind(&protocol, &adapter);
                }
            }
            let Some(protocol) = state.protocol(protocol) else { unreachable!("it waits for this before it goes") };
            let handler = owed(protocol.handlers.event, "NetPnPEventHandler");
            let mut event = event_of(BINDS_COMPLETE, std::ptr::null_mut(), 0);
            context::call(protocol.owner, "ProtocolNetPnPEvent", || {
                // SAFETY: the driver's own handler, for no binding, and an event that lives until it returns. What it says of it matters to
                // nobody.
                let _ = unsafe { handler(std::ptr::null_mut(), &raw mut event) };
            });
            state.locked::<Binds>().running.remove(&place);
            state.dispatcher.signal();
        });
    }

    /// Claims a pair of protocol and adapter, unless somebody binds it already, or it is bound. The handle of the call.
    fn claim(&self, protocol: &Protocol, adapter: &Arc<Adapter>) -> Option<usize> {
        let is_bound = self.bindings_of(adapter).iter().any(|binding| binding.protocol.handle == protocol.handle);
        let handle = self.new_handle();
        let mut binds = self.locked::<Binds>();
        let is_same = |bind: &Bind| bind.protocol == protocol.handle && bind.is_of(adapter);
        if is_bound || binds.running.values().any(is_same) {
            return None;
        }
        let name = name_of(adapter);
        let bind =
            Bind { protocol: protocol.handle, adapter: Some(adapter.clone()), name, opened: None, outcome: None };
        binds.running.insert(handle, bind);
        Some(handle)
    }

    fn bind(self: &Arc<Self>, protocol: &Arc<Protocol>, adapter: &Arc<Adapter>) {
        let Some(place) = self.claim(protocol, adapter) else { return };
        let mut status = call_bind(self, protocol, adapter, place);
        if status == NDIS_STATUS_PENDING {
            status = self.outcome_of(place, "a bind handler");
        }
        let opened = self.locked::<Binds>().running.get(&place).and_then(|bind| bind.opened);
        let binding = opened.and_then(|opened| self.locked::<Bindings>().open.get(&opened).cloned());
        match (binding, status == NDIS_STATUS_SUCCESS) {
            (Some(binding), true) => {
                if binding.phase() == BindingPhase::Opening {
                    let words = "a bind handler succeeds before NdisOpenAdapterEx, which has pended, is complete";
                    bug_check(Rule::NdisPlace, format_args!("{words}"));
                }
                if adapter.phase() == Phase::Running {
                    self.restart_binding(&binding, None);
                }
            }
            (None, true) => {
                bug_check(Rule::NdisPlace, format_args!("a bind handler succeeds and has no adapter open"));
            }
            (Some(_), false) => {
                let words = "a bind handler fails and leaves the adapter open";
                bug_check(Rule::ReferenceLeak, format_args!("{words}: {status}"));
            }
            (None, false) => {}
        }
        self.locked::<Binds>().running.remove(&place);
        self.dispatcher.signal();
    }

    /// Waits for the outcome of a handler that pended.
    fn outcome_of(self: &Arc<Self>, place: usize, what: &'static str) -> NDIS_STATUS {
        let outcome = || self.locked::<Binds>().running.get(&place).and_then(|bind| bind.outcome);
        let end = self.machine.now().saturating_add(self.request_limit());
        if !waiting::until(self, Some(end), what, || outcome().is_some()) {
            bug_check(Rule::PauseNeverCompleted, format_args!("{what} has pended and is not completed"));
        }
        outcome().unwrap_or(NDIS_STATUS_PENDING)
    }

    /// A protocol says how a bind or an unbind that pended has ended.
    pub fn end_bind(&self, place: usize, status: NDIS_STATUS, routine: &str) {
        let mut binds = self.locked::<Binds>();
        let bind = binds.running.get_mut(&place).filter(|bind| bind.outcome.is_none());
        let is_one = bind.map(|bind| bind.outcome = Some(status)).is_some();
        drop(binds);
        if !is_one || status == NDIS_STATUS_PENDING {
            bug_check(Rule::NdisPlace, format_args!("{routine} of what does not pend: {place:#x}, {status}"));
        }
        self.dispatcher.signal();
    }

    /// Restarts the bindings of an adapter that runs.
    pub fn restart_bindings(self: &Arc<Self>, adapter: &Adapter, attributes: &Attributes) {
        for binding in self.bindings_of(adapter) {
            if binding.phase() == BindingPhase::Paused {
                self.restart_binding(&binding, Some(attributes));
            }
        }
    }

    fn restart_binding(self: &Arc<Self>, binding: &Arc<Binding>, attributes: Option<&Attributes>) {
        lock(&binding.changing).phase = BindingPhase::Restarting;
        let mut parameters = RestartParameters {
            header: NDIS_OBJECT_HEADER::new(NDIS_OBJECT_TYPE_DEFAULT, 1, 52),
            filters: std::ptr::null(),
            filters_length: 0,
            attributes: attributes.map_or(std::ptr::null(), |attributes| attributes.first().cast_const()),
            index: binding.adapter.if_index,
            luid: binding.adapter.luid,
            flags: 0,
        };
        let size = size_of::<RestartParameters>();
        let status = binding.tell(self, event_of(RESTART, (&raw mut parameters).cast(), size));
        let runs = status == NDIS_STATUS_SUCCESS;
        lock(&binding.changing).phase = if runs { BindingPhase::Running } else { BindingPhase::Paused };
        if !runs {
            // NDIS unbinds a protocol that does not restart.
            self.unbind(binding);
        }
    }

    /// Pauses the bindings of an adapter: each is quiet when this returns.
    pub fn pause_bindings(self: &Arc<Self>, adapter: &Adapter, reason: u32) {
        for binding in self.bindings_of(adapter) {
            if binding.phase() == BindingPhase::Running {
                self.pause_binding(&binding, reason);
            }
        }
    }

    fn pause_binding(self: &Arc<Self>, binding: &Binding, reason: u32) {
        lock(&binding.changing).phase = BindingPhase::Pausing;
        let header = NDIS_OBJECT_HEADER::new(NDIS_OBJECT_TYPE_DEFAULT, 1, 12);
        let mut parameters = PauseParameters { header, flags: 0, reason };
        let size = size_of::<PauseParameters>();
        let status = binding.tell(self, event_of(PAUSE, (&raw mut parameters).cast(), size));
        if status != NDIS_STATUS_SUCCESS {
            bug_check(
                Rule::BadArgument,
                format_args!("a protocol answers NetEventPause with {status}, and must not fail"),
            );
        }
        let (sent, held) = {
            let mut changing = lock(&binding.changing);
            changing.phase = BindingPhase::Paused;
            (changing.sent, changing.held)
        };
        if sent > 0 || held > 0 {
            let words = format!("{sent} lists that it has sent, and {held} that it has received, are not back");
            bug_check(Rule::PauseTooEarly, format_args!("{} is paused, and {words}", binding.in_words()));
        }
    }

    /// Tells those above an adapter of a state of power.
    pub fn tell_power(self: &Arc<Self>, adapter: &Adapter, mut power: i32) {
        let mut event = event_of(SET_POWER, (&raw mut power).cast(), size_of::<i32>());
        let status = self.net_event_up(adapter, None, &raw mut event);
        if status != NDIS_STATUS_SUCCESS {
            let words = "a protocol or filter must not fail NetEventSetPower";
            bug_check(Rule::BadArgument, format_args!("{}: {status}: {words}", adapter.alias));
        }
    }

    /// The adapter is to be removed in an orderly way: those above are asked. A refusal makes no difference to who removes it here.
    pub fn ask_bindings_to_leave(self: &Arc<Self>, adapter: &Adapter) {
        let mut event = event_of(QUERY_REMOVE, std::ptr::null_mut(), 0);
        let _ = self.net_event_up(adapter, None, &raw mut event);
    }

    /// The adapter leaves: whoever is bound to it is unbound.
    pub fn unbind_adapter(self: &Arc<Self>, adapter: &Adapter) {
        self.wait_for_binds(|bind| bind.is_of(adapter));
        for binding in self.bindings_of(adapter) {
            self.unbind(&binding);
        }
    }

    /// The protocol leaves: it is unbound from every adapter.
    pub fn unbind_protocol(self: &Arc<Self>, protocol: usize) {
        self.wait_for_binds(|bind| bind.protocol == protocol);
        let all: Vec<_> = self.locked::<Bindings>().open.values().cloned().collect();
        for binding in all.iter().filter(|binding| binding.protocol.handle == protocol) {
            let _turn = Turn::take(self, &binding.adapter);
            if binding.phase() != BindingPhase::Closed {
                self.unbind(binding);
            }
        }
    }

    /// Waits until no handler runs of those that `of` recognises.
    fn wait_for_binds(self: &Arc<Self>, of: impl Fn(&Bind) -> bool) {
        waiting::until(self, None, "NDIS, for a bind handler", || !self.locked::<Binds>().running.values().any(&of));
    }

    fn unbind(self: &Arc<Self>, binding: &Arc<Binding>) {
        if binding.phase() == BindingPhase::Running {
            self.pause_binding(binding, ndis::NDIS_PAUSE_NDIS_INTERNAL);
        }
        let place = self.new_handle();
        let (adapter, name, opened) = (None, String::new(), Some(binding.handle));
        // An unbind belongs to no protocol that somebody waits for: whoever does so is here.
        let bind = Bind { protocol: 0, adapter, name, opened, outcome: None };
        self.locked::<Binds>().running.insert(place, bind);
        let handler = owed(binding.protocol.handlers.unbind, "UnbindAdapterHandlerEx");
        let mut status = binding.call("ProtocolUnbindAdapterEx", |context| {
            // SAFETY: the driver's own handler and context, and a handle that is good until the unbind is over.
            unsafe { handler(pointer(place), context) }
        });
        if status == NDIS_STATUS_PENDING {
            status = self.outcome_of(place, "an unbind handler");
        }
        self.locked::<Binds>().running.remove(&place);
        if status != NDIS_STATUS_SUCCESS {
            bug_check(Rule::BadArgument, format_args!("an unbind ends with {status}, and must not fail"));
        }
        match binding.phase() {
            BindingPhase::Closed => {}
            BindingPhase::Closing => {
                let words = "an unbind ends before NdisCloseAdapterEx, which has pended, is complete";
                bug_check(Rule::NdisPlace, format_args!("{words}"));
            }
            _ => bug_check(Rule::ReferenceLeak, format_args!("an unbind ends, and {} is open", binding.in_words())),
        }
    }
}

/// Calls a protocol's bind handler.
fn call_bind(state: &Arc<State>, protocol: &Protocol, adapter: &Adapter, place: usize) -> NDIS_STATUS {
    let name: Vec<u16> = {
        let binds = state.locked::<Binds>();
        binds.running.get(&place).map(|bind| bind.name.encode_utf16().collect()).unwrap_or_default()
    };
    let name = text::unicode(&name);
    let parameters = {
        let changing = lock(&adapter.changing);
        let general = changing.attributes.general.as_ref();
        let speed = general.map_or(0, |general| general.link_speed);
        let (mac_length, mac) = general.map_or((0, [0; 32]), General::address);
        let (medium, physical_medium) = general.map_or((0, 0), General::media);
        let none = std::ptr::null();
        BindParameters {
            header: NDIS_OBJECT_HEADER::new(BIND_TYPE, BIND_REVISION, 312),
            section: &raw const name,
            adapter: &raw const name,
            device: std::ptr::with_exposed_provenance_mut(adapter.devices[0]),
            medium,
            mtu: general.map_or(0, |general| general.mtu),
            speeds: [speed; 4],
            connect_state: 1,
            duplex_state: 2,
            lookahead: general.map_or(0, |general| general.mtu),
            old_power: none,
            filters: FILTERS,
            addresses: ADDRESSES,
            mac_length,
            mac,
            physical_medium,
            scaling: none,
            luid: adapter.luid,
            index: adapter.if_index,
            lowest_luid: adapter.luid,
            lowest_index: adapter.if_index,
            access: 2,
            direction: 0,
            connection: 1,
            kind: general.map_or(0, |general| general.kind),
            has_connector: 1,
            ports: none,
            back_fill: 0,
            context_back_fill: 0,
            mac_options: general.map_or(0, |general| general.mac_options),
            compartment: 1,
            offloads: [none; 2],
            bound: &raw const name,
            capabilities: [none; 4],
            ndk: u8::from(changing.ndk_enabled),
            more: [none; 3],
        }
    };
    let handler = owed(protocol.handlers.bind, "BindAdapterHandlerEx");
    let context: NDIS_HANDLE = std::ptr::with_exposed_provenance_mut(protocol.context);
    context::call(protocol.owner, "ProtocolBindAdapterEx", || {
        // SAFETY: the driver's own handler and context, and parameters that live until it returns.
        unsafe { handler(context, pointer(place), (&raw const parameters).cast()) }
    })
}
