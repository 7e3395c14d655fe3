//! NDKPI 7.2 and 7.7.6: how a connection ends, what becomes of requests then, and how a queue pair goes away.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use engine::{
    memory::Release,
    qp::{Flags, LinkClient, Qp, Sge},
};
use host::machine::{Arguments, Dpc, Machine};
use ndkpi::NtStatus;
use testing::qp_fixture::{Net, PARAMETERS, PLAIN, SEND, TestQp, all, on_busy_nics, on_nics};

/// Posted together, so that a direct NIC does not know of the first when it takes the last.
const DEFER: Flags = Flags::DEFER;

//= NDKPI 7.3.11
#[test]
fn a_message_longer_than_the_receive_fails_it_and_ends_the_connection() {
    on_nics(|net| {
        let (a, b) = net.pair();
        b.post_receive(1, &[b.sge(0, 4), b.sge(8, 3)]).expect("a receive");
        b.receive(2, 100);
        a.send_with(5, 8, DEFER);
        a.send(6, 8);
        net.settle();
        assert_eq!(b.received(), [(1, NtStatus::BUFFER_OVERFLOW), (2, NtStatus::CANCELLED)]);
        assert_eq!(a.sent(), [(5, NtStatus::REMOTE_RESOURCES), (6, NtStatus::CANCELLED)]);
        assert!(!a.qp().is_linked() && !b.qp().is_linked());
        assert_eq!(b.buffer().bytes(0, 16), [0; 16], "nothing is written");
        assert_eq!(b.post(7, SEND, PLAIN, &[]), Err(NtStatus::CONNECTION_INVALID));
    });
}

#[test]
fn a_message_of_exactly_the_length_of_the_receive_is_good() {
    on_nics(|net| {
        let (a, b) = net.pair();
        b.post_receive(1, &[b.sge(0, 4), b.sge(8, 4)]).expect("a receive");
        a.send(2, 8);
        net.settle();
        assert_eq!(b.received(), all([1], NtStatus::SUCCESS));
    });
}

//= NDKPI 7.2.7
#[test]
fn a_failed_request_cancels_the_later_ones() {
    on_nics(|net| {
        let (a, b) = net.pair();
        for context in 0..4 {
            b.receive(context, 8);
        }
        a.receive(9, 8);
        a.send_with(0, 8, DEFER);
        a.post(1, SEND, DEFER, &[Sge { token: a.sge(0, 0).token ^ 1, ..a.sge(0, 8) }]).expect("posted");
        a.send_with(2, 8, DEFER);
        a.post(3, b.write_to(0), PLAIN, &[a.sge(0, 8)]).expect("posted");
        net.settle();
        let statuses = [NtStatus::SUCCESS, NtStatus::ACCESS_VIOLATION, NtStatus::CANCELLED, NtStatus::CANCELLED];
        assert_eq!(a.sent(), statuses.into_iter().enumerate().collect::<Vec<_>>());
        assert_eq!(a.received(), all([9], NtStatus::CANCELLED), "the queue pair is at its end");
        assert_eq!(b.received(), all([0], NtStatus::SUCCESS), "the peer's receives stay");
        assert_eq!(a.post(4, SEND, PLAIN, &[]), Err(NtStatus::CONNECTION_INVALID));
    });
}

#[test]
fn a_receive_into_memory_that_may_not_be_written_fails_with_its_queue_pair() {
    on_nics(|net| {
        let (a, b) = net.pair();
        b.post_receive(1, &[b.sge(0, 4), Sge { token: 0, ..b.sge(4, 4) }]).expect("posted: it is checked later");
        b.receive(2, 8);
        a.send(3, 8);
        net.settle();
        assert_eq!(b.received(), [(1, NtStatus::ACCESS_VIOLATION), (2, NtStatus::CANCELLED)]);
        assert_eq!(a.sent(), all([3], NtStatus::REMOTE_RESOURCES));
    });
}

//= NDKPI 7.2.7
#[test]
fn an_access_beyond_the_peers_memory_ends_the_connection() {
    on_nics(|net| {
        for read in [true, false] {
            let (a, b) = net.pair();
            let last = b.buffer().len() - 4;
            let work = if read { b.read_from(last) } else { b.write_to(last) };
            b.receive(1, 8);
            a.post(2, work, PLAIN, &[a.sge(0, 8)]).expect("posted");
            net.settle();
            assert_eq!(a.sent(), all([2], NtStatus::REMOTE_RESOURCES));
            assert!(!b.qp().is_linked());
            assert_eq!(b.received(), [], "its receives stay");
        }
    });
}

