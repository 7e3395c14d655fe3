//! NDKPI 7.3: silent success, inline data, deferred posts.

use engine::{
    nic::NicMode,
    qp::{Flags, QpParameters},
};
use ndkpi::NtStatus;
use testing::qp_fixture::{PARAMETERS, PLAIN, SEND, all, on_nics};

const SILENT: Flags = Flags::SILENT_SUCCESS;
const DEFER: Flags = Flags::DEFER;

//= NDKPI 7.3.4
#[test]
fn silent_success_makes_no_completion() {
    on_nics(|net| {
        let (a, b) = net.pair();
        for context in 0..4 {
            b.receive(context, 8);
        }
        a.send_with(0, 8, SILENT);
        a.post(1, b.write_to(0), SILENT, &[a.sge(0, 8)]).expect("a write");
        a.post(2, b.read_from(0), SILENT, &[a.sge(0, 8)]).expect("a read");
        a.post_inline(3, SEND, SILENT, &[&[1]]).expect("a send");
        net.settle();
        assert_eq!(a.sent(), []);
        assert_eq!(b.received(), all(0..2, NtStatus::SUCCESS), "the other side hears of it");
    });
}

//= NDKPI 7.3.4
#[test]
fn a_silent_request_that_fails_completes() {
    on_nics(|net| {
        let (a, b) = net.pair();
        let wrong = engine::qp::Sge { token: 0, ..a.sge(0, 8) };
        b.receive(0, 8);
        a.post(1, SEND, SILENT | Flags::DEFER, &[wrong]).expect("posted");
        a.send_with(2, 8, SILENT);
        net.settle();
        assert_eq!(a.sent(), [(1, NtStatus::ACCESS_VIOLATION), (2, NtStatus::CANCELLED)]);
    });
}

#[test]
fn a_signalled_completion_says_that_the_silent_ones_before_it_are_finished() {
    on_nics(|net| {
        let (a, b) = net.pair_with(QpParameters { initiator_depth: 4, ..PARAMETERS });
        for round in 0..10 {
            for context in 0..4 {
                b.receive(context, 8);
            }
            for _ in 0..3 {
                a.send_with(0, 8, SILENT);
            }
            a.send(round, 8);
            net.settle();
            assert_eq!(a.sent(), all([round], NtStatus::SUCCESS), "and their four places are free");
            b.received();
        }
    });
}

#[test]
fn places_of_silent_requests_are_free_when_they_are_finished() {
    on_nics(|net| {
        let (a, b) = net.pair_with(QpParameters { initiator_depth: 2, ..PARAMETERS });
        for _ in 0..20 {
            b.receive(0, 8);
            a.send_with(0, 8, SILENT);
            net.settle();
            b.received();
        }
        assert_eq!(a.sent(), []);
    });
}

//= NDKPI 7.3.7
#[test]
fn inline_bytes_are_taken_before_the_post_returns() {
    on_nics(|net| {
        let (a, b) = net.pair();
        let mut data = *b"before";
        a.post_inline(1, SEND, PLAIN, &[&data]).expect("a send");
        data = *b"after!";
        b.post_receive(2, &[b.sge(0, 6)]).expect("a receive");
        net.settle();
        assert_eq!(b.buffer().bytes(0, 6), b"before", "not {data:?}");
        assert_eq!(a.sent(), all([1], NtStatus::SUCCESS));
    });
}

#[test]
fn inline_bytes_of_every_length_arrive() {
    on_nics(|net| {
        let (a, b) = net.pair();
        for length in [0, 1, 31, 32, 33, 63, 64, 65, 100, 255, 256] {
            let data: Vec<u8> = (0..length).map(|index| u8::try_from(index).unwrap_or(0) ^ 0x5A).collect();
            b.buffer().fill(0);
            b.post_receive(0, &[b.sge(7, 40), b.sge(100, 1), b.sge(200, 300)]).expect("a receive");
            let (first, rest) = data.split_at(length / 3);
            let (second, third) = rest.split_at(rest.len() / 2);
            a.post_inline(0, SEND, PLAIN, &[first, &[], second, third]).expect("a send");
            net.settle();
            let mut arrived = b.buffer().bytes(7, 40);
            arrived.extend(b.buffer().bytes(100, 1));
            arrived.extend(b.buffer().bytes(200, 300));
            arrived.truncate(length);
            assert_eq!(arrived, data, "{length} bytes");
            assert_eq!(b.receive_cq().poll_entries(2)[0].received.bytes() as usize, length);
        }
        assert_eq!(a.sent().len(), 11);
    });
}

