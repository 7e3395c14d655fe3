//! One direction of a cable: from a sender to the receive buffers of the other end.
//!
//! ```text
//! free --reserve--> being filled --send--> under way --arrived--> with the protocols --give_back--> free
//!  ^                     |                     |
//!  +----- give_back -----+------- clear -------+
//! ```
//!
//! A buffer is in exactly one of these places. When none is free the sender waits: [`Reserved::Full`] is remembered, and the
//! [`Link::give_back`] that makes one free says so. That is the flow control of the cable.

use alloc::boxed::Box;

use fallible::{AllocError, try_slice};

use crate::{
    Turn,
    impairment::{Impairment, Random},
};

/// Frames that are taken in one go, under one hold of the caller's lock.
pub const BATCH: usize = 32;

/// A million: [`Impairment::loss`] is a part of it.
const MILLION: u32 = 1_000_000;

/// What becomes of a frame that somebody wants to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// Its bytes go into the buffer of this number.
    Buffer(u16),
    /// The cable loses it.
    Lost,
    /// No buffer is free: it waits. Whoever makes one free is told that somebody waits.
    Full,
}

/// A frame under way.
#[derive(Clone, Copy, Debug, Default)]
struct UnderWay {
    /// When it arrives, in microseconds.
    due: u64,
    buffer: u16,
}

/// One direction of a cable.
///
/// # Invariants
///
/// `free[..free_count]` are the free buffers. The frames under way are `count` elements of the ring `under_way` from `first` on, in
/// the order of their due times. No buffer is in both, or in one of them twice: both have room for all.
#[derive(Debug)]
pub struct Link {
    impairment: Impairment,
    random: Random,
    free: Box<[u16]>,
    free_count: usize,
    under_way: Box<[UnderWay]>,
    first: usize,
    count: usize,
    /// When the cable has carried what was sent before, in nanoseconds.
    busy_until: u64,
    /// When the last frame arrives.
    last_due: u64,
    /// Somebody waits for a free buffer.
    waiting: bool,
    /// Who hands arrived frames to the protocols.
    pub delivery: Turn,
}

