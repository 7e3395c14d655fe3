//! The requester: requests become packets, answers become completions (RoCEv2 6).
//!
//! ```text
//!            acked            at (next)      started
//!   slots:  [done | done | ... | being sent | ... | waiting ...]
//!   PSNs:         una ........... next .......... high
//! ```
//!
//! Slots before `acked` are finished and wait for their completion. `una` is the oldest packet that is not acknowledged; it lies in
//! the slot `acked`. `next` is the packet that goes out next; it lies in the slot `at`. All packets before `high` have been sent at
//! least once. Going back is to set `next` to `una`.

use alloc::boxed::Box;

use fallible::{AllocError, try_slice};

use super::{Flags, Link, PostError, Request, Work, request::LONGEST, window::Window};
use crate::{
    adapter::{Adapter, Completed},
    bounded::Bounded,
    counters::Counters,
    failure::Failure,
    mtu::Mtu,
    psn::Psn,
    timeout,
    wire::{Aeth, Bth, Extended, Nak, Opcode, Packet, Position, Reth, Syndrome},
};

/// A READ goes out in requests of at most so many packets, so that a lost response costs no more than these.
const READ_PACKETS: u32 = 16;
/// A long message asks for an ACK after so many packets.
const ACK_EACH: u32 = 32;
/// Messages of one packet that follow each other ask for one ACK for so many of them at most.
const ACK_SHORT: u32 = 16;
/// Packets of a connection that may be outstanding, however large the window may be: a quarter of the numbers.
const OUTSTANDING: u32 = 1 << 22;
/// For longer than this, in microseconds, no receive is waited for, however many retries there are (RoCEv2 0.5).
const RNR_LIMIT: u64 = 60_000_000;
/// RNR retries without a count.
const RNR_UNLIMITED: u8 = 7;

/// A request in the send queue.
#[derive(Clone, Copy, Debug)]
struct Slot {
    request: Request,
    /// The place of its inline data, if it has any.
    inline: Option<usize>,
    /// Its first packet; of a slot that has begun.
    first: Psn,
    /// How many packets it takes.
    packets: u32,
    /// It has failed on this side, and ends when those before it have ended.
    failure: Option<Failure>,
}

impl Slot {
    const fn is_read(&self) -> bool {
        matches!(self.request.work, Work::Read { .. })
    }

    /// Where the READ request ends that has the packet `index` in it. Independent of where it was begun, so that a READ that is
    /// asked for again from the middle lies inside the first one.
    fn read_end(&self, index: u32) -> u32 {
        ((index / READ_PACKETS + 1) * READ_PACKETS).min(self.packets)
    }
}

/// What was sent once before the requester went back because an answer was missing. Answers to it may still come, each of them ahead of
/// what is expected, and none of them says that anything more is lost (RoCEv2 6.4).
#[derive(Clone, Copy, Debug)]
struct Stale {
    /// The last of these answers that has come. The network keeps their order, as a rule: what comes with an earlier number, ahead of what
    /// is expected, answers what was sent again, and there is another gap.
    seen: Psn,
    /// The packet behind the last one that was sent then.
    end: Psn,
}

impl Stale {
    /// Returns true if an answer with this number may be one of them.
    const fn may_hold(self, psn: Psn) -> bool {
        self.seen.is_before(psn) && psn.is_before(self.end)
    }
}

