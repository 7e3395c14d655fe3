//! Queue pairs (`NDKPI 7.2`, `7.3`).
//!
//! The consumer posts to two queues, the send queue (NDKPI's initiator queue) and the receive queue. NDKPI has it serialise posts
//! to the same queue. Requests are carried out in *quanta*, bounded runs of the queue pair's DPC, or in the post itself. In
//! reading order:
//!
//! | module | |
//! |---|---|
//! | `post` | puts requests into the send queue, or passes them to the executor |
//! | `send_queue` | the doorbell and the quantum |
//! | `execute` | the fast path: carries out simple requests, wholly or not at all |
//! | `progress` | the slow path: requests of several steps, and every error |
//! | `receive_queue`, `srq` | receives, and the messages that fill them |
//! | `link` | the connection of two queue pairs |
//! | `remote` | the send queue of one whose peer is on another machine |
//! | `hardware` | what only some adapters do to their consumers |
//!
//! A quantum owns the send queue of its queue pair, and fills receives of the peer's receive queue. The receive that it fills is
//! *claimed*, so that a flush by the peer waits for it and the order is kept.

mod execute;
mod hardware;
mod lend;
mod link;
mod passing;
mod post;
mod progress;
mod receive_queue;
mod remote;
mod request;
mod send_queue;
mod srq;

use alloc::boxed::Box;
use core::any::Any;

use fallible::{Arc, try_box};
use hardware::Hardware;
pub use lend::Lend;
use link::Link;
pub use link::LinkClient;
use post::Limits;
pub use post::{DIRECT_QUANTUM, Elements, Flags, Parts, Payload, SqProducer};
use receive_queue::ReceiveQueue;
pub use receive_queue::RqProducer;
pub(crate) use receive_queue::{Claim, Claimed};
use remote::Bell;
use remote::Flights;
pub(crate) use remote::{Carrier, Failed, Fed, Outgoing};
use request::{CHUNK, INLINE, ReceiveRequest, WorkRequest, chunks_for};
pub use request::{Sge, Work};
use send_queue::{Quantum, SendQueue, order};
pub use srq::{Srq, SrqClient, SrqParameters};

use crate::{
    NtStatus,
    cq::{Cq, Cqe, CqeOutcome, Operation, dependents::Dependent},
    memory::{Domain, Segment, Side, TranslationCache},
    nic::{Nic, NicMode, TrafficCounters},
    os::{Os, SpinLock},
    ring::{self, Consumer, Producer, TailPublisher},
    sync::{AtomicBool, AtomicU32, AtomicU64, CachePadded, Ordering},
};

/// The parameters of a queue pair. The caller has checked them against the adapter's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpParameters {
    /// Receives outstanding at most.
    pub receive_depth: u32,
    /// Initiator requests outstanding at most.
    pub initiator_depth: u32,
    /// Elements of one receive at most.
    pub max_receive_sge: u32,
    /// Elements of one initiator request at most.
    pub max_initiator_sge: u32,
    /// Elements that a receive of a peer may have at most.
    pub max_peer_sge: u32,
    /// Inline bytes of one request at most.
    pub inline_size: u32,
    /// Bytes of one request at most.
    pub max_transfer: u32,
    /// What completions carry as the queue pair's context.
    pub context: usize,
}

impl QpParameters {
    /// The size of the two queues' entries, in bytes: requests, elements, inline data.
    #[must_use]
    pub const fn entry_bytes(&self) -> usize {
        const fn others(elements: u32) -> usize {
            elements.saturating_sub(1) as usize * size_of::<Sge>()
        }
        let inline = (self.inline_size as usize).saturating_sub(INLINE);
        let initiator = size_of::<WorkRequest>() + others(self.max_initiator_sge) + inline;
        let receive = size_of::<ReceiveRequest>() + others(self.max_receive_sge);
        self.initiator_depth as usize * initiator + self.receive_depth as usize * receive
    }

    /// Bytes of memory that a queue pair with these parameters takes, without its client.
    #[must_use]
    pub fn bytes<O: Os>(&self) -> u64 {
        const fn others(depth: u32, elements: u32) -> u32 {
            entries_for(depth, elements.saturating_sub(1))
        }
        let chunks = u32::try_from(chunks_for(self.inline_size as usize)).unwrap_or(u32::MAX);
        let initiator = ring::bytes::<WorkRequest>(self.initiator_depth)
            + ring::bytes::<Sge>(others(self.initiator_depth, self.max_initiator_sge))
            + ring::bytes::<[u8; CHUNK]>(entries_for(self.initiator_depth, chunks));
        let receive = ring::bytes::<ReceiveRequest>(self.receive_depth)
            + ring::bytes::<Sge>(others(self.receive_depth, self.max_receive_sge));
        let segments = u64::from(self.max_initiator_sge) + u64::from(self.max_peer_sge.max(1));
        let fixed = size_of::<Qp<O>>() + size_of::<TranslationCache<O>>();
        fixed as u64 + initiator + receive + segments * size_of::<Segment<O>>() as u64
    }