impl Link {
    /// A direction with so many receive buffers, all free.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn try_new(buffers: u16, impairment: Impairment) -> Result<Self, AllocError> {
        let count = usize::from(buffers);
        #[expect(clippy::cast_possible_truncation, reason = "indices below a number of sixteen bits")]
        let free = try_slice(count, |index| index as u16)?;
        Ok(Self {
            impairment,
            random: Random::new(impairment.seed),
            free,
            free_count: count,
            under_way: try_slice(count, |_| UnderWay::default())?,
            first: 0,
            count: 0,
            busy_until: 0,
            last_due: 0,
            waiting: false,
            delivery: Turn::new(),
        })
    }

    /// Takes a buffer for one more frame.
    #[must_use]
    #[inline]
    pub fn reserve(&mut self) -> Reserved {
        if self.free_count == 0 {
            self.waiting = true;
            return Reserved::Full;
        }
        if self.impairment.loss > 0 && self.random.below(MILLION) < self.impairment.loss {
            return Reserved::Lost;
        }
        self.free_count -= 1;
        Reserved::Buffer(self.free[self.free_count])
    }

    /// The frame in a reserved buffer, of so many bytes, is sent at `now` (microseconds).
    ///
    /// # Panics
    ///
    /// If more buffers are sent than there are.
    #[inline]
    pub fn send(&mut self, buffer: u16, bytes: usize, now: u64) {
        let due = if self.impairment.delays() { self.due(bytes, now) } else { now };
        // What was sent before arrives before: the clock of another processor may be a little behind.
        self.last_due = self.last_due.max(due);
        assert!(self.count < self.under_way.len(), "more frames are under way than there are buffers");
        let end = self.first + self.count;
        let place = if end >= self.under_way.len() { end - self.under_way.len() } else { end };
        self.under_way[place] = UnderWay { due: self.last_due, buffer };
        self.count += 1;
    }

    /// When a frame arrives that is sent at `now`.
    fn due(&mut self, bytes: usize, now: u64) -> u64 {
        let Impairment { delay, jitter, rate, .. } = self.impairment;
        // Bits by megabits in a second are microseconds.
        let sent = (bytes as u64).saturating_mul(8_000).checked_div(rate.into()).map_or(now, |takes| {
            self.busy_until = self.busy_until.max(now.saturating_mul(1_000)).saturating_add(takes);
            self.busy_until.div_ceil(1_000)
        });
        let late = if jitter > 0 { self.random.below(jitter.saturating_add(1)) } else { 0 };
        sent.saturating_add(delay.into()).saturating_add(late.into())
    }

    /// Takes the buffers of frames that have arrived at `now`, oldest first. How many.
    #[must_use]
    #[inline]
    pub fn arrived(&mut self, now: u64, buffers: &mut [u16]) -> usize {
        let mut taken = 0;
        for place in buffers.iter_mut().take(self.count) {
            let UnderWay { due, buffer } = self.under_way[self.first];
            if due > now {
                break;
            }
            *place = buffer;
            self.first = if self.first + 1 == self.under_way.len() { 0 } else { self.first + 1 };
            taken += 1;
        }
        self.count -= taken;
        taken
    }

    /// When the next frame arrives, in microseconds.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        (self.count > 0).then(|| self.under_way[self.first].due)
    }

    /// Buffers are free again: those that protocols have returned, or that were reserved and not used. True if somebody waits
    /// for one, who is to try again.
    ///
    /// # Panics
    ///
    /// If more come back than there are.
    #[must_use]
    #[inline]
    pub fn give_back(&mut self, buffers: impl IntoIterator<Item = u16>) -> bool {
        for buffer in buffers {
            self.free[self.free_count] = buffer;
            self.free_count += 1;
        }
        self.free_count > 0 && core::mem::take(&mut self.waiting)
    }

    /// The receiver is paused: frames under way are dropped, and nobody waits. How many frames.
    pub fn clear(&mut self) -> usize {
        let mut dropped = 0;
        let mut buffers = [0; BATCH];
        loop {
            let count = self.arrived(u64::MAX, &mut buffers);
            if count == 0 {
                break;
            }
            let _ = self.give_back(buffers[..count].iter().copied());
            dropped += count;
        }
        self.waiting = false;
        dropped
    }

    /// How many buffers are free.
    #[must_use]
    pub const fn free(&self) -> usize {
        self.free_count
    }

    /// How many buffers there are.
    #[must_use]
    pub const fn buffers(&self) -> usize {
        self.free.len()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{collections::BTreeSet, vec::Vec};

    use proptest::prelude::*;

    use super::{Link, MILLION, Reserved};
    use crate::{Impairment, impairment::Random};

    fn link(buffers: u16, impairment: Impairment) -> Link {
        Link::try_new(buffers, impairment).expect("memory")
    }

    fn buffer(link: &mut Link) -> u16 {
        match link.reserve() {
            Reserved::Buffer(buffer) => buffer,
            other => panic!("{other:?}"),
        }
    }

    /// What has arrived by then.
    fn arrived(link: &mut Link, now: u64) -> Vec<u16> {
        let mut buffers = [0; 64];
        let count = link.arrived(now, &mut buffers);
        buffers[..count].to_vec()
    }

    #[test]
    fn frames_arrive_at_once_and_in_order() {
        let mut link = link(4, Impairment::default());
        let sent: Vec<_> = (0..4).map(|_| buffer(&mut link)).collect();
        for &one in &sent {
            link.send(one, 1500, 7);
        }
        assert_eq!(arrived(&mut link, 7), sent);
        assert_eq!(arrived(&mut link, 8), []);
    }

    #[test]
    fn a_sender_that_finds_the_pool_empty_is_called_once_when_a_buffer_is_free() {
        let mut link = link(2, Impairment::default());
        let (one, two) = (buffer(&mut link), buffer(&mut link));
        assert_eq!(link.reserve(), Reserved::Full);
        assert_eq!(link.reserve(), Reserved::Full);
        assert!(!link.give_back([]), "none is free still");
        assert!(link.give_back([one]), "somebody waits");
        assert!(!link.give_back([two]), "nobody waits any more");
        assert_eq!((link.free(), link.buffers()), (2, 2));
    }

    #[test]
    fn a_delay_holds_every_frame_as_long() {
        let mut link = link(4, Impairment { delay: 100, ..Impairment::default() });
        let (one, two) = (buffer(&mut link), buffer(&mut link));
        link.send(one, 60, 1_000);
        link.send(two, 60, 1_050);
        assert_eq!(arrived(&mut link, 1_099), []);
        assert_eq!(link.next_due(), Some(1_100));
        assert_eq!(arrived(&mut link, 1_149), [one]);
        assert_eq!(arrived(&mut link, 1_150), [two]);
        assert_eq!(link.next_due(), None);
    }

    #[test]
    fn a_rate_lets_frames_follow_each_other_no_faster() {
        // 1500 bytes at 12 Mbit/s take a millisecond.
        let mut link = link(4, Impairment { rate: 12, ..Impairment::default() });
        let sent: Vec<_> = (0..3).map(|_| buffer(&mut link)).collect();
        for &one in &sent {
            link.send(one, 1500, 0);
        }
        assert_eq!(arrived(&mut link, 999), []);
        assert_eq!(arrived(&mut link, 1_000), [sent[0]]);
        assert_eq!(arrived(&mut link, 3_000), [sent[1], sent[2]]);
        // The cable has had nothing to do since.
        let late = buffer(&mut link);
        link.send(late, 1500, 10_000);
        assert_eq!(link.next_due(), Some(11_000));
    }

    #[test]
    fn jitter_never_reorders() {
        let mut link = link(64, Impairment { delay: 10, jitter: 500, seed: 3, ..Impairment::default() });
        let sent: Vec<_> = (0..64).map(|_| buffer(&mut link)).collect();
        for (now, &one) in sent.iter().enumerate() {
            link.send(one, 60, now as u64);
        }
        let (mut seen, mut late) = (Vec::new(), BTreeSet::new());
        for now in 0..1_000 {
            for one in arrived(&mut link, now) {
                late.insert(now - seen.len() as u64 - 10);
                seen.push(one);
            }
        }
        assert_eq!(seen, sent);
        assert!(late.len() > 2 && *late.last().expect("some") <= 500, "{late:?}");
        assert!(*late.last().expect("some") > 250, "more than half of what may be, once in 64 times: {late:?}");
    }

    #[test]
    fn the_seed_decides_which_frames_are_lost() {
        let lost = |seed| {
            let mut link = link(1, Impairment { loss: 250_000, seed, ..Impairment::default() });
            let fate = |_| match link.reserve() {
                Reserved::Buffer(one) => {
                    let _ = link.give_back([one]);
                    false
                }
                Reserved::Lost => true,
                Reserved::Full => panic!("a buffer is free"),
            };
            (0..4_000).map(fate).collect::<Vec<_>>()
        };
        assert_eq!(lost(1), lost(1));
        assert_ne!(lost(1), lost(2));
        let count = lost(1).into_iter().filter(|lost| *lost).count();
        assert!((850..1_150).contains(&count), "a quarter, more or less: {count}");
    }

    #[test]
    fn a_frame_is_lost_if_its_number_is_below_the_loss() {
        let drawn = Random::new(3).below(MILLION);
        let first = |loss| link(1, Impairment { loss, seed: 3, ..Impairment::default() }).reserve();
        assert_eq!(first(drawn), Reserved::Buffer(0));
        assert_eq!(first(drawn + 1), Reserved::Lost);
    }

    #[test]
    fn everything_or_nothing_is_lost_at_the_limits() {
        let mut all = link(1, Impairment { loss: 1_000_000, ..Impairment::default() });
        assert!((0..1_000).all(|_| all.reserve() == Reserved::Lost));
        assert_eq!(all.free(), 1);
    }

    #[test]
    fn a_pause_of_the_receiver_drops_what_is_under_way() {
        let mut link = link(40, Impairment { delay: 1_000, ..Impairment::default() });
        for _ in 0..39 {
            let one = buffer(&mut link);
            link.send(one, 60, 0);
        }
        assert_eq!(link.clear(), 39);
        assert_eq!((link.free(), link.next_due()), (40, None));
    }

    proptest! {
        /// Whatever happens in whatever order, no buffer is lost or doubled, and frames arrive in the order of their sends.
        #[test]
        fn buffers_are_in_one_place(steps in prop::collection::vec((0_u8..4, 1_u64..300), 1..400), seed: u64, loss in 0_u32..300_000, delay in 0_u32..200, jitter in 0_u32..200, rate in 0_u32..100) {
            let mut link = link(8, Impairment { delay, jitter, loss, rate, seed });
            let (mut now, mut kept, mut under_way) = (0, Vec::new(), std::collections::VecDeque::new());
            for (step, time) in steps {
                now += time;
                match step {
                    0 | 1 => match link.reserve() {
                        Reserved::Buffer(one) if step == 0 => {
                            link.send(one, 60, now);
                            under_way.push_back(one);
                        }
                        Reserved::Buffer(one) => { let _ = link.give_back([one]); }
                        Reserved::Lost => {}
                        Reserved::Full => prop_assert_eq!(kept.len() + under_way.len(), 8),
                    },
                    2 => for one in arrived(&mut link, now) {
                        prop_assert_eq!(under_way.pop_front(), Some(one));
                        kept.push(one);
                    },
                    _ => { let _ = link.give_back(std::mem::take(&mut kept)); }
                }
                prop_assert_eq!(link.free() + kept.len() + under_way.len(), 8);
                let places: BTreeSet<_> = kept.iter().chain(&under_way).collect();
                prop_assert_eq!(places.len(), kept.len() + under_way.len());
            }
        }
    }
}
