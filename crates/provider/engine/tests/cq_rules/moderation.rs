//! NDKPI 7.1.6: what interrupt moderation holds back, and what ends it.

use engine::cq::{
    moderation::UNLIMITED,
    notify::{
        ArmType::{Any, Errors, Solicited},
        CqFailure,
    },
};
use host::{HostOs, machine::Machine};
use ndkpi::NtStatus;
use testing::cq_fixture::{TestCq, failed, on_seeds, plain, plains, solicited};

const DEPTH: u32 = 64;

/// A moderated queue that is armed.
fn armed(os: &HostOs, interval: u32, count: u32) -> TestCq {
    let cq = TestCq::new(os, DEPTH);
    cq.moderate(interval, count).expect("a limit");
    cq.arm(Any);
    cq
}

/// Lets the machine do everything that it can without letting time pass to a timer.
fn settle(machine: &Machine, cq: &TestCq) -> usize {
    machine.run_until_idle();
    cq.calls()
}

//= NDKPI 7.1.1
#[test]
fn a_new_queue_is_not_moderated() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.arm(Any);
        cq.push(&[plain(0)]);
        assert_eq!(settle(machine, &cq), 1);
        assert_eq!(machine.leaks(), None, "no timer");
    });
}

//= NDKPI 7.1.6
#[test]
fn the_interval_delays_a_callback_and_then_lets_it_go() {
    on_seeds(|machine, os| {
        let cq = armed(os, 100, UNLIMITED);
        let begin = machine.now();
        cq.push(&[plain(0)]);
        assert_eq!(settle(machine, &cq), 0);
        machine.run_for(99);
        let calls = cq.calls();
        machine.run_for(2);
        assert_eq!(cq.calls(), 1);
        assert_eq!(calls, 0, "the interval is kept");
        let at = cq.take_calls()[0].at;
        assert!(at >= begin + 100, "at {at}, begun {begin}");
    });
}

#[test]
fn the_interval_begins_when_the_arm_is_satisfied() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.moderate(100, UNLIMITED).expect("a limit");
        cq.arm(Solicited);
        cq.push(&[plain(0)]);
        machine.run_for(80);
        let begin = machine.now();
        cq.push(&[solicited(1)]);
        machine.run_for(80);
        assert_eq!(cq.calls(), 0, "the first completion satisfied nothing");
        machine.run_for(30);
        let calls = cq.take_calls();
        assert_eq!(calls.len(), 1);
        assert!(calls[0].at >= begin + 100);
    });
}

#[test]
fn later_completions_do_not_prolong_the_interval() {
    on_seeds(|machine, os| {
        let cq = armed(os, 100, UNLIMITED);
        for context in 0..20 {
            cq.push(&[plain(context)]);
            machine.run_for(10);
        }
        assert_eq!(cq.calls(), 1, "one arm, one callback");
        assert!(cq.take_calls()[0].at <= 130, "soon after the first interval");
    });
}

//= NDKPI 7.1.6
#[test]
fn the_count_ends_a_hold_before_the_interval() {
    on_seeds(|machine, os| {
        let cq = armed(os, 1_000_000, 4);
        cq.push(&plains(0..3));
        assert_eq!(settle(machine, &cq), 0);
        cq.push(&[plain(3)]);
        assert_eq!(settle(machine, &cq), 1);
    });
}

#[test]
fn the_count_may_be_reached_within_a_batch() {
    on_seeds(|machine, os| {
        let cq = armed(os, 1_000_000, 4);
        cq.push(&plains(0..9));
        assert_eq!(settle(machine, &cq), 1);
        assert_eq!(cq.drain().len(), 9);
    });
}

#[test]
fn the_count_goes_on_when_the_consumer_polls() {
    on_seeds(|machine, os| {
        let cq = armed(os, UNLIMITED, 4);
        for context in 0..3 {
            cq.push(&[plain(context)]);
            cq.drain();
            assert_eq!(settle(machine, &cq), 0);
        }
        cq.push(&[plain(3)]);
        assert_eq!(settle(machine, &cq), 1);
    });
}

#[test]
fn the_interval_ends_a_hold_before_the_count() {
    on_seeds(|machine, os| {
        let cq = armed(os, 100, 4);
        cq.push(&[plain(0)]);
        assert_eq!(settle(machine, &cq), 0);
        machine.run_for(110);
        assert_eq!(cq.calls(), 1);
    });
}

#[test]
fn a_failed_request_is_not_held_back() {
    on_seeds(|machine, os| {
        for kind in [Any, Solicited] {
            let cq = TestCq::new(os, DEPTH);
            cq.moderate(1_000_000, 50).expect("a limit");
            cq.arm(kind);
            cq.push(&[failed(0)]);
            assert_eq!(settle(machine, &cq), 1, "armed for {kind:?}");
        }
    });
}

#[test]
fn a_failed_request_lets_go_what_is_held_back() {
    on_seeds(|machine, os| {
        let cq = armed(os, 1_000_000, 50);
        cq.push(&[plain(0)]);
        assert_eq!(settle(machine, &cq), 0);
        cq.push(&[failed(1)]);
        assert_eq!(settle(machine, &cq), 1);
        cq.push(&[failed(2)]);
        assert_eq!(settle(machine, &cq), 1, "once");
    });
}

