//! NDKPI 7.1.10: a completion queue that fails takes its queue pairs with it.

use engine::{
    cq::{
        Cq,
        notify::{ArmType, CqFailure},
    },
    qp::Qp,
};
use ndkpi::NtStatus;
use testing::qp_fixture::{PARAMETERS, PLAIN, SEND, TestQp, all, on_nics};

/// Returns true if the queue pair can never be used again.
fn is_at_its_end(qp: &TestQp) -> bool {
    qp.qp().is_dead() && qp.post(0, SEND, PLAIN, &[]) == Err(NtStatus::CONNECTION_INVALID)
}

//= NDKPI 7.1.10
#[test]
fn an_overrun_fails_the_queue_pairs_of_the_queue() {
    on_nics(|net| {
        let small = net.cq(2);
        let a = net.qp_on(PARAMETERS, &small, &net.cq(64), 4_096);
        let b = net.qp(PARAMETERS);
        Qp::link(a.qp(), b.qp()).expect("both are new");
        small.arm(ArmType::Errors);
        a.receive(8, 8);
        for context in 0..4 {
            b.receive(context, 8);
            a.send(context, 8);
        }
        net.settle();
        assert_eq!(small.failure(), Some(CqFailure::Overrun));
        assert_eq!(small.take_statuses(), [NtStatus::BUFFER_OVERFLOW]);
        assert_eq!(small.failures(), [CqFailure::Overrun]);
        assert!(is_at_its_end(&a));
        assert_eq!(a.received(), all([8], NtStatus::CANCELLED), "its other queue completes what was posted");
        assert_eq!(a.sent(), all(0..2, NtStatus::SUCCESS), "what was queued drains, nothing more comes");
        assert!(!b.qp().is_linked(), "the connection has ended");
    });
}

#[test]
fn a_fatal_failure_fails_all_queue_pairs_of_the_queue_in_either_role() {
    on_nics(|net| {
        let shared = net.cq(512);
        // More than the DPC fails in one run.
        let pairs = (0..25).map(|number| {
            let other = net.cq(64);
            let (sends, receives) = if number % 2 == 0 { (&shared, &other) } else { (&other, &shared) };
            let a = net.qp_on(PARAMETERS, sends, receives, 4_096);
            let b = net.qp_on(PARAMETERS, &net.cq(64), &net.cq(64), 4_096);
            Qp::link(a.qp(), b.qp()).expect("both are new");
            (a, b)
        });
        // Gaps in the list.
        let (closed, open): (Vec<_>, Vec<_>) = pairs.enumerate().partition(|(number, _)| number % 5 == 3);
        drop(closed);
        net.settle();
        shared.fail(CqFailure::Fatal);
        net.settle();
        assert!(open.iter().all(|(_, (a, b))| is_at_its_end(a) && !b.qp().is_linked()));
        assert!(open.iter().all(|(_, (_, b))| !b.qp().is_dead()), "the peers have another queue");
    });
}

#[test]
fn whoever_hears_of_a_failure_finds_no_queue_pair_that_can_be_used() {
    on_nics(|net| {
        let cq = net.cq(512);
        // More than the DPC fails in three runs.
        let pairs: Vec<_> = (0..50)
            .map(|_| {
                let a = net.qp_on(PARAMETERS, &net.cq(64), &cq, 4_096);
                let b = net.qp_on(PARAMETERS, &net.cq(64), &net.cq(64), 4_096);
                Qp::link(a.qp(), b.qp()).expect("both are new");
                (a, b)
            })
            .collect();
        let qps: Vec<_> = pairs.iter().map(|(a, _)| a.qp().clone()).collect();
        cq.on_callback(move |_, status| {
            let alive = qps.iter().filter(|qp| !qp.is_dead() || qp.is_linked()).count();
            assert_eq!((status, alive), (NtStatus::INTERNAL_ERROR, 0));
        });
        cq.arm(ArmType::Errors);
        cq.fail(CqFailure::Fatal);
        net.settle();
        assert_eq!(cq.take_statuses(), [NtStatus::INTERNAL_ERROR]);
        drop(pairs);
    });
}

#[test]
fn a_queue_pair_made_on_a_failed_queue_is_at_its_end_from_the_beginning() {
    on_nics(|net| {
        let cq = net.cq(8);
        cq.fail(CqFailure::Fatal);
        net.settle();
        for (sends, receives) in [(&cq, &net.cq(8)), (&net.cq(8), &cq)] {
            let a = net.qp_on(PARAMETERS, sends, receives, 4_096);
            assert!(is_at_its_end(&a));
        }
    });
}

#[test]
fn a_closed_queue_whose_queue_pairs_are_open_fails_them_when_it_overruns() {
    on_nics(|net| {
        let closed = net.cq(2);
        let a = net.qp_on(PARAMETERS, &closed, &net.cq(64), 4_096);
        let b = net.qp(PARAMETERS);
        Qp::link(a.qp(), b.qp()).expect("both are new");
        // The close pends, and nobody takes completions any more.
        closed.close();
        assert!(!closed.is_gone());
        for context in 0..4 {
            b.receive(context, 8);
            let _ = a.post(context, SEND, PLAIN, &[a.sge(0, 8)]);
        }
        net.settle();
        assert!(is_at_its_end(&a), "else its completions are lost in silence");
        assert_eq!(closed.calls(), 0);
        drop((a, b));
        net.settle();
        assert!(closed.is_gone());
    });
}

//= NDKPI 7.1.12
#[test]
fn a_queue_goes_away_only_after_its_queue_pairs() {
    on_nics(|net| {
        let cq = net.cq(8);
        let a = net.qp_on(PARAMETERS, &cq, &cq, 4_096);
        cq.close();
        net.settle();
        assert!(!cq.is_gone(), "a queue pair uses it");
        drop(a);
        net.settle();
        assert!(cq.is_gone());
    });
}

#[test]
fn silent_requests_that_fail_can_overrun_a_queue() {
    on_nics(|net| {
        let small = net.cq(3);
        let a = net.qp_on(PARAMETERS, &small, &net.cq(64), 4_096);
        let b = net.qp(PARAMETERS);
        Qp::link(a.qp(), b.qp()).expect("both are new");
        for context in 0..4 {
            a.send_with(context, 8, engine::qp::Flags::SILENT_SUCCESS);
        }
        a.flush();
        net.settle();
        assert_eq!(small.failure(), Some(CqFailure::Overrun), "the depth has to count them");
        assert_eq!(a.sent(), all(0..3, NtStatus::CANCELLED));
    });
}

#[test]
fn a_failed_queue_can_still_be_pushed_to_by_its_queue_pairs() {
    on_nics(|net| {
        let cq = net.cq(8);
        let (a, b) = (net.qp_on(PARAMETERS, &cq, &cq, 4_096), net.qp_on(PARAMETERS, &cq, &cq, 4_096));
        Qp::link(a.qp(), b.qp()).expect("both are new");
        for context in 0..8 {
            b.receive(context, 8);
            a.receive(context, 8);
        }
        Cq::fail(&cq.cq(), CqFailure::Fatal);
        net.settle();
        assert_eq!(cq.drain(), [0; 0], "sixteen receives were cancelled without a completion");
        assert_eq!(cq.failure(), Some(CqFailure::Fatal));
    });
}