//= NDKPI 7.2.7
#[test]
fn a_request_with_errors_at_both_sides_fails_with_its_own_and_leaves_the_peer_alone() {
    on_nics(|net| {
        // One element takes the fast path first; two do not.
        for elements in [1, 2] {
            for (work, is_usable) in [(0, true), (0, false), (1, true), (2, true)] {
                let (a, b) = net.pair();
                let (end, of_peer) = (a.buffer().len(), b.buffer().len() - 4);
                // Too short, or of memory that may not be written.
                b.post_receive(1, &[if is_usable { b.sge(0, 8) } else { Sge { token: 0, ..b.sge(0, 64) } }])
                    .expect("a receive");
                let work = [SEND, b.write_to(of_peer), b.read_from(of_peer)][work];
                let list = [a.sge(end - 16, 32), a.sge(0, 8)];
                a.post(2, work, PLAIN, &list[..elements]).expect("posted");
                net.settle();
                assert_eq!(a.sent(), all([2], NtStatus::ACCESS_VIOLATION), "{work:?}, {elements} elements");
                assert_eq!(b.received(), [], "{work:?}, {elements} elements");
                assert!(!b.qp().is_dead());
            }
        }
    });
}

//= NDKPI 7.2.7
#[test]
fn a_send_with_an_error_of_its_own_fails_without_a_receive() {
    on_nics(|net| {
        let (a, _b) = net.pair();
        a.post(1, SEND, PLAIN, &[a.sge(a.buffer().len() - 4, 8)]).expect("posted");
        net.settle();
        assert_eq!(a.sent(), all([1], NtStatus::ACCESS_VIOLATION));
    });
}

//= NDKPI 7.2.7
#[test]
fn a_send_that_waits_keeps_no_registration_from_ending() {
    on_nics(|net| {
        let (a, b) = net.pair();
        let memory = a.more_bytes(64);
        a.post(1, SEND, PLAIN, &[memory.sge(0, 8)]).expect("posted");
        net.settle();
        assert_eq!(memory.deregister(), Ok(Release::Done));
        assert_eq!(memory.references(), 1);
        b.receive(2, 8);
        net.settle();
        assert_eq!(a.sent(), all([1], NtStatus::ACCESS_VIOLATION));
        assert_eq!(b.received(), [], "the receive stays");
    });
}

//= NDKPI 7.2.6
//= NDKPI 7.7.6
#[test]
fn an_incoming_end_of_the_connection_does_not_flush_receives() {
    on_nics(|net| {
        let (a, b) = net.pair();
        b.receive(1, 8);
        b.receive(2, 8);
        net.settle();
        a.unlink();
        net.settle();
        assert_eq!(b.received(), []);
        b.receive(3, 8);
        b.flush();
        net.settle();
        assert_eq!(b.received(), all(1..4, NtStatus::CANCELLED), "until they are flushed");
    });
}

#[test]
fn requests_that_meet_the_end_of_the_connection_fail() {
    on_nics(|net| {
        let (a, b) = net.pair();
        // They wait for receives.
        for context in 0..3 {
            a.send_with(context, 8, if context == 1 { Flags::SILENT_SUCCESS } else { PLAIN });
        }
        net.settle();
        b.unlink();
        net.settle();
        assert_eq!(a.sent(), [(0, NtStatus::IO_TIMEOUT), (1, NtStatus::CANCELLED), (2, NtStatus::CANCELLED)]);
    });
}

#[test]
fn the_close_of_the_peer_ends_the_connection() {
    on_nics(|net| {
        let (a, b) = net.pair();
        a.send(0, 8);
        a.receive(1, 8);
        net.settle();
        drop(b);
        net.settle();
        assert_eq!(a.sent(), all([0], NtStatus::IO_TIMEOUT));
        assert_eq!(a.received(), []);
        assert!(!a.qp().is_linked());
        assert!(a.qp().peer().is_none());
    });
}

//= NDKPI 7.2.3
#[test]
fn a_queue_pair_that_was_connected_gets_no_other_peer() {
    on_nics(|net| {
        let (a, b) = net.pair();
        let (c, d) = (net.qp(PARAMETERS), net.qp(PARAMETERS));
        assert_eq!(Qp::link(a.qp(), c.qp()), Err(NtStatus::CONNECTION_ACTIVE));
        assert_eq!(Qp::link(c.qp(), a.qp()), Err(NtStatus::CONNECTION_ACTIVE));
        a.unlink();
        net.settle();
        assert_eq!(Qp::link(a.qp(), b.qp()), Err(NtStatus::CONNECTION_ACTIVE), "never again");
        assert_eq!(Qp::link(c.qp(), b.qp()), Err(NtStatus::CONNECTION_ACTIVE));
        assert_eq!(Qp::link(c.qp(), c.qp()), Err(NtStatus::INVALID_PARAMETER));
        Qp::link(c.qp(), d.qp()).expect("a refusal leaves no trace");
    });
}

#[test]
fn a_queue_pair_that_failed_gets_no_peer() {
    on_nics(|net| {
        let (a, b, c) = (net.qp(PARAMETERS), net.qp(PARAMETERS), net.qp(PARAMETERS));
        Qp::fail(a.qp());
        assert_eq!(Qp::link(a.qp(), b.qp()), Err(NtStatus::CONNECTION_ACTIVE));
        assert_eq!(Qp::link(b.qp(), a.qp()), Err(NtStatus::CONNECTION_ACTIVE));
        Qp::link(b.qp(), c.qp()).expect("the others are as before");
    });
}

