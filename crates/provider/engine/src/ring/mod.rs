//! A ring between one producer and one consumer that can be resized while both run.
//!
//! Completion queues (whose producers share a lock), send queues and receive queues consist of rings. Apart from
//! [prefetch hints](crate::prefetch), this is the only module of the engine with unsafe code.
//!
//! Entries are numbered, and the numbers do not start again at the end of the ring. The producer publishes the number of the next
//! entry it will write (`tail`), the consumer that of the next entry it will take (`head`). Numbers may wrap around: only
//! differences are compared.
//!
//! Entries live in *segments*, each a power of two in size. To resize, the producer *seals* its segment: it links a new one,
//! notes at which number that begins, and goes on there. The consumer empties the old segment and follows the link, which frees
//! it. Nothing is copied, so nothing is lost or reordered, and neither side waits for the other.
//!
//! Memory is bounded without the consumer's help: a larger segment is at least twice the size of the one before, and a smaller
//! one is only made when the consumer has followed every link.

#![allow(unsafe_code, reason = "slots are shared between two processors; every use is proved at its place")]

mod consumer;
mod producer;
mod segment;

pub use consumer::Consumer;
use fallible::{AllocError, Arc};
pub use producer::{Producer, Spare, TailPublisher, Vacancy};
use segment::{Segment, SegmentView};

use crate::sync::{AtomicU32, AtomicU64, CachePadded};

/// The indices that both sides see.
struct Indices {
    producer: CachePadded<ProducerIndex>,
    consumer: CachePadded<ConsumerIndex>,
}

/// Written by the producer.
struct ProducerIndex {
    /// Number of the next entry to be published.
    tail: AtomicU64,
    /// Number of the first entry that a [`TailPublisher`] does not publish.
    handed_over: AtomicU64,
    /// The number of sealed segments.
    sealed: AtomicU32,
}

/// Written by the consumer.
struct ConsumerIndex {
    /// Number of the next entry to be taken.
    head: AtomicU64,
    /// The number of links that were followed.
    followed: AtomicU32,
}

/// Makes a ring for at most `limit` entries, `1 << 31` at most. The first entry gets the number `first`. A ring for no entries is
/// always full.
///
/// # Errors
///
/// [`AllocError`].
pub fn try_new<T: Copy + Send>(limit: u32, first: u64) -> Result<(Producer<T>, Consumer<T>), AllocError> {
    let segment = Segment::try_new(limit)?;
    let indices = Arc::try_new(Indices {
        producer: CachePadded::new(ProducerIndex {
            tail: AtomicU64::new(first),
            handed_over: AtomicU64::new(first),
            sealed: AtomicU32::new(0),
        }),
        consumer: CachePadded::new(ConsumerIndex { head: AtomicU64::new(first), followed: AtomicU32::new(0) }),
    })?;
    let consumer = Consumer::new(indices.clone(), SegmentView::new(segment.clone(), 0), first);
    Ok((Producer::new(indices, SegmentView::new(segment, 0), limit, first), consumer))
}

/// Bytes that a ring for at most `limit` entries takes.
#[must_use]
pub const fn bytes<T: Copy + Send>(limit: u32) -> u64 {
    let slots = (limit as u64).next_power_of_two() * size_of::<T>() as u64;
    slots + (size_of::<Indices>() + size_of::<Segment<T>>()) as u64
}

/// Returns true if number `this` is after `that`.
#[inline]
#[must_use]
pub const fn newer(this: u64, that: u64) -> bool {
    this.wrapping_sub(that).cast_signed() > 0
}

/// The low bits of an entry number, for address arithmetic.
#[expect(clippy::cast_possible_truncation, reason = "address arithmetic wraps, so the upper bits do not matter")]
const fn low(number: u64) -> usize {
    number as usize
}