/// The requesting half of a queue pair.
pub struct Requester {
    slots: Bounded<Slot>,
    inline: Box<[u8]>,
    inline_each: usize,
    /// Requests ever posted, modulo the depth: the place of the next one's inline data.
    posted: usize,
    /// Slots that are finished.
    acked: usize,
    /// The slot that goes out next.
    at: usize,
    /// Slots that have begun.
    started: usize,
    una: Psn,
    next: Psn,
    high: Psn,
    /// The packet behind the last one of the slots that have begun.
    end: Psn,
    /// Packets since the last one that asks for an ACK: all of them short messages, or of one long one.
    unasked: u32,
    /// READ requests that have gone out and are not answered.
    reads: u32,
    window: Window,
    retries: u8,
    rnr_retries: u8,
    /// Nothing before this, after an RNR NAK.
    rnr_until: Option<u64>,
    /// Since when there has been nothing but RNR NAKs.
    rnr_since: Option<u64>,
    /// When an answer must have come.
    deadline: Option<u64>,
    /// Went back to `una`, and nothing has been acknowledged since.
    recovering: bool,
    /// What it went back over.
    stale: Option<Stale>,
    /// The responder has refused this packet, and READs before it are not answered yet.
    refused: Option<(Psn, Failure)>,
    failed: Option<Failure>,
    /// The failure has been told with a completion.
    told: bool,
}

impl Requester {
    pub fn new(depth: usize, inline_each: usize, window: u32) -> Result<Self, AllocError> {
        Ok(Self {
            slots: Bounded::new(depth)?,
            inline: try_slice(depth.checked_mul(inline_each).ok_or(AllocError)?, |_| 0)?,
            inline_each,
            posted: 0,
            acked: 0,
            at: 0,
            started: 0,
            una: Psn::default(),
            next: Psn::default(),
            high: Psn::default(),
            end: Psn::default(),
            unasked: 0,
            reads: 0,
            window: Window::new(window.clamp(1, OUTSTANDING)),
            retries: 0,
            rnr_retries: 0,
            rnr_until: None,
            rnr_since: None,
            deadline: None,
            recovering: false,
            stale: None,
            refused: None,
            failed: None,
            told: false,
        })
    }

    /// Begins with the packet `first`.
    pub fn connect(&mut self, link: &Link) {
        (self.una, self.next, self.high, self.end) = (link.send_psn, link.send_psn, link.send_psn, link.send_psn);
        self.progress(link, 0, None);
    }

    /// Takes a request. None comes here once one has failed: the queue pair takes none then.
    pub fn post(&mut self, link: &Link, request: Request, inline: Option<&[u8]>) -> Result<(), PostError> {
        if request.length > LONGEST || inline.is_some_and(|data| data.len() > self.inline_each) {
            return Err(PostError::TooLong);
        }
        if matches!(request.work, Work::Read { .. }) && link.outbound_reads == 0 {
            return Err(PostError::NoReads);
        }
        let place = self.posted * self.inline_each;
        let slot = Slot { request, inline: inline.map(|_| place), first: Psn::default(), packets: 0, failure: None };
        self.slots.push(slot).map_err(|_| PostError::Full)?;
        self.posted = (self.posted + 1) % self.slots.capacity();
        if let Some(data) = inline {
            self.inline[place..][..data.len()].copy_from_slice(data);
        }
        Ok(())
    }

    /// Requests that have not completed.
    pub fn outstanding(&self) -> usize {
        self.slots.len()
    }

    pub const fn failed(&self) -> Option<Failure> {
        self.failed
    }

    pub const fn deadline(&self) -> Option<u64> {
        match self.rnr_until {
            Some(time) => Some(time),
            None => self.deadline,
        }
    }

    /// Returns true if completions wait to be told.
    #[inline]
    pub fn has_completions(&self) -> bool {
        self.acked > 0 || (self.failed.is_some() && !self.slots.is_empty())
    }

    /// Ends the oldest request with `failure` and all others as flushed; with none, all as flushed.
    pub fn fail(&mut self, failure: Failure) {
        if self.failed.is_none() {
            self.failed = Some(failure);
            self.told = failure == Failure::Flushed;
            (self.deadline, self.rnr_until) = (None, None);
        }
    }

    /// Tells at most `budget` completions.
    pub fn complete(&mut self, qp: u32, adapter: &mut impl Adapter, budget: usize) {
        for _ in 0..budget {
            let outcome = if self.acked > 0 {
                self.acked -= 1;
                self.at = self.at.saturating_sub(1);
                self.started = self.started.saturating_sub(1);
                Ok(())
            } else if let Some(failure) = self.failed {
                Err(if core::mem::replace(&mut self.told, true) { Failure::Flushed } else { failure })
            } else {
                return;
            };
            let Some(Slot { request: Request { context, flags: Flags { silent_success, .. }, .. }, .. }) =
                self.slots.pop()
            else {
                return;
            };
            if outcome.is_err() || !silent_success {
                adapter.complete(qp, Completed { context, outcome });
            }
        }
    }

