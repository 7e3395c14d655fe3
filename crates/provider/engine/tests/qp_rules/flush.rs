//! NDKPI 7.2: a flush cancels what is posted in both queues, in order, and nothing else.

use engine::qp::{Flags, Qp, QpParameters};
use ndkpi::NtStatus;
use testing::qp_fixture::{PARAMETERS, PLAIN, SEND, all, on_busy_nics, on_nics};

const SILENT: Flags = Flags::SILENT_SUCCESS;
const DEFER: Flags = Flags::DEFER;

//= NDKPI 7.2.4
#[test]
fn flushed_requests_complete_as_cancelled_in_their_order() {
    on_nics(|net| {
        let (a, b) = net.pair();
        for context in 0..10 {
            a.send(context, 8);
            a.receive(context, 8);
        }
        a.flush();
        net.settle();
        assert_eq!(a.sent(), all(0..10, NtStatus::CANCELLED));
        assert_eq!(a.received(), all(0..10, NtStatus::CANCELLED));
        assert_eq!(b.received(), []);
    });
}

#[test]
fn a_flushed_receive_completes_as_a_receive_of_no_bytes() {
    on_nics(|net| {
        let (a, _b) = net.pair();
        a.receive(1, 8);
        a.flush();
        net.settle();
        let entries = a.receive_cq().poll_entries(4);
        assert_eq!((entries[0].outcome.operation(), entries[0].received.bytes()), (engine::cq::Operation::Receive, 0));
    });
}

//= NDKPI 7.2.4
#[test]
fn flushed_silent_requests_complete() {
    on_nics(|net| {
        let (a, _b) = net.pair();
        for context in 0..4 {
            a.send_with(context, 8, SILENT);
        }
        a.flush();
        net.settle();
        assert_eq!(a.sent(), all(0..4, NtStatus::CANCELLED), "they failed");
    });
}

#[test]
fn flushed_deferred_requests_complete() {
    on_nics(|net| {
        let (a, _b) = net.pair();
        a.send_with(0, 8, DEFER);
        a.send_with(1, 8, DEFER);
        a.flush();
        net.settle();
        assert_eq!(a.sent(), all(0..2, NtStatus::CANCELLED));
    });
}

#[test]
fn what_was_posted_before_the_connection_can_be_flushed() {
    on_nics(|net| {
        let a = net.qp(PARAMETERS);
        a.receive(0, 8);
        a.receive(1, 8);
        a.flush();
        net.settle();
        assert_eq!(a.received(), all(0..2, NtStatus::CANCELLED));
    });
}

#[test]
fn a_flush_of_empty_queues_completes_nothing() {
    on_nics(|net| {
        let (a, b) = net.pair();
        a.flush();
        a.flush();
        net.settle();
        assert_eq!(a.sent(), []);
        b.receive(0, 8);
        a.send(0, 8);
        net.settle();
        assert_eq!(a.sent(), all([0], NtStatus::SUCCESS));
    });
}

#[test]
fn what_is_posted_after_a_flush_is_carried_out() {
    on_nics(|net| {
        let (a, b) = net.pair();
        a.send(0, 8);
        b.receive(0, 8);
        net.settle();
        a.send(1, 8);
        a.flush();
        a.send(2, 8);
        b.flush();
        b.receive(3, 8);
        net.settle();
        assert_eq!(a.sent(), [(0, NtStatus::SUCCESS), (1, NtStatus::CANCELLED), (2, NtStatus::SUCCESS)]);
        assert_eq!(b.received(), all([0, 3], NtStatus::SUCCESS));
    });
}

#[test]
fn receives_posted_after_a_flush_take_what_the_peer_sends() {
    on_nics(|net| {
        let (a, b) = net.pair();
        for context in 0..3 {
            b.receive(context, 8);
        }
        b.flush();
        b.receive(3, 8);
        net.settle();
        a.send(0, 8);
        net.settle();
        let mut expected = all(0..3, NtStatus::CANCELLED);
        expected.push((3, NtStatus::SUCCESS));
        assert_eq!(b.received(), expected);
    });
}

#[test]
fn a_send_that_met_a_flush_gets_the_receive_posted_after_it() {
    // One processor and a flush that takes more than one turn: the send comes between the turns.
    for seed in 0..4 {
        let machine = host::machine::Machine::seeded(seed).processors(1).start();
        let net = testing::qp_fixture::Net::new(&machine, engine::nic::NicMode::Deferred);
        let (a, b) = net.pair();
        for context in 0..50 {
            b.receive(context, 8);
        }
        b.flush();
        b.receive(50, 8);
        a.send(1, 8);
        net.settle();
        let mut expected = all(0..50, NtStatus::CANCELLED);
        expected.push((50, NtStatus::SUCCESS));
        assert_eq!(b.received(), expected);
        assert_eq!(a.sent(), all([1], NtStatus::SUCCESS), "there is a receive, and nobody told the sender");
        drop((a, b, net));
        machine.shutdown();
    }
}

#[test]
fn a_long_flush_of_a_deep_queue_comes_to_its_end() {
    on_nics(|net| {
        let parameters = QpParameters { initiator_depth: 200, receive_depth: 200, ..PARAMETERS };
        let (a, b) = net.pair_with(parameters);
        for context in 0..200 {
            a.send(context, 8);
            a.receive(context, 8);
        }
        a.flush();
        net.settle();
        assert_eq!(a.sent(), all(0..200, NtStatus::CANCELLED));
        assert_eq!(a.received(), all(0..200, NtStatus::CANCELLED));
        b.receive(0, 8);
        a.send(0, 8);
        net.settle();
        assert_eq!(a.sent(), all([0], NtStatus::SUCCESS));
    });
}

