//! NDKPI 7.12: shared receive queues.

use std::sync::{Arc, Mutex};

use engine::{
    memory::{Domain, MemoryLimits, MemoryTable},
    nic::NicMode,
    qp::{QpParameters, Srq, SrqClient, SrqParameters},
};
use host::{HostOs, machine::Machine};
use ndkpi::NtStatus;
use testing::qp_fixture::{Net, PARAMETERS, PLAIN, SEND, all, on_busy_nics, on_nics};

//= NDKPI 7.12.6
#[test]
fn receives_complete_at_the_queue_pair_that_takes_them() {
    on_nics(|net| {
        let srq = net.srq(8, 0);
        let ((a, b), (c, d)) = (net.pair_on(&srq, 0xB), net.pair_on(&srq, 0xD));
        for context in 0..4 {
            srq.receive(context, 16);
        }
        for (context, side) in [&a, &c, &c, &a].into_iter().enumerate() {
            side.send(context, 8);
            net.settle();
        }
        let taken = |qp: &testing::qp_fixture::TestQp| -> Vec<_> {
            let entries = qp.receive_cq().poll_entries(8);
            assert!(
                entries.iter().all(|entry| entry.received.bytes() == 8 && entry.outcome.status() == NtStatus::SUCCESS)
            );
            entries.iter().map(|entry| (entry.request_context, entry.qp_context)).collect()
        };
        assert_eq!(taken(&b), [(0, 0xB), (3, 0xB)]);
        assert_eq!(taken(&d), [(1, 0xD), (2, 0xD)]);
    });
}

#[test]
fn bytes_arrive_in_the_memory_of_the_shared_receive() {
    on_nics(|net| {
        let srq = net.srq(8, 0);
        let (a, b) = net.pair_on(&srq, 0);
        srq.post(1, &[srq.sge(100, 3), srq.sge(200, 10)]).expect("a receive");
        a.buffer().write(0, b"abcdefgh");
        a.send(2, 8);
        net.settle();
        assert_eq!(b.received(), all([1], NtStatus::SUCCESS));
        assert_eq!(srq.buffer().bytes(100, 3), b"abc");
        assert_eq!(srq.buffer().bytes(200, 5), b"defgh");
    });
}

#[test]
fn senders_that_wait_get_receives_as_they_are_posted() {
    on_busy_nics(|net| {
        let srq = net.srq(64, 0);
        let pairs: Vec<_> = (0..5).map(|number| net.pair_on(&srq, number)).collect();
        for (a, _) in &pairs {
            a.send(1, 8);
            a.send(2, 8);
        }
        net.settle();
        for context in 0..10 {
            srq.receive(context, 8);
        }
        net.settle();
        assert!(pairs.iter().all(|(a, _)| a.sent() == all([1, 2], NtStatus::SUCCESS)));
        let mut contexts: Vec<_> = pairs.iter().flat_map(|(_, b)| b.received()).map(|entry| entry.0).collect();
        contexts.sort_unstable();
        assert_eq!(contexts, (0..10).collect::<Vec<_>>());
    });
}

#[test]
fn a_receive_that_the_first_one_in_the_line_does_not_want_any_more_goes_to_the_next() {
    on_nics(|net| {
        let srq = net.srq(8, 0);
        let ((a, _b), (c, d)) = (net.pair_on(&srq, 1), net.pair_on(&srq, 2));
        a.send(1, 8);
        net.settle();
        c.send(2, 8);
        net.settle();
        a.flush();
        net.settle();
        assert_eq!(a.sent(), all([1], NtStatus::CANCELLED));
        srq.receive(3, 8);
        net.settle();
        assert_eq!(c.sent(), all([2], NtStatus::SUCCESS), "there is a receive, and nobody told it");
        assert_eq!(d.received(), all([3], NtStatus::SUCCESS));
    });
}

#[test]
fn a_receive_goes_past_those_in_the_line_who_have_lost_their_peer() {
    on_busy_nics(|net| {
        let srq = net.srq(8, 0);
        let pairs: Vec<_> = (0..4).map(|number| net.pair_on(&srq, number)).collect();
        for (number, (a, _)) in pairs.iter().enumerate() {
            a.send(number, 8);
            net.settle();
        }
        pairs[0].0.unlink();
        pairs[1].1.unlink();
        srq.receive(7, 8);
        pairs[2].1.close();
        net.settle();
        let last = pairs[3].0.sent();
        let third = pairs[2].0.sent();
        assert!(last == all([3], NtStatus::SUCCESS) || third == all([2], NtStatus::SUCCESS), "{last:?}, {third:?}");
    });
}

#[test]
fn a_queue_pair_that_is_closed_while_its_peer_waits_goes_away() {
    for seed in 0..300 {
        let machine = Machine::seeded(seed).processors(3).preemption(20).start();
        let net = Net::new(&machine, NicMode::Deferred);
        let srq = net.srq(8, 0);
        let (a, b) = net.pair_on(&srq, 0);
        a.send(1, 0);
        let gone = b.into_witness();
        net.settle();
        assert!(gone(), "the shared queue keeps it, seed {seed}");
        let gone = srq.into_witness();
        net.settle();
        assert!(gone());
        drop((a, net));
        machine.run_until_idle();
        machine.shutdown();
    }
}

