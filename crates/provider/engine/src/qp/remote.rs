//! Queue pairs whose peer is on another machine.
//!
//! Their requests stay in the send queue until they have completed. A *carrier* ([`crate::wire`]) takes them from there in order, asks
//! for their bytes packet by packet, and says how each one has ended. Requests without bytes for the peer are carried out here, in their
//! turn and without holding up those behind them if that is possible ([`super::passing`]).
//!
//! The carrier calls this with its own lock held. So a quantum never calls the carrier back, but [rings](Carrier::ring).

use alloc::boxed::Box;

use fallible::{Arc, try_box, try_slice};

use super::{
    Flags, NtStatus, Qp, Work,
    progress::Current,
    request::{INLINE, LocalData, Sge, WorkRequest},
    send_queue::SendQueue,
};
use crate::{
    cq::Cause,
    memory::{Access, Domain, Lookup},
    os::{Os, SpinLock},
    sync::Ordering,
};

/// What carries the requests of a queue pair to another machine.
pub trait Carrier: Send + Sync + 'static {
    /// There may be something to do for the queue pair. Called with locks of the engine held: it notes the fact, and queues a call.
    fn ring(&self);
}

/// The bell of a queue pair.
pub type Bell = Arc<Box<dyn Carrier>>;

/// A request for the peer.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// Its number in the send queue.
    pub number: u64,
    pub work: Work,
    pub flags: Flags,
    /// Bytes of its data.
    pub length: u32,
}

/// What has become of [`Qp::feed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fed {
    /// Nothing more can be handed over now. The carrier is rung when that changes, or knows itself.
    Done,
    /// There may be more: other queue pairs come first.
    Again,
    /// The connection is over for this side, or what is on its way was flushed: the carrier has to end it.
    Ends,
}

/// A request that was handed over.
#[derive(Clone, Copy, Default)]
pub(super) struct Flight {
    /// Where its elements begin, and its inline bytes: see [`Flights::passed`].
    pub begins: Passed,
    /// How it has ended. For an invalidation that is carried out when those before it have completed: success, from the beginning.
    pub outcome: Option<NtStatus>,
    cause: Option<Cause>,
}

/// Entries of the queues of elements and of inline bytes that requests have passed.
#[derive(Clone, Copy, Default)]
pub(super) struct Passed {
    elements: u64,
    chunks: u64,
}

impl Passed {
    fn add(&mut self, request: &WorkRequest) {
        self.elements += request.data.queued_elements() as u64;
        self.chunks += request.queued_chunks() as u64;
    }
}

/// The requests of a send queue that are on their way.
pub(super) struct Flights {
    carrier: Bell,
    /// The places of the requests between the head of the queue and `next`, by their numbers.
    places: Box<[Flight]>,
    /// The number of the request that is handed over next.
    pub next: u64,
    /// A request before that has failed here, and completes when those before it have: nothing more is handed over.
    pub has_failed: bool,
    /// Requests on their way that end the use of memory of this side when they complete.
    pub endings: usize,
    /// Why the request fails that completes next.
    cause: Option<Cause>,
    /// What the requests before `next` have.
    pub handed: Passed,
    /// What the requests before the head of the queue had.
    passed: Passed,
}

impl Flights {
    pub fn ring(&self) {
        self.carrier.ring();
    }

    /// A request has been removed from the queue, whose head is `head` now.
    ///
    /// Returns why it has failed, if its status does not say it.
    pub fn retire(&mut self, head: u64, request: &WorkRequest) -> Option<Cause> {
        self.passed.add(request);
        if self.next >= head && request.ends_memory() {
            self.endings = self.endings.saturating_sub(1);
        }
        if self.next < head {
            // It was never handed over.
            self.next = head;
            self.handed = self.passed;
        }
        self.cause.take()
    }

    /// How many requests are on their way at most.
    pub const fn room(&self) -> usize {
        self.places.len()
    }

    /// Puts the next request of the queue on its way, which may have ended already.
    pub fn put(&mut self, request: &WorkRequest, outcome: Option<NtStatus>) {
        let flight = Flight { begins: self.handed, outcome, cause: None };
        if let Some(place) = self.place(self.next) {
            *place = flight;
        }
        self.next += 1;
        self.handed.add(request);
        self.endings += usize::from(request.ends_memory());
    }

    fn place(&mut self, number: u64) -> Option<&mut Flight> {
        let count = self.places.len() as u64;
        let index = usize::try_from(number.checked_rem(count)?).ok()?;
        self.places.get_mut(index)
    }
}

