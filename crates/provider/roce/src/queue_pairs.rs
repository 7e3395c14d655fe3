//! The queue pairs of a stack, by their numbers.
//!
//! A number is a slot in the table and a generation, so that it comes again as late as can be: peers remember it for a while
//! (RoCEv2 0.9), and packets for the one before are nobody's.

use alloc::boxed::Box;

use fallible::{AllocError, try_box, try_slice};

use crate::{
    bounded::Bounded,
    qp::{LastAck, QueuePair, Sizes, State},
};

/// Bits of a queue pair's number.
const BITS: u32 = 24;
/// Packets that a queue pair sends before the next one may: as many as a caller of the stack sends with one call, or so. What is to be
/// looked at between two queue pairs is looked at that much less often.
const TURN: u32 = 16;

struct Slot {
    generation: u32,
    /// Boxed: it is moved out when it is destroyed, and kernel stacks are small.
    entry: Option<Box<Entry>>,
}

/// A queue pair, and what the stack knows about it.
pub struct Entry {
    pub qp: QueuePair,
    /// Its connection; zero is none.
    pub connection: u32,
    /// The connection that knows that the peer has sent something; zero is none.
    pub told: u32,
    /// It stands in the queue of those that may transmit, or has its turn.
    queued: bool,
}

impl Entry {
    /// Returns true if it can be connected: nobody has begun to.
    pub fn is_free(&self) -> bool {
        self.connection == 0 && self.qp.state() == State::Idle
    }
}

/// The turn of a queue pair that transmits.
#[derive(Clone, Copy)]
struct Turn {
    number: u32,
    /// Packets that it may send yet.
    left: u32,
}

/// The table.
pub struct QueuePairs {
    slots: Box<[Slot]>,
    index_bits: u32,
    /// The slots of those that may transmit, each once.
    ready: Bounded<usize>,
    /// The one that transmits now. It is looked at again when its turn ends, so until then there is something to transmit.
    turn: Option<Turn>,
    /// What those that have ended have still to say, whether they are here or not.
    last_acks: Bounded<LastAck>,
    /// No queue pair has an earlier deadline, but perhaps the one that transmits now; some may have none so early.
    wake: Option<u64>,
}

impl QueuePairs {
    /// A table for at most `most`, the first of which have the generation `first`.
    pub fn new(most: usize, first: u32) -> Result<Self, AllocError> {
        let index_bits = most.next_power_of_two().trailing_zeros().clamp(1, BITS - 8);
        let slots = try_slice(most.min(1 << index_bits), |_| Slot { generation: first, entry: None })?;
        let (ready, last_acks) = (Bounded::new(slots.len())?, Bounded::new(slots.len())?);
        Ok(Self { slots, index_bits, ready, turn: None, last_acks, wake: None })
    }

    /// Makes a queue pair, and returns its number; `None` if the table is full. Not inlined: it is made on the stack, which a connect that
    /// does so goes on with.
    #[inline(never)]
    pub fn create(&mut self, sizes: Sizes) -> Result<Option<u32>, AllocError> {
        let Some(index) = self.slots.iter().position(|slot| slot.entry.is_none()) else { return Ok(None) };
        let generations = 1 << (BITS - self.index_bits);
        let slot = &mut self.slots[index];
        // Generation zero would give the numbers 0 and 1.
        slot.generation = (slot.generation % (generations - 1)) + 1;
        let number = slot.generation << self.index_bits | u32::try_from(index).unwrap_or_default();
        slot.entry =
            Some(try_box(Entry { qp: QueuePair::new(number, sizes)?, connection: 0, told: 0, queued: false })?);
        Ok(Some(number))
    }

    fn index(&self, number: u32) -> usize {
        number as usize & ((1 << self.index_bits) - 1)
    }

    pub fn get(&self, number: u32) -> Option<&Entry> {
        let slot = self.slots.get(self.index(number))?;
        slot.entry.as_deref().filter(|entry| entry.qp.number() == number)
    }

    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Entry> {
        let index = self.index(number);
        let slot = self.slots.get_mut(index)?;
        slot.entry.as_deref_mut().filter(|entry| entry.qp.number() == number)
    }

    pub fn remove(&mut self, number: u32) -> Option<Box<Entry>> {
        self.get(number)?;
        let index = self.index(number);
        // Its place may soon be another's, which has not been queued.
        self.ready.retain(|queued| *queued != index);
        self.turn = self.turn.filter(|turn| turn.number != number);
        self.slots[index].entry.take()
    }

    /// Something has happened to a queue pair, which is returned: it may have a packet, or another deadline, or have ended.
    pub fn touch(&mut self, now: u64, number: u32) -> Option<&mut Entry> {
        let index = self.index(number);
        let entry = self.slots.get_mut(index)?.entry.as_deref_mut().filter(|entry| entry.qp.number() == number)?;
        // Without room it keeps its ACK until there is.
        if !self.last_acks.is_full()
            && let Some(ack) = entry.qp.take_last_ack()
        {
            let _ = self.last_acks.push(ack);
        }
        if let Some(deadline) = entry.qp.deadline() {
            self.wake = Some(self.wake.map_or(deadline, |wake| wake.min(deadline)));
        }
        if !entry.queued && entry.qp.may_transmit(now) && self.ready.push(index).is_ok() {
            entry.queued = true;
        }
        Some(entry)
    }

