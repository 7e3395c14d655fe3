//! The wire: queue pairs whose peers are on other machines, over RoCEv2 ([`roce`]).
//!
//! ```text
//!   Wire::receive(frame) ---> Stack <---> Table: memory, receives, requests of the queue pairs
//!   Cable::send(frame)   <--- a run of the DPC: requests, deadlines, frames, events
//! ```
//!
//! A [`Wire`] belongs to an adapter's port. It has the stack under one lock, and a DPC that does everything but take frames in: it takes
//! requests from send queues, keeps time, sends frames, tells connections what has happened to them. A run does a bounded amount of that,
//! and queues itself again for the rest. One run at a time has the buffers for frames: so frames leave in order, with no lock held.
//!
//! Nothing from the wire is believed: addresses and tokens of peers go through the memory table like those of requests on this machine,
//! packet by packet.
//!
//! # Locks
//!
//! The stack's comes before all locks of queue pairs, completion queues and memory, and after those of connections. Who holds one of the
//! former [rings](crate::qp), which takes a lock that is a leaf.

mod config;
mod parties;
mod ringing;
mod table;
mod work;

use alloc::boxed::Box;
use core::net::SocketAddr;

pub use config::{Network, WireConfig};
use fallible::{Arc, try_box};
pub(crate) use parties::{Acceptor, AcceptorRef, Party, Wanted};
use ringing::{Ringer, Rung};
/// Why a peer has refused a connection.
pub use roce::wire::cm::Reason as RejectReason;
pub use roce::{Counters, cm::Times};
use roce::{
    Stack,
    cm::{CallError, Connect, ReadLimits, State as ConnectionState},
};
use table::Table;
use work::Frames;
pub use work::{Deadline, WireDpc};

use crate::{
    NtStatus,
    os::{Dpc, Os, SpinLock, Timer},
    qp::{Carrier, Qp},
};

/// Where frames leave.
pub trait Cable: Send + Sync + 'static {
    /// Sends an Ethernet frame, without its check sequence. It may be dropped.
    ///
    /// Called at `DISPATCH_LEVEL` with no lock held, one call of a wire at a time. Must not block. It may bring the frame to another
    /// [`Wire`] at once.
    fn send(&self, frame: &[u8]);

    /// Sends frames in this order, each as by [`Cable::send`]: for a cable that can send many with one call. Called as that is.
    fn send_all(&self, frames: &mut dyn Iterator<Item = &[u8]>) {
        frames.for_each(|frame| self.send(frame));
    }

    /// The queue pair of the consumer's call that goes on in this thread, `NdkConnect` or `NdkAccept`, has this number on the wire.
    /// For who records: by it frames have an owner.
    ///
    /// Called at `IRQL <= DISPATCH_LEVEL`, with locks held. Must not block, and not call the wire.
    fn carries(&self, number: u32) {
        let _ = number;
    }
}

/// The bytes of private data that a REQ has for consumers (RoCEv2 8.4).
pub const MAX_CALLER_DATA: u32 = 56;
/// The bytes that a REP and a REJ have.
pub const MAX_CALLEE_DATA: u32 = 148;

/// Frames that are taken in under one hold of the stack's lock.
const RECEIVED: usize = 16;

/// What lies under the stack's lock.
struct State<O: Os> {
    /// In a place of its own: a wire is moved when it is made, and a kernel's stack is small.
    stack: Box<Stack>,
    table: Table<O>,
    parties: parties::Parties,
    /// The buffers for frames, unless a run has them.
    frames: Option<Frames>,
    /// There was something to do while a run had them.
    again: bool,
    /// For when the timer is set.
    armed: Option<u64>,
    /// The adapter has gone: nothing comes in any more.
    is_shut: bool,
}

/// A port's way to other machines.
pub struct Wire<O: Os> {
    os: O,
    state: O::Lock<State<O>>,
    rung: O::Lock<Rung>,
    acceptor: O::Lock<Option<AcceptorRef<O>>>,
    cable: Box<dyn Cable>,
    dpc: O::Dpc<WireDpc<O>>,
    timer: O::Timer<Deadline<O>>,
    config: WireConfig,
}

