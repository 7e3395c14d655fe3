//! The least of a read or write: the copy, and the atomic operations around it.
//!
//! - *The queue pair.* Its requests are carried out one after the other (`NDKPI 7.2`), while posts, the NIC's deferred call and
//!   the end of the connection may come on any processor: somebody has to own it.
//! - *The two tokens.* Either may be invalidated or deregistered on another processor at any time, and when that has completed
//!   nobody may touch the bytes (`NDKPI 7.5`, `7.6`): each has to be held during the copy.
//! - *The completion.* Other queue pairs complete in the same queue, and the consumer takes it out of there (`NDKPI 7.1`): an
//!   entry goes through a queue whose producers exclude each other, as in [`queue`](super::queue).
//!
//! The first three are each an atomic exchange and a store with release, on a line of its own that nobody else wants. Whether
//! they could be one is a matter of who pays: one exchange that says "this processor is at work" would do for all, and every
//! deregistration would have to wait for all processors. So there is a row for one exchange as well.
//!
//! After a copy larger than the first-level cache something else is lost: what the request's code works with is no longer there.
//! [`then_touch`] shows what that costs for some lines that are needed one after the other.

use std::{
    hint::black_box,
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Release},
    },
};

use super::queue::LockedRtrb;
use crate::{
    distance::Line,
    measure::alone,
    rows::cq::{Reader, completion},
};

/// Entries of the completion queue.
const DEPTH: usize = 64;

/// Lines that are visited after a copy.
pub const LINES: usize = 40;
/// The powers of this number, divided by [`LINES`] + 1, leave all the remainders from 1 to [`LINES`], in no order.
const NEXT: usize = 7;

fn acquire(line: &Line) {
    assert_eq!(black_box(line).0.swap(1, Acquire), 0, "nobody else is here");
}

fn release(line: &Line) {
    line.0.store(0, Release);
}

/// Lets `copy` happen `count` times, each with one thing owned.
pub fn owning_one(count: usize, mut copy: impl FnMut()) -> impl FnMut() -> f64 {
    let processor = Line::default();
    move || {
        alone(count, || {
            for _ in 0..count {
                acquire(&processor);
                copy();
                release(&processor);
            }
        })
    }
}

/// Lets `copy` happen `count` times, each with the queue pair and both tokens owned, and a completion put in and taken out.
pub fn completed(count: usize, mut copy: impl FnMut()) -> impl FnMut() -> f64 {
    let [qp, here, there]: [Line; 3] = Default::default();
    let mut queue = LockedRtrb::new(DEPTH);
    move || {
        alone(count, || {
            let mut reader = Reader::default();
            for number in 0..count {
                [&qp, &here, &there].into_iter().for_each(acquire);
                copy();
                [&here, &there].into_iter().for_each(release);
                queue.push(completion(number));
                release(&qp);
                queue.pop(&mut reader);
            }
            reader.check(count);
        })
    }
}

/// Lets `copy` happen `count` times, and visits [`LINES`] lines after each: each says which one is next.
pub fn then_touch(count: usize, mut copy: impl FnMut()) -> impl FnMut() -> f64 {
    let next = |line| (line * NEXT % (LINES + 1)) as u64;
    let circle: Vec<Line> = (0..=LINES).map(|line| Line(AtomicU64::new(next(line)))).collect();
    move || {
        alone(count, || {
            for _ in 0..count {
                copy();
                let mut at = 1;
                for _ in 0..LINES {
                    at = usize::try_from(circle[at].0.load(Acquire)).unwrap_or(0);
                }
                assert_eq!(at, 1, "round the circle");
            }
        })
    }
}
