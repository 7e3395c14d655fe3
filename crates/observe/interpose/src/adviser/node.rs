//! What the adviser keeps of an object.

use alloc::{boxed::Box, vec::Vec};
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, Release, SeqCst},
};

use crossbeam_utils::CachePadded;
use engine::os::SpinLock;
use fallible::{Arc, try_box, try_slice};
use ndkpi::{NDK_ADAPTER_INFO, NDK_OBJECT_TYPE, NtStatus};

use super::{Finding, Lock, State, queue::Queue, tokens::Tokens};
use crate::{Args, Endpoints, Event, InterposeOs, ObjectId, QpArgs};

/// Return addresses that are kept of who creates an object.
pub const FRAMES: usize = 16;

/// Callbacks that run at once and are remembered.
pub const CALLBACKS: usize = 32;

/// Requests with contexts on a stack that are remembered.
pub const STACK_CONTEXTS: usize = 16;

/// A request that pends, with its context on the stack of a thread.
#[derive(Clone, Copy, Default)]
pub struct StackContext {
    pub call: u64,
    pub thread: usize,
    pub address: usize,
}

/// A callback that runs.
#[derive(Clone, Copy, Default)]
pub struct RunningCallback {
    /// Its number; 0 for a free place.
    pub call: u64,
    pub thread: usize,
    /// In units of 100 nanoseconds.
    pub started: u64,
    pub irql: u8,
}

/// So many free places.
fn places<T: Default>(count: usize) -> Result<Box<[T]>, NtStatus> {
    try_slice(count, |_| T::default()).map_err(Into::into)
}

/// Of an adapter.
pub struct AdapterNode<O: InterposeOs> {
    pub info: NDK_ADAPTER_INFO,
    /// On lines of its own: posts of all queue pairs take it, and read what is beside it.
    pub tokens: Box<CachePadded<Lock<O, Tokens<O>>>>,
    pub regions: AtomicUsize,
    /// Those for fast registration.
    pub fast: Lock<O, Vec<State<O>>>,
    /// Connectors that were accepted; whose peer is not known yet.
    pub accepted: Lock<O, Vec<State<O>>>,
    /// Objects that are open.
    pub open: AtomicU32,
    /// Mappings that were built and not released.
    pub mappings: AtomicU32,
    /// [`CALLBACKS`] of them. Boxed, as the contexts are: a node is made on the stack.
    pub callbacks: Lock<O, Box<[RunningCallback]>>,
    /// [`STACK_CONTEXTS`] of them.
    pub stack: Lock<O, Box<[StackContext]>>,
    pub stack_used: AtomicU32,
}

/// What the consumer knows of what is left in a completion queue.
pub struct Look;

impl Look {
    /// The last poll found fewer than it had room for.
    pub const EMPTY: u32 = 0;
    /// The last poll found as many as it had room for.
    pub const FULL: u32 = 1;
    /// After that the queue was armed.
    pub const ARMED_UNSEEN: u32 = 2;
}

/// Of a completion queue.
pub struct CqNode<O: InterposeOs> {
    pub depth: AtomicU32,
    /// The call that runs, times two, plus one for an arm; 0 for none.
    pub running: AtomicU64,
    /// The notification that runs, by its number; 0 for none.
    pub callback: AtomicU64,
    /// The thread of the last arm that began.
    pub arming: AtomicUsize,
    /// Who is armed calls back.
    pub has_notification: bool,
    /// The address of the callback; 0 without one.
    pub notification: usize,
    /// The type of the arm in force, plus one; 0 for none.
    pub armed: AtomicU32,
    /// The notification inside which the queue was armed with completions that may be left; 0 for none.
    pub armed_in: AtomicU64,
    /// Peers may have invalidated tokens, and the polls did not say so.
    pub is_blind: AtomicBool,
    /// One of [`Look`].
    pub look: AtomicU32,
    /// Notifications since the last poll.
    pub unpolled: AtomicU32,
    /// How many requests the queues have room for that complete here.
    pub room: AtomicU64,
    /// Those in flight, as far as they were counted: only what is posted while there is more room than depth.
    pub outstanding: AtomicU32,
    /// By their contexts. Who has the lock may take requests out of the queues that complete here.
    pub qps: Lock<O, Vec<Attached<O>>>,
}

/// A queue pair whose requests complete in a completion queue.
pub struct Attached<O: InterposeOs> {
    /// The context of the queue pair.
    pub context: usize,
    pub node: State<O>,
    /// The requests of the initiator queue complete here.
    pub initiator: bool,
    /// The receives do: its own, or those of a shared receive queue.
    pub receive: bool,
}

