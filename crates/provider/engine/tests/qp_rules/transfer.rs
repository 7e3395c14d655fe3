//! What arrives: bytes, order, and what completions say.

use engine::{
    cq::{Operation, notify::ArmType},
    qp::{Flags, Sge},
};
use ndkpi::NtStatus;
use testing::qp_fixture::{PARAMETERS, PLAIN, SEND, TestQp, all, on_busy_nics, on_nics, with_context};

/// Bytes that differ from place to place.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| u8::try_from(index * 7 % 251).unwrap_or(0)).collect()
}

#[test]
fn a_send_fills_the_first_receive() {
    on_nics(|net| {
        let (a, b) = net.pair();
        a.buffer().write(0, &pattern(1_000));
        b.post_receive(7, &[b.sge(2_000, 1_500)]).expect("a receive");
        a.post(9, SEND, PLAIN, &[a.sge(0, 1_000)]).expect("a send");
        net.settle();
        let received = b.receive_cq().poll_entries(8);
        assert_eq!(received.len(), 1);
        assert_eq!((received[0].request_context, received[0].outcome.status()), (7, NtStatus::SUCCESS));
        assert_eq!(received[0].received.bytes(), 1_000, "what came, not what there was room for");
        assert_eq!(received[0].outcome.operation(), Operation::Receive);
        assert_eq!(b.buffer().bytes(2_000, 1_000), pattern(1_000));
        assert_eq!(b.buffer().bytes(3_000, 500), [0; 500], "nothing behind it");
        let sent = a.send_cq().poll_entries(8);
        assert_eq!(sent.len(), 1);
        assert_eq!((sent[0].request_context, sent[0].outcome.operation()), (9, Operation::Send));
    });
}

#[test]
fn both_directions_go_at_the_same_time() {
    on_nics(|net| {
        let (a, b) = net.pair();
        for (from, to) in [(&a, &b), (&b, &a)] {
            to.receive(1, 64);
            from.send(2, 64);
        }
        net.settle();
        for side in [&a, &b] {
            assert_eq!(side.sent(), all([2], NtStatus::SUCCESS));
            assert_eq!(side.received(), all([1], NtStatus::SUCCESS));
        }
    });
}

#[test]
fn bytes_are_gathered_and_scattered_across_elements_of_any_length() {
    on_nics(|net| {
        let (a, b) = net.pair();
        let data = pattern(3_000);
        a.buffer().write(0, &data);
        let from = [a.sge(0, 1), a.sge(1, 1_999), a.sge(0, 0), a.sge(2_000, 1_000)];
        let to = [b.sge(0, 0), b.sge(10_000, 700), b.sge(20_000, 2_299), b.sge(30_000, 5)];
        b.post_receive(0, &to).expect("a receive");
        a.post(0, SEND, PLAIN, &from).expect("a send");
        net.settle();
        let mut arrived = b.buffer().bytes(10_000, 700);
        arrived.extend(b.buffer().bytes(20_000, 2_299));
        arrived.extend(b.buffer().bytes(30_000, 1));
        assert_eq!(arrived, data);
    });
}

#[test]
fn an_element_of_no_bytes_needs_no_token() {
    const WRONG: u32 = 0xDEAD_BEEF;
    on_nics(|net| {
        let (a, b) = net.pair();
        let nothing = Sge { address: 0, length: 0, token: WRONG };
        a.buffer().write(0, b"something");
        b.post_receive(0, &[nothing, b.sge(0, 4), nothing, b.sge(100, 5)]).expect("a receive");
        a.post(0, SEND, PLAIN, &[nothing, a.sge(0, 5), nothing, a.sge(5, 4)]).expect("a send");
        net.settle();
        assert_eq!((a.sent(), b.received()), (all([0], NtStatus::SUCCESS), all([0], NtStatus::SUCCESS)));
        assert_eq!([b.buffer().bytes(0, 4), b.buffer().bytes(100, 5)].concat(), b"something");
    });
}