impl<O: Os> Qp<O> {
    /// Connects a queue pair that has had no peer with one of another machine. At most `room` requests are on their way at a time.
    ///
    /// # Errors
    ///
    /// `STATUS_CONNECTION_ACTIVE` if it has or had a peer or is closed; `STATUS_INSUFFICIENT_RESOURCES`.
    pub(crate) fn link_remote(this: &Arc<Self>, carrier: Bell, room: usize) -> Result<(), NtStatus> {
        let places = try_slice(room, |_| Flight::default())?;
        let passed = Passed::default();
        let mut flights = try_box(Flights {
            carrier: carrier.clone(),
            places,
            next: 0,
            has_failed: false,
            endings: 0,
            cause: None,
            handed: passed,
            passed,
        })?;
        this.take_link()?;
        this.initiating.send_queue.with(|queue| {
            flights.next = queue.requests.head();
            queue.flights = Some(flights);
        });
        this.link.with(|link| {
            link.carrier = Some(carrier);
            this.change_peer(link, None);
            this.linked.store(true, Ordering::Release);
        });
        // If it has failed or was closed in between, it has no peer either.
        if this.is_dead() {
            Self::unlink(this);
        }
        Ok(())
    }

    /// The carrier carries no more. What is left in the queue is cancelled.
    pub(crate) fn land(this: &Arc<Self>) {
        // Dropped after the lock is released.
        let flights = this.initiating.send_queue.with(|queue| queue.flights.take());
        if flights.is_some() {
            Self::ring(this);
        }
    }

    /// Hands requests to `post`, which takes them or not, and carries out those that the peer does not see: `most` at most.
    pub(crate) fn feed(this: &Arc<Self>, most: usize, mut post: impl FnMut(&Outgoing) -> bool) -> Fed {
        this.initiating.send_queue.with(|queue| queue.feed(this, most, &mut post))
    }

    /// Copies bytes of a request that is on its way.
    ///
    /// # Errors
    ///
    /// `STATUS_ACCESS_VIOLATION` if they may not be read.
    pub(crate) fn gather(&self, number: u64, offset: u32, into: &mut [u8]) -> Result<(), NtStatus> {
        self.initiating.send_queue.with(|queue| queue.gather(&self.domain, number, offset as usize, into))
    }

    /// Stores bytes that a read has brought.
    ///
    /// # Errors
    ///
    /// `STATUS_ACCESS_VIOLATION` if they may not be written.
    pub(crate) fn scatter(&self, number: u64, offset: u32, bytes: &[u8]) -> Result<(), NtStatus> {
        self.initiating.send_queue.with(|queue| queue.scatter(&self.domain, number, offset as usize, bytes))
    }

    /// A request has ended; all before it have.
    ///
    /// The queue pair fails with a request that has failed by itself. One that was flushed has not: it ends as if its queue pair had lost
    /// its peer.
    pub(crate) fn landed(this: &Arc<Self>, number: u64, outcome: Result<(), Failed>) {
        this.initiating.send_queue.with(|queue| {
            let (status, cause) = match outcome {
                Ok(()) => (NtStatus::SUCCESS, None),
                Err(Failed::Itself(status, cause)) => {
                    Self::fail(this);
                    (status, cause)
                }
                Err(Failed::Behind) => (NtStatus::CANCELLED, None),
                Err(Failed::Flushed) => (queue.end_of_connection(this), None),
            };
            queue.broken |= outcome.is_err();
            if let Some(flight) = queue.flights.as_mut().and_then(|flights| flights.place(number)) {
                (flight.outcome, flight.cause) = (Some(status), cause);
            }
            let is_held = queue.retire(this);
            if queue.drain_to.is_some() {
                Self::ring(this);
            }
            if (is_held || queue.has_more())
                && let Some(flights) = &queue.flights
            {
                flights.ring();
            }
        });
    }

    /// The protection domain.
    pub(crate) const fn domain(&self) -> &Arc<Domain<O>> {
        &self.domain
    }

    /// Elements that a receive for it has at most.
    pub(crate) fn receive_elements(&self) -> usize {
        self.initiating.send_queue.with(|queue| queue.remote.capacity())
    }
}

/// Why a request that was handed over has not succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// For a reason of its own.
    Itself(NtStatus, Option<Cause>),
    /// Because of the end of the connection, or of a request before it.
    Flushed,
    /// Because a receive of the queue pair has failed.
    Behind,
}

