//! Reads and writes that need not go through their queue have the same effects as those that do, and keep their place among them.

use engine::qp::{Flags, Qp, QpParameters};
use ndkpi::NtStatus;
use tests_host::qp_fixture::{PARAMETERS, PLAIN, all, on_busy_nics, on_nics};

#[test]
fn a_write_comes_after_those_that_were_deferred_before_it() {
    on_nics(|net| {
        let (a, b) = net.pair();
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
        let (a, b) = net.pair();
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
        let (a, b) = net.pair();
        a.buffer().write(0, &[9; 8]);
        a.post(0, b.write_to(0), Flags::SILENT_SUCCESS, &[a.sge(0, 8)]).expect("a write");
        net.settle();
        assert_eq!(a.sent(), []);
        assert_eq!(b.buffer().bytes(0, 8), [9; 8]);
    });
}

#[test]
fn what_was_moved_alone_is_counted() {
    on_nics(|net| {
        let (a, b) = net.pair();
        let before = net.nic().traffic();
        for (work, length) in [(b.write_to(0), 100), (b.read_from(0), 5000), (b.write_to(0), 1)] {
            a.post(0, work, PLAIN, &[a.sge(0, length)]).expect("a request");
            net.settle();
        }
        let now = net.nic().traffic();
        assert_eq!((now.in_octets - before.in_octets, now.in_frames - before.in_frames), (5101, 3));
        assert_eq!((now.out_octets - before.out_octets, now.out_frames - before.out_frames), (5101, 3));
    });
}

#[test]
fn more_writes_than_the_queue_is_deep_can_be_posted_if_each_is_done_at_once() {
    on_nics(|net| {
        let (a, b) = net.pair_with(QpParameters { initiator_depth: 2, ..PARAMETERS });
        for context in 0..20 {
            a.post(context, b.write_to(0), PLAIN, &[a.sge(0, 8)]).expect("room");
            net.settle();
        }
        assert_eq!(a.sent(), all(0..20, NtStatus::SUCCESS));
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
            let (a, b) = net.pair_with(limits);
            assert_eq!(a.post(0, b.write_to(0), PLAIN, &[a.sge(0, 9)]), Err(expected));
            assert_eq!(a.post(1, b.read_from(0), PLAIN, &[a.sge(0, 9)]), Err(expected));
            net.settle();
            assert_eq!(a.sent(), []);
        }
    });
}

#[test]
fn a_write_after_the_end_of_the_connection_is_refused() {
    on_busy_nics(|net| {
        for is_failure in [false, true] {
            let (a, b) = net.pair();
            a.post(0, b.write_to(0), PLAIN, &[a.sge(0, 8)]).expect("a write");
            net.settle();
            if is_failure {
                Qp::fail(a.qp());
            } else {
                a.unlink();
            }
            a.buffer().write(0, &[1; 8]);
            assert_eq!(a.post(1, b.write_to(0), PLAIN, &[a.sge(0, 8)]), Err(NtStatus::CONNECTION_INVALID));
            net.settle();
            assert_eq!(a.sent(), all([0], NtStatus::SUCCESS));
            assert_eq!(b.buffer().bytes(0, 8), [0; 8], "nothing is written any more");
        }
    });
}
