//! NDKPI 7.1.11: the depth changes while completions come and go.

use engine::cq::{
    Cq, CqParameters,
    notify::{ArmType::Any, CqFailure},
};
use ndkpi::NtStatus;
use testing::{
    allocation,
    cq_fixture::{MAX_DEPTH, TestCq, on_seeds, plain, plains},
};

fn numbers(range: std::ops::Range<usize>) -> Vec<usize> {
    range.collect()
}

#[test]
fn a_larger_queue_holds_more() {
    on_seeds(|_, os| {
        let cq = TestCq::new(os, 3);
        cq.push(&plains(0..2));
        cq.resize(100).expect("memory");
        cq.push(&plains(2..100));
        assert_eq!(cq.failure(), None);
        cq.push(&[plain(100)]);
        assert_eq!(cq.failure(), Some(CqFailure::Overrun), "exactly 100");
        assert_eq!(cq.drain(), numbers(0..100));
    });
}

#[test]
fn a_smaller_queue_holds_less() {
    on_seeds(|_, os| {
        let cq = TestCq::new(os, 100);
        cq.push(&plains(0..3));
        cq.resize(4).expect("memory");
        cq.push(&plains(3..4));
        assert_eq!(cq.failure(), None);
        cq.push(&[plain(4)]);
        assert_eq!(cq.failure(), Some(CqFailure::Overrun), "exactly 4");
        assert_eq!(cq.drain(), numbers(0..4));
    });
}

#[test]
fn a_resize_to_the_same_depth_changes_nothing() {
    on_seeds(|_, os| {
        for depth in [1, 3, 4, 64] {
            let cq = TestCq::new(os, depth);
            let depth = depth as usize;
            cq.push(&plains(0..depth));
            cq.resize(u32::try_from(depth).expect("small")).expect("memory");
            assert_eq!(cq.drain(), numbers(0..depth));
            cq.push(&plains(0..depth));
            assert_eq!(cq.failure(), None);
            assert_eq!(cq.drain(), numbers(0..depth));
        }
    });
}

//= NDKPI 7.1.11
#[test]
fn a_resize_below_the_number_of_queued_completions_fails_and_changes_nothing() {
    on_seeds(|_, os| {
        let cq = TestCq::new(os, 8);
        cq.push(&plains(0..5));
        for depth in 1..5 {
            assert_eq!(cq.resize(depth), Err(NtStatus::BUFFER_OVERFLOW));
        }
        cq.push(&plains(5..8));
        assert_eq!(cq.failure(), None, "it still holds 8");
        assert_eq!(cq.drain(), numbers(0..8));
    });
}

#[test]
fn a_resize_to_exactly_the_number_of_queued_completions_is_good() {
    on_seeds(|_, os| {
        let cq = TestCq::new(os, 8);
        cq.push(&plains(0..5));
        cq.resize(5).expect("they fit");
        cq.push(&[plain(5)]);
        assert_eq!(cq.failure(), Some(CqFailure::Overrun));
        assert_eq!(cq.drain(), numbers(0..5));
    });
}

#[test]
fn a_resize_to_zero_or_above_the_limit_is_an_invalid_parameter() {
    on_seeds(|_, os| {
        let cq = TestCq::with(os, CqParameters { depth: 8, max_depth: 16, processor: 0 }, 0).expect("a queue");
        for depth in [0, 17, u32::MAX] {
            assert_eq!(cq.resize(depth), Err(NtStatus::INVALID_PARAMETER));
        }
        cq.push(&plains(0..8));
        assert_eq!(cq.drain(), numbers(0..8));
    });
}

#[test]
fn a_full_queue_can_grow() {
    on_seeds(|_, os| {
        for depth in [1, 2, 4, 5] {
            let cq = TestCq::new(os, depth);
            let depth = depth as usize;
            cq.push(&plains(0..depth));
            cq.resize(64).expect("memory");
            cq.push(&plains(depth..64));
            assert_eq!(cq.failure(), None);
            assert_eq!(cq.drain(), numbers(0..64));
        }
    });
}

#[test]
fn a_queue_that_was_partly_taken_keeps_order_across_a_resize() {
    on_seeds(|_, os| {
        for (from, to) in [(8, 64), (64, 8), (8, 5), (5, 8), (6, 7)] {
            let cq = TestCq::new(os, from);
            cq.push(&plains(0..5));
            assert_eq!(cq.poll(3), numbers(0..3));
            cq.resize(to).expect("memory");
            cq.push(&plains(5..8));
            assert_eq!(cq.poll(1), [3]);
            cq.push(&[plain(8)]);
            assert_eq!(cq.drain(), numbers(4..9), "from {from} to {to}");
            assert_eq!(cq.failure(), None);
        }
    });
}

