//! Requests that are rung for together: the fast path and the slow path have the same effects, also where one gives way to the
//! other.

use std::sync::Arc;

use engine::{
    cq::notify::ArmType,
    qp::{Flags, QpParameters, Sge, Work},
};
use ndkpi::NtStatus;
use testing::qp_fixture::{PARAMETERS, PLAIN, SEND, TestQp, all, on_busy_nics, on_nics, outcomes};

const DEFERRED: Flags = Flags::DEFER;
/// Where the registered bytes of [`TestQp::receive`] begin.
const HALF: usize = 32 << 10;

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|number| (number * 7 + seed * 13 + 1).to_le_bytes()[0]).collect()
}

/// Posts requests of which only the last rings the doorbell.
fn post_together(a: &TestQp, requests: &[(Work, Sge)]) {
    for (context, (work, element)) in requests.iter().enumerate() {
        let flags = if context + 1 < requests.len() { DEFERRED } else { PLAIN };
        a.post(context, *work, flags, &[*element]).expect("a post");
    }
}

#[test]
fn sends_that_are_rung_for_together_complete_in_order_on_both_sides() {
    on_busy_nics(|net| {
        let (a, b) = net.pair();
        for count in [1, 2, 7, 8, 9, 33] {
            for context in 0..count {
                a.buffer().write(context * 8, &pattern(8, context));
                b.post_receive(context, &[b.sge(HALF + context * 8, 8)]).expect("a receive");
            }
            let requests: Vec<_> = (0..count).map(|context| (SEND, a.sge(context * 8, 8))).collect();
            post_together(&a, &requests);
            net.settle();
            assert_eq!(b.received(), all(0..count, NtStatus::SUCCESS), "{count} messages");
            assert_eq!(a.sent(), all(0..count, NtStatus::SUCCESS), "{count} messages");
            for context in 0..count {
                assert_eq!(
                    b.buffer().bytes(HALF + context * 8, 8),
                    pattern(8, context),
                    "message {context} of {count}"
                );
            }
        }
    });
}

#[test]
fn inline_bytes_arrive_whole_at_every_length() {
    on_nics(|net| {
        let (a, b) = net.pair();
        for length in (0..=70).chain([127, 128, 129, 255, 256]) {
            let bytes = pattern(length, length);
            let room = u32::try_from(length).expect("a small number");
            b.buffer().write(HALF, &vec![0; length + 1]);
            b.receive(1, room);
            let (first, rest) = bytes.split_at(length / 3);
            a.post_inline(2, SEND, PLAIN, &[first, &[], rest]).expect("a send");
            net.settle();
            assert_eq!(b.received(), all([1], NtStatus::SUCCESS));
            assert_eq!(a.sent(), all([2], NtStatus::SUCCESS));
            assert_eq!(b.buffer().bytes(HALF, length), bytes, "{length} bytes sent");
            assert_eq!(b.buffer().bytes(HALF + length, 1), [0], "nothing behind {length} bytes");

            a.post_inline(3, b.write_to(HALF + 1024), PLAIN, &[&bytes]).expect("a write");
            net.settle();
            assert_eq!(a.sent(), all([3], NtStatus::SUCCESS));
            assert_eq!(b.buffer().bytes(HALF + 1024, length), bytes, "{length} bytes written");
        }
    });
}

#[test]
fn requests_of_every_length_and_kind_keep_their_order() {
    on_busy_nics(|net| {
        let (a, b) = net.pair();
        // Around the length up to which bytes are copied under locks.
        let lengths = [0, 1, 8, 4095, 4096, 4097, 16384];
        for (context, length) in lengths.into_iter().enumerate() {
            b.post_receive(context, &[b.sge(HALF, length)]).expect("a receive");
        }
        let mut requests = Vec::new();
        for length in lengths {
            requests.push((SEND, a.sge(0, length)));
            requests.push((b.write_to(0), a.sge(0, length)));
            requests.push((b.read_from(0), a.sge(HALF, length)));
        }
        a.buffer().write(0, &pattern(16384, 3));
        post_together(&a, &requests);
        net.settle();
        assert_eq!(b.received(), all(0..lengths.len(), NtStatus::SUCCESS));
        assert_eq!(a.sent(), all(0..requests.len(), NtStatus::SUCCESS));
        assert_eq!(b.buffer().bytes(HALF, 16384), pattern(16384, 3), "sent");
        assert_eq!(b.buffer().bytes(0, 16384), pattern(16384, 3), "written");
        assert_eq!(a.buffer().bytes(HALF, 16384), pattern(16384, 3), "read");
    });
}

