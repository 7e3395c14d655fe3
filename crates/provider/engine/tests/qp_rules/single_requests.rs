//! A single request can be carried out in the post that makes it, without going through its queue: it has the same effects, and
//! keeps its place among those that do.

use engine::{
    memory::Rights,
    nic::NicMode,
    qp::{Flags, Qp, QpParameters, Work},
};
use ndkpi::NtStatus;
use testing::qp_fixture::{Net, PARAMETERS, PLAIN, SEND, TestQp, all, on_busy_nics, on_nics};

/// Where the registered bytes of [`TestQp::receive`] begin.
const HALF: usize = 32 << 10;

/// Two joined queue pairs whose first request need not go through the queue: the NIC has looked at the connection.
fn pair_with(net: &Net, parameters: QpParameters) -> (TestQp, TestQp) {
    let (a, b) = net.pair_with(parameters);
    a.flush();
    net.settle();
    (a, b)
}

fn pair(net: &Net) -> (TestQp, TestQp) {
    pair_with(net, PARAMETERS)
}

/// Posts a request of eight bytes, inline or of one element.
fn post(a: &TestQp, context: usize, work: Work, flags: Flags, is_inline: bool, bytes: [u8; 8]) -> Result<(), NtStatus> {
    if is_inline {
        return a.post_inline(context, work, flags, &[&bytes]);
    }
    a.buffer().write(context * 8, &bytes);
    a.post(context, work, flags, &[a.sge(context * 8, 8)])
}

#[test]
fn a_message_comes_after_those_that_were_deferred_before_it() {
    on_nics(|net| {
        for is_inline in [false, true] {
            let (a, b) = pair(net);
            for (context, flags) in [(0, Flags::DEFER), (1, Flags::DEFER), (2, PLAIN), (3, PLAIN)] {
                b.post_receive(context, &[b.sge(HALF + context * 8, 8)]).expect("a receive");
                post(&a, context, SEND, flags, is_inline, [1 << context; 8]).expect("a send");
            }
            net.settle();
            assert_eq!(a.sent(), all(0..4, NtStatus::SUCCESS));
            assert_eq!(b.received(), all(0..4, NtStatus::SUCCESS));
            for context in 0..4 {
                assert_eq!(b.buffer().bytes(HALF + context * 8, 8), [1 << context; 8], "message {context}");
            }
        }
    });
}

#[test]
fn a_message_that_finds_no_receive_waits_for_one_and_holds_up_those_behind_it() {
    on_nics(|net| {
        for is_inline in [false, true] {
            let (a, b) = pair(net);
            post(&a, 0, SEND, PLAIN, is_inline, [7; 8]).expect("a send");
            post(&a, 1, b.write_to(1024), PLAIN, is_inline, [8; 8]).expect("a write");
            post(&a, 2, SEND, PLAIN, is_inline, [9; 8]).expect("a send");
            net.settle();
            assert_eq!(a.sent(), [], "there is no receive");
            assert_eq!(b.buffer().bytes(1024, 8), [0; 8], "nothing overtakes the send");
            for (context, sent) in [(3, all([0, 1], NtStatus::SUCCESS)), (4, all([2], NtStatus::SUCCESS))] {
                b.post_receive(context, &[b.sge(HALF + context * 8, 8)]).expect("a receive");
                net.settle();
                assert_eq!(a.sent(), sent);
                assert_eq!(b.received(), all([context], NtStatus::SUCCESS));
            }
            assert_eq!(b.buffer().bytes(1024, 8), [8; 8]);
            assert_eq!(b.buffer().bytes(HALF + 24, 16), [[7; 8], [9; 8]].concat());
        }
    });
}

#[test]
fn requests_are_carried_out_where_the_mode_of_the_nic_says() {
    on_nics(|net| {
        let (a, b) = pair(net);
        let is_direct = net.nic().mode() == NicMode::Direct;
        for work in [SEND, b.write_to(0)] {
            for (length, is_inline) in [(8, true), (8, false), (0, true), (0, false)] {
                b.receive(0, 8);
                if is_inline {
                    a.post_inline(0, work, PLAIN, &[&[1; 8][..length as usize]]).expect("a request");
                } else {
                    a.post(0, work, PLAIN, &[a.sge(0, length)]).expect("a request");
                }
                let sent = a.sent();
                assert_eq!(!sent.is_empty(), is_direct, "{work:?} of {length} bytes, before the machine goes on");
                net.settle();
                assert_eq!([sent, a.sent()].concat(), all([0], NtStatus::SUCCESS));
            }
        }
    });
}