//= NDKPI 7.1.11
//= bug 8
#[test]
fn a_chain_of_resizes_without_a_poll_loses_nothing() {
    on_seeds(|_, os| {
        let cq = TestCq::new(os, 1);
        let mut pushed = 0;
        for depth in [1, 2, 3, 8, 5, 9, 64, 20, 64, 16, 100, 1_000, 40, 33, 4_096] {
            if cq.resize(depth).is_ok() {
                cq.push(&[plain(pushed)]);
                pushed += 1;
            }
        }
        assert_eq!(cq.failure(), None);
        assert_eq!(cq.drain(), numbers(0..pushed));
        assert_eq!(pushed, 15);
    });
}

//= NDKPI 7.1.11
#[test]
fn memory_stays_bounded_over_resizes_without_a_poll() {
    on_seeds(|_, os| {
        let cq = TestCq::new(os, 4);
        cq.push(&[plain(0)]);
        let resize_often = || {
            for round in 0..200 {
                for depth in [1_024, 4, 512, 1, 2, 900] {
                    cq.resize(depth).unwrap_or_else(|error| panic!("{error} in round {round}"));
                }
            }
        };
        let first = allocation::growth(resize_often);
        assert!(first <= 3 * 1_024 * 48, "{first} bytes for a queue that never held more than 1024 completions");
        let more = allocation::growth(resize_often);
        assert_eq!(more, 0, "bytes for 1200 resizes more");
        assert_eq!(cq.drain(), [0]);
    });
}

#[test]
fn a_shrunk_queue_gives_memory_back_once_the_consumer_has_followed() {
    on_seeds(|_, os| {
        let cq = TestCq::new(os, 4);
        let grown = allocation::growth(|| {
            cq.resize(4_096).expect("memory");
            cq.drain();
            cq.resize(4).expect("memory");
            cq.drain();
        });
        assert!(grown < 1_024, "{grown} bytes are left of a queue for 4096");
    });
}

#[test]
fn a_resize_without_memory_fails_and_changes_nothing() {
    on_seeds(|_, os| {
        for (from, to) in [(4, 64), (64, 4)] {
            let cq = TestCq::new(os, from);
            cq.push(&plains(0..3));
            let engine = cq.cq();
            for nth in 0..2 {
                let (result, failed) = allocation::fail_nth(nth, || Cq::resize(&engine, to));
                assert!(failed, "allocation {nth} was tried");
                assert_eq!(result, Err(NtStatus::INSUFFICIENT_RESOURCES));
            }
            cq.push(&plains(3..from as usize));
            assert_eq!(cq.failure(), None);
            assert_eq!(cq.drain(), numbers(0..from as usize));
        }
    });
}

#[test]
fn a_resize_keeps_the_arm() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, 4);
        cq.arm(Any);
        cq.resize(64).expect("memory");
        machine.run_until_idle();
        assert_eq!(cq.calls(), 0, "a resize is no completion");
        cq.push(&[plain(0)]);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1);
        cq.resize(1).expect("it fits");
        cq.arm(Any);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1, "the *may* case stays silent across a resize");
    });
}

//= NDKPI 7.1.11
//= bug 5
#[test]
fn a_resize_across_the_wrap_around_loses_nothing() {
    on_seeds(|_, os| {
        for back in 0..12 {
            let parameters = CqParameters { depth: 4, max_depth: MAX_DEPTH, processor: 0 };
            let cq = TestCq::with(os, parameters, u64::MAX - back).expect("a queue");
            cq.push(&plains(0..4));
            cq.resize(16).expect("memory");
            cq.push(&plains(4..12));
            assert_eq!(cq.poll(6), numbers(0..6));
            cq.resize(6).expect("memory");
            assert_eq!(cq.resize(5), Err(NtStatus::BUFFER_OVERFLOW));
            assert_eq!(cq.poll(2), numbers(6..8));
            cq.push(&plains(12..14));
            assert_eq!(cq.drain(), numbers(8..14));
            cq.push(&plains(0..6));
            assert_eq!(cq.failure(), None);
            cq.push(&[plain(6)]);
            assert_eq!(cq.failure(), Some(CqFailure::Overrun));
            assert_eq!(cq.drain(), numbers(0..6));
        }
    });
}