#[test]
fn inline_bytes_may_be_written_to_the_peer() {
    on_nics(|net| {
        let (a, b) = net.pair();
        a.post_inline(1, b.write_to(10), PLAIN, &[b"write", b"-inline"]).expect("a write");
        net.settle();
        assert_eq!(a.sent(), all([1], NtStatus::SUCCESS));
        assert_eq!(b.buffer().bytes(10, 12), b"write-inline");
        assert_eq!(b.received(), [], "no receive is used");
    });
}

//= NDKPI 7.3.7
#[test]
fn inline_lifts_the_limit_on_elements() {
    on_nics(|net| {
        let (a, b) = net.pair();
        b.post_receive(0, &[b.sge(0, 256)]).expect("a receive");
        a.post_inline(0, SEND, PLAIN, &[&[7_u8][..]; 256]).expect("256 parts, although 4 elements are the limit");
        net.settle();
        assert_eq!(b.buffer().bytes(0, 256), [7; 256]);
    });
}

#[test]
fn more_inline_bytes_than_the_queue_pair_has_room_for_are_an_invalid_buffer_size() {
    on_nics(|net| {
        let (a, b) = net.pair();
        assert_eq!(a.post_inline(0, SEND, PLAIN, &[&[0; 257]]), Err(NtStatus::INVALID_BUFFER_SIZE));
        assert_eq!(a.post_inline(0, SEND, PLAIN, &[&[0; 200], &[0; 57]]), Err(NtStatus::INVALID_BUFFER_SIZE));
        b.receive(0, 256);
        a.post_inline(1, SEND, PLAIN, &[&[0; 200], &[0; 56]]).expect("exactly the limit");
        net.settle();
        assert_eq!(a.sent(), all([1], NtStatus::SUCCESS), "the queue pair can still be used");
    });
}

#[test]
fn inline_requests_that_are_cancelled_leave_their_bytes_behind() {
    on_nics(|net| {
        let (a, b) = net.pair_with(QpParameters { initiator_depth: 4, ..PARAMETERS });
        for round in 0..10_u8 {
            for context in 0..4 {
                a.post_inline(context, SEND, PLAIN, &[&[round; 100]]).expect("a send");
            }
            a.flush();
            net.settle();
            assert_eq!(a.sent(), all(0..4, NtStatus::CANCELLED));
        }
        b.post_receive(0, &[b.sge(0, 5)]).expect("a receive");
        a.post_inline(9, SEND, PLAIN, &[b"clean"]).expect("a send");
        net.settle();
        assert_eq!(b.buffer().bytes(0, 5), b"clean");
    });
}

//= NDKPI 7.3.8
#[test]
fn deferred_requests_go_with_the_next_one_that_is_not() {
    on_nics(|net| {
        let (a, b) = net.pair();
        for context in 0..4 {
            b.receive(context, 8);
        }
        for context in 0..3 {
            a.send_with(context, 8, DEFER);
        }
        a.send(3, 8);
        net.settle();
        assert_eq!(a.sent(), all(0..4, NtStatus::SUCCESS));
    });
}

#[test]
fn a_deferred_request_may_wait() {
    on_nics(|net| {
        let (a, b) = net.pair();
        b.receive(0, 8);
        a.send_with(0, 8, DEFER);
        net.settle();
        assert_eq!(a.sent(), [], "this provider does postpone");
        a.flush();
        net.settle();
        assert_eq!(a.sent(), all([0], NtStatus::CANCELLED), "it was posted");
    });
}