#[test]
fn a_silent_message_arrives_and_completes_only_there() {
    on_nics(|net| {
        for is_inline in [false, true] {
            let (a, b) = pair(net);
            b.receive(5, 8);
            post(&a, 0, SEND, Flags::SILENT_SUCCESS, is_inline, [3; 8]).expect("a send");
            net.settle();
            assert_eq!(a.sent(), []);
            assert_eq!(b.received(), all([5], NtStatus::SUCCESS));
            assert_eq!(b.buffer().bytes(HALF, 8), [3; 8]);
        }
    });
}

#[test]
fn the_receive_of_a_message_says_how_many_bytes_came_and_whether_they_were_announced() {
    on_nics(|net| {
        let (a, b) = pair(net);
        for is_inline in [false, true] {
            for flags in [PLAIN, Flags::SOLICIT, Flags::SOLICIT | Flags::SILENT_SUCCESS] {
                b.receive(0, 64);
                post(&a, 0, SEND, flags, is_inline, [1; 8]).expect("a send");
                net.settle();
                let received = b.receive_cq().poll_entries(8);
                let [receive] = received[..] else { panic!("{received:?}") };
                assert_eq!(
                    (receive.received.bytes(), receive.outcome.is_solicited()),
                    (8, flags.contains(Flags::SOLICIT)),
                    "{flags:?}"
                );
            }
        }
    });
}

#[test]
fn a_message_longer_than_its_receive_fails_and_writes_nothing() {
    on_nics(|net| {
        for is_inline in [false, true] {
            let (a, b) = pair(net);
            b.receive(0, 7);
            post(&a, 1, SEND, Flags::SILENT_SUCCESS, is_inline, [1; 8]).expect("a send");
            net.settle();
            assert_eq!(a.sent(), all([1], NtStatus::REMOTE_RESOURCES));
            assert_eq!(b.received(), all([0], NtStatus::BUFFER_OVERFLOW));
            assert_eq!(b.buffer().bytes(HALF, 8), [0; 8]);
        }
    });
}

#[test]
fn a_message_may_use_what_its_tokens_allow_and_no_more() {
    on_nics(|net| {
        for is_inline in [false, true] {
            // Memory that receives may not be written to.
            let (a, b) = pair(net);
            let sink = b.more_bytes_with(8, Rights::REMOTE_READ);
            b.post_receive(0, &[sink.sge(0, 8)]).expect("a receive");
            post(&a, 1, SEND, PLAIN, is_inline, [1; 8]).expect("a send");
            net.settle();
            assert_eq!(a.sent(), all([1], NtStatus::REMOTE_RESOURCES));
            assert_eq!(b.received(), all([0], NtStatus::ACCESS_VIOLATION));
            assert_eq!(sink.buffer().bytes(0, 8), [0; 8]);
        }
        // A receive, and a source, of which the last byte is not registered.
        for is_sink in [false, true] {
            let (a, b) = pair(net);
            let few = [a.more_bytes(8), b.more_bytes(8)];
            let sink = if is_sink { few[1].sge(1, 8) } else { b.sge(HALF, 8) };
            let source = if is_sink { a.sge(0, 8) } else { few[0].sge(1, 8) };
            b.post_receive(0, &[sink]).expect("a receive");
            a.post(1, SEND, PLAIN, &[source]).expect("a send");
            net.settle();
            let expected = if is_sink { NtStatus::REMOTE_RESOURCES } else { NtStatus::ACCESS_VIOLATION };
            assert_eq!(a.sent(), all([1], expected));
            let received = if is_sink { all([0], NtStatus::ACCESS_VIOLATION) } else { vec![] };
            assert_eq!(b.received(), received);
        }
    });
}

#[test]
fn a_receive_is_larger_than_what_is_registered_although_the_message_is_not() {
    on_nics(|net| {
        for is_inline in [false, true] {
            let (a, b) = pair(net);
            let sink = b.more_bytes(8);
            b.post_receive(0, &[sink.sge(0, 9)]).expect("a receive");
            post(&a, 1, SEND, PLAIN, is_inline, [1; 8]).expect("a send");
            net.settle();
            assert_eq!(a.sent(), all([1], NtStatus::REMOTE_RESOURCES));
            assert_eq!(b.received(), all([0], NtStatus::ACCESS_VIOLATION));
            assert_eq!(sink.buffer().bytes(0, 8), [0; 8]);
        }
    });
}