    /// The next packet, if one may go.
    pub fn transmit(&mut self, now: u64, link: &Link, frame: &mut [u8], adapter: &mut impl Adapter) -> Option<usize> {
        if self.rnr_until.is_some_and(|until| now < until) || self.refused.is_some() || self.failed.is_some() {
            return None;
        }
        self.rnr_until = None;
        let slot = *self.slots.get(self.at)?;
        if slot.failure.is_some() || !self.may_go(link, &slot) {
            return None;
        }
        let slot = if self.at == self.started { self.start(link, slot)? } else { slot };
        let index = self.next.since(slot.first);
        let (sent, length) = match self.emit(link, &slot, index, frame, adapter) {
            Ok(sent) => sent,
            Err(failure) => {
                self.fail_slot(failure);
                return None;
            }
        };
        self.next = self.next.plus(sent);
        if index + sent == slot.packets {
            self.at += 1;
        }
        if self.high.is_before(self.next) {
            self.high = self.next;
        }
        if self.deadline.is_none() {
            self.deadline = link.ack_timeout.map(|timeout| now + timeout);
        }
        Some(length)
    }

    /// Returns true if transmitting now might give a packet.
    #[inline]
    pub fn may_transmit(&self, now: u64, link: &Link) -> bool {
        self.rnr_until.is_none_or(|until| until <= now)
            && self.refused.is_none()
            && self.failed.is_none()
            && self.slots.get(self.at).is_some_and(|slot| slot.failure.is_none() && self.may_go(link, slot))
    }

    /// Fence, window and read limit allow a packet of the slot `at`.
    #[inline]
    fn may_go(&self, link: &Link, slot: &Slot) -> bool {
        let flight = self.next.since(self.una);
        let waits_for_reads = slot.request.flags.read_fence
            && (self.acked..self.at).any(|index| self.slots.get(index).is_some_and(Slot::is_read));
        let too_many_reads = slot.is_read() && self.reads >= u32::from(link.outbound_reads);
        flight < self.window.packets() && !waits_for_reads && !too_many_reads
    }

    /// Gives the slot its packets.
    fn start(&mut self, link: &Link, mut slot: Slot) -> Option<Slot> {
        slot.first = self.end;
        slot.packets = link.mtu.packets(slot.request.length);
        self.end = self.end.plus(slot.packets);
        *self.slots.get_mut(self.at)? = slot;
        self.started += 1;
        Some(slot)
    }

    /// The slot `at` has failed on this side.
    fn fail_slot(&mut self, failure: Failure) {
        // Its own packets that have gone out.
        let own = self.slots.get_mut(self.at).map_or(0, |slot| {
            slot.failure = Some(failure);
            self.next.since(slot.first)
        });
        self.settle();
        if self.unasked > own && self.failed.is_none() {
            // The messages before it have left it to this one to ask for an ACK.
            self.rewind();
        }
    }

    /// Returns true if the message in the slot `at` need not ask for an ACK, though it ends: it is short, and so is the next one, which
    /// goes out directly behind it and asks, or leaves that to another.
    fn leaves_asking(&self, link: &Link, slot: &Slot) -> bool {
        let asks_each = (self.window.packets() / 4).clamp(1, ACK_SHORT);
        if slot.packets > 1 || self.recovering || self.unasked + 1 >= asks_each {
            return false;
        }
        self.slots.get(self.at + 1).is_some_and(|next| {
            let is_short = next.request.length <= link.mtu.bytes();
            is_short && !next.is_read() && !next.request.flags.read_fence && next.failure.is_none()
        })
    }