/// What the two sides of a connection say when it begins.
pub(crate) struct Terms<'call, O: Os> {
    pub qp: &'call Arc<Qp<O>>,
    pub limits: ReadLimits,
    pub private_data: &'call [u8],
}

/// What is known of a connection, and what its peer has sent along.
pub(crate) struct Known<'wire> {
    pub state: ConnectionState,
    pub limits: ReadLimits,
    pub private: &'wire [u8],
}

/// A connection on the wire: its name there, and that of its queue pair, which is zero before there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub connection: u32,
    pub qp: u32,
}

const fn status_of(error: CallError) -> NtStatus {
    match error {
        CallError::Unknown | CallError::WrongState => NtStatus::CONNECTION_ABORTED,
        CallError::NoRoom => NtStatus::INSUFFICIENT_RESOURCES,
        CallError::InUse => NtStatus::SHARING_VIOLATION,
        CallError::TooMuchData => NtStatus::INVALID_BUFFER_SIZE,
        CallError::BadAddress => NtStatus::INVALID_ADDRESS,
        CallError::NoRoute => NtStatus::NETWORK_UNREACHABLE,
    }
}

impl<O: Os> Wire<O> {
    /// A wire that ends in `cable`. `networks` are the addresses of the adapter, until its port has others.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    // Not inlined: a stack is large, and a kernel's is not.
    #[inline(never)]
    pub fn try_new(
        os: &O,
        config: WireConfig,
        networks: &[Network],
        cable: Box<dyn Cable>,
    ) -> Result<Arc<Self>, NtStatus> {
        let stack = config.stack(networks)?;
        let state = State {
            stack,
            table: Table::try_new(config.queue_pairs.into())?,
            parties: parties::Parties::try_new(config.connections.into())?,
            frames: Some(Frames::try_new()?),
            again: false,
            armed: None,
            is_shut: false,
        };
        Arc::try_new(Self {
            os: os.clone(),
            state: os.lock(state)?,
            rung: os.lock(Rung::try_new(config.queue_pairs.into())?)?,
            acceptor: os.lock(None)?,
            cable,
            dpc: os.dpc(os.current_processor())?,
            timer: os.timer()?,
            config,
        })
        .map_err(Into::into)
    }

