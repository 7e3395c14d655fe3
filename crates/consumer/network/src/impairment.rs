//! What a network does to frames.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use rand_xoshiro::{
    Xoshiro256StarStar,
    rand_core::{Rng, SeedableRng},
};

/// What a network does to frames. Chances are in a million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Impairment {
    /// Frames that are lost.
    pub lost: u32,
    /// Frames that come twice.
    pub doubled: u32,
    /// Frames of which one bit is another.
    pub changed: u32,
    /// Frames that come later than some sent after them.
    pub late: u32,
    /// How much later they come at most.
    pub lateness: Duration,
    /// How long each frame is under way.
    pub delay: Duration,
}

impl Impairment {
    /// Returns true if every frame arrives once, at once and as it was.
    #[must_use]
    pub fn is_none(&self) -> bool {
        let Self { lost, doubled, changed, late, lateness: _, delay } = *self;
        (lost, doubled, changed, late) == (0, 0, 0, 0) && delay.is_zero()
    }

    /// Returns true if some frames do not arrive at once.
    #[must_use]
    pub fn delays(&self) -> bool {
        !self.delay.is_zero() || (self.late > 0 && !self.lateness.is_zero())
    }
}

/// One direction of a network: what happens to a frame depends on the seed and on how many came before it, not on the time.
pub struct Lane {
    impairment: Impairment,
    random: Xoshiro256StarStar,
    /// Arrival in microseconds, number, bytes.
    under_way: BinaryHeap<Reverse<(u64, u64, Vec<u8>)>>,
    count: u64,
    /// Frames under way at most; others are lost.
    room: usize,
}

/// How long a transport waits before it sends something again, in microseconds: as long as Windows waits at least.
const AGAIN: u64 = 300_000;
/// How often a transport sends something before it gives up.
const ATTEMPTS: u64 = 64;

/// Frames under way at most: about what 10 Gbit/s have in 80 ms.
const ROOM: usize = 1 << 16;

impl Lane {
    /// A direction without frames.
    #[must_use]
    pub fn new(impairment: Impairment, seed: u64) -> Self {
        let random = Xoshiro256StarStar::seed_from_u64(seed);
        Self { impairment, random, under_way: BinaryHeap::new(), count: 0, room: ROOM }
    }

    /// Always takes one number, so that the fate of later frames does not depend on this one's.
    fn chance(&mut self, in_a_million: u32) -> bool {
        self.below(1_000_000) < u64::from(in_a_million)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.next_u64() % end.max(1)
    }

    /// A frame sets out.
    pub fn send(&mut self, now: u64, frame: &[u8]) {
        let Impairment { lost, doubled, changed, late, lateness, delay } = self.impairment;
        let (is_lost, is_doubled) = (self.chance(lost), self.chance(doubled));
        for copy in 0..2 {
            let (is_changed, at) = (self.chance(changed), self.below(8 * frame.len() as u64));
            let (is_late, later) = (self.chance(late), self.below(micros(lateness) + 1));
            let goes = if copy == 0 { !is_lost } else { is_doubled };
            if !goes || self.under_way.len() >= self.room {
                continue;
            }
            let mut frame = frame.to_vec();
            if let (true, Some(byte)) = (is_changed, frame.get_mut(usize::try_from(at / 8).unwrap_or(0))) {
                *byte ^= 1 << (at % 8);
            }
            self.count += 1;
            let arrives = now + micros(delay) + if is_late { later } else { 0 };
            self.under_way.push(Reverse((arrives, self.count, frame)));
        }
    }

