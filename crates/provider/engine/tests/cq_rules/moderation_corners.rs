//! NDKPI 7.1.6: the values with a meaning of their own, and settings that change.

use engine::cq::{
    moderation::{Moderation, UNLIMITED},
    notify::ArmType::{Any, Solicited},
};
use host::{HostOs, machine::Machine};
use ndkpi::NtStatus;
use testing::cq_fixture::{TestCq, on_seeds, plain, plains, solicited};

const DEPTH: u32 = 64;

/// Returns true if a queue that is moderated so calls back at once for one completion.
fn calls_at_once(machine: &Machine, os: &HostOs, interval: u32, count: u32) -> bool {
    let cq = TestCq::new(os, DEPTH);
    cq.moderate(interval, count).expect("a limit");
    cq.arm(Any);
    cq.push(&[plain(0)]);
    machine.run_until_idle();
    cq.calls() == 1
}

#[test]
fn an_interval_of_zero_is_no_moderation() {
    on_seeds(|machine, os| {
        for count in [0, 1, 2, DEPTH, DEPTH + 1, UNLIMITED] {
            assert!(calls_at_once(machine, os, 0, count), "count {count}");
        }
    });
}

#[test]
fn a_count_of_zero_or_one_is_no_moderation() {
    on_seeds(|machine, os| {
        for count in [0, 1] {
            for interval in [0, 1, 1_000, UNLIMITED - 1, UNLIMITED] {
                assert!(calls_at_once(machine, os, interval, count), "interval {interval}, count {count}");
            }
        }
    });
}

#[test]
fn an_interval_of_maxulong_lets_the_count_govern_alone() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.moderate(UNLIMITED, 3).expect("a limit");
        cq.arm(Any);
        cq.push(&plains(0..2));
        assert_eq!(machine.leaks(), None, "no timer");
        machine.run_for(u64::from(u32::MAX) * 2);
        assert_eq!(cq.calls(), 0);
        cq.push(&[plain(2)]);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1);
    });
}

#[test]
fn a_completion_that_comes_alone_counts_for_what_a_batch_has_begun_to_hold_back() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.moderate(UNLIMITED, 3).expect("a limit");
        cq.arm(Solicited);
        // Nobody waits for such a one, and the next could go in without a decision.
        cq.push(&[plain(0)]);
        cq.push(&[solicited(1), plain(2)]);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 0, "two of three");
        cq.push(&[plain(3)]);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1);
    });
}

#[test]
fn a_count_of_maxulong_or_above_the_depth_lets_the_interval_govern_alone() {
    on_seeds(|machine, os| {
        for count in [DEPTH + 1, 1_000, UNLIMITED - 1, UNLIMITED] {
            let cq = TestCq::new(os, DEPTH);
            cq.moderate(100, count).expect("a limit");
            cq.arm(Any);
            cq.push(&plains(0..63));
            machine.run_until_idle();
            assert_eq!(cq.calls(), 0, "count {count}");
            machine.run_for(110);
            assert_eq!(cq.calls(), 1);
        }
    });
}

#[test]
fn a_count_of_exactly_the_depth_counts() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.moderate(UNLIMITED, DEPTH).expect("a limit");
        cq.arm(Any);
        for context in 0..64 {
            machine.run_until_idle();
            assert_eq!(cq.calls(), 0);
            cq.push(&[plain(context)]);
            cq.drain();
        }
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1);
    });
}

//= NDKPI 7.1.6
#[test]
fn no_limit_on_either_side_is_an_invalid_parameter_mix() {
    on_seeds(|machine, os| {
        for count in [DEPTH + 1, UNLIMITED - 1, UNLIMITED] {
            let cq = TestCq::new(os, DEPTH);
            assert_eq!(cq.moderate(UNLIMITED, count), Err(NtStatus::INVALID_PARAMETER_MIX));
            cq.arm(Any);
            cq.push(&[plain(0)]);
            machine.run_until_idle();
            assert_eq!(cq.calls(), 1, "a request that fails changes nothing");
        }
    });
}

#[test]
fn a_failed_request_leaves_the_moderation_as_it_was() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.moderate(100, UNLIMITED).expect("a limit");
        cq.arm(Any);
        cq.push(&[plain(0)]);
        assert_eq!(cq.moderate(UNLIMITED, UNLIMITED), Err(NtStatus::INVALID_PARAMETER_MIX));
        machine.run_until_idle();
        assert_eq!(cq.calls(), 0, "still held back");
        machine.run_for(110);
        assert_eq!(cq.calls(), 1, "by the interval of before");
    });
}

