//! Shared receive queues (`NDKPI 7.12`).
//!
//! A queue pair takes a receive when a message arrives for it. From then on the receive belongs to that queue pair, and completes
//! there.

use alloc::{boxed::Box, collections::VecDeque, vec::Vec};
use core::marker::PhantomData;

use fallible::{Arc, try_box};

use super::{
    NtStatus, Qp, RqProducer, Sge,
    post::Limits,
    receive_queue::{Claim, Claimed},
    receive_rings,
    request::ReceiveRequest,
};
use crate::{
    cq::dependents::{DependentRef, Dependents, Spread, fail_some},
    memory::{Domain, Segment},
    os::{Dpc, Os, Routine, SpinLock},
    ring::{self, Consumer, Spare},
    sync::Ordering,
};

/// What a shared receive queue calls. Dropped with the queue.
pub trait SrqClient: Send + Sync + 'static {
    /// Fewer receives than the threshold are left, or the queue has failed (`NDK_FN_SRQ_NOTIFICATION_CALLBACK`). Called at
    /// `IRQL <= DISPATCH_LEVEL` with no lock held, never while another call for the same queue runs.
    fn notify(&self, status: NtStatus);
}

/// The parameters of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqParameters {
    /// Receives it holds at most.
    pub depth: u32,
    /// The largest depth of the adapter (`MaxSrqDepth`).
    pub max_depth: u32,
    /// Elements of one receive at most.
    pub max_sge: u32,
    /// Bytes of one receive at most.
    pub max_transfer: u32,
    /// The notification is due when fewer receives than this are left. Zero: not armed.
    pub threshold: u32,
    /// The processor on which notifications should run.
    pub processor: u32,
}

impl SrqParameters {
    /// Bytes of memory that a shared receive queue with these parameters takes, without its client.
    #[must_use]
    pub fn bytes<O: Os>(&self) -> u64 {
        let elements = self.depth.saturating_mul(self.max_sge.saturating_sub(1)).max(1);
        size_of::<Srq<O>>() as u64 + ring::bytes::<ReceiveRequest>(self.depth) + ring::bytes::<Sge>(elements)
    }
}

#[expect(clippy::struct_excessive_bools, reason = "independent facts about the notification")]
struct State<O: Os> {
    queue: RqProducer,
    requests: Consumer<ReceiveRequest>,
    elements: Consumer<Sge>,
    threshold: u32,
    armed: bool,
    due: bool,
    running: bool,
    closed: bool,
    /// The queue has failed, and whether its client has been told.
    failed: Option<bool>,
    dependents: Dependents,
    /// Queue pairs whose peers wait for a receive, each once. Has room for all attached ones.
    waiting: VecDeque<Arc<Qp<O>>>,
    members: usize,
}

impl<O: Os> State<O> {
    /// Makes the notification due if it is armed and too few receives are left. Returns true if the DPC has to be
    /// queued.
    fn check_low_water(&mut self) -> bool {
        let low = self.queue.requests.occupied() < u64::from(self.threshold);
        if !self.armed || !low || self.closed {
            return false;
        }
        self.armed = false;
        self.due = true;
        true
    }
}

/// A shared receive queue.
pub struct Srq<O: Os> {
    domain: Arc<Domain<O>>,
    state: O::Lock<State<O>>,
    dpc: O::Dpc<Notification<O>>,
    client: Box<dyn SrqClient>,
    limits: SrqParameters,
}