    /// Writes the packet `index` of a slot. Returns how many numbers it takes, and the frame's length.
    fn emit(
        &mut self,
        link: &Link,
        slot: &Slot,
        index: u32,
        frame: &mut [u8],
        adapter: &mut impl Adapter,
    ) -> Result<(u32, usize), Failure> {
        let Request { context, work, flags, length } = slot.request;
        let offset = index * link.mtu.bytes();
        let mut extended = Extended::default();
        let position = Position::of(index, 0, slot.packets);
        let opcode = match work {
            Work::Send { invalidate } => {
                extended.invalidate = invalidate.filter(|_| position.ends());
                Opcode::send(position, invalidate.is_some())
            }
            Work::Write { address, key } => {
                extended.reth = position.begins().then(|| Reth::new(address, key, length));
                Opcode::write(position)
            }
            Work::Read { address, key } => return self.emit_read(link, slot, index, (address, key), frame),
        };
        let bytes = link.mtu.payload(length, index);
        let mut bth = Bth::new(opcode, link.remote_qpn, self.next);
        bth.solicited = flags.solicited && position.ends() && matches!(work, Work::Send { .. });
        let fills_window = self.next.since(self.una) + 1 >= self.window.packets();
        let asks = position.ends() && !self.leaves_asking(link, slot);
        bth.acknowledge = asks || (index + 1).is_multiple_of(ACK_EACH) || fills_window;
        let inline = slot.inline.map(|place| place + offset as usize);
        let unasked = if bth.acknowledge { 0 } else { self.unasked + 1 };
        let emitted = link.path.emit(bth, &extended, bytes, frame, |payload| match inline {
            Some(place) => {
                payload.copy_from_slice(&self.inline[place..][..payload.len()]);
                Ok(())
            }
            None if payload.is_empty() => Ok(()),
            None => adapter.gather(link.qp, context, offset, payload),
        });
        let length = emitted.map_err(|_| Failure::LocalProtection)?;
        self.unasked = unasked;
        Ok((1, length))
    }

    /// A READ request from the packet `index` of its response on.
    fn emit_read(
        &mut self,
        link: &Link,
        slot: &Slot,
        index: u32,
        (address, key): (u64, u32),
        frame: &mut [u8],
    ) -> Result<(u32, usize), Failure> {
        let (mtu, end) = (link.mtu.bytes(), slot.read_end(index));
        let offset = index * mtu;
        let length = slot.request.length.min(end.saturating_mul(mtu)) - offset;
        let reth = Reth::new(address.wrapping_add(offset.into()), key, length);
        let extended = Extended { reth: Some(reth), ..Extended::default() };
        let mut bth = Bth::new(Opcode::ReadRequest, link.remote_qpn, self.next);
        bth.acknowledge = true;
        self.unasked = 0;
        self.reads += 1;
        let emitted: Result<_, Failure> = link.path.emit(bth, &extended, 0, frame, |_| Ok(()));
        Ok((end - index, emitted?))
    }