impl<O: InterposeOs> Attached<O> {
    /// The queues of its own whose requests complete here.
    pub fn queues(&self) -> impl Iterator<Item = &Queue> {
        let qp = if let Body::Qp(qp) = &self.node.body { Some(qp) } else { None };
        let initiator = qp.filter(|_| self.initiator).map(|qp| &*qp.initiator);
        initiator.into_iter().chain(qp.filter(|qp| self.receive && qp.srq.is_none()).map(|qp| &*qp.receive))
    }

    /// How many requests they have room for.
    pub fn room(&self) -> u64 {
        self.queues().map(Queue::depth).sum()
    }
}

impl<O: InterposeOs> CqNode<O> {
    /// A poll has returned. Who calls sets `unpolled` back.
    pub fn looked(&self, was_full: bool) {
        self.look.store(if was_full { Look::FULL } else { Look::EMPTY }, Release);
    }

    /// Returns true if more requests may be in flight than it has room for.
    pub fn is_tight(&self) -> bool {
        self.room.load(Relaxed) > self.depth.load(Relaxed).into()
    }

    /// So many counted requests are not in flight any more.
    pub fn ended(&self, counted: u32) {
        if counted != 0 {
            let _ = self.outstanding.fetch_update(Relaxed, Relaxed, |now| Some(now.saturating_sub(counted)));
        }
    }
}

/// The receives of a queue pair, for its peer.
#[derive(Default)]
pub struct Receives {
    /// Those whose post has begun.
    pub posted: AtomicU64,
}

/// The messages of a queue pair.
pub struct Messages<O: InterposeOs> {
    /// Those that were posted.
    pub posted: AtomicU64,
    /// For so many the peer had receives when that was looked at last; all, as long as nobody knows the peer.
    pub known: AtomicU64,
    /// The peer's receives, if the same consumer has both queue pairs and the peer has a queue of its own.
    pub peer: Lock<O, Option<Arc<Receives>>>,
}

/// Of a queue pair.
pub struct QpNode<O: InterposeOs> {
    pub args: QpArgs,
    pub receive_cq: Option<State<O>>,
    pub initiator_cq: Option<State<O>>,
    pub srq: Option<State<O>>,
    pub initiator: Box<Queue>,
    pub receive: Box<Queue>,
    /// A connect or accept was called with it.
    pub was_connected: AtomicBool,
    pub was_disconnected: AtomicBool,
    /// A request has failed, or was or will be cancelled, or the connection has ended: it is not known any more what was carried out.
    pub is_over: AtomicBool,
    /// The outbound read limit that was asked for, plus one; 0 for none.
    pub read_limit: AtomicU32,
    pub receives: Arc<Receives>,
    pub messages: Messages<O>,
}

/// Of a shared receive queue.
pub struct SrqNode<O: InterposeOs> {
    pub max_sge: u32,
    pub receive: Box<Queue>,
    /// Who has it may take requests out of the queue.
    pub taking: Lock<O, ()>,
}

/// Where a region is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegionState {
    /// Nothing was done with it.
    #[default]
    New,
    /// Registered; for fast registration: initialised and fast-registered.
    Registered,
    /// Initialised for fast registration, and not registered or invalidated since.
    Initialised,
    /// A call that changes the state is on its way.
    Changing,
}

/// The registration of a region.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the rights of a registration are independent of each other")]
pub struct Registration {
    pub state: RegionState,
    /// The call that changes it, or has changed it last; where that leads to, and where it came from.
    pub call: u64,
    pub next: RegionState,
    pub before: RegionState,
    pub was_invalidated: bool,
    /// The address of the first byte, if it is known.
    pub base: Option<u64>,
    pub length: u64,
    pub local_write: bool,
    pub read_sink: bool,
    pub remote_access: bool,
    pub pages: u32,
    pub token: Option<u32>,
    pub remote_token: Option<u32>,
    /// Of a fast registration: the number of the queue pair that it was posted on, whether peers may use it, where its list of pages was.
    pub by: u32,
    pub is_remote: bool,
    pub list: usize,
    /// It was registered anew without an invalidation: which of the two is in force, nobody knows.
    pub is_unsure: bool,
}

/// Of a memory region.
pub struct MrNode<O: InterposeOs> {
    pub is_fast: bool,
    pub registration: Lock<O, Registration>,
}

/// How far a connector is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConnectorState {
    /// Created by the consumer.
    #[default]
    New,
    /// Came with a connect event.
    Incoming,
    /// A connect is on its way.
    Connecting,
    /// A connect has succeeded.
    Answered,
    /// An accept or the completion of a connect is on its way.
    Establishing,
    /// Established.
    Established,
    /// Rejected, disconnected or failed.
    Over,
}

/// How far a connector is, and the call that took it there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    pub state: ConnectorState,
    pub before: ConnectorState,
    pub call: u64,
}

/// Of a connector.
pub struct ConnectorNode<O: InterposeOs> {
    pub progress: Lock<O, Progress>,
    pub qp: Lock<O, Option<State<O>>>,
    /// Of one that was accepted.
    pub ends: Lock<O, Option<Endpoints>>,
}