impl<O: Os> Srq<O> {
    /// Makes an empty queue for receives of `domain`.
    ///
    /// A threshold other than zero arms the notification. It is not due before a queue pair has taken a receive, although a new
    /// queue is below any threshold.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if the depth is 0 or above the adapter's limit; `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(
        os: &O,
        domain: &Arc<Domain<O>>,
        parameters: SrqParameters,
        client: impl SrqClient,
    ) -> Result<Arc<Self>, NtStatus> {
        let SrqParameters { depth, max_depth, max_sge, max_transfer, threshold, processor } = parameters;
        if !(1..=max_depth).contains(&depth) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let (queue, requests, elements) =
            receive_rings(depth, Limits { elements: max_sge, inline: 0, transfer: max_transfer })?;
        let state = State {
            queue,
            requests,
            elements,
            threshold,
            armed: threshold > 0,
            due: false,
            running: false,
            closed: false,
            failed: None,
            dependents: Dependents::default(),
            waiting: VecDeque::new(),
            members: 0,
        };
        Arc::try_new(Self {
            domain: domain.clone(),
            state: os.lock(state)?,
            dpc: os.dpc(processor)?,
            client: try_box(client)?,
            limits: parameters,
        })
        .map_err(Into::into)
    }

    /// Posts a receive into `elements`. Its completion comes from the queue pair that takes it.
    ///
    /// # Errors
    ///
    /// As [`Qp::post_receive`], and `STATUS_INTERNAL_ERROR` if the queue has failed.
    pub fn post(&self, context: usize, elements: impl ExactSizeIterator<Item = Sge>) -> Result<(), NtStatus> {
        let waiter = self.state.with(|state| {
            if state.failed.is_some() {
                return Err(NtStatus::INTERNAL_ERROR);
            }
            state.queue.push(context, elements)?;
            state.queue.requests.publish();
            Ok(Self::next_waiter(state))
        })?;
        // The reference to the queue pair itself is dropped without the lock.
        if let Some([_waiting, peer]) = waiter {
            Qp::ring(&peer);
        }
        Ok(())
    }

    /// Rings for the next queue pair in the list if there is a receive, because the one before has not taken it. Called at the
    /// end of every quantum that may have been due to such a ring.
    pub(super) fn pass_on(&self) {
        let waiter = self.state.with(|state| {
            let is_empty = state.queue.requests.occupied() == 0;
            if is_empty { None } else { Self::next_waiter(state) }
        });
        if let Some([_waiting, peer]) = waiter {
            Qp::ring(&peer);
        }
    }

    /// The first queue pair in the list that still has a peer, with that peer.
    fn next_waiter(state: &mut State<O>) -> Option<[Arc<Qp<O>>; 2]> {
        loop {
            let qp = state.waiting.pop_front()?;
            qp.awaited.store(false, Ordering::Relaxed);
            if let Some(peer) = qp.peer() {
                return Some([qp, peer]);
            }
        }
    }

    //= NDKPI 7.12.2
    /// Sets the depth, unless 0, and the threshold, unless 0, which arms the notification (`NDKPI 7.12`).
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` for a depth above the adapter's limit, `STATUS_BUFFER_OVERFLOW` for one below the number of
    /// receives in the queue, `STATUS_INSUFFICIENT_RESOURCES`. Nothing is changed then.
    pub fn modify(this: &Arc<Self>, depth: u32, threshold: u32) -> Result<(), NtStatus> {
        if depth > this.limits.max_depth {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        if depth > 0 {
            this.resize(depth)?;
        }
        let is_due = |state: &mut State<O>| {
            (state.threshold, state.armed) = (threshold, true);
            state.check_low_water()
        };
        if threshold > 0 && this.state.with(is_due) {
            this.dpc.queue(this);
        }
        Ok(())
    }

    //= NDKPI 7.12.5
    fn resize(&self, depth: u32) -> Result<(), NtStatus> {
        // The size of a new queue of elements for this depth.
        let element_limit = depth.saturating_mul(self.limits.max_sge.saturating_sub(1)).max(1);
        // Allocated and freed without the lock.
        let (requests, elements) = (Spare::try_new(depth)?, Spare::try_new(element_limit)?);
        let resized = self.state.with(|state| match state.queue.requests.resize(requests) {
            // The elements of the receives in the queue fit too.
            Ok(unused) => Ok((unused, state.queue.elements.resize(elements))),
            Err(unused) => Err((unused, elements)),
        });
        resized.map(drop).map_err(|_| NtStatus::BUFFER_OVERFLOW)
    }

    /// Takes a receive for a message of this length to `qp`, and resolves its elements into `sink`, which has room for them.
    pub(super) fn claim(this: &Arc<Self>, qp: &Arc<Qp<O>>, message: u32, sink: &mut Vec<Segment<O>>) -> Claimed<O> {
        let (claimed, queue) = this.state.with(|state| {
            // A queue pair that is closed is dead before it is detached. In the list it would stay alive. Its peer learns of the
            // end of the connection.
            if qp.is_dead() {
                return (Claimed::Nothing, false);
            }
            let Some(request) = state.requests.pop() else {
                if !qp.awaited.swap(true, Ordering::Relaxed) {
                    state.waiting.push_back(qp.clone());
                }
                return (Claimed::Nothing, false);
            };
            let mut others = (0..request.queued_elements()).map_while(|_| state.elements.pop());
            let claim = Claim { qp: qp.clone(), request, shared: true };
            let claimed = claim.resolve(&this.domain, message, &mut others, sink);
            // Those behind one that may not be used.
            others.for_each(drop);
            (claimed, state.check_low_water())
        });
        if queue {
            this.dpc.queue(this);
        }
        claimed
    }

    /// Adds a queue pair that takes receives here and fails with the queue. Returns its number for [`Srq::detach`].
    pub(super) fn attach(&self, dependent: DependentRef) -> Result<usize, NtStatus> {
        self.state.with(|state| {
            let missing = (state.members + 1).saturating_sub(state.waiting.len());
            state.waiting.try_reserve(missing).map_err(fallible::AllocError::from)?;
            let number = state.dependents.insert(dependent)?;
            state.members += 1;
            Ok(number)
        })
    }

    /// Removes what [`Srq::attach`] added.
    pub(super) fn detach(&self, qp: &Arc<Qp<O>>, number: usize) {
        let references = self.state.with(|state| {
            state.members -= 1;
            let place = state.waiting.iter().position(|waiting| Arc::ptr_eq(waiting, qp));
            let waiting = place.and_then(|place| state.waiting.remove(place));
            (waiting, state.dependents.remove(number))
        });
        drop(references);
    }

    /// Returns true if the queue has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.state.with(|state| state.failed.is_some())
    }

    //= NDKPI 7.12.4
    /// Fails the queue and its queue pairs, as a broken adapter would. The client gets `STATUS_INTERNAL_ERROR`.
    pub fn fail(this: &Arc<Self>) {
        this.state.with(|state| {
            if state.failed.is_none() {
                state.failed = Some(false);
                state.dependents.begin_failure();
                state.due |= !state.closed;
            }
        });
        this.dpc.queue(this);
    }

    /// Prevents further notifications. Receives in the queue are dropped with it.
    pub fn close(&self) {
        self.state.with(|state| {
            state.closed = true;
            state.armed = false;
            state.due = false;
        });
    }

    //= NDKPI 7.12.3
    fn notify(this: &Arc<Self>) {
        match fail_some(&this.state, |state| &mut state.dependents) {
            Spread::Unfinished => drop(this.dpc.queue(this)),
            Spread::Elsewhere => {}
            Spread::Everywhere => Self::notify_client(this),
        }
    }

    fn notify_client(this: &Arc<Self>) {
        let status = this.state.with(|state| {
            // A failure that has come meanwhile is told when its queue pairs have failed: its own call is queued.
            if state.running || !state.due || state.dependents.are_failing() {
                return None;
            }
            (state.due, state.running) = (false, true);
            let is_untold = state.failed.as_mut().is_some_and(|told| !core::mem::replace(told, true));
            Some(if is_untold { NtStatus::INTERNAL_ERROR } else { NtStatus::SUCCESS })
        });
        let Some(status) = status else { return };
        this.client.notify(status);
        let again = this.state.with(|state| {
            state.running = false;
            state.due
        });
        if again {
            this.dpc.queue(this);
        }
    }
}

/// The DPC that notifies the client.
pub struct Notification<O>(PhantomData<O>);

impl<O: Os> Routine for Notification<O> {
    type Target = Srq<O>;

    fn run(srq: &Arc<Srq<O>>) {
        Srq::notify(srq);
    }
}
