//! A queue between one producer and one consumer that can change its size while both run.
//!
//! Completion queues (whose producers take turns under a lock), send queues and receive queues are made of it. But for
//! [hints](crate::prefetch) this is the one module of the engine with unsafe code.
//!
//! Entries have running numbers that never start again. The producer publishes the number of the next entry it will write
//! (`tail`), the consumer that of the next entry it will take (`head`). Numbers may wrap around: only differences are compared.
//!
//! Entries live in *segments*, each a power of two in size. To resize, the producer *seals* its segment: it notes the number
//! at which the segment ends, links a new segment and goes on there. The consumer takes what the old segment still holds and
//! follows the link, which frees it. Nothing is copied, so nothing is lost or reordered, and neither side waits for the other.
//!
//! Memory is bounded without the consumer's help: a larger segment is at least twice the size of the one before, and a smaller
//! one is only made when the consumer has followed every link.

#![allow(unsafe_code, reason = "slots are shared between two processors; every use is proved at its place")]

mod consumer;
mod producer;
mod segment;

pub use consumer::Consumer;
use fallible::{AllocError, Arc};
pub use producer::{Plan, Producer, ResizeError, Spare, TailPublisher, Vacancy};
use segment::{Segment, SegmentView};

use crate::sync::{AtomicU32, AtomicU64, CachePadded};

/// Bytes that processors exchange at once.
const CACHE_LINE: usize = 64;

/// What both sides see.
struct Indices {
    filled: CachePadded<Filled>,
    taken: CachePadded<Taken>,
}

/// Written by the producer.
struct Filled {
    /// Number of the next entry to be published.
    tail: AtomicU64,
    /// Number of the first entry that a [`TailPublisher`] does not publish.
    handed_over: AtomicU64,
    /// How many segments are sealed.
    sealed: AtomicU32,
}

/// Written by the consumer.
struct Taken {
    /// Number of the next entry to be taken.
    head: AtomicU64,
    /// How many links were followed.
    followed: AtomicU32,
}

/// Makes a queue for at most `limit` entries, the first of which gets the number `first`.
///
/// `limit` is at most `1 << 31`. A queue for no entries is always full.
///
/// # Errors
///
/// [`AllocError`] when there is no memory.
pub fn try_new<T: Copy + Send>(limit: u32, first: u64) -> Result<(Producer<T>, Consumer<T>), AllocError> {
    let segment = Segment::try_new(limit)?;
    let indices = Arc::try_new(Indices {
        filled: CachePadded::new(Filled {
            tail: AtomicU64::new(first),
            handed_over: AtomicU64::new(first),
            sealed: AtomicU32::new(0),
        }),
        taken: CachePadded::new(Taken { head: AtomicU64::new(first), followed: AtomicU32::new(0) }),
    })?;
    let consumer = Consumer::new(indices.clone(), SegmentView::new(segment.clone(), 0), first);
    Ok((Producer::new(indices, SegmentView::new(segment, 0), limit, first), consumer))
}

/// Returns true if number `this` comes after `that`.
#[inline]
const fn is_past(this: u64, that: u64) -> bool {
    this.wrapping_sub(that).cast_signed() > 0
}

/// The bits of a number that make up an address.
#[expect(clippy::cast_possible_truncation, reason = "address arithmetic wraps, so the upper bits do not matter")]
const fn low(number: u64) -> usize {
    number as usize
}