#[test]
fn messages_of_no_bytes_arrive() {
    on_nics(|net| {
        let (a, b) = net.pair();
        b.receive(1, 0);
        b.receive(2, 10);
        a.send(3, 0);
        a.post(4, SEND, PLAIN, &[a.sge(5, 0)]).expect("a send");
        net.settle();
        let bytes: Vec<_> = b.receive_cq().poll_entries(8).iter().map(|entry| entry.received.bytes()).collect();
        assert_eq!(bytes, [0, 0]);
        assert_eq!(a.sent(), all([3, 4], NtStatus::SUCCESS));
    });
}

//= NDKPI 7.1.8
#[test]
fn requests_of_one_queue_complete_in_posting_order() {
    on_busy_nics(|net| {
        let (a, b) = net.pair();
        for round in 0..10 {
            let contexts = round * 20..round * 20 + 20;
            for context in contexts.clone() {
                b.receive(context, 4_096);
            }
            for context in contexts.clone() {
                // Long and short ones, writes and reads between them.
                match context % 4 {
                    0 => a.send(context, 4_096),
                    1 => a.post(context, b.write_to(0), PLAIN, &[a.sge(0, 3_000)]).expect("a write"),
                    2 => a.send(context, 0),
                    _ => a.post(context, b.read_from(0), PLAIN, &[a.sge(0, 1)]).expect("a read"),
                }
            }
            net.settle();
            assert_eq!(a.sent(), all(contexts.clone(), NtStatus::SUCCESS));
            let sends = round * 20..round * 20 + 10;
            assert_eq!(b.received(), all(sends, NtStatus::SUCCESS), "receives are taken in their order");
            // The other half of the receives was not used.
            for context in contexts.clone().skip(10) {
                a.send(context, 0);
            }
            net.settle();
            a.sent();
            assert_eq!(b.received(), all(contexts.skip(10), NtStatus::SUCCESS));
        }
    });
}

#[test]
fn the_operation_of_a_completion_is_that_of_its_request() {
    on_nics(|net| {
        let (a, b) = net.pair();
        b.receive(0, 64);
        a.send(1, 64);
        a.post(2, b.write_to(0), PLAIN, &[a.sge(0, 8)]).expect("a write");
        a.post(3, b.read_from(0), PLAIN, &[a.sge(0, 8)]).expect("a read");
        net.settle();
        let operations: Vec<_> = a.send_cq().poll_entries(8).iter().map(|entry| entry.outcome.operation()).collect();
        assert_eq!(operations, [Operation::Send, Operation::Write, Operation::Read]);
    });
}

#[test]
fn completions_carry_the_context_of_their_queue_pair() {
    on_nics(|net| {
        let (sends, receives) = (net.cq(64), net.cq(64));
        let a = net.qp_on(with_context(0xA), &sends, &receives, 4_096);
        let b = net.qp_on(with_context(0xB), &sends, &receives, 4_096);
        engine::qp::Qp::link(a.qp(), b.qp()).expect("both are new");
        a.receive(1, 8);
        b.receive(2, 8);
        a.send(3, 8);
        b.send(4, 8);
        net.settle();
        let mut contexts: Vec<_> =
            sends.poll_entries(8).iter().map(|entry| (entry.request_context, entry.qp_context)).collect();
        contexts.extend(receives.poll_entries(8).iter().map(|entry| (entry.request_context, entry.qp_context)));
        contexts.sort_unstable();
        assert_eq!(contexts, [(1, 0xA), (2, 0xB), (3, 0xA), (4, 0xB)], "one queue may serve several queue pairs");
    });
}

