//! The ring below completion queues and request queues: what its two ends promise.

use engine::ring::{self, Spare};

fn taken(consumer: &mut ring::Consumer<u32>, most: usize) -> Vec<u32> {
    let mut taken = Vec::new();
    consumer.take(most, |entry| taken.push(*entry));
    taken
}

/// Pushes as many of the entries as fit, and returns how many.
fn push_all(producer: &mut ring::Producer<u32>, entries: &[u32]) -> usize {
    entries.iter().take_while(|entry| producer.push(**entry)).count()
}

#[test]
fn entries_that_were_not_looked_at_can_be_freed() {
    let (mut producer, mut consumer) = ring::try_new(4, u64::MAX - 1).expect("memory");
    assert_eq!(push_all(&mut producer, &[0, 1, 2, 3]), 4);
    producer.publish();
    consumer.advance(3);
    assert_eq!(consumer.get(0).copied(), Some(3));
    assert!(producer.has_room(3));
}

#[test]
fn freeing_more_than_is_published_frees_what_is() {
    let (mut producer, mut consumer) = ring::try_new(4, 0).expect("memory");
    assert!(producer.push(0));
    producer.publish();
    assert!(producer.push(1));
    consumer.advance(3);
    assert_eq!(consumer.head(), 1, "the head never passes the tail");
    assert_eq!((consumer.get(0).copied(), consumer.get_known(0).copied()), (None, None), "not published");
    producer.publish();
    assert_eq!(consumer.get(0).copied(), Some(1));
}

#[test]
fn entries_can_be_looked_at_ahead() {
    let (mut producer, mut consumer) = ring::try_new(4, u64::MAX).expect("memory");
    assert_eq!(push_all(&mut producer, &[7, 8, 9]), 3);
    assert_eq!(consumer.get(0).copied(), None, "not published");
    producer.publish();
    assert_eq!([0, 1, 2, 3].map(|ahead| consumer.get(ahead).copied()), [Some(7), Some(8), Some(9), None]);
    assert_eq!(taken(&mut consumer, 1), [7]);
    assert_eq!([0, 1, 2].map(|ahead| consumer.get(ahead).copied()), [Some(8), Some(9), None]);
}

#[test]
fn what_was_not_published_can_be_taken_back() {
    let (mut producer, mut consumer) = ring::try_new(4, 0).expect("memory");
    assert_eq!(push_all(&mut producer, &[0, 1]), 2);
    producer.publish();
    assert_eq!(push_all(&mut producer, &[8, 9]), 2);
    producer.retract();
    assert_eq!(push_all(&mut producer, &[2, 3, 4]), 2, "there is room again");
    producer.publish();
    assert_eq!(taken(&mut consumer, 9), [0, 1, 2, 3]);
}

#[test]
fn a_batch_of_any_length_goes_in_anywhere() {
    let source: Vec<u32> = (0..200).collect();
    for limit in [1, 2, 3, 7, 64, 65, 100] {
        for first in [0, u64::MAX - 3, u64::MAX - 70] {
            let (mut producer, mut consumer) = ring::try_new(limit, first).expect("memory");
            let (mut pushed, mut polled) = (0, 0);
            for length in (0..150).map(|round| round * 7 % 90) {
                let free = limit as usize - (pushed - polled);
                let batch = &source[..length];
                assert_eq!(push_all(&mut producer, batch), length.min(free), "limit {limit}");
                producer.publish();
                pushed += length.min(free);
                let most = length * 3 % 50;
                let got = taken(&mut consumer, most);
                assert_eq!(got.len(), most.min(pushed - polled));
                polled += got.len();
            }
        }
    }
}

#[test]
fn batches_keep_their_entries_apart_and_in_order() {
    let (mut producer, mut consumer) = ring::try_new(100, u64::MAX - 50).expect("memory");
    let (mut next, mut expected) = (0, 0);
    for round in 0..1_000_u32 {
        let batch: Vec<u32> = (next..next + round * 13 % 37).collect();
        next += u32::try_from(push_all(&mut producer, &batch)).expect("small");
        producer.publish();
        for entry in taken(&mut consumer, (round * 11 % 41) as usize) {
            assert_eq!(entry, expected);
            expected += 1;
        }
    }
    assert!(expected > 10_000);
}

#[test]
fn entries_arrive_once_and_in_order_whatever_the_limit() {
    for limit in [1, 31, 63, 64, 65, 100, 128, 255, 256, 300, 600] {
        for first in [0, 17, u64::MAX - 40, u64::MAX - 1000] {
            let (mut producer, mut consumer) = ring::try_new(limit, first).expect("memory");
            let (mut pushed, mut polled) = (0_u64, 0_u64);
            let entry = |number: u64| [u64::MAX - number; 5];
            for round in 0..2_000_usize {
                for _ in 0..round * 7 % 90 {
                    let is_there = producer.push(entry(pushed % 200));
                    assert_eq!(is_there, pushed - polled < u64::from(limit), "limit {limit}, first {first}");
                    pushed += u64::from(is_there);
                    producer.publish();
                }
                consumer.take(round * 11 % 97, |found| {
                    assert_eq!(*found, entry(polled % 200), "limit {limit}, first {first}");
                    polled += 1;
                });
            }
            assert!(polled > 1_000);
        }
    }
}

/// Resizes a ring. Returns true if it goes on in new memory, `None` if it holds more than that.
fn resize(producer: &mut ring::Producer<u32>, limit: u32) -> Option<bool> {
    producer.resize(Spare::try_new(limit).expect("memory")).ok().map(|unused| unused.is_none())
}

#[test]
fn a_resize_below_what_is_queued_changes_nothing() {
    let (mut producer, mut consumer) = ring::try_new(2, 0).expect("memory");
    assert_eq!(push_all(&mut producer, &[0, 1]), 2);
    assert_eq!(resize(&mut producer, 1), None);
    assert_eq!(producer.limit(), 2);
    assert!(!producer.push(2));
    producer.publish();
    assert_eq!(taken(&mut consumer, 9), [0, 1]);
}

#[test]
fn a_resize_within_the_memory_at_hand_gives_the_other_back() {
    let (mut producer, mut consumer) = ring::try_new(8, 0).expect("memory");
    assert_eq!(resize(&mut producer, 5), Some(false));
    assert_eq!(push_all(&mut producer, &[0; 9]), 5);
    assert_eq!(resize(&mut producer, 8), Some(false));
    assert_eq!(push_all(&mut producer, &[1; 9]), 3);
    producer.publish();
    assert_eq!(taken(&mut consumer, 9), [0, 0, 0, 0, 0, 1, 1, 1]);
}

#[test]
fn a_resize_counts_what_is_queued_and_what_was_taken() {
    let (mut producer, mut consumer) = ring::try_new(4, u64::MAX - 2).expect("memory");
    assert_eq!(push_all(&mut producer, &[0, 1, 2, 3, 4]), 4);
    producer.publish();
    assert_eq!(taken(&mut consumer, 3), [0, 1, 2]);
    // Room is what the new limit leaves, not what the producer knew of before.
    assert_eq!(resize(&mut producer, 3), Some(false));
    assert_eq!(push_all(&mut producer, &[4, 5, 6]), 2);
    assert_eq!(resize(&mut producer, 9), Some(true));
    assert_eq!(push_all(&mut producer, &[6, 7, 8, 9, 10, 11, 12]), 6);
    producer.publish();
    // What lies in the old segment first; what is in the new one once that is empty.
    assert_eq!(taken(&mut consumer, 20), [3, 4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(resize(&mut producer, 1), Some(true), "the memory of the large ring goes");
}