#[test]
fn a_flush_does_not_touch_the_peers_queues() {
    on_nics(|net| {
        let (a, b) = net.pair();
        b.receive(0, 8);
        b.send(1, 8);
        a.flush();
        net.settle();
        assert_eq!(b.received(), []);
        assert_eq!(b.sent(), []);
        a.receive(2, 8);
        a.send(3, 8);
        net.settle();
        assert_eq!(b.received(), all([0], NtStatus::SUCCESS));
        assert_eq!(b.sent(), all([1], NtStatus::SUCCESS));
    });
}

#[test]
fn a_flush_lets_end_what_has_begun_and_cancels_what_has_not() {
    // One processor: each step moves a megabyte.
    for seed in 0..4 {
        let machine = host::machine::Machine::seeded(seed).processors(1).start();
        let net = testing::qp_fixture::Net::new(&machine, engine::nic::NicMode::Deferred);
        let length = 4 << 20;
        let a = net.qp_on(PARAMETERS, &net.cq(8), &net.cq(8), length);
        let b = net.qp_on(PARAMETERS, &net.cq(8), &net.cq(8), length);
        Qp::link(a.qp(), b.qp()).expect("both are new");
        let whole = u32::try_from(length).expect("small");
        b.post_receive(1, &[b.sge(0, whole)]).expect("a receive");
        b.receive(2, 8);
        a.post(3, SEND, PLAIN, &[a.sge(0, whole)]).expect("a send");
        a.send(4, 8);
        machine.step();
        assert_eq!(a.sent(), [], "half a megabyte for each quantum");
        a.flush();
        net.settle();
        assert_eq!(a.sent(), [(3, NtStatus::SUCCESS), (4, NtStatus::CANCELLED)], "no half message at the peer");
        assert_eq!(b.received(), all([1], NtStatus::SUCCESS));
        a.send(5, 8);
        net.settle();
        assert_eq!(b.received(), all([2], NtStatus::SUCCESS), "the queue pair can still be used");
        drop((a, b, net));
        machine.shutdown();
    }
}

#[test]
fn a_flush_waits_for_the_receive_that_is_being_filled() {
    for seed in 0..8 {
        let machine = host::machine::Machine::seeded(seed).processors(1).start();
        let net = testing::qp_fixture::Net::new(&machine, engine::nic::NicMode::Deferred);
        let length = 4 << 20;
        let a = net.qp_on(PARAMETERS, &net.cq(8), &net.cq(8), length);
        let b = net.qp_on(PARAMETERS, &net.cq(8), &net.cq(8), length);
        Qp::link(a.qp(), b.qp()).expect("both are new");
        let whole = u32::try_from(length).expect("small");
        b.post_receive(1, &[b.sge(0, whole)]).expect("a receive");
        b.receive(2, 8);
        a.post(3, SEND, PLAIN, &[a.sge(0, whole)]).expect("a send");
        machine.step();
        b.flush();
        net.settle();
        assert_eq!(a.sent(), all([3], NtStatus::SUCCESS));
        assert_eq!(b.received(), [(1, NtStatus::SUCCESS), (2, NtStatus::CANCELLED)], "in order");
        drop((a, b, net));
        machine.shutdown();
    }
}

#[test]
fn everything_posted_before_a_flush_completes_once_while_the_other_side_works() {
    on_busy_nics(|net| {
        let (a, b) = net.pair();
        for round in 0..20 {
            let contexts = round * 10..round * 10 + 10;
            for context in contexts.clone() {
                a.send(context, 64);
                b.receive(context, 64);
            }
            if round % 2 == 0 {
                a.flush();
            } else {
                b.flush();
                // What the flush leaves of the sends needs receives.
                for context in contexts.clone() {
                    b.receive(1_000 + context, 64);
                }
            }
            net.settle();
            let sent = a.sent();
            assert_eq!(sent.iter().map(|entry| entry.0).collect::<Vec<_>>(), contexts.clone().collect::<Vec<_>>());
            let succeeded = sent.iter().filter(|entry| entry.1 == NtStatus::SUCCESS).count();
            // Nothing is cancelled before something that succeeded.
            assert!(sent.iter().map(|entry| entry.1 == NtStatus::CANCELLED).is_sorted());
            b.flush();
            net.settle();
            let received = b.received();
            assert!(received.iter().map(|entry| entry.0).is_sorted());
            let filled = received.iter().filter(|entry| entry.1 == NtStatus::SUCCESS).count();
            assert_eq!(filled, succeeded);
        }
    });
}

#[test]
fn a_post_right_after_a_flush_does_not_keep_the_receives_from_being_cancelled() {
    on_nics(|net| {
        let (a, b) = net.pair();
        a.receive(1, 8);
        b.receive(2, 8);
        a.flush();
        a.send(3, 8);
        net.settle();
        assert_eq!(a.received(), all([1], NtStatus::CANCELLED));
        assert_eq!((a.sent(), b.received()), (all([3], NtStatus::SUCCESS), all([2], NtStatus::SUCCESS)));
    });
}
