//! Bindings of protocols to adapters: what NDIS knows of each, and what passes through it upwards.

use std::sync::{Arc, Mutex};

use host::machine::{self, Irql};
use litemap::LiteMap;
use ndis::{
    NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL, NDIS_RECEIVE_FLAGS_RESOURCES, NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL,
    NDIS_STATUS, NDIS_STATUS_INDICATION, NET_BUFFER_LIST,
};
use ndkpi::{NDIS_HANDLE, NET_PNP_EVENT, NET_PNP_EVENT_NOTIFICATION, status::NDIS_STATUS_PENDING};

use super::{
    adapter::{Adapter, owed},
    clients::Protocol,
    frame::{self, link},
    pool::{Holder, Pools},
};
use crate::{
    context,
    report::bug_check,
    rule::Rule,
    state::{Part, State, lock},
    waiting,
};

/// `OID_GEN_CURRENT_PACKET_FILTER`: directed frames, those to several, those to all, and any.
const DIRECTED: u32 = 0x01;
const SOME: u32 = 0x02 | 0x04;
const ALL: u32 = 0x08;
const ANY: u32 = 0x20;

/// Whom an Ethernet frame is for, and its type, in the order of the network.
fn of_frame(frame: &[u8]) -> Option<(u32, u16)> {
    let (&first, kind) = (frame.first()?, frame.get(12..14)?);
    let class = match first {
        _ if frame.starts_with(&[0xFF; 6]) => ALL,
        first if first & 1 != 0 => SOME,
        _ => DIRECTED,
    };
    Some((class, u16::from_le_bytes([kind[0], kind[1]])))
}

/// The same of a packet of IP, which says by its version what it is. To whom it goes is not looked at.
fn of_packet(packet: &[u8]) -> Option<(u32, u16)> {
    const IPV4: u16 = 0x0800;
    const IPV6: u16 = 0x86DD;
    let kind = if packet.first()? >> 4 == 6 { IPV6 } else { IPV4 };
    Some((DIRECTED, kind.to_be()))
}

/// Where a binding is between its opening and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingPhase {
    /// `NdisOpenAdapterEx` has pended, and the protocol was not told of its end.
    Opening,
    Paused,
    /// `NetEventRestart` was sent and is not complete.
    Restarting,
    Running,
    /// `NetEventPause` was sent and is not complete.
    Pausing,
    /// `NdisCloseAdapterEx` has pended.
    Closing,
    Closed,
}

/// What changes of a binding.
pub struct Bound {
    pub phase: BindingPhase,
    /// Lists that are on their way down and not complete.
    pub sent: usize,
    /// Requests that are not complete.
    pub requests: usize,
    /// Received lists that the protocol has.
    pub held: usize,
    /// Which frames the protocol wants.
    pub filter: u32,
    /// What became of an event that pended.
    pub answered: Option<NDIS_STATUS>,
}

/// A binding.
pub struct Binding {
    pub handle: usize,
    pub protocol: Arc<Protocol>,
    pub adapter: Arc<Adapter>,
    /// What the protocol calls it.
    pub context: usize,
    /// The types of frames that the protocol wants, as they lie in a frame; all if there are none.
    pub types: Vec<u16>,
    pub changing: Mutex<Bound>,
}

/// The bindings, by their handles, and those that were closed.
#[derive(Default)]
pub struct Bindings {
    pub open: LiteMap<usize, Arc<Binding>>,
    pub closed: Vec<usize>,
}

impl Part for Mutex<Bindings> {}

impl Binding {
    /// Calls a handler of the protocol with its name for the binding.
    pub fn call<R>(&self, name: &'static str, work: impl FnOnce(NDIS_HANDLE) -> R) -> R {
        let place = std::ptr::with_exposed_provenance_mut(self.context);
        context::call(self.protocol.owner, name, || work(place))
    }

    pub fn phase(&self) -> BindingPhase {
        lock(&self.changing).phase
    }

