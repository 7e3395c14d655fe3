//! The ring below completion queues and request queues: what its two ends promise.

use engine::ring::{self, Plan, ResizeError, Spare};

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
    assert_eq!(consumer.peek(0), Some(3));
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
    assert_eq!(consumer.peek(0), None, "not published");
    producer.publish();
    assert_eq!(consumer.peek(0), Some(1));
}

#[test]
fn entries_can_be_looked_at_ahead() {
    let (mut producer, mut consumer) = ring::try_new(4, u64::MAX).expect("memory");
    assert_eq!(push_all(&mut producer, &[7, 8, 9]), 3);
    assert_eq!(consumer.peek(0), None, "not published");
    producer.publish();
    assert_eq!([0, 1, 2, 3].map(|ahead| consumer.peek(ahead)), [Some(7), Some(8), Some(9), None]);
    assert_eq!(taken(&mut consumer, 1), [7]);
    assert_eq!([0, 1, 2].map(|ahead| consumer.peek(ahead)), [Some(8), Some(9), None]);
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
fn fast_pushes_and_others_arrive_once_and_in_order() {
    for limit in [1, 31, 63, 64, 65, 100, 128, 255, 256, 300, 600] {
        for first in [0, 17, u64::MAX - 40, u64::MAX - 1000] {
            let (mut producer, mut consumer) = ring::try_new(limit, first).expect("memory");
            let (mut pushed, mut polled) = (0_u64, 0_u64);
            let entry = |number: u64| [u64::MAX - number; 5];
            for round in 0..2_000_usize {
                for _ in 0..round * 7 % 90 {
                    let next = entry(pushed % 200);
                    pushed += u64::from(producer.fast_push(next) || producer.push(next));
                    producer.publish();
                    producer.enable_fast_push();
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

#[test]
fn fast_pushes_go_in_while_they_are_enabled_and_there_is_room() {
    for (limit, first) in [(5, 0), (20, 7), (1000, 40), (300, 250), (5, u64::MAX - 2), (100, u64::MAX - 31)] {
        let (mut producer, mut consumer) = ring::try_new(limit, first).expect("memory");
        assert!(!producer.fast_push(0), "nobody has enabled it");
        producer.enable_fast_push();
        let mut pushed = 0;
        while producer.fast_push(pushed) {
            pushed += 1;
        }
        // As many as fit, up to the last one of the slots.
        let slots = u64::from(limit.next_power_of_two());
        let until_end = slots - first % slots;
        assert_eq!(u64::from(pushed), u64::from(limit).min(until_end), "limit {limit}, first {first}");
        // Other pushes count too.
        producer.publish();
        assert_eq!(taken(&mut consumer, 2000), (0..pushed).collect::<Vec<_>>());
        assert!(producer.has_room(5));
        producer.enable_fast_push();
        assert_eq!(push_all(&mut producer, &[1, 2, 3, 4, 5]), 5);
        producer.publish();
        let fit = (0..2000).take_while(|_| producer.fast_push(6)).count();
        producer.publish();
        assert!(fit <= limit as usize && taken(&mut consumer, 2000).len() == 5 + fit);
    }
}

#[test]
fn a_resize_disables_fast_pushes() {
    let (mut producer, mut consumer) = ring::try_new(20, 0).expect("memory");
    producer.enable_fast_push();
    assert!(producer.fast_push(1));
    producer.disable_fast_push();
    assert!(!producer.fast_push(2));
    producer.enable_fast_push();
    producer.resize(2, None).expect("room");
    assert!(!producer.fast_push(2), "the consumer's index has to be read first");
    producer.enable_fast_push();
    assert!(producer.fast_push(2) && !producer.fast_push(3));
    producer.publish();
    assert_eq!(taken(&mut consumer, 9), [1, 2]);
}

#[test]
fn what_is_retracted_disables_fast_pushes() {
    let (mut producer, mut consumer) = ring::try_new(4, 3).expect("memory");
    assert!(producer.push(1));
    producer.enable_fast_push();
    producer.retract();
    // Passes are counted from the tail.
    assert!(!producer.fast_push(2));
    producer.enable_fast_push();
    assert!(producer.fast_push(2) && !producer.fast_push(3), "the last slot of the pass");
    assert!(producer.push(3));
    producer.publish();
    assert_eq!(taken(&mut consumer, 9), [2, 3]);
}

#[test]
fn a_resize_without_the_memory_it_needs_changes_nothing() {
    let (mut producer, mut consumer) = ring::try_new(2, 0).expect("memory");
    assert_eq!(push_all(&mut producer, &[0, 1]), 2);
    assert_eq!(producer.plan(3), Plan::NewSegment);
    assert_eq!(producer.resize(3, None), Err(ResizeError::NeedsSpare));
    assert_eq!(producer.resize(100, Spare::try_new(3).ok()), Err(ResizeError::NeedsSpare), "too small");
    assert_eq!(producer.resize(1, None), Err(ResizeError::Occupied));
    assert_eq!(producer.limit(), 2);
    assert!(!producer.push(2));
    producer.publish();
    assert_eq!(taken(&mut consumer, 9), [0, 1]);
}

#[test]
fn a_resize_within_the_memory_at_hand_needs_no_other() {
    let (mut producer, mut consumer) = ring::try_new(8, 0).expect("memory");
    assert_eq!(producer.plan(5), Plan::InPlace);
    producer.resize(5, None).expect("room");
    assert_eq!(push_all(&mut producer, &[0; 9]), 5);
    assert_eq!(producer.plan(8), Plan::InPlace);
    producer.resize(8, None).expect("room");
    assert_eq!(push_all(&mut producer, &[1; 9]), 3);
    producer.publish();
    assert_eq!(taken(&mut consumer, 9), [0, 0, 0, 0, 0, 1, 1, 1]);
}