    /// The send queue: the end to post to, and the engine's end under its lock.
    // Not inlined, like the other queue, so that no stack frame holds all of a queue pair.
    #[inline(never)]
    fn send_queue<O: Os>(&self, nic: &Nic<O>) -> Result<(SqProducer, O::Lock<SendQueue<O>>), NtStatus> {
        let (requests, taken_requests) = ring_for(self.initiator_depth, 1)?;
        let (elements, taken_elements) = ring_for(self.initiator_depth, self.max_initiator_sge.saturating_sub(1))?;
        let chunks = u32::try_from(chunks_for(self.inline_size as usize)).unwrap_or(u32::MAX);
        let (chunks, taken_chunks) = ring_for::<[u8; CHUNK]>(self.initiator_depth, chunks)?;
        let queue = SendQueue::try_new(taken_requests, taken_elements, taken_chunks, self, &nic.rules())?;
        let queue = nic.os().lock(queue)?;
        Ok((SqProducer { requests, elements, chunks, deferred: false }, queue))
    }

    /// The receive queue, as [`QpParameters::send_queue`].
    #[inline(never)]
    fn receive_queue<O: Os>(&self, os: &O) -> Result<(RqProducer, O::Lock<ReceiveQueue>), NtStatus> {
        let limits = Limits { elements: self.max_receive_sge, inline: 0, transfer: self.max_transfer };
        let (queue, requests, elements) = receive_rings(self.receive_depth, limits)?;
        Ok((queue, os.lock(ReceiveQueue::new(requests, elements))?))
    }
}

/// Makes a ring for `depth` requests with up to `each` entries per request.
fn ring_for<T: Copy + Send>(depth: u32, each: u32) -> Result<(Producer<T>, Consumer<T>), NtStatus> {
    ring::try_new(entries_for(depth, each), 0).map_err(Into::into)
}

/// The entries of that ring.
const fn entries_for(depth: u32, each: u32) -> u32 {
    /// The largest queue of elements or inline bytes.
    const MOST: u32 = 1 << 28;
    let entries = depth.saturating_mul(each);
    if entries < MOST { entries } else { MOST }
}

/// Makes the rings of a receive queue: the poster's end, and the engine's two.
fn receive_rings(
    depth: u32,
    limits: Limits,
) -> Result<(RqProducer, Consumer<ReceiveRequest>, Consumer<Sge>), NtStatus> {
    let (requests, taken_requests) = ring_for(depth, 1)?;
    let (elements, taken_elements) = ring_for(depth, limits.elements.saturating_sub(1))?;
    Ok((RqProducer { requests, elements, limits }, taken_requests, taken_elements))
}

/// A queue pair.
///
/// Fields that are mostly read, fields that posts and quanta of this side write, and fields that quanta of the peer write lie in
/// cache lines of their own: a message moves few lines between processors.
pub struct Qp<O: Os> {
    /// Keeps the reference count, which every clone writes, away from the rest.
    _references: CachePadded<()>,
    dpc: O::Dpc<Quantum<O>>,
    traffic: Arc<TrafficCounters>,
    /// Posts carry requests out themselves if they can ([`NicMode::Direct`]).
    is_direct: bool,
    limits: Limits,
    /// The queue pair is at its end: requests and receives are cancelled.
    dead: AtomicBool,
    /// The queue pair has a peer.
    linked: AtomicBool,
    /// The connection does not let this side read.
    no_reads: AtomicBool,
    domain: Arc<Domain<O>>,
    translations: Arc<TranslationCache<O>>,
    receive_cq: Arc<Cq<O>>,
    initiator_cq: Arc<Cq<O>>,
    /// Takes the place of the queue pair's own receive queue.
    srq: Option<Arc<Srq<O>>>,
    context: usize,
    posted: TailPublisher,
    accepted: TailPublisher,
    flush_send_to: AtomicU64,
    drain_to: AtomicU64,
    link: O::Lock<Link<O>>,
    attachments: O::Lock<Option<Attachments>>,
    /// Of a NIC whose rules are not plain.
    hardware: Option<Box<Hardware<O>>>,
    /// Dropped with the queue pair.
    _client: Box<dyn Any + Send + Sync>,
    initiating: CachePadded<Initiating<O>>,
    receive: CachePadded<O::Lock<ReceiveQueue>>,
    /// The peer waits for a receive. Every post of one swaps it.
    awaited: CachePadded<AtomicBool>,
}