    /// What was counted since it was made.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.state.with(|state| *state.stack.counters())
    }

    /// A frame has come in. Any bytes may be one.
    ///
    /// Callable at `IRQL <= DISPATCH_LEVEL` with no lock held.
    pub fn receive(this: &Arc<Self>, frame: &[u8]) {
        Self::receive_all(this, &[frame]);
    }

    /// Frames have come in, in this order: each as by [`Wire::receive`], several under one hold of the stack's lock.
    pub fn receive_all(this: &Arc<Self>, frames: &[&[u8]]) {
        if Self::take_in(this, frames) {
            this.dpc.queue(this);
        }
    }

    /// [`Wire::receive_all`] for who calls [`Wire::go_on`] before it waits for more frames, if this returns true. Until then nothing is sent
    /// in answer, so that answers go together with what the consumer sends meanwhile.
    #[must_use]
    pub fn take_in(this: &Arc<Self>, frames: &[&[u8]]) -> bool {
        let mut is_due = false;
        for frames in frames.chunks(RECEIVED) {
            let now = this.os.now();
            is_due |= this.state.with(|state| {
                if state.is_shut {
                    return false;
                }
                for frame in frames {
                    state.stack.receive(now, frame, &mut state.table);
                }
                state.is_due(now)
            });
        }
        is_due
    }

    /// Sends what there is to send, and does what is due, in the wire's DPC. Nothing, if a run of it since has done that.
    pub fn go_on(this: &Arc<Self>) {
        let now = this.os.now();
        if this.state.with(|state| state.is_due(now)) {
            this.dpc.queue(this);
        }
    }

    /// The adapter has these addresses from now on.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`: there is no room for so many. Nothing has changed then.
    pub(crate) fn set_networks(&self, networks: &[Network]) -> Result<(), NtStatus> {
        self.state.with(|state| state.stack.set_networks(networks)).map_err(status_of)
    }

    /// Who takes requests for connections from the wire.
    pub(crate) fn set_acceptor(&self, acceptor: AcceptorRef<O>) {
        drop(self.acceptor.with(|place| place.replace(acceptor)));
    }

    /// Nothing comes in any more, and nobody is told anything. What waits to go out goes.
    pub(crate) fn shut(this: &Arc<Self>) {
        let parties = this.state.with(|state| {
            state.is_shut = true;
            state.armed = None;
            let _ = this.timer.cancel();
            state.parties.take_all()
        });
        drop((parties, this.acceptor.with(Option::take)));
        this.dpc.queue(this);
    }

    fn lock<U>(this: &Arc<Self>, work: impl FnOnce(&mut State<O>, u64) -> Result<U, CallError>) -> Result<U, NtStatus> {
        let now = this.os.now();
        let done = this.state.with(|state| work(state, now));
        this.dpc.queue(this);
        done.map_err(status_of)
    }

    /// Takes requests for connections to an address of the adapter.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub(crate) fn listen(this: &Arc<Self>, address: SocketAddr) -> Result<(), NtStatus> {
        Self::lock(this, |state, _| state.stack.listen(Some(address.ip()), address.port()))
    }

    /// Takes no more of them.
    pub(crate) fn stop_listening(this: &Arc<Self>, address: SocketAddr) {
        let _ = Self::lock(this, |state, _| state.stack.stop_listening(Some(address.ip()), address.port()));
    }

    /// Refuses them for a time.
    pub(crate) fn pause(this: &Arc<Self>, address: SocketAddr, paused: bool) {
        let _ = Self::lock(this, |state, _| state.stack.pause(Some(address.ip()), address.port(), paused));
    }

    /// Makes a queue pair of the stack for `qp`, and lets `begin` use it. It goes again if that fails.
    fn with_queue_pair(
        state: &mut State<O>,
        config: &WireConfig,
        now: u64,
        terms: &Terms<'_, O>,
        begin: impl FnOnce(&mut Stack, &mut Table<O>, u32) -> Result<u32, CallError>,
    ) -> Result<Names, NtStatus> {
        if state.is_shut {
            return Err(NtStatus::DEVICE_REMOVED);
        }
        let sizes = config.sizes(terms.limits);
        let number = state.stack.create_queue_pair(sizes)?.ok_or(NtStatus::INSUFFICIENT_RESOURCES)?;
        let begun = state
            .table
            .insert(number, terms.qp)
            .and_then(|()| begin(&mut state.stack, &mut state.table, number).map_err(status_of));
        match begun {
            Ok(connection) => Ok(Names { connection, qp: number }),
            Err(status) => {
                state.stack.destroy_queue_pair(now, number, &mut state.table);
                drop(state.table.remove(number));
                Err(status)
            }
        }
    }

    /// Begins to connect. `party` is told how that ends.
    ///
    /// # Errors
    ///
    /// Why nothing has begun: `STATUS_NETWORK_UNREACHABLE`, `STATUS_INVALID_ADDRESS`, `STATUS_INVALID_BUFFER_SIZE`,
    /// `STATUS_INSUFFICIENT_RESOURCES`, `STATUS_DEVICE_REMOVED`.
    pub(crate) fn connect(
        this: &Arc<Self>,
        terms: &Terms<'_, O>,
        local: SocketAddr,
        remote: SocketAddr,
        party: Arc<Box<dyn Party>>,
    ) -> Result<Names, NtStatus> {
        let now = this.os.now();
        let names = this.state.with(|state| {
            let &Terms { limits, private_data: private, .. } = terms;
            let names = Self::with_queue_pair(state, &this.config, now, terms, |stack, table, qp| {
                stack.connect(now, &Connect { qp, local, remote, private, limits }, table)
            })?;
            // Under the same lock, so that no event comes before.
            state.parties.insert(names.connection, party);
            Ok::<_, NtStatus>(names)
        })?;
        this.cable.carries(names.qp);
        this.dpc.queue(this);
        Ok(names)
    }

    /// Accepts what a peer asks for. The party is told how that ends.
    ///
    /// # Errors
    ///
    /// `STATUS_CONNECTION_ABORTED` if the peer has given up; `STATUS_INVALID_BUFFER_SIZE`, `STATUS_INSUFFICIENT_RESOURCES`,
    /// `STATUS_DEVICE_REMOVED`.
    pub(crate) fn accept(this: &Arc<Self>, connection: u32, terms: &Terms<'_, O>) -> Result<Names, NtStatus> {
        let now = this.os.now();
        let names = this.state.with(|state| {
            let &Terms { limits, private_data: private, .. } = terms;
            Self::with_queue_pair(state, &this.config, now, terms, |stack, table, qp| {
                stack.accept(now, connection, qp, limits, private, table).map(|()| connection)
            })
        })?;
        this.cable.carries(names.qp);
        this.dpc.queue(this);
        Ok(names)
    }

    /// Makes `party` the one that is told of a connection that a peer asks for. Returns false if the peer has given up.
    pub(crate) fn adopt(this: &Arc<Self>, connection: u32, party: Arc<Box<dyn Party>>) -> bool {
        this.state.with(|state| {
            let is_there = state.stack.connection(connection).is_some();
            if is_there {
                state.parties.insert(connection, party);
            }
            is_there
        })
    }

    /// Links a queue pair with that of its peer: requests can be posted.
    ///
    /// # Errors
    ///
    /// `STATUS_CONNECTION_ACTIVE` if it had a peer or is closed; `STATUS_INSUFFICIENT_RESOURCES`.
    pub(crate) fn link(this: &Arc<Self>, names: Names, qp: &Arc<Qp<O>>) -> Result<(), NtStatus> {
        let ringer: Box<dyn Carrier> = try_box(Ringer::new(this.clone(), names.qp))?;
        Qp::link_remote(qp, Arc::try_new(ringer)?, this.config.send_depth.into())
    }

    /// Tells the peer that this side uses the connection.
    ///
    /// # Errors
    ///
    /// `STATUS_CONNECTION_ABORTED`: the peer has given up.
    pub(crate) fn complete_connect(this: &Arc<Self>, names: Names) -> Result<(), NtStatus> {
        Self::lock(this, |state, now| state.stack.complete_connect(now, names.connection, &mut state.table))
    }

    /// Refuses what the peer asks for, or has accepted.
    ///
    /// # Errors
    ///
    /// `STATUS_CONNECTION_ABORTED`: the peer has given up. `STATUS_INVALID_BUFFER_SIZE`.
    pub(crate) fn reject(this: &Arc<Self>, names: Names, private_data: &[u8]) -> Result<(), NtStatus> {
        Self::lock(this, |state, now| state.stack.reject(now, names.connection, private_data, &mut state.table))
    }

    /// Tells the peer of the end of the connection, and waits for its answer.
    ///
    /// # Errors
    ///
    /// `STATUS_CONNECTION_ABORTED`: it is over.
    pub(crate) fn disconnect(this: &Arc<Self>, names: Names) -> Result<(), NtStatus> {
        Self::lock(this, |state, now| state.stack.disconnect(now, names.connection, &mut state.table))
    }

    /// Gives a connection and its queue pair up, whatever they are doing: the peer is told if it has to be. When this returns, no frame
    /// touches memory by this queue pair, and what it had on its way has completed. Returns true if one of its receives has failed.
    pub(crate) fn release(this: &Arc<Self>, names: Names) -> bool {
        let now = this.os.now();
        let (entry, party) = this.state.with(|state| {
            // It may be closed already.
            let _ = state.stack.close(now, names.connection, &mut state.table);
            state.stack.destroy_queue_pair(now, names.qp, &mut state.table);
            (state.table.remove(names.qp), state.parties.remove(names.connection))
        });
        // The peer may have to be told.
        this.dpc.queue(this);
        drop(party);
        let Some(entry) = entry else { return false };
        let (qp, has_failed) = entry.finish();
        Qp::land(&qp);
        has_failed
    }

    /// Lets `look` see what is known of a connection; `None` if there is no such connection.
    pub(crate) fn known<U>(&self, connection: u32, look: impl FnOnce(Known<'_>) -> U) -> Option<U> {
        self.state.with(|state| {
            let roce::ConnectionInfo { state, private, limits, .. } = state.stack.connection(connection)?;
            Some(look(Known { state, limits, private }))
        })
    }
}
