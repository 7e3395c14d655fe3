//! Queue pairs (`NDKPI 7.2`, `7.3`).
//!
//! The consumer posts through an [`Initiator`] and a [`Receiver`], one for each of the two queues; their exclusive
//! references say what NDKPI says: no two posts to the same queue at the same time. What was posted is carried out in
//! *turns* that a NIC engine gives the queue pair, never two at once.
//!
//! A turn owns the initiator queue of its queue pair. Of the peer it uses the receive queue, which stays with the peer: a
//! turn *claims* the receive it fills, so that a flush of the peer's queue waits for it and the order is kept.

mod alone;
mod one_piece;
mod post;
mod receive;
mod request;
mod short;
mod srq;
mod transmit;

use alloc::boxed::Box;
use core::any::Any;

use fallible::{Shared, try_box};
use ndkpi::NtStatus;
pub use one_piece::{Few, OnePiece};
pub use post::{Initiator, Prepared, Receiver};
use receive::Receive;
pub use request::{Flags, Sge, Work};
pub use srq::{Srq, SrqClient, SrqParameters};
use transmit::{Transmit, Turn};

use crate::{
    cq::{
        Cq, Cqe, Operation, Outcome,
        dependents::{Dependent, try_dependent},
    },
    fault::{self, Fault},
    memory::{Domain, Side, TranslationCache},
    memory_status,
    nic::{Budget, DIRECT_TURN, Engine, Nic, NicMode},
    os::{Os, SpinLock},
    ring::TailPublisher,
    sync::{AtomicBool, AtomicU32, AtomicU64, CachePadded, Ordering},
};

/// What a queue pair is made with. All limits were checked against the adapter's by the caller.
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
    /// The bytes of all entries that the two queues have room for: requests and their elements.
    #[must_use]
    pub const fn entry_bytes(&self) -> usize {
        const fn others(elements: u32) -> usize {
            elements.saturating_sub(1) as usize * size_of::<Sge>()
        }
        let inline = (self.inline_size as usize).saturating_sub(request::HERE);
        let initiator = size_of::<request::Request>() + others(self.max_initiator_sge) + inline;
        let receive = size_of::<request::ReceiveRequest>() + others(self.max_receive_sge);
        self.initiator_depth as usize * initiator + self.receive_depth as usize * receive
    }
}

/// What has to be done besides the queues' requests. Bits of [`Initiating::orders`].
mod order {
    /// Look at the link again.
    pub const RELINK: u32 = 1 << 0;
    /// Cancel initiator requests up to [`super::Qp::flush_initiator_to`].
    pub const FLUSH_INITIATOR: u32 = 1 << 1;
    /// Cancel receives up to [`super::Qp::flush_receive_to`].
    pub const FLUSH_RECEIVE: u32 = 1 << 2;
    /// Tell when the initiator requests up to [`super::Qp::drain_to`] are finished.
    pub const DRAIN: u32 = 1 << 3;
}

/// Who has to give the queue pair a turn. Bits of [`Initiating::schedule`].
mod schedule {
    /// There is something to do.
    pub const READY: u32 = 1 << 0;
    /// The queue pair is in its engine's list, or has its turn.
    pub const OWNED: u32 = 1 << 1;
}