/// Of a protection domain.
pub struct PdNode<O: InterposeOs> {
    /// The privileged token, plus one; 0 if it is not known.
    pub privileged: AtomicU64,
    /// Its queue pairs and shared receive queues.
    pub queues: Lock<O, Vec<State<O>>>,
}

/// What depends on the type.
pub enum Body<O: InterposeOs> {
    Adapter(AdapterNode<O>),
    Cq(CqNode<O>),
    Qp(QpNode<O>),
    Srq(SrqNode<O>),
    Mr(MrNode<O>),
    Connector(ConnectorNode<O>),
    Pd(PdNode<O>),
    Other,
}

/// What the adviser keeps of an object.
pub struct Node<O: InterposeOs> {
    /// Which one it is.
    pub id: ObjectId,
    /// Who created it: return addresses, the innermost first.
    pub creator: [usize; FRAMES],
    pub(super) adapter: Option<State<O>>,
    pub(super) parent: Option<State<O>>,
    pub(super) body: Body<O>,
    /// Open objects that depend on this one, whose close has not begun.
    pub(super) successors: AtomicU32,
    /// The object came about; its close has not begun.
    pub(super) is_open: AtomicBool,
    reported: AtomicU64,
}

impl<O: InterposeOs> Node<O> {
    fn new(os: &O, id: ObjectId, adapter: Option<State<O>>, parent: Option<State<O>>, body: Body<O>) -> Self {
        let mut creator = [0; FRAMES];
        os.stack(&mut creator);
        Self {
            id,
            creator,
            adapter,
            parent,
            body,
            successors: AtomicU32::new(0),
            is_open: AtomicBool::new(false),
            reported: AtomicU64::new(0),
        }
    }

    /// The node of an adapter.
    pub(super) fn adapter(os: &O, info: &NDK_ADAPTER_INFO) -> Result<Self, NtStatus> {
        let body = Body::Adapter(AdapterNode {
            info: *info,
            tokens: try_box(CachePadded::new(os.lock(Tokens::try_new()?)?))?,
            regions: AtomicUsize::new(0),
            fast: os.lock(Vec::new())?,
            accepted: os.lock(Vec::new())?,
            open: AtomicU32::new(0),
            mappings: AtomicU32::new(0),
            callbacks: os.lock(places(CALLBACKS)?)?,
            stack: os.lock(places(STACK_CONTEXTS)?)?,
            stack_used: AtomicU32::new(0),
        });
        Ok(Self::new(os, ObjectId { kind: NDK_OBJECT_TYPE::ADAPTER, number: 0 }, None, None, body))
    }

    /// The node of an object that may come about.
    pub(super) fn object(os: &O, event: &Event<'_, State<O>>, id: ObjectId) -> Result<Self, NtStatus> {
        let parent = event.object.state;
        let adapter = parent.adapter.clone().unwrap_or_else(|| parent.clone());
        let body = match (id.kind, event.args) {
            (NDK_OBJECT_TYPE::CQ, Args::CreateCq { depth, has_notification, notification, .. }) => Body::Cq(CqNode {
                depth: AtomicU32::new(depth),
                running: AtomicU64::new(0),
                callback: AtomicU64::new(0),
                arming: AtomicUsize::new(0),
                has_notification,
                notification,
                armed: AtomicU32::new(0),
                armed_in: AtomicU64::new(0),
                is_blind: AtomicBool::new(false),
                look: AtomicU32::new(Look::EMPTY),
                unpolled: AtomicU32::new(0),
                room: AtomicU64::new(0),
                outstanding: AtomicU32::new(0),
                qps: os.lock(Vec::new())?,
            }),
            (NDK_OBJECT_TYPE::QP, Args::CreateQp(args)) => Body::Qp(Self::queue_pair(os, args, event)?),
            (NDK_OBJECT_TYPE::SRQ, Args::CreateSrq { depth, max_sge, .. }) => {
                parent.make_room_for_queue()?;
                let (receive, taking) = (Queue::try_new(depth)?, os.lock(())?);
                Body::Srq(SrqNode { max_sge, receive, taking })
            }
            (NDK_OBJECT_TYPE::MR, Args::CreateMr { fast_register }) => {
                adapter.make_room_for_region()?;
                if fast_register && let Body::Adapter(adapter) = &adapter.body {
                    adapter.fast.with(|fast| fast.try_reserve(2)).map_err(fallible::AllocError::from)?;
                }
                Body::Mr(MrNode { is_fast: fast_register, registration: os.lock(Registration::default())? })
            }
            (NDK_OBJECT_TYPE::CONNECTOR, args) => {
                let came = matches!(args, Args::Event { .. });
                let state = if came { ConnectorState::Incoming } else { ConnectorState::New };
                let progress = Progress { state, before: state, call: 0 };
                if came && let Body::Adapter(adapter) = &adapter.body {
                    adapter.accepted.with(|accepted| accepted.try_reserve(2)).map_err(fallible::AllocError::from)?;
                }
                Body::Connector(ConnectorNode {
                    progress: os.lock(progress)?,
                    qp: os.lock(None)?,
                    ends: os.lock(None)?,
                })
            }
            (NDK_OBJECT_TYPE::PD, _) => {
                Body::Pd(PdNode { privileged: AtomicU64::new(0), queues: os.lock(Vec::new())? })
            }
            _ => Body::Other,
        };
        Ok(Self::new(os, id, Some(adapter), Some(parent.clone()), body))
    }