/// Counts what it is told.
#[derive(Clone, Default)]
struct Notices(Arc<AtomicUsize>);

impl LinkClient for Notices {
    fn unlinked(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    fn drained(&self) {}
}

#[test]
fn both_sides_hear_once_that_the_connection_has_ended() {
    on_busy_nics(|net| {
        for end in [
            |a: &TestQp, b: &TestQp| {
                a.unlink();
                b.unlink();
            },
            |a: &TestQp, _: &TestQp| Qp::fail(a.qp()),
        ] {
            let (a, b) = (net.qp(PARAMETERS), net.qp(PARAMETERS));
            let (told_a, told_b) = (Notices::default(), Notices::default());
            a.qp().set_link_client(Box::new(told_a.clone())).expect("it has none");
            b.qp().set_link_client(Box::new(told_b.clone())).expect("it has none");
            Qp::link(a.qp(), b.qp()).expect("both are new");
            a.send(0, 8);
            net.settle();
            assert_eq!((told_a.0.load(Relaxed), told_b.0.load(Relaxed)), (0, 0));
            end(&a, &b);
            net.settle();
            drop((a, b));
            net.settle();
            assert_eq!((told_a.0.load(Relaxed), told_b.0.load(Relaxed)), (1, 1));
        }
    });
}

#[test]
fn a_closed_queue_pair_completes_what_was_posted_and_goes_away() {
    on_busy_nics(|net| {
        let (a, b) = net.pair();
        let (sends, receives) = (a.send_cq().clone(), a.receive_cq().clone());
        for context in 0..5 {
            a.send(context, 8);
            a.receive(context, 8);
        }
        let gone = a.into_witness();
        net.settle();
        assert!(gone(), "nothing refers to it");
        let cancelled = |cq: &testing::cq_fixture::TestCq| {
            testing::qp_fixture::outcomes(&cq.poll_entries(64)) == all(0..5, NtStatus::CANCELLED)
        };
        assert!(cancelled(&sends) && cancelled(&receives), "entries of a closed queue pair may still be there");
        drop(b);
    });
}

#[test]
fn a_close_in_the_middle_of_transfers_ends_them() {
    for (seed, close_sender) in (0..8).flat_map(|seed| [(seed, true), (seed, false)]) {
        let machine = Machine::seeded(seed).processors(2).start();
        let net = Net::new(&machine, engine::nic::NicMode::Deferred);
        let length = 4 << 20;
        let a = net.qp_on(PARAMETERS, &net.cq(64), &net.cq(64), length);
        let b = net.qp_on(PARAMETERS, &net.cq(64), &net.cq(64), length);
        Qp::link(a.qp(), b.qp()).expect("both are new");
        let whole = u32::try_from(length).expect("small");
        b.post_receive(1, &[b.sge(0, whole)]).expect("a receive");
        a.post(2, SEND, PLAIN, &[a.sge(0, whole)]).expect("a send");
        a.send(3, 8);
        machine.step();
        let (sends, receives) = (a.send_cq().clone(), b.receive_cq().clone());
        let (closed, open) = if close_sender { (a, b) } else { (b, a) };
        let gone = closed.into_witness();
        net.settle();
        assert!(gone(), "also the transfer has let go of it");
        let sent = testing::qp_fixture::outcomes(&sends.poll_entries(64));
        let filled = testing::qp_fixture::outcomes(&receives.poll_entries(64));
        if close_sender {
            assert_eq!(sent, all([2, 3], NtStatus::CANCELLED));
            assert_eq!(filled, [], "the receive stays with its queue pair");
        } else {
            assert_eq!(sent, [(2, NtStatus::IO_TIMEOUT), (3, NtStatus::CANCELLED)]);
            assert_eq!(filled, all([1], NtStatus::CANCELLED));
        }
        drop((open, net));
        machine.shutdown();
    }
}

#[test]
fn a_link_and_an_unlink_in_any_order_leave_both_sides_alike() {
    // The unlink is a DPC that gets in between at some lock.
    for seed in 0..400 {
        let machine = Machine::seeded(seed).processors(2).preemption(15).start();
        let net = Net::new(&machine, engine::nic::NicMode::Deferred);
        let (a, b) = (net.qp(PARAMETERS), net.qp(PARAMETERS));
        let (of_dpc, is_fail) = (if seed % 2 == 0 { a.qp().clone() } else { b.qp().clone() }, seed % 4 < 2);
        let dpc =
            Dpc::try_new(&machine, "unlink", move |_| if is_fail { Qp::fail(&of_dpc) } else { Qp::unlink(&of_dpc) });
        let dpc = dpc.expect("memory");
        dpc.set_target(Some(1));
        dpc.queue(Arguments::NONE);
        let linked = Qp::link(a.qp(), b.qp());
        net.settle();
        let states = [&a, &b].map(|side| (side.qp().is_linked(), side.qp().peer().is_some()));
        assert!(
            states == [(true, true); 2] || states == [(false, false); 2],
            "half a connection after {linked:?} with seed {seed}: {states:?}"
        );
        drop((dpc, a, b, net));
        machine.shutdown();
    }
}