    /// What a finding calls it.
    pub fn in_words(&self) -> String {
        format!("the binding to {}", self.adapter.alias)
    }

    /// Tells the protocol of an event, and waits for its end if that pends.
    pub fn tell(&self, state: &Arc<State>, mut event: NET_PNP_EVENT_NOTIFICATION) -> NDIS_STATUS {
        lock(&self.changing).answered = None;
        let handler = owed(self.protocol.handlers.event, "NetPnPEventHandler");
        let status = self.call("ProtocolNetPnPEvent", |context| {
            // SAFETY: the driver's own handler and context, and an event that lives until it is complete.
            unsafe { handler(context, &raw mut event) }
        });
        if status != NDIS_STATUS_PENDING {
            return status;
        }
        let end = state.machine.now().saturating_add(state.request_limit());
        if !waiting::until(state, Some(end), "an event of a protocol", || lock(&self.changing).answered.is_some()) {
            let code = event.NetPnPEvent.NetEvent.0;
            bug_check(
                Rule::PauseNeverCompleted,
                format_args!("{}: the event {code} is not completed", self.in_words()),
            );
        }
        lock(&self.changing).answered.unwrap_or(status)
    }

    /// Whether the protocol wants a frame.
    fn wants(&self, frame: &[u8]) -> bool {
        let is_ip = lock(&self.adapter.changing).attributes.is_for_ip();
        let changing = lock(&self.changing);
        let receives = [BindingPhase::Running, BindingPhase::Pausing].contains(&changing.phase);
        let Some((class, kind)) = (if is_ip { of_packet(frame) } else { of_frame(frame) }) else { return false };
        let is_of_type = self.types.is_empty() || self.types.contains(&kind);
        receives && (changing.filter & ANY != 0 || changing.filter & class != 0 && is_of_type)
    }

    /// Gives lists to the protocol.
    fn receive(&self, first: *mut NET_BUFFER_LIST, count: usize, flags: u32) {
        let handler = owed(self.protocol.handlers.receive, "ReceiveNetBufferListsHandler");
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.call("ProtocolReceiveNetBufferLists", |context| {
            // SAFETY: the driver's own handler and context, and lists that live as long as the flags say.
            unsafe { handler(context, first, 0, count, flags) };
        });
    }

    /// A list of the protocol is back from the miniport.
    pub fn give_sent(&self, list: *mut NET_BUFFER_LIST) {
        let is_at = machine::current_irql() == Irql::DISPATCH_LEVEL;
        let flags = if is_at { NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL } else { 0 };
        let handler = owed(self.protocol.handlers.sent, "SendNetBufferListsCompleteHandler");
        // SAFETY: the list is the protocol's, and it gets this one alone.
        unsafe { (*list).Next = std::ptr::null_mut() };
        self.call("ProtocolSendNetBufferListsComplete", |context| {
            // SAFETY: the driver's own handler and context, and its own list.
            unsafe { handler(context, list, flags) };
        });
    }
}

/// Who wants received frames.
pub struct Takers {
    /// The adapter's bindings.
    bindings: Vec<Arc<Binding>>,
    /// Those of them that want it, for each frame.
    of_frames: Vec<Vec<usize>>,
}

impl State {
    /// The binding with a handle that a protocol passes.
    pub fn binding(&self, handle: usize) -> Arc<Binding> {
        let bindings = self.locked::<Bindings>();
        if let Some(binding) = bindings.open.get(&handle) {
            return binding.clone();
        }
        let words = if bindings.closed.contains(&handle) { "of a binding that is closed" } else { "no binding" };
        drop(bindings);
        bug_check(Rule::BadHandle, format_args!("{handle:#x} is {words}"))
    }

    /// The bindings to an adapter, in the order in which they were opened.
    pub fn bindings_of(&self, adapter: &Adapter) -> Vec<Arc<Binding>> {
        let bindings = self.locked::<Bindings>();
        bindings.open.values().filter(|binding| binding.adapter.handle == adapter.handle).cloned().collect()
    }