//= NDKPI 7.12.3
#[test]
fn the_notification_comes_once_when_fewer_receives_than_the_threshold_are_left() {
    on_nics(|net| {
        let srq = net.srq(8, 2);
        let (a, _b) = net.pair_on(&srq, 0);
        for context in 0..4 {
            srq.receive(context, 8);
        }
        for (sends, told) in [(1, 0), (2, 0), (3, 1), (4, 1)] {
            a.send(sends, 8);
            net.settle();
            let statuses = srq.take_statuses();
            assert_eq!(statuses.len(), usize::from(sends == 3), "after {sends} receives, told {told}");
            assert!(statuses.iter().all(|status| *status == NtStatus::SUCCESS));
        }
    });
}

//= NDKPI 7.12.2
#[test]
fn a_new_threshold_arms_the_notification_again_and_may_be_reached_already() {
    on_nics(|net| {
        let srq = net.srq(8, 0);
        let (a, _b) = net.pair_on(&srq, 0);
        for context in 0..3 {
            srq.receive(context, 8);
        }
        net.settle();
        Srq::modify(srq.srq(), 0, 3).expect("a threshold");
        net.settle();
        assert_eq!(srq.take_statuses(), [], "three are not fewer than three");
        Srq::modify(srq.srq(), 0, 4).expect("a threshold");
        net.settle();
        assert_eq!(srq.take_statuses(), [NtStatus::SUCCESS], "at once");
        a.send(1, 8);
        net.settle();
        assert_eq!(srq.take_statuses(), [], "once");
        Srq::modify(srq.srq(), 16, 0).expect("a depth");
        net.settle();
        assert_eq!(srq.take_statuses(), [], "a threshold of zero does not arm");
    });
}

//= NDKPI 7.12.5
#[test]
fn the_depth_of_a_shared_queue_is_exact_and_changes() {
    on_nics(|net| {
        let srq = net.srq(2, 0);
        let (a, b) = net.pair_on(&srq, 0);
        srq.receive(0, 8);
        srq.receive(1, 8);
        assert_eq!(srq.post(2, &[]), Err(NtStatus::NO_MORE_ENTRIES));
        Srq::modify(srq.srq(), 5, 0).expect("memory");
        for context in 2..5 {
            srq.receive(context, 8);
        }
        assert_eq!(srq.post(5, &[]), Err(NtStatus::NO_MORE_ENTRIES));
        assert_eq!(Srq::modify(srq.srq(), 4, 0), Err(NtStatus::BUFFER_OVERFLOW));
        assert_eq!(Srq::modify(srq.srq(), 1_025, 0), Err(NtStatus::INVALID_PARAMETER));
        for context in 0..5 {
            a.send(context, 8);
        }
        net.settle();
        assert_eq!(b.received(), all(0..5, NtStatus::SUCCESS));
        Srq::modify(srq.srq(), 1, 0).expect("it is empty");
        srq.receive(0, 8);
        assert_eq!(srq.post(1, &[]), Err(NtStatus::NO_MORE_ENTRIES));
        assert_eq!(Srq::modify(srq.srq(), 1_024, 0), Ok(()), "the adapter's limit");
    });
}

#[test]
fn a_shared_queue_without_depth_or_too_deep_is_an_invalid_parameter() {
    on_nics(|net| {
        for depth in [0, 1_025, u32::MAX] {
            assert_eq!(net.try_srq(depth, 0, 64).err(), Some(NtStatus::INVALID_PARAMETER));
        }
    });
}

#[test]
fn a_shared_receive_is_refused_as_others_are() {
    on_nics(|net| {
        let srq = net.srq(2, 0);
        assert_eq!(srq.post(0, &[srq.sge(0, 1); 3]), Err(NtStatus::DATA_OVERRUN));
        assert_eq!(srq.post(0, &[srq.sge(0, 1), srq.sge(0, 1 << 20)]), Err(NtStatus::BUFFER_OVERFLOW));
        let (a, b) = net.pair_on(&srq, 0);
        srq.receive(1, 8);
        a.send(2, 8);
        net.settle();
        assert_eq!(b.received(), all([1], NtStatus::SUCCESS), "what was refused left nothing");
    });
}

#[test]
fn a_message_longer_than_the_shared_receive_fails_it_with_the_queue_pair_that_took_it() {
    on_nics(|net| {
        let srq = net.srq(8, 0);
        let ((a, b), (c, d)) = (net.pair_on(&srq, 1), net.pair_on(&srq, 2));
        srq.receive(0, 4);
        srq.receive(1, 16);
        a.send(3, 8);
        net.settle();
        assert_eq!(b.received(), all([0], NtStatus::BUFFER_OVERFLOW));
        assert_eq!(a.sent(), all([3], NtStatus::REMOTE_RESOURCES));
        c.send(4, 8);
        net.settle();
        assert_eq!(d.received(), all([1], NtStatus::SUCCESS), "the others go on");
    });
}