#[test]
fn an_interval_is_rounded_down_to_what_the_timer_can_keep() {
    for seed in 0..4 {
        let machine = Machine::seeded(seed).timer_resolution(50).start();
        let os = HostOs::new(&machine);
        assert!(calls_at_once(&machine, &os, 49, UNLIMITED), "rounded down to none");
        for (interval, rounded) in [(50, 50), (99, 50), (100, 100), (149, 100)] {
            let cq = TestCq::new(&os, DEPTH);
            cq.moderate(interval, UNLIMITED).expect("a limit");
            cq.arm(Any);
            let begin = machine.now();
            cq.push(&[plain(0)]);
            machine.run_for(rounded + 20);
            let calls = cq.take_calls();
            assert_eq!(calls.len(), 1, "{interval} is never rounded up");
            assert!(calls[0].at >= begin + rounded);
        }
        machine.shutdown();
    }
}

//= NDKPI 7.1.6
#[test]
fn every_setting_means_what_the_text_says() {
    let values = [0, 1, 2, 3, 49, 50, 51, 100, 101, 1_000, UNLIMITED - 1, UNLIMITED];
    for interval in values {
        for count in values {
            for depth in [1, 2, 3, 100, 1_000] {
                for resolution in [1, 50, 1_000] {
                    let moderation = Moderation::new(interval, count, depth, resolution);
                    let what = format!("interval {interval}, count {count}, depth {depth}, resolution {resolution}");
                    let no_interval = interval == UNLIMITED;
                    let no_count = count == UNLIMITED || count > depth;
                    if no_interval && no_count {
                        assert_eq!(moderation, Err(NtStatus::INVALID_PARAMETER_MIX), "{what}");
                        continue;
                    }
                    let moderation = moderation.expect(&what);
                    let off = interval < resolution || count <= 1;
                    assert_eq!(moderation.is_off(), off, "{what}");
                    if off {
                        continue;
                    }
                    if let Some(micros) = moderation.micros() {
                        assert!(!no_interval, "{what}");
                        assert!(micros <= interval && micros % resolution == 0 && micros > interval - resolution);
                    } else {
                        assert!(no_interval, "{what}");
                    }
                    assert_eq!(moderation.counted(u64::from(count)), !no_count, "{what}");
                    assert!(!moderation.counted(u64::from(count) - 1), "{what}");
                }
            }
        }
    }
}

#[test]
fn the_newest_settings_win() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.moderate(1_000_000, UNLIMITED).expect("a limit");
        cq.moderate(UNLIMITED, 2).expect("a limit");
        cq.arm(Any);
        cq.push(&plains(0..2));
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1);
    });
}

#[test]
fn new_settings_hold_for_what_is_held_back() {
    on_seeds(|machine, os| {
        let held = || {
            let cq = TestCq::new(os, DEPTH);
            cq.moderate(1_000_000, 50).expect("a limit");
            cq.arm(Any);
            cq.push(&plains(0..3));
            machine.run_until_idle();
            assert_eq!(cq.calls(), 0);
            cq
        };
        let cq = held();
        cq.moderate(0, 0).expect("none");
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1, "no moderation any more");

        let cq = held();
        cq.moderate(1_000_000, 3).expect("a limit");
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1, "the new count is reached already");

        let cq = held();
        cq.moderate(UNLIMITED, 4).expect("a limit");
        machine.run_for(2_000_000);
        assert_eq!(cq.calls(), 0, "the old interval counts no more");
        cq.push(&[plain(3)]);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1);

        let cq = held();
        cq.moderate(100, UNLIMITED).expect("a limit");
        machine.run_for(110);
        assert_eq!(cq.calls(), 1, "the new interval");
    });
}

#[test]
fn settings_made_again_and_again_do_not_postpone_a_callback() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.moderate(100, UNLIMITED).expect("a limit");
        cq.arm(Any);
        cq.push(&[plain(0)]);
        for _ in 0..30 {
            machine.run_for(5);
            cq.moderate(100, UNLIMITED).expect("a limit");
        }
        assert_eq!(cq.calls(), 1, "150 microseconds have passed");
    });
}

#[test]
fn moderation_does_not_delay_the_next_hold_with_the_timer_of_the_last() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.moderate(100, 2).expect("a limit");
        cq.arm(Any);
        cq.push(&plains(0..2));
        machine.run_until_idle();
        assert_eq!(cq.take_calls().len(), 1, "by the count; the timer is still set");
        machine.run_for(60);
        cq.arm(Any);
        let begin = machine.now();
        cq.push(&[plain(2)]);
        machine.run_for(150);
        let calls = cq.take_calls();
        assert_eq!(calls.len(), 1);
        assert!(calls[0].at >= begin + 100, "its own interval, not the rest of the last one");
    });
}