/// The fields that posts and quanta of this side write.
struct Initiating<O: Os> {
    /// Bits of [`order`].
    orders: AtomicU32,
    /// A quantum runs or is due. A hint: what is there to do is seen with the send queue locked.
    is_busy: AtomicBool,
    send_queue: O::Lock<SendQueue<O>>,
}

/// The queue pair's numbers in its completion queues and its shared receive queue.
#[derive(Clone, Copy)]
struct Attachments {
    receive: usize,
    initiator: usize,
    shared: Option<usize>,
}

/// The objects that a queue pair uses.
struct Uses<'a, O: Os> {
    domain: &'a Arc<Domain<O>>,
    receive_cq: &'a Arc<Cq<O>>,
    initiator_cq: &'a Arc<Cq<O>>,
    srq: Option<&'a Arc<Srq<O>>>,
}

/// A new queue pair with the two ends that its consumer posts through.
pub struct NewQp<O: Os> {
    /// The queue pair.
    pub qp: Arc<Qp<O>>,
    /// For [`Qp::post`].
    pub send_queue: SqProducer,
    /// For [`Qp::post_receive`]. Unused with a shared receive queue.
    pub receive_queue: RqProducer,
}

impl<O: Os> Qp<O> {
    /// Makes a queue pair without a peer. `client` is dropped with it, after the last quantum.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    #[inline(never)]
    pub fn try_new(
        nic: &Arc<Nic<O>>,
        domain: &Arc<Domain<O>>,
        receive_cq: &Arc<Cq<O>>,
        initiator_cq: &Arc<Cq<O>>,
        srq: Option<&Arc<Srq<O>>>,
        parameters: &QpParameters,
        client: impl Any + Send + Sync,
    ) -> Result<NewQp<O>, NtStatus> {
        let (send_queue, taken) = parameters.send_queue(nic)?;
        let (receive_queue, filled) = parameters.receive_queue(nic.os())?;
        let tails = [send_queue.requests.tail_publisher(), receive_queue.requests.tail_publisher()];
        let client = try_box(client)?;
        let uses = Uses { domain, receive_cq, initiator_cq, srq };
        let qp = Self::around(nic, &uses, parameters, client, tails, taken, filled)?;
        Self::attach(&qp)?;
        Ok(NewQp { qp, send_queue, receive_queue })
    }

    /// Makes a queue pair of its two queues.
    #[inline(never)]
    fn around(
        nic: &Arc<Nic<O>>,
        uses: &Uses<'_, O>,
        parameters: &QpParameters,
        client: Box<dyn Any + Send + Sync>,
        [posted, accepted]: [TailPublisher; 2],
        send_queue: O::Lock<SendQueue<O>>,
        receive_queue: O::Lock<ReceiveQueue>,
    ) -> Result<Arc<Self>, NtStatus> {
        let os = nic.os();
        let link = os.lock(Link::new())?;
        let attachments = os.lock(None)?;
        let hardware = Hardware::try_new(nic)?;
        let (dpc, traffic) = nic.deal()?;
        Arc::try_new(Self {
            _references: CachePadded::new(()),
            dpc,
            traffic,
            is_direct: nic.mode() == NicMode::Direct && parameters.initiator_depth > 0,
            limits: Limits {
                elements: parameters.max_initiator_sge,
                inline: parameters.inline_size,
                transfer: parameters.max_transfer,
            },
            dead: AtomicBool::new(false),
            linked: AtomicBool::new(false),
            no_reads: AtomicBool::new(false),
            domain: uses.domain.clone(),
            translations: TranslationCache::try_new(os)?,
            receive_cq: uses.receive_cq.clone(),
            initiator_cq: uses.initiator_cq.clone(),
            srq: uses.srq.cloned(),
            context: parameters.context,
            posted,
            accepted,
            flush_send_to: AtomicU64::new(0),
            drain_to: AtomicU64::new(0),
            link,
            attachments,
            hardware,
            _client: client,
            initiating: CachePadded::new(Initiating {
                orders: AtomicU32::new(0),
                is_busy: AtomicBool::new(false),
                send_queue,
            }),
            receive: CachePadded::new(receive_queue),
            awaited: CachePadded::new(AtomicBool::new(false)),
        })
        .map_err(Into::into)
    }