    /// When the next frame arrives.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        self.under_way.peek().map(|Reverse((arrives, ..))| *arrives)
    }

    /// When something of so many bytes arrives that a transport sends again, as often as it is lost: never if the transport gives up.
    pub fn carry(&mut self, now: u64, length: usize) -> Vec<u64> {
        let mut attempts = (0..ATTEMPTS).map(|attempt| self.once(now + attempt * AGAIN, length));
        attempts.find(|arrivals| !arrivals.is_empty()).unwrap_or_default()
    }

    /// When something of so many bytes arrives, and how often, of a lane that has nothing else under way.
    pub fn once(&mut self, now: u64, length: usize) -> Vec<u64> {
        self.send(now, &vec![0; length]);
        let arrivals = std::iter::from_fn(|| {
            let arrival = self.next()?;
            self.receive(arrival).map(|_| arrival)
        });
        arrivals.collect()
    }

    /// A frame that has arrived by now.
    pub fn receive(&mut self, now: u64) -> Option<Vec<u8>> {
        self.next().filter(|arrives| *arrives <= now)?;
        self.under_way.pop().map(|Reverse((.., frame))| frame)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(impairment: Impairment, seed: u64) -> Vec<(u64, Vec<u8>)> {
        let mut lane = Lane::new(impairment, seed);
        (0..1000_u64).for_each(|number| lane.send(number * 10, &number.to_be_bytes()));
        let mut seen = Vec::new();
        while let Some(time) = lane.next() {
            seen.push((time, lane.receive(time).expect("it has arrived")));
        }
        seen
    }

    #[test]
    fn the_same_seed_does_the_same() {
        let impairment = Impairment {
            lost: 100_000,
            doubled: 100_000,
            changed: 100_000,
            late: 100_000,
            lateness: Duration::from_micros(500),
            delay: Duration::from_micros(50),
        };
        assert_eq!(arrivals(impairment, 7), arrivals(impairment, 7));
        assert_ne!(arrivals(impairment, 7), arrivals(impairment, 8));
    }

    #[test]
    fn each_kind_happens_about_as_often_as_it_should() {
        let clean = arrivals(Impairment { delay: Duration::from_micros(5), ..Impairment::default() }, 1);
        assert!(
            clean
                .iter()
                .zip(0..)
                .all(|((time, frame), number)| { (*time, &frame[..]) == (number * 10 + 5, &number.to_be_bytes()[..]) })
        );
        assert_eq!(clean.len(), 1000);
        let lossy = arrivals(Impairment { lost: 100_000, ..Impairment::default() }, 1);
        assert!((850..950).contains(&lossy.len()), "{}", lossy.len());
        let doubled = arrivals(Impairment { doubled: 100_000, ..Impairment::default() }, 1);
        assert!((1050..1150).contains(&doubled.len()), "{}", doubled.len());
        let changed = arrivals(Impairment { changed: 100_000, ..Impairment::default() }, 1);
        let wrong: Vec<_> = changed
            .iter()
            .zip(0_u64..)
            .map(|((_, frame), number)| {
                frame.iter().zip(number.to_be_bytes()).map(|(is, was)| (is ^ was).count_ones()).sum::<u32>()
            })
            .filter(|bits| *bits > 0)
            .collect();
        assert!((50..150).contains(&wrong.len()) && wrong.iter().all(|bits| *bits == 1), "{wrong:?}");
        let impairment = Impairment { late: 100_000, lateness: Duration::from_micros(500), ..Impairment::default() };
        let late = arrivals(impairment, 1);
        let overtaken = late.windows(2).filter(|pair| pair[0].1 > pair[1].1).count();
        assert!(late.len() == 1000 && (50..150).contains(&overtaken), "{overtaken}");
    }

    #[test]
    fn what_happens_does_not_depend_on_the_time() {
        let impairment = Impairment { lost: 500_000, ..Impairment::default() };
        let fates = |step: u64| {
            let mut lane = Lane::new(impairment, 3);
            (0..100_u8).for_each(|number| lane.send(u64::from(number) * step, &[number]));
            std::iter::from_fn(|| lane.receive(u64::MAX)).collect::<Vec<_>>()
        };
        assert_eq!(fates(1), fates(1000));
    }

    #[test]
    fn what_a_transport_carries_is_late_and_not_lost() {
        let mut lane = Lane::new(Impairment { lost: 500_000, ..Impairment::default() }, 3);
        let arrivals: Vec<_> = (0..100).map(|_| lane.carry(7, 1)).collect();
        assert!(arrivals.iter().all(|times| times.len() == 1 && (times[0] - 7).is_multiple_of(AGAIN)), "{arrivals:?}");
        assert!(arrivals.iter().any(|times| times[0] == 7) && arrivals.iter().any(|times| times[0] > 7));
        let mut dead = Lane::new(Impairment { lost: 1_000_000, ..Impairment::default() }, 3);
        assert_eq!(dead.carry(0, 1), []);
    }

    #[test]
    fn what_is_under_way_is_bounded() {
        let mut lane = Lane::new(Impairment { doubled: 1_000_000, ..Impairment::default() }, 1);
        lane.room = 10;
        (0..20).for_each(|number| lane.send(0, &[number]));
        assert_eq!(std::iter::from_fn(|| lane.receive(0)).count(), 10);
    }
}