//= NDKPI 7.3.8
#[test]
fn an_inline_failure_pushes_what_was_deferred_before() {
    on_nics(|net| {
        let (a, b) = net.pair_with(QpParameters { initiator_depth: 8, ..PARAMETERS });
        let mut context = 0;
        let mut check = |refuse: &dyn Fn()| {
            for _ in 0..2 {
                b.receive(context, 8);
                a.send_with(context, 8, DEFER);
                context += 1;
            }
            net.settle();
            assert_eq!(a.sent(), []);
            refuse();
            net.settle();
            assert_eq!(a.sent(), all(context - 2..context, NtStatus::SUCCESS), "the consumer will not end the chain");
        };
        check(&|| assert_eq!(a.post(99, SEND, PLAIN, &[a.sge(0, 1); 5]), Err(NtStatus::DATA_OVERRUN)));
        check(&|| assert_eq!(a.post(99, SEND, DEFER, &[a.sge(0, 1); 5]), Err(NtStatus::DATA_OVERRUN)));
        check(&|| assert_eq!(a.post(99, SEND, PLAIN, &[a.sge(0, u32::MAX)]), Err(NtStatus::BUFFER_OVERFLOW)));
        check(&|| assert_eq!(a.post_inline(99, SEND, DEFER, &[&[0; 999]]), Err(NtStatus::INVALID_BUFFER_SIZE)));
        check(&|| {
            let refused = a.initiate(|initiator| initiator.refuse(NtStatus::INVALID_PARAMETER));
            assert_eq!(refused, Err(NtStatus::INVALID_PARAMETER));
        });
    });
}

#[test]
fn a_full_queue_pushes_what_was_deferred_into_it() {
    on_nics(|net| {
        let (a, b) = net.pair_with(QpParameters { initiator_depth: 3, ..PARAMETERS });
        for context in 0..3 {
            b.receive(context, 8);
            a.send_with(context, 8, DEFER);
        }
        assert_eq!(a.post(3, SEND, DEFER, &[]), Err(NtStatus::NO_MORE_ENTRIES));
        net.settle();
        assert_eq!(a.sent(), all(0..3, NtStatus::SUCCESS));
    });
}

#[test]
fn deferred_requests_keep_their_completion_duties() {
    on_nics(|net| {
        let (a, b) = net.pair();
        for context in 0..4 {
            b.receive(context, 8);
        }
        a.send_with(0, 8, DEFER);
        a.send_with(1, 8, Flags::SILENT_SUCCESS | DEFER);
        a.send_with(2, 8, DEFER);
        a.send(3, 8);
        net.settle();
        assert_eq!(a.sent(), all([0, 2, 3], NtStatus::SUCCESS));
        assert_eq!(b.received(), all(0..4, NtStatus::SUCCESS));
    });
}

//= NDKPI 7.3.5
#[test]
fn a_read_fence_waits_for_earlier_reads() {
    on_nics(|net| {
        let (a, b) = net.pair();
        b.buffer().write(0, b"read");
        b.receive(0, 4);
        // The send carries what the read before it fetches.
        a.post(1, b.read_from(0), PLAIN, &[a.sge(0, 4)]).expect("a read");
        a.send_with(2, 4, Flags::READ_FENCE);
        net.settle();
        assert_eq!(b.buffer().bytes(b.buffer().len() / 2, 4), b"read");
    });
}

#[test]
fn a_direct_nic_has_carried_out_a_small_request_when_the_post_returns() {
    on_nics(|net| {
        let (a, b) = net.pair();
        b.receive(0, 8);
        a.send(1, 8);
        let done = a.sent();
        match net.nic().mode() {
            NicMode::Direct => assert_eq!(done, all([1], NtStatus::SUCCESS)),
            NicMode::Deferred => assert_eq!(done, []),
        }
    });
}

#[test]
fn a_queue_pair_keeps_the_engine_that_it_was_made_with() {
    on_nics(|net| {
        let before = net.nic().mode();
        let old = net.pair();
        let other = if before == NicMode::Direct { NicMode::Deferred } else { NicMode::Direct };
        net.nic().set_mode(other);
        assert_eq!(net.nic().mode(), other);
        for ((a, b), mode) in [(old, before), (net.pair(), other)] {
            b.receive(0, 8);
            a.send(1, 8);
            let expected =
                if mode == NicMode::Direct { all([1], NtStatus::SUCCESS) } else { all([], NtStatus::SUCCESS) };
            assert_eq!(a.sent(), expected, "{mode:?}");
        }
        net.nic().set_mode(before);
    });
}
