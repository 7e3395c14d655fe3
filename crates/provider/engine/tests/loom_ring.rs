//! Every interleaving of the ring's two ends, checked by loom: no entry is lost, doubled, reordered or read while it is
//! written, whatever the memory order allows.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p engine --test loom_ring --target-dir target/loom
//! ```

#![cfg(loom)]

use engine::ring::{self, Consumer, Producer, Spare};
use loom::{model::Builder, thread};

/// Interleavings with at most this many pre-emptions: enough for any two-step race on each side.
const PREEMPTIONS: usize = 3;

fn model(test: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(test);
}

/// Pushes the next number and publishes it, if there is room.
fn push_next(producer: &mut Producer<u32>, next: &mut u32) {
    if producer.push(*next) {
        *next += 1;
        producer.publish();
    }
}

fn take(consumer: &mut Consumer<u32>, most: usize, taken: &mut Vec<u32>) {
    let count = consumer.take(most, |entry| taken.push(*entry));
    assert!(count <= most);
}

/// Lets `produce` run in a thread of its own while this one takes a few times, then checks what came out in all.
fn check(
    limit: u32,
    first: u64,
    polls: &'static [usize],
    produce: impl Fn(&mut Producer<u32>) -> u32 + Send + Sync + 'static,
) {
    let produce = std::sync::Arc::new(produce);
    model(move || {
        let (mut producer, mut consumer) = ring::try_new(limit, first).expect("memory");
        let produce = produce.clone();
        let other = thread::spawn(move || produce(&mut producer));
        let mut taken = Vec::new();
        for &most in polls {
            take(&mut consumer, most, &mut taken);
        }
        let pushed = other.join().expect("no panic");
        take(&mut consumer, usize::MAX, &mut taken);
        assert_eq!(taken, (0..pushed).collect::<Vec<_>>());
    });
}

//= NDKPI 7.1.2
#[test]
fn entries_arrive_once_and_in_order() {
    check(2, 0, &[1, 2, 1], |producer| {
        let mut next = 0;
        for _ in 0..4 {
            push_next(producer, &mut next);
        }
        assert!(next >= 2, "an empty ring of two has room for two");
        next
    });
}

#[test]
fn entries_arrive_once_and_in_order_across_the_wrap_around() {
    check(2, u64::MAX - 1, &[1, 2, 1], |producer| {
        let mut next = 0;
        for _ in 0..4 {
            push_next(producer, &mut next);
        }
        next
    });
}

#[test]
fn a_batch_is_published_as_a_whole() {
    model(|| {
        let (mut producer, mut consumer) = ring::try_new(2, u64::MAX).expect("memory");
        let other = thread::spawn(move || {
            assert!(producer.push(0));
            assert!(producer.push(1));
            assert!(!producer.push(2));
            producer.publish();
        });
        let mut taken = Vec::new();
        take(&mut consumer, 2, &mut taken);
        assert!(matches!(taken.len(), 0 | 2), "half a batch: {taken:?}");
        other.join().expect("no panic");
        take(&mut consumer, 2, &mut taken);
        assert_eq!(taken, [0, 1]);
    });
}

#[test]
fn a_slot_is_free_when_the_producer_sees_it_so() {
    // One slot: every push overwrites what was just read.
    check(1, 0, &[1, 1], |producer| {
        let mut next = 0;
        for _ in 0..3 {
            push_next(producer, &mut next);
        }
        next
    });
}

#[test]
fn peek_and_advance_free_the_slot_only_then() {
    model(|| {
        let (mut producer, mut consumer) = ring::try_new(1, 0).expect("memory");
        let other = thread::spawn(move || {
            let mut next = 0;
            for _ in 0..3 {
                push_next(&mut producer, &mut next);
            }
            next
        });
        let mut taken = Vec::new();
        for _ in 0..2 {
            if let Some(entry) = consumer.get(0).copied() {
                assert_eq!(consumer.get(0).copied(), Some(entry), "it stays the first");
                taken.push(entry);
                consumer.advance(1);
            }
        }
        let pushed = other.join().expect("no panic");
        take(&mut consumer, usize::MAX, &mut taken);
        assert_eq!(taken, (0..pushed).collect::<Vec<_>>());
    });
}

/// Resizes a ring. Returns false if it holds more than that.
fn resize(producer: &mut Producer<u32>, limit: u32) -> bool {
    producer.resize(Spare::try_new(limit).expect("memory")).is_ok()
}

//= NDKPI 7.1.11
#[test]
fn a_growing_ring_loses_nothing() {
    check(1, u64::MAX, &[1, 2], |producer| {
        let mut next = 0;
        push_next(producer, &mut next);
        assert!(resize(producer, 2));
        push_next(producer, &mut next);
        push_next(producer, &mut next);
        assert!(next >= 2);
        next
    });
}

//= bug 8
#[test]
fn a_chain_of_resizes_loses_nothing() {
    check(1, 0, &[1, 2], |producer| {
        let mut next = 0;
        push_next(producer, &mut next);
        assert!(resize(producer, 2));
        push_next(producer, &mut next);
        assert!(resize(producer, 4));
        push_next(producer, &mut next);
        assert_eq!(next, 3);
        next
    });
}

//= NDKPI 7.1.11
#[test]
fn a_shrinking_ring_loses_nothing() {
    check(2, 0, &[1, 2], |producer| {
        let mut next = 0;
        push_next(producer, &mut next);
        push_next(producer, &mut next);
        // Below what it holds unless the consumer was quick.
        let shrunk = resize(producer, 1);
        push_next(producer, &mut next);
        assert!(shrunk || next == 2 || producer.limit() == 2);
        next
    });
}

#[test]
fn a_ring_shrinks_only_behind_the_consumer() {
    check(1, 0, &[1, 1], |producer| {
        let mut next = 0;
        assert!(resize(producer, 2));
        push_next(producer, &mut next);
        // In place, or in a new segment if the consumer has followed into the one made above.
        let _ = resize(producer, 1);
        push_next(producer, &mut next);
        assert!(resize(producer, 2));
        push_next(producer, &mut next);
        next
    });
}

#[test]
fn a_tail_is_seen_with_the_entries_before_it() {
    model(|| {
        let (mut producer, mut consumer) = ring::try_new(2, 0).expect("memory");
        let publisher = producer.tail_publisher();
        let other = thread::spawn(move || {
            let mut next = 0;
            push_next(&mut producer, &mut next);
            push_next(&mut producer, &mut next);
        });
        let seen = usize::try_from(publisher.tail()).expect("small");
        let mut taken = Vec::new();
        take(&mut consumer, 2, &mut taken);
        assert!(taken.len() >= seen, "what a flush counts is there to be flushed");
        other.join().expect("no panic");
        assert_eq!(publisher.tail(), 2);
    });
}