    fn queue_pair(os: &O, args: QpArgs, event: &Event<'_, State<O>>) -> Result<QpNode<O>, NtStatus> {
        let [receive_cq, initiator_cq, srq] = event.related.map(|related| related.map(|object| object.state.clone()));
        // A place in the lists of the queues, for when the queue pair is there.
        for cq in [&receive_cq, &initiator_cq].into_iter().flatten() {
            if let Body::Cq(cq) = &cq.body {
                cq.qps.with(|qps| qps.try_reserve(2)).map_err(fallible::AllocError::from)?;
            }
        }
        event.object.state.make_room_for_queue()?;
        Ok(QpNode {
            args,
            receive_cq,
            initiator_cq,
            srq,
            initiator: Queue::try_new(args.initiator_depth)?,
            receive: Queue::try_new(args.receive_depth)?,
            was_connected: AtomicBool::new(false),
            was_disconnected: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            read_limit: AtomicU32::new(0),
            receives: Arc::try_new(Receives::default())?,
            messages: Messages { posted: AtomicU64::new(0), known: AtomicU64::new(u64::MAX), peer: os.lock(None)? },
        })
    }

    /// The protection domain that it was made in.
    pub fn domain(&self) -> Option<&PdNode<O>> {
        self.parent.as_ref().and_then(|parent| body!(parent, Pd))
    }

    /// A place in the list of this domain, for when the queue is there.
    fn make_room_for_queue(&self) -> Result<(), NtStatus> {
        let Body::Pd(pd) = &self.body else { return Ok(()) };
        Ok(pd.queues.with(|queues| queues.try_reserve(2)).map_err(fallible::AllocError::from)?)
    }

    fn make_room_for_region(&self) -> Result<(), NtStatus> {
        let Body::Adapter(adapter) = &self.body else { return Ok(()) };
        let regions = adapter.regions.fetch_add(1, Relaxed) + 1;
        if let Some(size) = adapter.tokens.with(|tokens| tokens.wanted(regions)) {
            let places = Tokens::places(size)?;
            let before = adapter.tokens.with(|tokens| tokens.grow(places));
            drop(before);
        }
        Ok(())
    }

    /// Changes the registration of a region, and what posts know of it. `None` if this is none.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Registration) -> T) -> Option<T> {
        let (Body::Mr(mr), Some(adapter)) = (&self.body, self.adapter_node()) else { return None };
        Some(mr.registration.with(|registration| {
            let result = change(registration);
            if let Some(token) = registration.token {
                adapter.tokens.with(|tokens| tokens.update(token, self, registration));
            }
            result
        }))
    }

    /// Returns true the first time that this finding is made of this object.
    pub(super) fn is_first(&self, finding: Finding) -> bool {
        let bit = 1 << (finding.number() % 64);
        self.reported.fetch_or(bit, SeqCst) & bit == 0
    }

    /// The adapter's part.
    pub(super) fn adapter_node(&self) -> Option<&AdapterNode<O>> {
        let node = self.adapter.as_deref().unwrap_or(self);
        if let Body::Adapter(adapter) = &node.body { Some(adapter) } else { None }
    }

    /// What this object depends on, besides by connections.
    pub(super) fn antecedents(&self) -> impl Iterator<Item = &State<O>> {
        let qp = if let Body::Qp(qp) = &self.body { Some(qp) } else { None };
        let queues = qp.map(|qp| [qp.receive_cq.as_ref(), qp.initiator_cq.as_ref(), qp.srq.as_ref()]);
        self.parent.iter().chain(queues.into_iter().flatten().flatten())
    }
}

impl<O: InterposeOs> Drop for Node<O> {
    fn drop(&mut self) {
        if let (Body::Mr(_), Some(adapter)) = (&self.body, self.adapter_node()) {
            adapter.regions.fetch_sub(1, Relaxed);
        }
    }
}

/// The part of a node of this kind.
macro_rules! body {
    ($node:expr, $kind:ident) => {
        if let $crate::adviser::node::Body::$kind(body) = &$node.body { Some(body) } else { None }
    };
}
pub(super) use body;