    /// An answer of the responder. None comes here once a request has failed: its queue pair takes no packets then.
    pub fn receive(
        &mut self,
        now: u64,
        link: &Link,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
        counters: &mut Counters,
    ) {
        let psn = packet.bth.psn;
        // From the packet on that it has refused, the responder answers nothing.
        let high = self.refused.map_or(self.high, |(refused, _)| refused);
        let Some(Aeth { syndrome, .. }) = packet.extended.aeth.filter(|_| packet.bth.opcode == Opcode::Acknowledge)
        else {
            if psn.is_in(self.una, high) {
                self.response(now, link, packet, adapter, counters);
            } else {
                counters.ghosts += 1;
            }
            return;
        };
        let syndrome = Syndrome::from_byte(syndrome);
        // A NAK 0x60 may name the packet that comes next.
        let end = if syndrome == Syndrome::Nak(Nak::Sequence) { high.plus(1) } else { high };
        if !psn.is_in(self.una, end) {
            counters.ghosts += 1;
            return;
        }
        let (failure, before) = match syndrome {
            Syndrome::Ack => {
                if self.advance(now, link, psn.plus(1)).is_err() {
                    self.answer_missing(now, link, psn, counters);
                }
                return;
            }
            Syndrome::RnrNak(code) => {
                counters.rnr_naks_received += 1;
                match self.advance(now, link, psn) {
                    Ok(()) => self.not_ready(now, link, code),
                    Err(Missing) => self.answer_missing(now, link, psn, counters),
                }
                return;
            }
            Syndrome::Nak(Nak::Sequence) => {
                counters.naks_received += 1;
                let _ = self.advance(now, link, psn);
                if self.una != self.high {
                    self.go_back(now, link, counters);
                }
                return;
            }
            Syndrome::Nak(Nak::InvalidRequest) => (Failure::RemoteInvalidRequest, psn),
            Syndrome::Nak(Nak::RemoteAccess) => (Failure::RemoteAccess, psn),
            Syndrome::Nak(Nak::RemoteOperation) | Syndrome::Reserved => (Failure::RemoteOperation, psn),
        };
        counters.naks_received += 1;
        // What comes before it has succeeded, but READs whose data is on its way: they end first, or time out.
        self.refused = Some((before, failure));
        let _ = self.advance(now, link, before);
        self.settle();
    }

    /// Data of a READ, for a packet that is outstanding.
    fn response(
        &mut self,
        now: u64,
        link: &Link,
        packet: &Packet<'_>,
        adapter: &mut impl Adapter,
        counters: &mut Counters,
    ) {
        let psn = packet.bth.psn;
        if self.advance(now, link, psn).is_err() {
            self.answer_missing(now, link, psn, counters);
            return;
        }
        let Some(slot) = self.slots.get(self.acked).copied().filter(Slot::is_read) else {
            counters.ghosts += 1;
            return;
        };
        let (index, length) = (psn.since(slot.first), slot.request.length);
        if packet.payload.len() != link.mtu.payload(length, index) as usize {
            counters.wrong_length += 1;
            return;
        }
        let offset = index * link.mtu.bytes();
        if !packet.payload.is_empty() && adapter.scatter(link.qp, slot.request.context, offset, packet.payload).is_err()
        {
            self.fail(Failure::LocalProtection);
            return;
        }
        if packet.bth.opcode.position().begins() && !index.is_multiple_of(READ_PACKETS) {
            // Only what was asked for again begins here: the first answer has come to its end.
            self.stale = None;
        }
        if index + 1 == slot.read_end(index) {
            self.reads = self.reads.saturating_sub(1);
        }
        self.una = psn.plus(1);
        self.progress(link, 1, Some(now));
        self.settle();
        if let Some((before, _)) = self.refused {
            // What the READ was in the way of has succeeded too.
            let _ = self.advance(now, link, before);
        }
    }

    /// All packets before `end` are acknowledged, but READs whose data has not come.
    ///
    /// # Errors
    ///
    /// [`Missing`] if there is such a READ. `una` is its first packet without data then.
    fn advance(&mut self, now: u64, link: &Link, end: Psn) -> Result<(), Missing> {
        let before = self.una;
        let mut outcome = Ok(());
        while self.una != end {
            self.settle();
            let Some(slot) = self.slots.get(self.acked) else { break };
            if slot.is_read() {
                outcome = Err(Missing);
                break;
            }
            let slot_end = slot.first.plus(slot.packets);
            self.una = if slot_end.since(self.una) <= end.since(self.una) { slot_end } else { end };
        }
        self.settle();
        let arrived = self.una.since(before);
        if arrived > 0 {
            self.progress(link, arrived, Some(now));
        }
        outcome
    }

