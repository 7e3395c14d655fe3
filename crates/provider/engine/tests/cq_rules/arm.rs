//! NDKPI 7.1.3 to 7.1.5: what an arm is, how two merge, and arms that find completions in the queue.

use engine::cq::{
    Cqe, CqeOutcome, Operation,
    notify::{
        ArmType::{self, Any, Errors, Solicited},
        CqFailure,
    },
};
use ndkpi::NtStatus;
use testing::{
    arms::MERGES,
    cq_fixture::{TestCq, failed, on_seeds, plain, solicited},
};

const DEPTH: u32 = 16;

//= NDKPI 7.1.1
#[test]
fn a_new_queue_is_unarmed() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.push(&[plain(1), solicited(2), failed(3)]);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 0);
    });
}

#[test]
fn a_new_queue_is_unarmed_also_for_its_failure() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.fail(CqFailure::Fatal);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 0);
    });
}

//= NDKPI 7.1.3
#[test]
fn an_arm_is_one_shot() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.arm(Any);
        for context in 0..3 {
            cq.push(&[plain(context)]);
            machine.run_until_idle();
            assert_eq!(cq.calls(), 1, "one callback for one arm");
        }
    });
}

//= NDKPI 7.1.3
#[test]
fn every_satisfied_arm_gets_its_own_callback() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        for round in 1..=5 {
            cq.arm(Any);
            machine.run_until_idle();
            assert_eq!(cq.calls(), round - 1, "nothing new yet");
            cq.push(&[plain(round)]);
            machine.run_until_idle();
            assert_eq!(cq.calls(), round);
            assert_eq!(cq.drain(), [round]);
        }
    });
}

#[test]
fn a_batch_is_one_callback() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.arm(Any);
        cq.push(&[plain(1), solicited(2), failed(3), plain(4)]);
        machine.run_until_idle();
        assert_eq!(cq.take_statuses(), [NtStatus::SUCCESS]);
        assert_eq!(cq.drain(), [1, 2, 3, 4], "all of it is there at the callback");
    });
}

/// Arms twice, then checks which completions and failures call back.
fn check_merge(first: ArmType, second: ArmType, result: ArmType) {
    // What satisfies each arm, beginning with the weakest stimulus.
    let stimuli: [(&[Cqe], ArmType); 3] = [(&[plain(1)], Any), (&[solicited(2)], Solicited), (&[failed(3)], Solicited)];
    for (completions, weakest) in stimuli {
        on_seeds(|machine, os| {
            let cq = TestCq::new(os, DEPTH);
            cq.arm(first);
            cq.arm(second);
            cq.push(completions);
            machine.run_until_idle();
            let expected = usize::from(result >= weakest);
            assert_eq!(cq.calls(), expected, "{first:?} then {second:?}, then {completions:?}");
        });
    }
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.arm(first);
        cq.arm(second);
        cq.fail(CqFailure::Fatal);
        machine.run_until_idle();
        assert_eq!(cq.take_statuses(), [NtStatus::INTERNAL_ERROR], "every arm is satisfied by the queue's failure");
    });
}

//= NDKPI 7.1.4
//= bug 4
#[test]
fn two_arms_merge_into_the_stronger_one() {
    for (first, second, result) in MERGES {
        check_merge(first, second, result);
    }
}

#[test]
fn two_arms_that_merged_are_one_callback() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.arm(Solicited);
        cq.arm(Any);
        cq.push(&[plain(1)]);
        machine.run_until_idle();
        cq.push(&[solicited(2), failed(3)]);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1);
    });
}

//= NDKPI 7.1.5
#[test]
fn an_arm_with_a_new_completion_in_the_queue_is_satisfied_at_once() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.push(&[plain(1)]);
        cq.arm(Any);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1);
    });
}

#[test]
fn one_new_completion_among_old_ones_satisfies_an_arm_at_once() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.arm(Any);
        cq.push(&[plain(1), plain(2)]);
        machine.run_until_idle();
        assert_eq!(cq.poll(1), [1]);
        cq.push(&[plain(3)]);
        cq.arm(Any);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 2);
        assert_eq!(cq.drain(), [2, 3]);
    });
}

//= NDKPI 7.1.5
#[test]
fn completions_that_were_all_there_at_the_last_callback_satisfy_nothing() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.arm(Any);
        cq.push(&[plain(1), solicited(2)]);
        machine.run_until_idle();
        for kind in [Any, Solicited, Errors] {
            cq.arm(kind);
            machine.run_until_idle();
            assert_eq!(cq.calls(), 1, "the *may* case is silent");
        }
        assert_eq!(cq.poll(1), [1]);
        cq.arm(Any);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1, "also when some were taken");
    });
}

#[test]
fn a_silent_arm_stands_and_is_satisfied_by_the_next_completion() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.arm(Any);
        cq.push(&[plain(1)]);
        machine.run_until_idle();
        cq.arm(Any);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1);
        cq.push(&[plain(2)]);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 2);
        assert_eq!(cq.drain(), [1, 2]);
    });
}