#[test]
fn messages_and_receives_of_different_tokens_alternate() {
    on_nics(|net| {
        let (a, b) = net.pair();
        let others = [a.more_bytes(8), b.more_bytes(8)];
        for context in 0..12 {
            let sink = if context % 3 == 0 { others[1].sge(0, 8) } else { b.sge(HALF + context * 8, 8) };
            b.post_receive(context, &[sink]).expect("a receive");
        }
        let requests: Vec<_> =
            (0..12).map(|context| (SEND, if context % 2 == 0 { others[0].sge(0, 8) } else { a.sge(0, 8) })).collect();
        post_together(&a, &requests);
        net.settle();
        assert_eq!(b.received(), all(0..12, NtStatus::SUCCESS));
        assert_eq!(a.sent(), all(0..12, NtStatus::SUCCESS));
    });
}

#[test]
fn a_bad_element_in_the_middle_fails_its_request_and_cancels_those_behind_it() {
    on_nics(|net| {
        for bad in [0, 1, 5] {
            let (a, b) = net.pair();
            (0..8).for_each(|context| b.receive(context, 8));
            let wrong = Sge { token: a.sge(0, 8).token ^ 1, ..a.sge(0, 8) };
            let requests: Vec<_> =
                (0..8).map(|context| (SEND, if context == bad { wrong } else { a.sge(0, 8) })).collect();
            post_together(&a, &requests);
            net.settle();
            let mut expected = all(0..bad, NtStatus::SUCCESS);
            expected.push((bad, NtStatus::ACCESS_VIOLATION));
            expected.extend(all(bad + 1..8, NtStatus::CANCELLED));
            assert_eq!(a.sent(), expected);
            let received = b.received();
            assert_eq!(received[..bad], all(0..bad, NtStatus::SUCCESS)[..], "those before it have arrived");
        }
    });
}

#[test]
fn a_message_that_overruns_the_completion_queue_leaves_those_before_it() {
    on_nics(|net| {
        let receives = net.cq(3);
        let a = net.qp(PARAMETERS);
        let b = net.qp_on(QpParameters { context: 9, ..PARAMETERS }, &net.cq(16), &receives, 64 << 10);
        engine::qp::Qp::link(a.qp(), b.qp()).expect("both are new");
        (0..8).for_each(|context| b.receive(context, 8));
        post_together(&a, &vec![(SEND, a.sge(0, 8)); 8]);
        net.settle();
        let entries = receives.poll_entries(usize::MAX);
        assert_eq!(outcomes(&entries), all(0..3, NtStatus::SUCCESS));
        assert!(entries.iter().all(|entry| entry.received.bytes() == 8 && entry.qp_context == 9));
        assert!(b.qp().is_dead(), "the overrun fails the queue pair");
    });
}

#[test]
fn a_turn_for_many_silent_messages_needs_no_completions_of_the_sender() {
    on_nics(|net| {
        let (a, b) = net.pair();
        (0..40).for_each(|context| b.receive(context, 8));
        for context in 0..40 {
            let flags = Flags::SILENT_SUCCESS | if context < 39 { Flags::DEFER } else { PLAIN };
            a.post(context, SEND, flags, &[a.sge(0, 8)]).expect("a send");
        }
        net.settle();
        assert_eq!(b.received(), all(0..40, NtStatus::SUCCESS));
        assert_eq!(a.sent(), []);
    });
}

#[test]
fn what_was_moved_is_counted_on_both_sides() {
    on_nics(|net| {
        let before = net.nic().traffic();
        let (a, b) = net.pair();
        b.receive(0, 8);
        post_together(&a, &[(SEND, a.sge(0, 8)), (b.write_to(0), a.sge(0, 100)), (b.read_from(0), a.sge(0, 5000))]);
        net.settle();
        let now = net.nic().traffic();
        let octets = (now.in_octets - before.in_octets, now.out_octets - before.out_octets);
        let frames = (now.in_frames - before.in_frames, now.out_frames - before.out_frames);
        assert_eq!((octets, frames), ((5108, 5108), (3, 3)), "what goes out of one side comes in at the other");
    });
}