/// A queue pair.
///
/// What both sides of a connection read and hardly anybody writes, what the posts and turns of this side write, and what the
/// turns of the peer write, have cache lines of their own: a message then moves few lines between processors.
pub struct Qp<O: Os> {
    /// Written by everybody who takes a reference. Keeps the counter of references away from the rest.
    _references: CachePadded<()>,
    engine: Shared<Engine<O>>,
    /// Posts carry requests out themselves, if they can.
    direct: bool,
    /// Bytes of one element that a post may carry out without the queue: more are too many, or not allowed.
    alone: u32,
    /// The same for inline bytes.
    alone_inline: u32,
    /// The queue pair can never be used again: whatever is posted is cancelled.
    dead: AtomicBool,
    /// The queue pair has a peer.
    linked: AtomicBool,
    /// The connection does not let this side read.
    no_reads: AtomicBool,
    domain: Shared<Domain<O>>,
    translations: Shared<TranslationCache<O>>,
    receive_cq: Shared<Cq<O>>,
    initiator_cq: Shared<Cq<O>>,
    /// Where receives are taken from, instead of the queue pair's own queue.
    srq: Option<Shared<Srq<O>>>,
    context: usize,
    posted: TailPublisher,
    accepted: TailPublisher,
    flush_initiator_to: AtomicU64,
    flush_receive_to: AtomicU64,
    drain_to: AtomicU64,
    link: O::Lock<Link<O>>,
    attachments: O::Lock<Option<Attachments>>,
    /// Dropped when nothing of the queue pair is left.
    client: Box<dyn Any + Send + Sync>,
    initiating: CachePadded<Initiating<O>>,
    receive: CachePadded<O::Lock<Receive>>,
    /// The peer waits for a receive to be posted. Exchanged by every post of one.
    awaited: CachePadded<AtomicBool>,
}

/// What posts and turns of a queue pair write.
struct Initiating<O: Os> {
    schedule: AtomicU32,
    orders: AtomicU32,
    transmit: O::Lock<Transmit<O>>,
}

/// Who is told about the connection of a queue pair.
///
/// Called at `IRQL <= DISPATCH_LEVEL`, possibly with locks of the engine held: it may note the fact and queue a deferred
/// call, nothing else.
pub trait LinkClient: Send + Sync + 'static {
    /// The queue pair has no peer any more: one of the two was disconnected, closed, or failed. Called once, and last.
    fn unlinked(&self);

    /// The initiator requests that were posted before [`Qp::drain`] are finished.
    fn drained(&self);
}

/// The connection of a queue pair.
///
/// A turn works with its own copy of `peer`. The invariant that keeps the copy good: a turn that takes the order
/// [`order::RELINK`] reads `peer` afterwards, under the lock; and the order is given under the same lock after every change of
/// `peer`. So whoever takes it reads that change or a later one, and nobody can take it between order and change, find no peer,
/// and leave the change unread. `linked` is set after both: a request that was posted because of it is found by a turn that has
/// the peer, or the order to look.
struct Link<O: Os> {
    peer: Option<Shared<Qp<O>>>,
    client: Option<Box<dyn LinkClient>>,
    /// The queue pair has had a peer: it gets no other.
    used: bool,
}

/// The queue pair's numbers in its completion queues and its shared receive queue.
#[derive(Clone, Copy)]
struct Attachments {
    receive: usize,
    initiator: usize,
    shared: Option<usize>,
}

/// What a queue pair refers to.
struct Uses<'a, O: Os> {
    domain: &'a Shared<Domain<O>>,
    receive_cq: &'a Shared<Cq<O>>,
    initiator_cq: &'a Shared<Cq<O>>,
    srq: Option<&'a Shared<Srq<O>>>,
}

/// A new queue pair with the two ends that its consumer posts through.
pub struct NewQp<O: Os> {
    /// The queue pair.
    pub qp: Shared<Qp<O>>,
    /// The end of the initiator queue.
    pub initiator: Initiator<O>,
    /// The end of the receive queue.
    pub receiver: Receiver<O>,
}

impl<O: Os> Qp<O> {
    /// Makes a queue pair without a peer. With a shared receive queue the receiver of the result is of no use. `client` is dropped when the last of it is gone, also from turns in progress.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    #[inline(never)]
    pub fn try_new(
        nic: &Shared<Nic<O>>,
        domain: &Shared<Domain<O>>,
        receive_cq: &Shared<Cq<O>>,
        initiator_cq: &Shared<Cq<O>>,
        srq: Option<&Shared<Srq<O>>>,
        parameters: &QpParameters,
        client: impl Any + Send + Sync,
    ) -> Result<NewQp<O>, NtStatus> {
        let (initiator, transmit) = post::initiator_queue(nic.os(), parameters)?;
        let (receiver, receive) = post::receive_queue(nic.os(), parameters)?;
        let watches = [initiator.tail_publisher(), receiver.tail_publisher()];
        let client = try_box(client).map_err(memory_status)?;
        let uses = Uses { domain, receive_cq, initiator_cq, srq };
        let qp = Self::around(nic, &uses, parameters, client, watches, transmit, receive)?;
        Self::attach(&qp)?;
        Ok(NewQp { initiator: initiator.of(&qp), receiver: receiver.of(&qp), qp })
    }

