//! The least of a queue with several producers.
//!
//! Completions of many queue pairs come into one queue, in one order, from any processor, and NDKPI has the consumer hear of
//! each (`NDKPI 7.1`): producers have to exclude each other. An atomic exchange and a store with release, uncontended, are the
//! least that does so; without the exchange two would write to one slot. What is inside is `rtrb`, which is the best that is known
//! here for one producer, with entries of the same size. Nothing is decided about an arm.

use std::sync::atomic::Ordering::{Acquire, Release};

use engine::cq::Completion;
use provider::extended_result;

use crate::{
    distance::Line,
    measure::alone,
    rows::entry::{Reader, completion},
};

/// A queue of `rtrb` with a lock for its producers.
pub struct LockedRtrb {
    lock: Line,
    producer: rtrb::Producer<Completion>,
    consumer: rtrb::Consumer<Completion>,
}

impl LockedRtrb {
    /// Room for `depth` entries.
    #[must_use]
    pub fn new(depth: usize) -> Self {
        let (producer, consumer) = rtrb::RingBuffer::new(depth);
        Self { lock: Line::default(), producer, consumer }
    }

    /// Puts an entry in.
    #[inline]
    pub fn push(&mut self, entry: Completion) {
        while self.lock.0.swap(1, Acquire) != 0 {}
        let pushed = self.producer.push(entry);
        self.lock.0.store(0, Release);
        assert!(pushed.is_ok(), "the queue is full");
    }

    /// Takes an entry out.
    #[inline]
    pub fn take(&mut self) -> Option<Completion> {
        self.consumer.pop().ok()
    }

    /// Takes an entry out and reads it.
    #[inline]
    pub fn pop(&mut self, reader: &mut Reader) {
        if let Some(completion) = self.take() {
            reader.read(&extended_result(&completion));
        }
    }
}

/// Pushes and pops one entry, `count` times: nanoseconds each.
pub fn one_by_one(depth: usize, count: usize) -> impl FnMut() -> f64 {
    let mut queue = LockedRtrb::new(depth);
    move || {
        alone(count, || {
            let mut reader = Reader::default();
            for number in 0..count {
                queue.push(completion(number));
                queue.pop(&mut reader);
            }
            reader.check(count);
        })
    }
}