#[test]
fn a_message_longer_than_the_only_element_of_a_receive_is_not_written() {
    on_nics(|net| {
        for inline in [false, true] {
            let (a, b) = net.pair();
            a.buffer().write(0, &[7; 16]);
            b.post_receive(1, &[b.sge(0, 8)]).expect("a receive");
            if inline {
                a.post_inline(2, SEND, PLAIN, &[&[7; 9]]).expect("a send");
            } else {
                a.send(2, 9);
            }
            net.settle();
            assert_eq!(b.received(), all([1], NtStatus::BUFFER_OVERFLOW));
            assert_eq!(a.sent(), all([2], NtStatus::REMOTE_RESOURCES));
            assert_eq!(b.buffer().bytes(0, 16), [0; 16], "nothing is written");
        }
    });
}

#[test]
fn one_solicited_message_among_many_satisfies_the_arm_once() {
    on_busy_nics(|net| {
        // Completions are put in by the turn, in bunches: the message is the first, the last, or the first of the next.
        for place in [0, 5, 31, 32, 39] {
            for kind in [ArmType::Solicited, ArmType::Any] {
                let (a, b) = net.pair();
                (0..40).for_each(|context| b.receive(context, 8));
                b.receive_cq().arm(kind);
                for context in 0..40 {
                    let solicit = if context == place { Flags::SOLICIT } else { PLAIN };
                    a.send_with(context, 8, solicit | if context < 39 { Flags::DEFER } else { PLAIN });
                }
                net.settle();
                assert_eq!(b.receive_cq().calls(), 1, "{kind:?}, message {place}");
                let entries = b.receive_cq().poll_entries(usize::MAX);
                let solicited: Vec<_> = entries.iter().map(|entry| entry.outcome.is_solicited()).collect();
                assert_eq!(solicited, (0..40).map(|context| context == place).collect::<Vec<_>>());
            }
        }
    });
}

#[test]
fn who_sees_a_message_can_post_its_receive_again() {
    on_busy_nics(|net| {
        let (a, b) = net.pair_with(QpParameters { receive_depth: 8, ..PARAMETERS });
        (0..8).for_each(|context| b.receive(context, 8));
        let b = Arc::new(b);
        let seen = Arc::downgrade(&b);
        b.receive_cq().on_callback(move |cq, _| {
            // At the end of the test what is left is cancelled.
            let Some(b) = seen.upgrade() else { return };
            cq.arm(ArmType::Any);
            for context in cq.poll(usize::MAX) {
                b.post_receive(context + 8, &[b.sge(HALF, 8)]).expect("its place is free");
            }
        });
        b.receive_cq().arm(ArmType::Any);
        for _ in 0..3 {
            post_together(&a, &[(SEND, a.sge(0, 8)); 8]);
            net.settle();
            assert_eq!(a.sent(), all(0..8, NtStatus::SUCCESS));
        }
    });
}

#[test]
fn each_request_of_a_batch_names_its_bytes_by_a_token_of_its_own() {
    const WRONG: u32 = 0xDEAD_BEEF;
    on_nics(|net| {
        for wrong_is_received in [false, true] {
            let (a, b) = net.pair();
            let mut from = [a.sge(0, 8), a.sge(8, 8)];
            let mut to = [b.sge(HALF, 8), b.sge(HALF + 8, 8)];
            a.buffer().write(0, &[7; 16]);
            // The address is right.
            if wrong_is_received {
                to[1].token = WRONG;
            } else {
                from[1].token = WRONG;
            }
            to.iter()
                .enumerate()
                .for_each(|(context, element)| b.post_receive(context, &[*element]).expect("a receive"));
            a.post(0, SEND, Flags::SILENT_SUCCESS | DEFERRED, &from[..1]).expect("a send");
            a.post(1, SEND, PLAIN, &from[1..]).expect("a send");
            net.settle();
            assert_eq!(b.buffer().bytes(HALF, 16), [[7; 8], [0; 8]].concat());
            let mut received = vec![(0, NtStatus::SUCCESS)];
            let sent = if wrong_is_received {
                received.push((1, NtStatus::ACCESS_VIOLATION));
                NtStatus::REMOTE_RESOURCES
            } else {
                NtStatus::ACCESS_VIOLATION
            };
            assert_eq!(a.sent(), all([1], sent));
            assert_eq!(b.received(), received);
        }
    });
}
