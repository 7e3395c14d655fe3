//! The least of a queue with several producers.
//!
//! Completions of many queue pairs come into one queue, in one order, from any processor, and NDKPI has the consumer hear of
//! each (`NDKPI 7.1`): producers have to exclude each other. An atomic exchange and a store with release, uncontended, are the
//! least that does so; without the exchange two would write to one slot. What is inside is `rtrb`, which is the best that is known
//! here for one producer, with entries of the same size. An entry that is queued may satisfy an arm (`NDKPI 7.1.3`), so the arm is
//! looked at, which is nearly always to say that there is none.

use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};

use engine::cq::Cqe;
use provider::extended_result;

use crate::{
    distance::Line,
    measure::alone,
    rows::entry::{Reader, completion},
};

/// The end of a queue of `rtrb` that several producers could share: with a lock for them, and an arm that is never set.
pub struct LockedProducer {
    lock: Line,
    is_armed: AtomicBool,
    producer: rtrb::Producer<Cqe>,
}

/// A queue for `depth` entries.
#[must_use]
pub fn locked(depth: usize) -> (LockedProducer, rtrb::Consumer<Cqe>) {
    let (producer, consumer) = rtrb::RingBuffer::new(depth);
    (LockedProducer { lock: Line::default(), is_armed: AtomicBool::new(false), producer }, consumer)
}

impl LockedProducer {
    /// Puts an entry in. Whether there was room.
    // Not by way of a closure, through which the entry would go over the stack.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a bound has no calls")]
    pub fn push(&mut self, entry: Cqe) -> bool {
        self.acquire();
        let pushed = self.producer.push(entry).is_ok();
        self.release() && pushed
    }

    /// Puts `entries` in, if there is room for all. Whether there was.
    #[inline]
    pub fn push_all(&mut self, entries: &[Cqe]) -> bool {
        self.acquire();
        let pushed = self.producer.push_entire_slice(entries).is_ok();
        self.release() && pushed
    }

    #[inline]
    fn acquire(&self) {
        while self.lock.swap(1, Acquire) != 0 {}
    }

    /// Releases the lock. Whether nobody waits for what was put in, as is so here.
    #[inline]
    fn release(&self) -> bool {
        let is_armed = self.is_armed.load(Relaxed);
        self.lock.store(0, Release);
        !is_armed
    }
}

/// Both ends of [`locked`], for one thread.
pub struct LockedRtrb {
    producer: LockedProducer,
    consumer: rtrb::Consumer<Cqe>,
}

impl LockedRtrb {
    /// Room for `depth` entries.
    #[must_use]
    pub fn new(depth: usize) -> Self {
        let (producer, consumer) = locked(depth);
        Self { producer, consumer }
    }

    /// Puts an entry in.
    #[inline]
    pub fn push(&mut self, entry: Cqe) {
        assert!(self.producer.push(entry), "the queue is full");
    }

    /// Takes an entry out and reads it.
    #[inline]
    pub fn pop(&mut self, reader: &mut Reader) {
        if let Ok(completion) = self.consumer.pop() {
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