//= NDKPI 7.1.6
#[test]
fn a_failure_of_the_queue_is_not_held_back() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.moderate(1_000_000, 50).expect("a limit");
        cq.arm(Errors);
        cq.fail(CqFailure::Fatal);
        machine.run_until_idle();
        assert_eq!(cq.take_statuses(), [NtStatus::INTERNAL_ERROR]);

        let cq = armed(os, 1_000_000, 50);
        cq.push(&[plain(0)]);
        assert_eq!(settle(machine, &cq), 0);
        cq.fail(CqFailure::Fatal);
        machine.run_until_idle();
        assert_eq!(cq.take_statuses(), [NtStatus::INTERNAL_ERROR], "what was held back carries it");
    });
}

#[test]
fn an_arm_that_finds_a_new_completion_is_satisfied_at_once() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.moderate(1_000_000, 50).expect("a limit");
        cq.push(&[plain(0)]);
        cq.arm(Any);
        assert_eq!(settle(machine, &cq), 1);
    });
}

#[test]
fn a_second_arm_during_a_hold_is_answered_by_the_same_callback() {
    on_seeds(|machine, os| {
        let cq = armed(os, 100, UNLIMITED);
        cq.push(&[plain(0)]);
        cq.drain();
        cq.arm(Any);
        cq.push(&[plain(1)]);
        machine.run_for(200);
        assert_eq!(cq.calls(), 1);
        cq.push(&[plain(2)]);
        machine.run_for(200);
        assert_eq!(cq.calls(), 1, "no arm is left");
    });
}

#[test]
fn a_second_arm_during_a_hold_is_answered_by_the_callback_that_a_failed_request_lets_go() {
    on_seeds(|machine, os| {
        let cq = armed(os, 1_000_000, 50);
        cq.push(&[plain(0)]);
        cq.drain();
        cq.arm(Any);
        cq.push(&[failed(1)]);
        assert_eq!(settle(machine, &cq), 1);
        cq.push(&[failed(2)]);
        assert_eq!(settle(machine, &cq), 1, "no arm is left");
    });
}

//= NDKPI 7.1.6
#[test]
fn a_full_queue_lets_go_what_is_held_back() {
    on_seeds(|machine, os| {
        for interval in [1_000_000, UNLIMITED] {
            let cq = TestCq::new(os, 4);
            cq.moderate(interval, 4).expect("a limit");
            // Two old ones stay, so that the count is never reached.
            cq.arm(Errors);
            cq.push(&plains(0..2));
            cq.arm(Any);
            assert_eq!(settle(machine, &cq), 1, "they are new: satisfied at once");
            cq.arm(Any);
            cq.push(&[plain(2)]);
            assert_eq!(settle(machine, &cq), 1, "held back");
            cq.push(&[plain(3)]);
            assert_eq!(settle(machine, &cq), 2, "more cannot come");
        }
    });
}

#[test]
fn a_resize_that_makes_the_queue_full_lets_go_what_is_held_back() {
    on_seeds(|machine, os| {
        for interval in [1_000_000, UNLIMITED] {
            let cq = TestCq::new(os, 64);
            cq.moderate(interval, 50).expect("a limit");
            cq.arm(Any);
            cq.push(&plains(0..3));
            assert_eq!(settle(machine, &cq), 0);
            cq.resize(4).expect("they fit");
            assert_eq!(settle(machine, &cq), 0, "there is room for one");
            cq.resize(3).expect("they fit");
            assert_eq!(settle(machine, &cq), 1, "no completion could reach the count any more");
        }
    });
}

#[test]
fn a_count_above_the_depth_counts_when_a_resize_has_made_room_for_it() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, 4);
        cq.moderate(1_000_000, 5).expect("the interval is a limit");
        cq.resize(64).expect("a resize");
        cq.arm(Any);
        cq.push(&plains(0..4));
        assert_eq!(settle(machine, &cq), 0, "four of five");
        cq.push(&[plain(4)]);
        assert_eq!(settle(machine, &cq), 1);
    });
}

#[test]
fn a_resize_ends_a_hold_whose_count_it_lets_count() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, 8);
        cq.moderate(1_000_000, 10).expect("the interval is a limit");
        cq.arm(Any);
        for context in 0..12 {
            cq.push(&[plain(context)]);
            cq.drain();
        }
        assert_eq!(settle(machine, &cq), 0, "ten are more than fit, so they do not count");
        cq.resize(64).expect("a resize");
        assert_eq!(settle(machine, &cq), 1);
    });
}

#[test]
fn a_count_that_a_resize_puts_above_the_depth_counts_if_it_is_the_only_limit() {
    on_seeds(|machine, os| {
        for (interval, calls) in [(UNLIMITED, 1), (1_000_000, 0)] {
            let cq = TestCq::new(os, 64);
            cq.moderate(interval, 5).expect("a limit");
            cq.resize(4).expect("empty");
            cq.arm(Any);
            for context in 0..5 {
                cq.push(&[plain(context)]);
                cq.drain();
            }
            assert_eq!(settle(machine, &cq), calls, "interval {interval}");
        }
    });
}

#[test]
fn a_depth_below_the_count_lets_the_callback_come_when_the_queue_is_full() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, 64);
        cq.moderate(UNLIMITED, 50).expect("a limit");
        cq.resize(4).expect("empty");
        cq.arm(Any);
        cq.push(&plains(0..3));
        assert_eq!(settle(machine, &cq), 0);
        cq.push(&[plain(3)]);
        assert_eq!(settle(machine, &cq), 1);
    });
}