    /// Makes a queue pair around its two queues.
    ///
    /// Not a part of its caller, nor the queues', so that no stack frame has to hold all of it.
    #[inline(never)]
    fn around(
        nic: &Shared<Nic<O>>,
        uses: &Uses<'_, O>,
        parameters: &QpParameters,
        client: Box<dyn Any + Send + Sync>,
        [posted, accepted]: [TailPublisher; 2],
        transmit: O::Lock<Transmit<O>>,
        receive: O::Lock<Receive>,
    ) -> Result<Shared<Self>, NtStatus> {
        let os = nic.os();
        let link = os.lock(Link { peer: None, client: None, used: false })?;
        let attachments = os.lock(None)?;
        let direct = nic.mode() == NicMode::Direct;
        let takes_requests = direct && parameters.initiator_depth > 0;
        let most = u32::try_from(DIRECT_TURN.bytes).unwrap_or(u32::MAX).min(parameters.max_transfer);
        let alone = if takes_requests && parameters.max_initiator_sge > 0 { most } else { 0 };
        let alone_inline = if takes_requests { most.min(parameters.inline_size) } else { 0 };
        // From here on a failure has to leave the engine, which dropping the queue pair does.
        Shared::try_new(Self {
            _references: CachePadded(()),
            engine: nic.deal()?,
            direct,
            alone,
            alone_inline,
            dead: AtomicBool::new(false),
            linked: AtomicBool::new(false),
            no_reads: AtomicBool::new(false),
            domain: uses.domain.clone(),
            translations: TranslationCache::try_new(os)?,
            receive_cq: uses.receive_cq.clone(),
            initiator_cq: uses.initiator_cq.clone(),
            srq: uses.srq.cloned(),
            context: parameters.context,
            flush_initiator_to: AtomicU64::new(0),
            flush_receive_to: AtomicU64::new(0),
            drain_to: AtomicU64::new(0),
            posted,
            accepted,
            link,
            attachments,
            client,
            initiating: CachePadded(Initiating { schedule: AtomicU32::new(0), orders: AtomicU32::new(0), transmit }),
            receive: CachePadded(receive),
            awaited: CachePadded(AtomicBool::new(false)),
        })
        .map_err(memory_status)
    }

