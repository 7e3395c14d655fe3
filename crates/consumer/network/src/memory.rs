//! A segment in memory: a hub with several ends, impaired by seed.
//!
//! [`Hub`] has no clock: it is told the time, so it runs under a virtual one as well. [`segment`] and [`pair`] put one behind
//! [`Segment`] under the real clock.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    impairment::{Impairment, Lane},
    segment::{Segment, too_long},
};

/// Bytes of the longest frame: a jumbo frame with a tag.
const LONGEST: usize = 9018;

/// A hub: what one end sends, all others get. Times are in microseconds.
///
/// What happens to a frame is determined by the seed, by who sends it to whom, and by how many frames went this way before it.
pub struct Hub {
    ends: usize,
    /// From each end to each other one.
    lanes: Vec<Lane>,
}

impl Hub {
    /// A hub with so many ends.
    #[must_use]
    pub fn new(ends: usize, impairment: Impairment, seed: u64) -> Self {
        let lanes = (0..ends * ends).map(|lane| Lane::new(impairment, seed ^ (lane as u64) << 48)).collect();
        Self { ends, lanes }
    }

    /// An end sends a frame.
    ///
    /// # Panics
    ///
    /// If there is no such end.
    pub fn send(&mut self, now: u64, from: usize, frame: &[u8]) {
        assert!(from < self.ends, "there is no end {from}");
        for to in (0..self.ends).filter(|to| *to != from) {
            self.lanes[from * self.ends + to].send(now, frame);
        }
    }

    /// The lanes that lead to an end.
    fn to(&mut self, to: usize) -> impl Iterator<Item = &mut Lane> {
        let ends = self.ends;
        self.lanes.iter_mut().skip(to).step_by(ends)
    }

    /// When the next frame arrives at an end.
    pub fn next(&mut self, to: usize) -> Option<u64> {
        self.to(to).filter_map(|lane| lane.next()).min()
    }

    /// A frame that has arrived at an end by now.
    pub fn receive(&mut self, now: u64, to: usize) -> Option<Vec<u8>> {
        self.to(to).filter(|lane| lane.next().is_some()).min_by_key(|lane| lane.next())?.receive(now)
    }
}

/// What the ends have in common.
struct Shared {
    hub: Mutex<Hub>,
    sent: Condvar,
    begun: Instant,
}

impl Shared {
    fn hub(&self) -> MutexGuard<'_, Hub> {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// An end of a segment in memory.
pub struct End {
    shared: Arc<Shared>,
    number: usize,
}

/// A segment with so many ends.
#[must_use]
pub fn segment(ends: usize, impairment: Impairment, seed: u64) -> Vec<End> {
    let hub = Mutex::new(Hub::new(ends, impairment, seed));
    let shared = Arc::new(Shared { hub, sent: Condvar::new(), begun: Instant::now() });
    (0..ends).map(|number| End { shared: shared.clone(), number }).collect()
}

/// A segment with two ends.
#[must_use]
pub fn pair(impairment: Impairment, seed: u64) -> [End; 2] {
    let ends = segment(2, impairment, seed);
    <[End; 2]>::try_from(ends).unwrap_or_else(|_| unreachable!("two ends were made"))
}

impl Segment for End {
    fn send(&self, frame: &[u8]) -> io::Result<()> {
        if frame.len() > LONGEST {
            return Err(too_long(frame, LONGEST));
        }
        self.shared.hub().send(self.shared.now(), self.number, frame);
        self.shared.sent.notify_all();
        Ok(())
    }

    fn receive(&self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let end = Instant::now() + patience;
        let mut hub = self.shared.hub();
        loop {
            let now = self.shared.now();
            let frames: Vec<_> = std::iter::from_fn(|| hub.receive(now, self.number)).collect();
            let left = end.saturating_duration_since(Instant::now());
            if !frames.is_empty() || left.is_zero() {
                drop(hub);
                for frame in &frames {
                    take(frame);
                }
                return Ok(frames.len());
            }
            let arrival = hub.next(self.number).map(|time| Duration::from_micros(time.saturating_sub(now)));
            let wait = arrival.map_or(left, |arrival| arrival.min(left));
            hub = self.shared.sent.wait_timeout(hub, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn longest(&self) -> usize {
        LONGEST
    }

    fn describe(&self) -> String {
        format!("memory of this process, end {}", self.number)
    }
}