//= NDKPI 7.1.5
#[test]
fn completions_taken_before_the_arm_satisfy_nothing() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.push(&[plain(1), solicited(2), failed(3)]);
        assert_eq!(cq.drain(), [1, 2, 3]);
        cq.arm(Any);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 0);
    });
}

#[test]
fn completions_taken_after_the_arm_was_satisfied_still_call_back() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.arm(Any);
        cq.push(&[plain(1)]);
        assert_eq!(cq.drain(), [1]);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1, "the arm was satisfied when the completion came");
    });
}

#[test]
fn an_arm_while_a_callback_waits_its_turn_is_not_lost() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.arm(Any);
        cq.push(&[plain(1)]);
        assert_eq!(cq.drain(), [1]);
        // The callback of the first arm has not begun.
        cq.arm(Any);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1);
        cq.push(&[plain(2)]);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 2);
    });
}

#[test]
fn a_solicited_arm_waits_for_a_solicited_completion() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.arm(Solicited);
        cq.push(&[plain(1), plain(2)]);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 0);
        cq.push(&[solicited(3)]);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1);
        assert_eq!(cq.drain(), [1, 2, 3]);
    });
}

#[test]
fn a_solicited_arm_is_satisfied_at_once_only_by_a_new_completion_of_its_class() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.push(&[plain(1)]);
        cq.arm(Solicited);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 0, "new, but not solicited");
        cq.push(&[solicited(2)]);
        machine.run_until_idle();
        assert_eq!(cq.take_calls().len(), 1);
        cq.push(&[plain(3)]);
        cq.arm(Solicited);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 0, "the solicited one was there at the last callback");
    });
}

#[test]
fn a_solicited_arm_is_satisfied_by_a_completion_behind_many_that_came_alone() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        for context in 1..=4 {
            cq.push(&[plain(context)]);
        }
        cq.push(&[plain(5), solicited(6)]);
        assert_eq!(cq.poll(4), [1, 2, 3, 4]);
        cq.arm(Solicited);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1);
        // The same with one that came alone itself.
        for context in 7..=9 {
            cq.push(&[plain(context)]);
        }
        cq.push(&[solicited(10)]);
        assert_eq!(cq.poll(5), [5, 6, 7, 8, 9]);
        cq.arm(Solicited);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 2);
    });
}

#[test]
fn a_failed_request_satisfies_a_solicited_arm() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.arm(Solicited);
        cq.push(&[failed(1)]);
        machine.run_until_idle();
        assert_eq!(cq.take_statuses(), [NtStatus::SUCCESS], "the request failed, not the queue");
    });
}

#[test]
fn a_failed_request_satisfies_an_arm_for_any_completion() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.arm(Any);
        cq.push(&[failed(1)]);
        machine.run_until_idle();
        assert_eq!(cq.take_statuses(), [NtStatus::SUCCESS]);
    });
}

#[test]
fn a_failed_request_does_not_satisfy_an_arm_for_errors() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.arm(Errors);
        cq.push(&[failed(1), solicited(2), plain(3)]);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 0);
        cq.fail(CqFailure::Fatal);
        machine.run_until_idle();
        assert_eq!(cq.take_statuses(), [NtStatus::INTERNAL_ERROR]);
    });
}

#[test]
fn a_warning_is_a_failure_and_information_is_not() {
    on_seeds(|machine, os| {
        for (bits, calls) in [(0x4000_0000, 0), (0x8000_0005, 1)] {
            let ended = |context| {
                let outcome = CqeOutcome::new(Operation::Receive, NtStatus::from_bits(bits));
                Cqe { outcome, ..plain(context) }
            };
            for completions in [&[ended(1)][..], &[plain(1), ended(2), plain(3)]] {
                let cq = TestCq::new(os, DEPTH);
                cq.arm(Solicited);
                cq.push(completions);
                machine.run_until_idle();
                assert_eq!(cq.calls(), calls, "{bits:#x} among {}", completions.len());
            }
        }
    });
}

#[test]
fn a_failed_send_that_was_marked_solicited_is_a_failure() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.arm(Solicited);
        cq.push(&[Cqe { outcome: failed(1).outcome.soliciting(true), ..failed(1) }]);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1);
    });
}

//= NDKPI 7.1.7
//= invariant 1
#[test]
fn an_arm_never_calls_back_from_inside() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.push(&[plain(1)]);
        cq.arm(Any);
        assert_eq!(cq.calls(), 0, "the callback waits for the notification call");
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1);
        cq.push(&[plain(2)]);
        assert_eq!(cq.calls(), 1);
    });
}

#[test]
fn a_push_never_calls_back_from_inside() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.arm(Any);
        cq.push(&[plain(1)]);
        assert_eq!(cq.calls(), 0);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1);
    });
}