impl<O: Os> SendQueue<O> {
    fn feed(&mut self, qp: &Arc<Qp<O>>, most: usize, post: &mut dyn FnMut(&Outgoing) -> bool) -> Fed {
        self.take_orders(qp);
        if self.retire(qp) {
            return Fed::Again;
        }
        for _ in 0..most {
            let Some(flights) = &self.flights else { return Fed::Done };
            // Behind one that the end of the connection has ended, all are cancelled.
            if qp.is_dead() || !qp.is_linked() || self.broken {
                return Fed::Ends;
            }
            if flights.has_failed {
                return Fed::Done;
            }
            let head = self.requests.head();
            let number = flights.next;
            let ahead = usize::try_from(number - head).unwrap_or(usize::MAX);
            if self.is_flushed() && ahead > 0 {
                return Fed::Ends;
            }
            let Some(request) = self.requests.get(ahead).copied() else { return Fed::Done };
            if self.is_flushed() {
                if let Work::FastRegister(posted) | Work::Bind(posted) = request.work {
                    qp.domain.cancel(posted);
                }
                self.complete(qp, &request, NtStatus::CANCELLED);
                continue;
            }
            if !request.work.moves_bytes() {
                if ahead > 0 {
                    if self.pass(qp, &request, ahead) {
                        continue;
                    }
                    // It waits for those before it, and is carried out when they have completed.
                    return Fed::Done;
                }
                match self.last_step(qp, &request) {
                    Ok(false) => return Fed::Again,
                    Ok(true) => self.complete(qp, &request, NtStatus::SUCCESS),
                    Err(status) => self.complete_failed(qp, &request, status),
                }
                continue;
            }
            if ahead >= flights.room() {
                return Fed::Done;
            }
            let begins = flights.handed;
            if self.uses_what_ends(&request, ahead) {
                // It must not find the memory any more.
                return Fed::Done;
            }
            if let Err(status) = self.check_local(&qp.domain, &request, begins) {
                // A local error comes before those of the peer, and after the requests before it.
                if ahead > 0 {
                    return Fed::Done;
                }
                self.complete_failed(qp, &request, status);
                continue;
            }
            let outgoing = Outgoing { number, work: request.work, flags: request.flags, length: request.length };
            if !post(&outgoing) {
                return Fed::Done;
            }
            if let Some(flights) = &mut self.flights {
                flights.put(&request, None);
            }
        }
        Fed::Again
    }

    /// Returns true if there are requests that were not handed over.
    fn has_more(&mut self) -> bool {
        let Some(flights) = &self.flights else { return false };
        let ahead = usize::try_from(flights.next - self.requests.head()).unwrap_or(usize::MAX);
        self.requests.get(ahead).is_some()
    }

    /// Carries out what of a request does not concern the peer. Returns false if it has to wait for transfers.
    pub(super) fn last_step(&mut self, qp: &Qp<O>, request: &WorkRequest) -> Result<bool, NtStatus> {
        self.current.get_or_insert(Current::LAST_STEP);
        if !self.invalidate(qp, request)? {
            return Ok(false);
        }
        self.succeed(qp, request)?;
        Ok(true)
    }

    fn complete_failed(&mut self, qp: &Arc<Qp<O>>, request: &WorkRequest, status: NtStatus) {
        Qp::fail(qp);
        self.broken = true;
        self.complete(qp, request, status);
    }

    /// Completes requests that have ended, in order. Returns true if one has to wait for transfers.
    fn retire(&mut self, qp: &Arc<Qp<O>>) -> bool {
        loop {
            let head = self.requests.head();
            let Some(flights) = self.flights.as_mut().filter(|flights| head < flights.next) else { return false };
            let Some(flight) = flights.place(head).copied() else { return false };
            let Some(mut status) = flight.outcome else { return false };
            let Some(request) = self.requests.get(0).copied() else { return false };
            if !request.work.moves_bytes() {
                match self.passed(qp, &request, status) {
                    Some(ended) => status = ended,
                    None => return true,
                }
            } else if status.is_success()
                && matches!(request.work, Work::Read { .. })
                && request.flags.contains(Flags::LOCAL_INVALIDATE)
            {
                match self.last_step(qp, &request) {
                    Ok(true) => {}
                    Ok(false) => return true,
                    Err(failed) => {
                        Qp::fail(qp);
                        status = failed;
                    }
                }
            }
            if let Some(flights) = &mut self.flights {
                flights.cause = flight.cause;
            }
            self.complete(qp, &request, status);
        }
    }

    /// How a request ends whose connection has ended.
    fn end_of_connection(&self, qp: &Qp<O>) -> NtStatus {
        let is_cancelled = self.broken || self.is_flushed() || qp.is_dead();
        if is_cancelled { NtStatus::CANCELLED } else { NtStatus::IO_TIMEOUT }
    }

