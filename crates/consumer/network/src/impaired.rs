//! A segment that frames do not cross unharmed.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{
    impairment::{Impairment, Lane},
    segment::Segment,
};

/// A segment that is impaired by seed in both directions.
///
/// What happens to the n-th frame of a direction is the same with each run of a seed. If frames are delayed, a thread sends those whose
/// time has come; it ends with this.
pub struct Impaired<S: Segment> {
    impairment: Impairment,
    shared: Arc<Shared<S>>,
    inward: Mutex<Lane>,
    sender: Option<JoinHandle<()>>,
}

struct Shared<S> {
    segment: S,
    outward: Mutex<Outward>,
    changed: Condvar,
    begun: Instant,
}

struct Outward {
    lane: Lane,
    ends: bool,
}

impl<S> Shared<S> {
    fn outward(&self) -> MutexGuard<'_, Outward> {
        self.outward.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl<S: Segment + 'static> Impaired<S> {
    /// Impairs a segment.
    ///
    /// # Errors
    ///
    /// The system has no thread for frames that are delayed.
    pub fn new(segment: S, impairment: Impairment, seed: u64) -> io::Result<Self> {
        let outward = Mutex::new(Outward { lane: Lane::new(impairment, seed), ends: false });
        let shared = Arc::new(Shared { segment, outward, changed: Condvar::new(), begun: Instant::now() });
        let inward = Mutex::new(Lane::new(impairment, seed ^ 1 << 63));
        let sender = if impairment.delays() {
            let shared = shared.clone();
            Some(thread::Builder::new().name("delayed frames".to_owned()).spawn(move || send_when_due(&shared))?)
        } else {
            None
        };
        Ok(Self { impairment, shared, inward, sender })
    }
}

/// Sends frames when their time has come, until the segment ends.
fn send_when_due<S: Segment>(shared: &Shared<S>) {
    let mut outward = shared.outward();
    while !outward.ends {
        let now = shared.now();
        if let Some(frame) = outward.lane.receive(now) {
            drop(outward);
            // Nobody is there to be told; the network has lost it.
            let _ = shared.segment.send(&frame);
            outward = shared.outward();
            continue;
        }
        let wait = outward.lane.next().map_or(Duration::from_secs(1), |time| Duration::from_micros(time - now));
        outward = shared.changed.wait_timeout(outward, wait).unwrap_or_else(PoisonError::into_inner).0;
    }
}

impl<S: Segment> Segment for Impaired<S> {
    fn send(&self, frame: &[u8]) -> io::Result<()> {
        let mut outward = self.shared.outward();
        outward.lane.send(self.shared.now(), frame);
        if self.sender.is_some() {
            self.shared.changed.notify_one();
            return Ok(());
        }
        let frames: Vec<_> = std::iter::from_fn(|| outward.lane.receive(u64::MAX)).collect();
        drop(outward);
        frames.iter().try_for_each(|frame| self.shared.segment.send(frame))
    }

    fn receive(&self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let mut inward = self.inward.lock().unwrap_or_else(PoisonError::into_inner);
        let end = Instant::now() + patience;
        let mut count = 0;
        loop {
            let now = self.shared.now();
            while let Some(frame) = inward.receive(now) {
                take(&frame);
                count += 1;
            }
            let left = end.saturating_duration_since(Instant::now());
            if count > 0 {
                return Ok(count);
            }
            let arrival = inward.next().map(|time| Duration::from_micros(time.saturating_sub(now)));
            let wait = arrival.map_or(left, |arrival| arrival.min(left));
            let seen = self.shared.segment.receive(wait, &mut |frame| inward.send(self.shared.now(), frame))?;
            if seen == 0 && left.is_zero() {
                return Ok(0);
            }
        }
    }

    fn longest(&self) -> usize {
        self.shared.segment.longest()
    }

    fn describe(&self) -> String {
        let Impairment { lost, doubled, changed, late, .. } = self.impairment;
        let what = format!("of a million frames {lost} lost, {doubled} doubled, {changed} changed, {late} late");
        format!("{}; {what}", self.shared.segment.describe())
    }
}

impl<S: Segment> Drop for Impaired<S> {
    fn drop(&mut self) {
        self.shared.outward().ends = true;
        self.shared.changed.notify_one();
        if let Some(sender) = self.sender.take() {
            // It has panicked, or it has ended.
            let _ = sender.join();
        }
    }
}