    /// The bindings that want received frames.
    pub fn takers_of(&self, adapter: &Adapter, frames: &[Vec<u8>]) -> Takers {
        let bindings = self.bindings_of(adapter);
        let wanting = |frame: &Vec<u8>| (0..bindings.len()).filter(|&number| bindings[number].wants(frame)).collect();
        let of_frames = frames.iter().map(wanting).collect();
        Takers { bindings, of_frames }
    }

    /// Shows received lists to the bindings that want them. Which of them protocols have now: where several want one, or it must come back
    /// at once, it is only lent.
    pub fn deliver(&self, lists: &[*mut NET_BUFFER_LIST], takers: &Takers, lends: bool) -> Vec<usize> {
        let (Takers { bindings, of_frames: takers }, mut held) = (takers, Vec::new());
        if bindings.is_empty() {
            return held;
        }
        let level = if machine::current_irql() == Irql::DISPATCH_LEVEL { NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL } else { 0 };
        let mut start = 0;
        while start < lists.len() {
            // Lists one after the other that the same protocols want go together.
            let same = takers[start..].iter().take_while(|&wanting| *wanting == takers[start]).count();
            let (some, wanting) = (&lists[start..start + same], &takers[start]);
            start += same;
            for (place, &number) in wanting.iter().enumerate() {
                let binding = &bindings[number];
                let keeps = !lends && place + 1 == wanting.len();
                link(some);
                if keeps {
                    let mut pools = self.locked::<Pools>();
                    for &list in some {
                        pools.list(list.addr()).holder = Holder::Binding(binding.handle);
                        held.push(list.expose_provenance());
                    }
                    drop(pools);
                    lock(&binding.changing).held += same;
                    binding.receive(some[0], same, level);
                    continue;
                }
                let before: Vec<u64> = some.iter().map(|&list| frame::shape_of(list)).collect();
                binding.receive(some[0], same, level | NDIS_RECEIVE_FLAGS_RESOURCES);
                let after: Vec<u64> = some.iter().map(|&list| frame::shape_of(list)).collect();
                if before != after {
                    let words = "a list that was lent with NDIS_RECEIVE_FLAGS_RESOURCES comes back changed";
                    bug_check(Rule::NblNotOwned, format_args!("{}: {words}", binding.in_words()));
                }
            }
        }
        // What is not held is the miniport's again, in its own order.
        let left: Vec<_> = lists.iter().copied().filter(|list| !held.contains(&list.addr())).collect();
        link(&left);
        held
    }

    /// Tells the bindings of an adapter what has come up to them.
    pub fn tell_status(&self, adapter: &Adapter, indication: &NDIS_STATUS_INDICATION) {
        for binding in self.bindings_of(adapter) {
            if [BindingPhase::Opening, BindingPhase::Closing, BindingPhase::Closed].contains(&binding.phase()) {
                continue;
            }
            let handler = owed(binding.protocol.handlers.status, "StatusHandlerEx");
            binding.call("ProtocolStatusEx", |context| {
                // SAFETY: the driver's own handler and context, and an indication that lives until it returns.
                unsafe { handler(context, std::ptr::from_ref(indication)) };
            });
        }
    }
}

/// An event of the network, as protocols hear of it.
pub fn event_of(code: i32, buffer: *mut std::ffi::c_void, length: usize) -> NET_PNP_EVENT_NOTIFICATION {
    let mut event = NET_PNP_EVENT::new(ndkpi::NET_PNP_EVENT_CODE(code));
    event.Buffer = buffer;
    event.BufferLength = u32::try_from(length).unwrap_or(0);
    NET_PNP_EVENT_NOTIFICATION {
        Header: NET_PNP_EVENT_NOTIFICATION::HEADER_2,
        PortNumber: 0,
        NetPnPEvent: event,
        Flags: 0,
        SwitchId: 0,
        VPortId: 0,
    }
}
