//! NDKPI 7.1.10: overrun and other failures of the queue itself. What they do to queue pairs is in `qp_rules`.

use engine::cq::notify::{
    ArmType::{Any, Errors, Solicited},
    CqFailure,
};
use ndkpi::NtStatus;
use testing::cq_fixture::{TestCq, failed, on_seeds, plain, plains};

const DEPTH: u32 = 4;

//= NDKPI 7.1.10
#[test]
fn one_completion_more_than_the_depth_overruns_the_queue() {
    on_seeds(|machine, os| {
        for depth in [1, 2, 3, 4, 5, 7, 8, 100] {
            let cq = TestCq::new(os, depth);
            cq.push(&plains(0..depth as usize));
            assert_eq!(cq.failure(), None, "exactly {depth} fit");
            cq.push(&[plain(0)]);
            assert_eq!(cq.failure(), Some(CqFailure::Overrun));
            machine.run_until_idle();
            assert_eq!(cq.failures(), [CqFailure::Overrun], "counted once");
        }
    });
}

#[test]
fn an_overrun_calls_back_with_its_status() {
    on_seeds(|machine, os| {
        for kind in [Any, Solicited, Errors] {
            let cq = TestCq::new(os, DEPTH);
            cq.push(&plains(0..4));
            cq.poll(usize::MAX);
            cq.push(&plains(0..4));
            cq.arm(Any);
            machine.run_until_idle();
            assert_eq!(cq.take_statuses(), [NtStatus::SUCCESS]);
            cq.arm(kind);
            machine.run_until_idle();
            cq.push(&[plain(4)]);
            machine.run_until_idle();
            assert_eq!(cq.take_statuses(), [NtStatus::BUFFER_OVERFLOW], "armed for {kind:?}");
        }
    });
}

#[test]
fn a_fatal_failure_calls_back_with_its_status() {
    on_seeds(|machine, os| {
        for kind in [Any, Solicited, Errors] {
            let cq = TestCq::new(os, DEPTH);
            cq.arm(kind);
            cq.fail(CqFailure::Fatal);
            machine.run_until_idle();
            assert_eq!(cq.take_statuses(), [NtStatus::INTERNAL_ERROR], "armed for {kind:?}");
            assert_eq!(cq.failures(), [CqFailure::Fatal]);
        }
    });
}

//= NDKPI 7.1.10
#[test]
fn a_failure_of_an_unarmed_queue_is_told_to_the_next_arm() {
    on_seeds(|machine, os| {
        for kind in [Any, Solicited, Errors] {
            let cq = TestCq::new(os, DEPTH);
            cq.push(&plains(0..5));
            machine.run_until_idle();
            assert_eq!(cq.calls(), 0);
            cq.arm(kind);
            machine.run_until_idle();
            assert_eq!(cq.take_statuses(), [NtStatus::BUFFER_OVERFLOW], "armed for {kind:?}");
        }
    });
}

//= NDKPI 7.1.10
#[test]
fn a_failure_is_told_once() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.on_callback(|cq, _| cq.arm(Any));
        cq.arm(Any);
        cq.push(&plains(0..5));
        machine.run_until_idle();
        assert_eq!(
            cq.take_statuses(),
            [NtStatus::BUFFER_OVERFLOW],
            "a consumer that arms in its callback does not spin"
        );
        cq.push(&[plain(5)]);
        cq.fail(CqFailure::Fatal);
        for kind in [Any, Solicited, Errors] {
            cq.arm(kind);
            machine.run_until_idle();
        }
        assert_eq!(cq.calls(), 0);
        assert_eq!(cq.failures(), [CqFailure::Overrun]);
    });
}

#[test]
fn a_failure_stays() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.push(&plains(0..5));
        machine.run_until_idle();
        cq.drain();
        cq.arm(Any);
        machine.run_until_idle();
        cq.resize(64).expect("memory");
        assert_eq!(cq.failure(), Some(CqFailure::Overrun), "neither draining nor room heals it");
        cq.push(&[plain(9)]);
        assert_eq!(cq.drain(), [0; 0], "no further completions");
    });
}

#[test]
fn the_first_failure_stays() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.fail(CqFailure::Fatal);
        cq.fail(CqFailure::Overrun);
        cq.arm(Errors);
        machine.run_until_idle();
        assert_eq!(cq.take_statuses(), [NtStatus::INTERNAL_ERROR]);
        assert_eq!(cq.failure(), Some(CqFailure::Fatal));
        assert_eq!(cq.failures(), [CqFailure::Fatal]);
    });
}

//= NDKPI 7.1.10
//= bug 7
#[test]
fn what_was_queued_before_a_failure_still_drains() {
    on_seeds(|machine, os| {
        for failure in [CqFailure::Overrun, CqFailure::Fatal] {
            let cq = TestCq::new(os, DEPTH);
            cq.push(&plains(0..3));
            cq.fail(failure);
            machine.run_until_idle();
            assert_eq!(cq.poll(1), [0]);
            assert_eq!(cq.drain(), [1, 2]);
        }
    });
}

#[test]
fn the_completion_that_overran_and_all_later_ones_are_gone() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        // The batch begins inside the depth and ends outside.
        cq.push(&plains(0..2));
        cq.push(&plains(2..9));
        machine.run_until_idle();
        assert_eq!(cq.poll(1), [0]);
        cq.push(&[plain(9)]);
        assert_eq!(cq.drain(), [1, 2, 3]);
    });
}

#[test]
fn a_callback_that_was_due_already_carries_the_failure() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.arm(Any);
        cq.push(&[plain(0)]);
        cq.push(&plains(1..5));
        machine.run_until_idle();
        assert_eq!(cq.take_statuses(), [NtStatus::BUFFER_OVERFLOW], "one callback for both");
        cq.arm(Any);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 0, "and told once");
    });
}

#[test]
fn a_failure_during_a_callback_is_told_by_the_next_one() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.on_callback(|cq, status| {
            if status == NtStatus::SUCCESS {
                cq.arm(Errors);
                cq.push(&plains(1..6));
            }
        });
        cq.arm(Any);
        cq.push(&[plain(0)]);
        machine.run_until_idle();
        assert_eq!(cq.take_statuses(), [NtStatus::SUCCESS, NtStatus::BUFFER_OVERFLOW]);
    });
}

#[test]
fn a_batch_that_overruns_calls_back_once() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.arm(Any);
        cq.push(&plains(0..9));
        machine.run_until_idle();
        assert_eq!(cq.take_statuses(), [NtStatus::BUFFER_OVERFLOW]);
        assert_eq!(cq.drain(), [0, 1, 2, 3]);
    });
}

#[test]
fn a_failed_request_is_no_failure_of_the_queue() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.push(&[failed(1)]);
        machine.run_until_idle();
        assert_eq!(cq.failure(), None);
        assert_eq!(cq.failures(), []);
        cq.push(&plains(2..5));
        assert_eq!(cq.drain(), [1, 2, 3, 4]);
    });
}

//= bug 7
#[test]
fn the_engine_is_told_of_a_failure_also_when_nothing_is_armed() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.fail(CqFailure::Fatal);
        machine.run_until_idle();
        assert_eq!(cq.failures(), [CqFailure::Fatal]);
        assert_eq!(cq.calls(), 0);
    });
}