    /// The last ACK of one that has ended.
    pub fn last_ack(&mut self) -> Option<LastAck> {
        self.last_acks.pop()
    }

    /// The number of the one whose turn it is to transmit.
    #[inline]
    pub fn turn(&mut self) -> Option<u32> {
        if let Some(turn) = self.turn {
            return Some(turn.number);
        }
        while let Some(index) = self.ready.pop() {
            if let Some(entry) = &self.slots[index].entry {
                let number = entry.qp.number();
                self.turn = Some(Turn { number, left: TURN });
                return Some(number);
            }
        }
        None
    }

    /// The one whose turn it is has transmitted a packet, or has none. Returns true if its turn has ended: it is to be
    /// [touched](Self::touch) then.
    #[inline]
    pub fn end_turn(&mut self, has_transmitted: bool) -> bool {
        let Some(turn) = &mut self.turn else { return false };
        if has_transmitted && turn.left > 1 {
            turn.left -= 1;
            return false;
        }
        let number = turn.number;
        self.turn = None;
        if let Some(entry) = self.get_mut(number) {
            entry.queued = false;
        }
        true
    }

    pub fn may_transmit(&self) -> bool {
        self.turn.is_some() || !self.ready.is_empty() || !self.last_acks.is_empty()
    }

    /// No queue pair has an earlier deadline. That of the one whose turn it is counts at once: the caller may stop in the middle of it.
    pub fn wake(&self) -> Option<u64> {
        let turn = self.turn.and_then(|turn| self.get(turn.number)).and_then(|entry| entry.qp.deadline());
        [self.wake, turn].into_iter().flatten().min()
    }

    /// The number of the next queue pair, from the slot `from` on, whose deadline has come. To be called until it gives none, each
    /// time with the same variable: then the next deadline of all is known.
    pub fn expired(&mut self, now: u64, from: &mut usize) -> Option<u32> {
        if *from == 0 {
            if self.wake().is_none_or(|wake| now < wake) {
                return None;
            }
            self.wake = None;
        }
        while let Some(slot) = self.slots.get(*from) {
            *from += 1;
            let Some(entry) = &slot.entry else { continue };
            let (number, deadline) = (entry.qp.number(), entry.qp.deadline());
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Some(number);
            }
            self.touch(now, number);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::QueuePairs;
    use crate::{
        mtu::Mtu,
        path::Path,
        psn::Psn,
        qp::{Flags, Link, Request, Sizes, Work},
    };

    fn link(qp: u32) -> Link {
        let path = Path {
            local_mac: [2, 0, 0, 0, 0, 1],
            remote_mac: [2, 0, 0, 0, 0, 2],
            tag: None,
            local: [10, 0, 0, 1].into(),
            remote: [10, 0, 0, 2].into(),
            source_port: 0xC001,
            traffic_class: 0,
            hop_limit: 64,
        };
        Link {
            qp,
            remote_qpn: 7,
            path,
            mtu: Mtu::Bytes1024,
            send_psn: Psn::new(1),
            receive_psn: Psn::new(1),
            inbound_reads: 1,
            outbound_reads: 1,
            ack_timeout: None,
            retry_count: 7,
            rnr_retry_count: 7,
            rnr_timer: 14,
        }
    }

    /// Makes a queue pair that may transmit.
    fn ready(qps: &mut QueuePairs) -> u32 {
        let number = qps.create(Sizes::default()).expect("memory").expect("a place");
        let qp = &mut qps.get_mut(number).expect("it was made").qp;
        assert!(qp.connect(link(number)));
        let work = Work::Send { invalidate: None };
        qp.post(Request { context: 1, work, flags: Flags::default(), length: 0 }, None).expect("room");
        qps.touch(0, number).expect("it is there");
        number
    }

    #[test]
    fn numbers_have_24_bits_and_never_the_generation_zero() {
        // Two places: one bit is the place, and 23 are the generation, which goes round behind the last one.
        for (first, number) in [(0, 2), (5, 12), ((1 << 23) - 2, 0xFF_FFFE), ((1 << 23) - 1, 2), (u32::MAX, 1024)] {
            let mut qps = QueuePairs::new(2, first).expect("memory");
            assert_eq!(qps.create(Sizes::default()), Ok(Some(number)), "after {first:#x}");
            assert_eq!(qps.create(Sizes::default()), Ok(Some(number + 1)));
            assert_eq!(qps.create(Sizes::default()), Ok(None), "both places are taken");
        }
    }

    #[test]
    fn who_is_gone_has_no_turn_and_leaves_none_to_the_next_in_its_place() {
        let mut qps = QueuePairs::new(2, 1).expect("memory");
        for has_turn in [false, true, false] {
            let number = ready(&mut qps);
            if has_turn {
                assert_eq!(qps.turn(), Some(number));
            }
            assert!(qps.may_transmit());
            assert!(qps.remove(number).is_some());
            assert!(!qps.may_transmit(), "had its turn: {has_turn}");
        }
        let last = ready(&mut qps);
        assert_eq!(qps.turn(), Some(last));
        assert!(!qps.end_turn(true), "it has more of its turn");
        assert!(qps.end_turn(false), "it had nothing to send");
        assert_eq!(qps.turn(), None, "it was queued once");
    }
}