    /// The element of this index of a request whose others begin at `begins`.
    pub(super) fn element(&mut self, request: &WorkRequest, begins: Passed, index: u32) -> Option<Sge> {
        let LocalData::Elements { count, first } = request.data else { return None };
        if index >= count {
            return None;
        }
        let Some(behind) = index.checked_sub(1) else { return Some(first) };
        let passed = self.flights.as_ref()?.passed.elements;
        let ahead = usize::try_from(begins.elements - passed).ok()? + behind as usize;
        self.elements.get(ahead).copied()
    }

    const fn local_access(request: &WorkRequest) -> Access {
        if matches!(request.work, Work::Read { .. }) { Access::ReadSink } else { Access::LocalRead }
    }

    /// Checks that all local memory of a request may be used.
    fn check_local(&mut self, domain: &Domain<O>, request: &WorkRequest, begins: Passed) -> Result<(), NtStatus> {
        let access = Self::local_access(request);
        let mut index = 0;
        while let Some(Sge { address, token, length }) = self.element(request, begins, index) {
            if length > 0 {
                domain.resolve(token, address, length, access)?;
            }
            index += 1;
        }
        Ok(())
    }

    /// Finds a request that is on its way.
    fn in_flight(&mut self, number: u64) -> Result<(WorkRequest, Passed), NtStatus> {
        let ahead = number.checked_sub(self.requests.head()).and_then(|ahead| usize::try_from(ahead).ok());
        let request = ahead.and_then(|ahead| self.requests.get(ahead).copied());
        let begins = self.flights.as_mut().and_then(|flights| flights.place(number)).map(|flight| flight.begins);
        request.zip(begins).ok_or(NtStatus::ACCESS_VIOLATION)
    }

    /// Calls `each` with the parts of a request's elements that hold its bytes from `offset` on: an element, where in it they begin,
    /// and which of the `length` bytes they are.
    fn each_part(
        &mut self,
        (request, begins): (&WorkRequest, Passed),
        mut offset: usize,
        length: usize,
        mut each: impl FnMut(&Sge, u64, core::ops::Range<usize>) -> Result<(), NtStatus>,
    ) -> Result<(), NtStatus> {
        let (mut index, mut done) = (0, 0);
        while done < length {
            let element = self.element(request, begins, index).ok_or(NtStatus::ACCESS_VIOLATION)?;
            index += 1;
            let room = element.length as usize;
            if offset >= room {
                offset -= room;
                continue;
            }
            let now = (room - offset).min(length - done);
            each(&element, offset as u64, done..done + now)?;
            done += now;
            offset = 0;
        }
        Ok(())
    }

    fn gather(&mut self, domain: &Domain<O>, number: u64, offset: usize, into: &mut [u8]) -> Result<(), NtStatus> {
        let (request, begins) = self.in_flight(number)?;
        if let LocalData::Inline(first) = &request.data {
            return self.gather_inline(&first.0, begins, offset, into);
        }
        let length = into.len();
        self.each_part((&request, begins), offset, length, |element, skipped, part| {
            let key = Lookup { token: element.token, access: Access::LocalRead };
            domain.read(key, element.address.wrapping_add(skipped), &mut into[part])
        })
    }

    fn gather_inline(
        &mut self,
        first: &[u8; INLINE],
        begins: Passed,
        offset: usize,
        into: &mut [u8],
    ) -> Result<(), NtStatus> {
        let passed = self.flights.as_ref().map_or(0, |flights| flights.passed.chunks);
        let chunk = usize::try_from(begins.chunks - passed).unwrap_or(usize::MAX);
        let (mut at, mut rest) = (offset, into);
        while !rest.is_empty() {
            let source: &[u8] = match at.checked_sub(INLINE) {
                None => &first[at..],
                Some(behind) => {
                    let found = self.chunks.get(chunk + behind / super::CHUNK).ok_or(NtStatus::ACCESS_VIOLATION)?;
                    &found[behind % super::CHUNK..]
                }
            };
            let (now, later) = rest.split_at_mut(source.len().min(rest.len()));
            now.copy_from_slice(&source[..now.len()]);
            at += now.len();
            rest = later;
        }
        Ok(())
    }

    fn scatter(&mut self, domain: &Domain<O>, number: u64, offset: usize, bytes: &[u8]) -> Result<(), NtStatus> {
        let (request, begins) = self.in_flight(number)?;
        self.each_part((&request, begins), offset, bytes.len(), |element, skipped, part| {
            let key = Lookup { token: element.token, access: Access::ReadSink };
            domain.write(key, element.address.wrapping_add(skipped), &bytes[part])
        })
    }
}