    /// Packets have been acknowledged: counters begin anew, and what was sent ahead counts as sent.
    fn progress(&mut self, link: &Link, packets: u32, now: Option<u64>) {
        self.window.arrived(packets);
        (self.retries, self.rnr_retries) = (link.retry_count, link.rnr_retry_count);
        (self.recovering, self.rnr_since) = (false, None);
        // What is ahead of all that had come then is missing for a reason of its own.
        self.stale = self.stale.filter(|stale| self.una.is_before(stale.end));
        if self.next.is_before(self.una) {
            // Sent before going back, and arrived after all. The slot is the oldest that is not finished, still or when that is settled.
            self.next = self.una;
        }
        // What has failed waits for nothing any more.
        let waits = self.una != self.next && self.failed.is_none();
        self.deadline = now.filter(|_| waits).and_then(|now| Some(now + link.ack_timeout?));
    }

    /// Slots whose last packet is acknowledged are finished. A slot that has failed fails when it is the oldest.
    fn settle(&mut self) {
        while let Some(slot) = self.slots.get(self.acked) {
            if let Some(failure) = slot.failure {
                self.fail(failure);
                return;
            }
            if self.acked >= self.started || self.una.since(slot.first) < slot.packets {
                break;
            }
            self.acked += 1;
            self.at = self.at.max(self.acked);
        }
        if let Some((psn, failure)) = self.refused
            && psn == self.una
        {
            self.fail(failure);
        }
    }

    /// The answer `psn` has come before one that is expected. Goes back once for each gap, also if the one that was missing comes
    /// after all, and others of the first answer behind it.
    fn answer_missing(&mut self, now: u64, link: &Link, psn: Psn, counters: &mut Counters) {
        match &mut self.stale {
            Some(stale) if stale.may_hold(psn) => stale.seen = psn,
            _ if self.recovering => {}
            _ => {
                let stale = Stale { seen: psn, end: self.high };
                self.go_back(now, link, counters);
                self.stale = Some(stale);
            }
        }
    }

    /// A packet was lost.
    fn go_back(&mut self, now: u64, link: &Link, counters: &mut Counters) {
        if self.recovering || self.refused.is_some() || self.failed.is_some() {
            return;
        }
        counters.goes_back += 1;
        self.retry(now, link);
    }

    fn retry(&mut self, now: u64, link: &Link) {
        let Some(retries) = self.retries.checked_sub(1) else {
            self.fail(Failure::RetryExceeded);
            return;
        };
        self.retries = retries;
        self.recovering = true;
        self.stale = None;
        self.window.lost();
        self.rewind();
        self.deadline = link.ack_timeout.map(|timeout| now + timeout);
    }

    /// The next packet is the oldest that is not acknowledged.
    fn rewind(&mut self) {
        (self.next, self.at, self.reads, self.unasked) = (self.una, self.acked, 0, 0);
    }

    /// The responder has no receive.
    fn not_ready(&mut self, now: u64, link: &Link, code: u8) {
        if self.rnr_until.is_some() || self.failed.is_some() {
            return;
        }
        let since = *self.rnr_since.get_or_insert(now);
        let spent = if link.rnr_retry_count == RNR_UNLIMITED { now - since > RNR_LIMIT } else { self.rnr_retries == 0 };
        if spent {
            self.fail(Failure::RnrRetryExceeded);
            return;
        }
        self.rnr_retries = self.rnr_retries.saturating_sub(1);
        // The peer lives.
        self.retries = link.retry_count;
        self.rewind();
        self.deadline = None;
        self.rnr_until = Some(now + timeout::of_rnr_code(code));
    }

    /// Time passes. Returns true if the peer has not answered in time.
    pub fn tick(&mut self, now: u64, link: &Link, counters: &mut Counters) -> bool {
        if self.rnr_until.is_some_and(|until| until <= now) {
            self.rnr_until = None;
        }
        let is_late = self.deadline.is_some_and(|deadline| deadline <= now);
        if is_late {
            counters.timeouts += 1;
            self.refused = None;
            self.retry(now, link);
        }
        is_late
    }
}

/// A READ's data is missing.
#[derive(Debug)]
struct Missing;

/// Bytes of a message that is cut into packets of `mtu` are addressed with 32 bits.
const _: () = assert!(LONGEST as u64 + (Mtu::Bytes4096.bytes() as u64) < u32::MAX as u64);