//= NDKPI 7.12.4
#[test]
fn a_failed_shared_queue_fails_its_queue_pairs_and_says_so_once() {
    on_nics(|net| {
        let srq = net.srq(8, 0);
        let pairs: Vec<_> = (0..20).map(|number| net.pair_on(&srq, number)).collect();
        Srq::fail(srq.srq());
        Srq::fail(srq.srq());
        net.settle();
        assert_eq!(srq.take_statuses(), [NtStatus::INTERNAL_ERROR]);
        assert!(pairs.iter().all(|(a, b)| b.qp().is_dead() && !a.qp().is_linked()));
        assert_eq!(srq.post(0, &[]), Err(NtStatus::INTERNAL_ERROR));
        assert_eq!(pairs[0].0.post(0, SEND, PLAIN, &[]), Err(NtStatus::CONNECTION_INVALID));
    });
}

#[test]
fn a_queue_that_is_closed_before_its_notification_gives_none() {
    on_nics(|net| {
        let srq = net.srq(4, 0);
        Srq::fail(srq.srq());
        srq.srq().close();
        net.settle();
        assert_eq!(srq.take_statuses(), []);
    });
}

#[test]
fn a_queue_that_has_failed_says_so_and_tells_its_consumer_once() {
    on_nics(|net| {
        let srq = net.srq(4, 0);
        assert!(!srq.srq().has_failed());
        Srq::fail(srq.srq());
        net.settle();
        assert_eq!((srq.srq().has_failed(), srq.take_statuses()), (true, vec![NtStatus::INTERNAL_ERROR]));
        Srq::fail(srq.srq());
        net.settle();
        assert_eq!(srq.take_statuses(), []);
    });
}

#[test]
fn the_room_of_a_queue_pair_in_the_queue_is_that_of_the_next_one() {
    on_nics(|net| {
        let srq = net.srq(4, 0);
        let lives = |times| {
            for _ in 0..times {
                let (a, b) = net.pair_on(&srq, 0);
                a.close();
                b.close();
                drop((a, b));
                net.settle();
            }
        };
        // The first time teaches the machine which locks there are.
        lives(16);
        assert_eq!(testing::allocation::growth(|| lives(256)), 0);
    });
}

/// Fails its queue when it is called first, and writes down what it is told.
#[derive(Clone, Default)]
struct Failing {
    queue: Arc<Mutex<Option<fallible::Arc<Srq<HostOs>>>>>,
    told: Arc<Mutex<Vec<NtStatus>>>,
}

impl SrqClient for Failing {
    fn notify(&self, status: NtStatus) {
        self.told.lock().expect("no panic").push(status);
        let queue = self.queue.lock().expect("no panic").take();
        if let Some(queue) = queue {
            Srq::fail(&queue);
        }
    }
}

#[test]
fn what_becomes_due_in_a_notification_is_told_after_it() {
    on_nics(|net| {
        let limits = MemoryLimits { tokens: 4, mappings: 1, registration: 1, fast_register_pages: 1 };
        let table = MemoryTable::try_new(net.os(), limits).expect("memory");
        let domain = Domain::try_new(&table).expect("memory");
        let parameters =
            SrqParameters { depth: 8, max_depth: 8, max_sge: 1, max_transfer: 1, threshold: 0, processor: 0 };
        let client = Failing::default();
        let queue = Srq::try_new(net.os(), &domain, parameters, client.clone()).expect("memory");
        *client.queue.lock().expect("no panic") = Some(queue.clone());
        Srq::modify(&queue, 0, 1).expect("a good threshold");
        net.settle();
        assert_eq!(*client.told.lock().expect("no panic"), [NtStatus::SUCCESS, NtStatus::INTERNAL_ERROR]);
    });
}

#[test]
fn a_message_without_elements_allocates_nothing() {
    on_nics(|net| {
        let without = QpParameters { max_receive_sge: 0, max_initiator_sge: 0, max_peer_sge: 0, ..PARAMETERS };
        let (a, b) = net.pair_with(without);
        for round in 0..3 {
            let count = testing::allocation::count(|| {
                a.send(1, 0);
                net.settle();
                b.receive(2, 0);
                net.settle();
            });
            // The times before teach the machine in which order the locks are taken.
            assert!(round < 2 || count == 0, "{count} allocations");
            assert_eq!((a.sent(), b.received()), (all([1], NtStatus::SUCCESS), all([2], NtStatus::SUCCESS)));
        }
    });
}

#[test]
fn a_queue_pair_that_waits_for_a_receive_allocates_nothing() {
    on_nics(|net| {
        for round in 0..3 {
            let srq = net.srq(4, 0);
            let (a, b) = net.pair_on(&srq, 0);
            let count = testing::allocation::count(|| {
                a.send(1, 8);
                net.settle();
            });
            // The times before teach the machine in which order the locks are taken.
            assert!(round < 2 || count == 0, "{count} allocations");
            srq.receive(2, 8);
            net.settle();
            assert_eq!((a.sent(), b.received()), (all([1], NtStatus::SUCCESS), all([2], NtStatus::SUCCESS)));
        }
    });
}