    fn attach(this: &Shared<Self>) -> Result<(), NtStatus> {
        let dependent = try_dependent(this.clone()).map_err(memory_status)?;
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

    /// Joins two queue pairs that have had no peer. What one sends goes to the receives of the other.
    ///
    /// # Errors
    ///
    /// `STATUS_CONNECTION_ACTIVE` if one of them has or had a peer or is closed; `STATUS_INVALID_PARAMETER` if they are the
    /// same.
    pub fn link(a: &Shared<Self>, b: &Shared<Self>) -> Result<(), NtStatus> {
        if Shared::ptr_eq(a, b) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        a.take_link()?;
        if let Err(error) = b.take_link() {
            a.link.with(|link| link.used = false);
            return Err(error);
        }
        a.join(b);
        b.join(a);
        // One of them may have failed, been closed or been unlinked in between: then the other one has no peer either.
        if a.is_dead() || b.is_dead() || !a.is_linked() || !b.is_linked() {
            Self::unlink(a);
            Self::unlink(b);
        }
        Ok(())
    }

    fn take_link(&self) -> Result<(), NtStatus> {
        self.link.with(|link| {
            if link.used || self.is_dead() {
                return Err(NtStatus::CONNECTION_ACTIVE);
            }
            link.used = true;
            Ok(())
        })
    }

    fn join(&self, peer: &Shared<Self>) {
        self.link.with(|link| {
            self.change_peer(link, Some(peer.clone()));
            self.linked.store(true, Ordering::Release);
        });
    }

    /// Ends the connection for both sides. Requests in progress end; receives stay (`NDKPI 7.7.6`).
    pub fn unlink(this: &Shared<Self>) {
        let Some(peer) = this.part() else { return };
        Self::ring(this);
        if peer.part().is_some() {
            Self::ring(&peer);
        }
    }

    fn part(&self) -> Option<Shared<Self>> {
        let (peer, client) = self.link.with(|link| {
            self.linked.store(false, Ordering::Release);
            (self.change_peer(link, None), link.client.take_if(|_| link.used))
        });
        if let Some(client) = client {
            client.unlinked();
        }
        peer
    }

    /// Gives the link another peer, and the order to look at it: see [`Link`]. Returns the peer before.
    fn change_peer(&self, link: &mut Link<O>, peer: Option<Shared<Self>>) -> Option<Shared<Self>> {
        let before = core::mem::replace(&mut link.peer, peer);
        self.initiating.orders.fetch_or(order::RELINK, Ordering::AcqRel);
        before
    }

    /// Lets `client` know when the queue pair loses the peer that [`Qp::link`] will give it. Until then nobody else can do the
    /// same.
    ///
    /// # Errors
    ///
    /// `STATUS_CONNECTION_ACTIVE` if it has a client or had a peer, `STATUS_CONNECTION_INVALID` if it is dead.
    pub fn set_link_client(&self, client: Box<dyn LinkClient>) -> Result<(), NtStatus> {
        // A client that was not taken is dropped after the lock is released.
        let refused = self.link.with(|link| {
            let status = match link.client {
                _ if self.is_dead() => NtStatus::CONNECTION_INVALID,
                None if !link.used => {
                    link.client = Some(client);
                    return Ok(());
                }
                _ => NtStatus::CONNECTION_ACTIVE,
            };
            Err((status, client))
        });
        refused.map_err(|(status, _)| status)
    }

    /// Takes back what [`Qp::set_link_client`] set, if it was not told.
    #[must_use]
    pub fn take_link_client(&self) -> Option<Box<dyn LinkClient>> {
        self.link.with(|link| link.client.take())
    }

    /// Whether reads can be posted once there is a peer: not if the outbound read limit of the connection is zero
    /// (`NDKPI 7.7.3`).
    pub(crate) fn allow_reads(&self, allowed: bool) {
        self.no_reads.store(!allowed && !fault::is(Fault::ReadLimitIgnored), Ordering::Release);
    }

    /// The queue pair at the other end.
    #[must_use]
    pub fn peer(&self) -> Option<Shared<Self>> {
        self.link.with(|link| link.peer.clone())
    }

    /// Whether there is a queue pair at the other end.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        self.linked.load(Ordering::Acquire)
    }

    /// Cancels what is posted in both queues, in order (`NDKPI 7.2`). What is posted later is carried out, if the queue pair is
    /// still connected.
    ///
    /// Only begins it; may run while the consumer posts.
    pub fn flush(this: &Shared<Self>) {
        // Two flushes at the same time: the later positions stand. They begin at zero and do not wrap around.
        this.flush_initiator_to.fetch_max(this.posted.tail(), Ordering::AcqRel);
        this.flush_receive_to.fetch_max(this.accepted.tail(), Ordering::AcqRel);
        this.initiating.orders.fetch_or(order::FLUSH_INITIATOR | order::FLUSH_RECEIVE, Ordering::AcqRel);
        Self::ring(this);
    }

    /// The same for the receive queue only. What the initiator queue holds ends by itself when the connection is over.
    pub fn flush_receives(this: &Shared<Self>) {
        this.flush_receive_to.fetch_max(this.accepted.tail(), Ordering::AcqRel);
        this.initiating.orders.fetch_or(order::FLUSH_RECEIVE, Ordering::AcqRel);
        Self::ring(this);
    }