    fn attach(this: &Arc<Self>) -> Result<(), NtStatus> {
        let dependent: Box<dyn Dependent> = try_box(this.clone())?;
        let dependent = Arc::try_new(dependent)?;
        let receive = this.receive_cq.attach(dependent.clone())?;
        let initiator = this.initiator_cq.attach(dependent.clone()).inspect_err(|_| this.receive_cq.detach(receive))?;
        let shared = this.srq.as_ref().map(|srq| srq.attach(dependent)).transpose().inspect_err(|_| {
            this.receive_cq.detach(receive);
            this.initiator_cq.detach(initiator);
        })?;
        this.attachments.with(|attachments| *attachments = Some(Attachments { receive, initiator, shared }));
        let failed = this.receive_cq.failure().or_else(|| this.initiator_cq.failure()).is_some();
        if failed || this.srq.as_ref().is_some_and(|srq| srq.has_failed()) {
            Self::fail(this);
        }
        Ok(())
    }

    //= NDKPI 7.2.4
    /// Begins to cancel the requests in both queues, in order (`NDKPI 7.2`). Later requests are carried out if the queue pair is
    /// still connected.
    ///
    /// May run while the consumer posts. After this has returned, the peer does not fill a receive that was posted before.
    pub fn flush(this: &Arc<Self>) {
        // Of two concurrent flushes the later position counts. Positions begin at zero and do not wrap around.
        this.flush_send_to.fetch_max(this.posted.tail(), Ordering::AcqRel);
        Self::mark_flushed(this);
        Self::order(this, order::FLUSH_SEND | order::FLUSH_RECEIVE);
    }

    /// [`Qp::flush`] for the receive queue only. Requests in the send queue end by themselves when the connection is over.
    pub fn flush_receives(this: &Arc<Self>) {
        Self::mark_flushed(this);
        Self::order(this, order::FLUSH_RECEIVE);
    }

    /// Has the link client called when all requests that are now in the send queue have completed.
    pub fn drain(this: &Arc<Self>) {
        this.drain_to.store(this.posted.tail(), Ordering::Release);
        Self::order(this, order::DRAIN);
    }

    /// The peer has disconnected too (`NDKPI 7.7.5`): the link client of [`Qp::drain`] is called also when no byte moves, because the
    /// first request waits for a receive that the peer has not posted.
    pub fn settle(this: &Arc<Self>) {
        Self::order(this, order::SETTLE);
    }

    /// Waits for the end of a quantum that runs, which is a bounded time. Later quanta know the current link.
    ///
    /// Must not be called with a lock held.
    pub fn quiesce(&self) {
        self.initiating.send_queue.with(|_| {});
    }

    /// Fails the queue pair: ends its connection, and cancels all requests, also those that are posted later.
    pub fn fail(this: &Arc<Self>) {
        this.dead.store(true, Ordering::Release);
        // Pairs with the swap of a post: either the post sees that the queue pair is dead, or the quantum sees the receive.
        this.awaited.fetch_or(false, Ordering::AcqRel);
        Self::unlink(this);
        Self::order(this, order::FLUSH_RECEIVE);
    }

    /// [`Qp::fail`], and detaches the queue pair from its completion queues. After that, only the caller's references and a
    /// running quantum keep it alive.
    pub fn close(this: &Arc<Self>) {
        Self::fail(this);
        TranslationCache::close(&this.translations);
        if let Some(attachments) = this.attachments.with(Option::take) {
            this.receive_cq.detach(attachments.receive);
            this.initiator_cq.detach(attachments.initiator);
            if let (Some(srq), Some(number)) = (&this.srq, attachments.shared) {
                srq.detach(this, number);
            }
        }
    }

    /// Returns true if [`Qp::fail`] or [`Qp::close`] was called, or a request failed.
    #[inline]
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// The tokens whose translations are cached: the local one and the remote one.
    #[must_use]
    pub fn cached_tokens(&self) -> [Option<u32>; 2] {
        [Side::Local, Side::Remote].map(|side| self.translations.token(side))
    }

    /// The completion of a request of this queue pair.
    #[inline]
    const fn cqe(&self, request_context: usize, operation: Operation, status: NtStatus) -> Cqe {
        Cqe::new(self.context, request_context, CqeOutcome::new(operation, status))
    }
}

impl<O: Os> Dependent for Arc<Qp<O>> {
    fn fail(&self) {
        Qp::fail(self);
    }
}