#[test]
fn inline_bytes_of_one_part_arrive_whole_at_every_length() {
    on_nics(|net| {
        let (a, b) = pair(net);
        for length in 0..40_u8 {
            let bytes: Vec<u8> = (1..=length).collect();
            b.buffer().write(0, &[0; 64]);
            b.buffer().write(HALF, &[0; 64]);
            b.receive(0, length.into());
            a.post_inline(1, SEND, PLAIN, &[&bytes]).expect("a send");
            a.post_inline(2, b.write_to(0), PLAIN, &[&bytes]).expect("a write");
            net.settle();
            assert_eq!(a.sent(), all([1, 2], NtStatus::SUCCESS));
            assert_eq!(b.received(), all([0], NtStatus::SUCCESS));
            for place in [0, HALF] {
                let arrived = b.buffer().bytes(place, bytes.len() + 1);
                assert_eq!(arrived, [&bytes[..], &[0]].concat(), "{length} bytes, and nothing behind them");
            }
        }
    });
}

//= NDKPI 7.2.4
#[test]
fn a_flushed_receive_is_not_filled_by_a_message() {
    on_busy_nics(|net| {
        for is_inline in [false, true] {
            let (a, b) = pair(net);
            b.receive(0, 8);
            b.flush();
            b.receive(1, 8);
            post(&a, 2, SEND, PLAIN, is_inline, [1; 8]).expect("a send");
            net.settle();
            assert_eq!(b.received(), [(0, NtStatus::CANCELLED), (1, NtStatus::SUCCESS)]);
            assert_eq!(a.sent(), all([2], NtStatus::SUCCESS));
        }
    });
}

#[test]
fn a_write_comes_after_those_that_were_deferred_before_it() {
    on_nics(|net| {
        let (a, b) = pair(net);
        for (context, flags) in [(0, Flags::DEFER), (1, Flags::DEFER), (2, PLAIN)] {
            a.buffer().write(context * 8, &[1 << context; 8]);
            a.post(context, b.write_to(0), flags, &[a.sge(context * 8, 8)]).expect("a write");
        }
        net.settle();
        assert_eq!(a.sent(), all(0..3, NtStatus::SUCCESS));
        assert_eq!(b.buffer().bytes(0, 8), [4; 8], "the last one wrote last");
    });
}

#[test]
fn a_write_waits_behind_a_send_that_waits() {
    on_nics(|net| {
        let (a, b) = pair(net);
        a.buffer().write(0, &[7; 8]);
        a.send(0, 8);
        a.post(1, b.write_to(1024), PLAIN, &[a.sge(0, 8)]).expect("a write");
        a.post(2, b.read_from(1024), PLAIN, &[a.sge(2048, 8)]).expect("a read");
        net.settle();
        assert_eq!(a.sent(), [], "there is no receive");
        assert_eq!(b.buffer().bytes(1024, 8), [0; 8], "nothing overtakes the send");
        b.receive(3, 8);
        net.settle();
        assert_eq!(a.sent(), all(0..3, NtStatus::SUCCESS));
        assert_eq!(a.buffer().bytes(2048, 8), [7; 8], "what was written is read");
    });
}

#[test]
fn a_silent_write_moves_its_bytes_and_completes_nothing() {
    on_nics(|net| {
        let (a, b) = pair(net);
        a.buffer().write(0, &[9; 8]);
        a.post(0, b.write_to(0), Flags::SILENT_SUCCESS, &[a.sge(0, 8)]).expect("a write");
        net.settle();
        assert_eq!(a.sent(), []);
        assert_eq!(b.buffer().bytes(0, 8), [9; 8]);
    });
}

#[test]
fn what_goes_out_of_one_adapter_comes_in_at_the_other_beside_what_stays_in_it() {
    on_nics(|net| {
        for mode in [NicMode::Deferred, NicMode::Direct] {
            let far = Net::new(net.machine(), mode);
            let (a, b) = (net.qp(PARAMETERS), far.qp(PARAMETERS));
            Qp::link(a.qp(), b.qp()).expect("both are new");
            let (c, d) = net.pair();
            let before = net.nic().traffic();
            (0..2).for_each(|context| b.receive(context, 64));
            a.post(0, SEND, PLAIN, &[a.sge(0, 30)]).expect("a send");
            a.post_inline(0, SEND, PLAIN, &[&[1; 7]]).expect("a send");
            a.post(0, b.write_to(0), PLAIN, &[a.sge(0, 100)]).expect("a write");
            (0..2).for_each(|_| a.post(0, b.read_from(0), PLAIN, &[a.sge(0, 5000)]).expect("a read"));
            c.post(0, d.write_to(0), PLAIN, &[c.sge(0, 1)]).expect("a write");
            net.settle();
            let (near, far) = (net.nic().traffic(), far.nic().traffic());
            assert_eq!((near.in_octets - before.in_octets, near.in_frames - before.in_frames), (10_001, 3));
            assert_eq!((near.out_octets - before.out_octets, near.out_frames - before.out_frames), (138, 4));
            assert_eq!((far.in_octets, far.in_frames, far.out_octets, far.out_frames), (137, 3, 10_000, 2));
        }
    });
}