#[test]
fn one_completion_queue_may_serve_both_directions_of_a_queue_pair() {
    on_nics(|net| {
        let cq = net.cq(64);
        let a = net.qp_on(PARAMETERS, &cq, &cq, 4_096);
        let b = net.qp(PARAMETERS);
        engine::qp::Qp::link(a.qp(), b.qp()).expect("both are new");
        a.receive(1, 8);
        b.receive(2, 8);
        a.send(3, 8);
        b.send(4, 8);
        net.settle();
        let mut contexts = cq.drain();
        contexts.sort_unstable();
        assert_eq!(contexts, [1, 3]);
    });
}

//= NDKPI 7.3.6
#[test]
fn a_solicited_send_makes_the_receivers_completion_solicited() {
    on_nics(|net| {
        // Of one piece, which goes a shorter way, and of two.
        for pieces in [&[(0, 8)][..], &[(0, 4), (4, 4)]] {
            let (a, b) = net.pair();
            let elements: Vec<_> = pieces.iter().map(|(offset, length)| a.sge(*offset, *length)).collect();
            b.receive_cq().arm(ArmType::Solicited);
            a.send_cq().arm(ArmType::Solicited);
            for context in 0..3 {
                b.receive(context, 8);
            }
            a.post(0, SEND, PLAIN, &elements).expect("a send");
            net.settle();
            assert_eq!(b.receive_cq().calls(), 0);
            a.post(1, SEND, Flags::SOLICIT, &elements).expect("a send");
            net.settle();
            assert_eq!(b.receive_cq().calls(), 1);
            assert_eq!(a.send_cq().calls(), 0, "the event is the receiver's");
            let solicited: Vec<_> =
                b.receive_cq().poll_entries(8).iter().map(|entry| entry.outcome.is_solicited()).collect();
            assert_eq!(solicited, [false, true]);
        }
    });
}

//= NDKPI 7.3.6
#[test]
fn the_notification_comes_after_the_bytes() {
    on_busy_nics(|net| {
        let (a, b) = net.pair();
        a.buffer().write(0, &pattern(4_000));
        let (b, data) = (std::sync::Arc::new(b), pattern(4_000));
        let seen = std::sync::Arc::downgrade(&b);
        b.receive_cq().on_callback(move |cq, _| {
            let b = seen.upgrade().expect("the test is not over");
            assert_eq!(cq.poll(1), [5]);
            assert_eq!(b.buffer().bytes(0, 4_000), data);
        });
        b.receive_cq().arm(ArmType::Solicited);
        b.post_receive(5, &[b.sge(0, 4_000)]).expect("a receive");
        a.send_with(1, 4_000, Flags::SOLICIT);
        net.settle();
        assert_eq!(b.receive_cq().calls(), 1);
    });
}

#[test]
fn a_message_longer_than_a_turn_arrives_whole() {
    on_nics(|net| {
        let length = 1 << 20;
        let (sends, receives) = (net.cq(8), net.cq(8));
        let a = net.qp_on(PARAMETERS, &sends, &receives, length);
        let b = net.qp_on(PARAMETERS, &net.cq(8), &net.cq(8), length);
        engine::qp::Qp::link(a.qp(), b.qp()).expect("both are new");
        let data = pattern(length);
        a.buffer().write(0, &data);
        let whole = |qp: &TestQp| [qp.sge(0, 1 << 20)];
        b.post_receive(0, &whole(&b)).expect("a receive");
        a.post(0, SEND, PLAIN, &whole(&a)).expect("a send");
        net.settle();
        assert_eq!(b.received(), all([0], NtStatus::SUCCESS));
        assert!(b.buffer().bytes(0, length) == data);
        b.buffer().fill(0);
        a.post(1, b.write_to(0), PLAIN, &whole(&a)).expect("a write");
        net.settle();
        assert!(b.buffer().bytes(0, length) == data);
        a.buffer().fill(0);
        a.post(2, b.read_from(0), PLAIN, &whole(&a)).expect("a read");
        net.settle();
        assert!(a.buffer().bytes(0, length) == data);
    });
}