    /// Lets the link client know when everything in the initiator queue is finished: carried out, failed or cancelled.
    pub fn drain(this: &Shared<Self>) {
        this.drain_to.store(this.posted.tail(), Ordering::Release);
        this.initiating.orders.fetch_or(order::DRAIN, Ordering::AcqRel);
        Self::ring(this);
    }

    fn tell_drained(&self) {
        self.link.with(|link| {
            if let Some(client) = &link.client {
                client.drained();
            }
        });
    }

    /// Waits until a turn that runs has ended: a bounded time. The turns after it know the link as it is now.
    ///
    /// Not to be called with a lock held.
    pub fn quiesce(&self) {
        self.initiating.transmit.with(|_| {});
    }

    /// Ends the use of the queue pair: its connection is broken, everything posted now or later is cancelled.
    pub fn fail(this: &Shared<Self>) {
        this.dead.store(true, Ordering::Release);
        // Pairs with the exchange of a post: either the post sees that the queue pair is dead, or the turn sees what it posted.
        this.awaited.fetch_or(false, Ordering::AcqRel);
        Self::unlink(this);
        Self::ring(this);
    }

    /// [`Qp::fail`], and lets the completion queues forget the queue pair. What keeps it from going away after that are the
    /// caller's own references and a turn in progress.
    pub fn close(this: &Shared<Self>) {
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

    /// Whether [`Qp::fail`] or [`Qp::close`] was called, or a request failed.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// What the queue pair was made with.
    #[must_use]
    pub fn client(&self) -> &(dyn Any + Send + Sync) {
        &*self.client
    }

    /// The tokens whose translations the queue pair has cached: of its own side and of the peer's.
    #[must_use]
    pub fn cached_tokens(&self) -> [Option<u32>; 2] {
        [Side::Mine, Side::Theirs].map(|side| self.translations.token(side))
    }

    /// The doorbell: there is something to do.
    pub(crate) fn ring(this: &Shared<Self>) {
        let before = this.initiating.schedule.fetch_or(schedule::READY | schedule::OWNED, Ordering::AcqRel);
        if before & schedule::OWNED == 0 {
            Engine::enqueue(&this.engine, this.clone());
        }
    }

    /// The doorbell of a post that may carry its request out at once.
    #[inline(never)]
    pub(crate) fn ring_here(this: &Shared<Self>) {
        // Whoever carries requests out, or is about to, finds what was posted, and is not waited for. If nobody does, the lock of the
        // initiator queue is enough: who rings meanwhile has the engine come.
        if this.direct && this.initiating.schedule.load(Ordering::Relaxed) == 0 {
            let mut budget = DIRECT_TURN;
            if this.initiating.transmit.with(|transmit| transmit.turn(this, &mut budget)) == Turn::Idle {
                return;
            }
        }
        Self::ring(this);
    }

    /// Gives the queue pair a turn. Whether it wants another.
    pub(crate) fn turn(this: &Shared<Self>, budget: &mut Budget) -> bool {
        this.initiating.schedule.fetch_and(!schedule::READY, Ordering::AcqRel);
        let receives = Self::turn_receives(this, budget);
        let requests = this.initiating.transmit.with(|transmit| transmit.turn(this, budget));
        if receives == Turn::Unfinished || requests == Turn::Unfinished {
            return true;
        }
        this.initiating.schedule.compare_exchange(schedule::OWNED, 0, Ordering::AcqRel, Ordering::Relaxed).is_err()
    }

    const fn completion(&self, request_context: usize, operation: Operation, status: NtStatus) -> Cqe {
        Cqe {
            qp_context: self.context,
            outcome: Outcome::new(operation, status),
            request_context,
            bytes: 0,
            invalidated_token: 0,
        }
    }
}

impl<O: Os> Dependent for Shared<Qp<O>> {
    fn fail(&self) {
        Qp::fail(self);
    }
}

impl<O: Os> Drop for Qp<O> {
    fn drop(&mut self) {
        self.engine.leave();
    }
}