#[test]
fn what_a_single_request_moves_is_counted() {
    on_nics(|net| {
        let (a, b) = pair(net);
        let before = net.nic().traffic();
        (0..2).for_each(|context| b.receive(context, 64));
        for (work, length) in [(b.write_to(0), 100), (b.read_from(0), 5000), (b.write_to(0), 1), (SEND, 30)] {
            a.post(0, work, PLAIN, &[a.sge(0, length)]).expect("a request");
            net.settle();
        }
        for work in [SEND, b.write_to(0)] {
            a.post_inline(0, work, PLAIN, &[&[1; 7]]).expect("a request");
            net.settle();
        }
        let now = net.nic().traffic();
        assert_eq!((now.in_octets - before.in_octets, now.in_frames - before.in_frames), (5145, 6));
        assert_eq!((now.out_octets - before.out_octets, now.out_frames - before.out_frames), (5145, 6));
    });
}

#[test]
fn more_requests_than_the_queue_is_deep_can_be_posted_if_each_is_done_at_once() {
    on_nics(|net| {
        let (a, b) = pair_with(net, QpParameters { initiator_depth: 2, ..PARAMETERS });
        for context in 0..20 {
            b.receive(context, 8);
            let work = if context % 2 == 0 { SEND } else { b.write_to(0) };
            post(&a, context, work, PLAIN, context % 3 == 0, [1; 8]).expect("room");
            net.settle();
        }
        assert_eq!(a.sent(), all(0..20, NtStatus::SUCCESS));
        assert_eq!(b.received(), all(0..10, NtStatus::SUCCESS));
    });
}

#[test]
fn the_limits_of_the_queue_pair_hold() {
    on_nics(|net| {
        for (limits, expected) in [
            (QpParameters { max_transfer: 8, ..PARAMETERS }, NtStatus::BUFFER_OVERFLOW),
            (QpParameters { max_initiator_sge: 0, ..PARAMETERS }, NtStatus::DATA_OVERRUN),
            (QpParameters { initiator_depth: 0, ..PARAMETERS }, NtStatus::NO_MORE_ENTRIES),
        ] {
            let (a, b) = pair_with(net, limits);
            for work in [b.write_to(0), b.read_from(0), SEND] {
                assert_eq!(a.post(0, work, PLAIN, &[a.sge(0, 9)]), Err(expected), "{work:?}");
            }
            net.settle();
            assert_eq!(a.sent(), []);
        }
    });
}

#[test]
fn the_limits_of_the_queue_pair_hold_for_inline_bytes() {
    on_nics(|net| {
        for (limits, expected) in [
            (QpParameters { max_transfer: 8, ..PARAMETERS }, Err(NtStatus::INVALID_BUFFER_SIZE)),
            (QpParameters { inline_size: 8, ..PARAMETERS }, Err(NtStatus::INVALID_BUFFER_SIZE)),
            (QpParameters { initiator_depth: 0, ..PARAMETERS }, Err(NtStatus::NO_MORE_ENTRIES)),
            (QpParameters { max_initiator_sge: 0, ..PARAMETERS }, Ok(())),
        ] {
            let (a, b) = pair_with(net, limits);
            let works = [b.write_to(0), SEND];
            for work in works {
                assert_eq!(a.post_inline(0, work, PLAIN, &[&[1; 9]]), expected, "{work:?}");
            }
            let _ = b.post_receive(0, &[b.sge(HALF, 16)]);
            net.settle();
            assert_eq!(a.sent().len(), if expected.is_ok() { works.len() } else { 0 });
        }
    });
}

#[test]
fn a_request_after_the_end_of_the_connection_is_refused() {
    on_busy_nics(|net| {
        for is_failure in [false, true] {
            let (a, b) = pair(net);
            b.receive(0, 8);
            a.post(0, b.write_to(0), PLAIN, &[a.sge(0, 8)]).expect("a write");
            net.settle();
            if is_failure {
                Qp::fail(a.qp());
            } else {
                a.unlink();
            }
            for (work, is_inline) in [(b.write_to(0), false), (b.write_to(0), true), (SEND, false), (SEND, true)] {
                assert_eq!(post(&a, 1, work, PLAIN, is_inline, [1; 8]), Err(NtStatus::CONNECTION_INVALID));
            }
            net.settle();
            assert_eq!(a.sent(), all([0], NtStatus::SUCCESS));
            assert_eq!(b.received(), [], "the receive stays");
            for place in [0, HALF] {
                assert_eq!(b.buffer().bytes(place, 8), [0; 8], "nothing is written any more");
            }
        }
    });
}
