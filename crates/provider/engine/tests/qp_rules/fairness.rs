//! Queue pairs take turns of bounded work: a long transfer of one does not keep the others, or the processor, waiting.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use engine::{
    cq::notify::ArmType,
    nic::NicMode,
    qp::{Flags, Qp, QpParameters},
};
use host::machine::{Arguments, Dpc, Machine};
use ndkpi::NtStatus;
use testing::qp_fixture::{Net, PARAMETERS, PLAIN, SEND, TestQp, all};

/// A NIC on one processor: everything has to share it.
fn on_one_processor(test: impl Fn(&Machine, &Net)) {
    for seed in 0..4 {
        let machine = Machine::seeded(seed).processors(1).start();
        let net = Net::new(&machine, NicMode::Deferred);
        test(&machine, &net);
        drop(net);
        machine.shutdown();
    }
}

/// Two joined queue pairs, the first of which sends one message of `length`.
fn long_transfer(net: &Net, length: u32) -> (TestQp, TestQp) {
    let bytes = length as usize;
    let a = net.qp_on(PARAMETERS, &net.cq(8), &net.cq(8), bytes);
    let b = net.qp_on(PARAMETERS, &net.cq(8), &net.cq(8), bytes);
    Qp::link(a.qp(), b.qp()).expect("both are new");
    b.post_receive(0, &[b.sge(0, length)]).expect("a receive");
    a.post(0, SEND, PLAIN, &[a.sge(0, length)]).expect("a send");
    (a, b)
}

/// Two joined queue pairs with room for thousands of requests, and `length` bytes each.
fn deep_pair(net: &Net, length: u32) -> (TestQp, TestQp) {
    let parameters = QpParameters { initiator_depth: 4_096, receive_depth: 4_096, ..PARAMETERS };
    let made = || net.qp_on(parameters, &net.cq(8_192), &net.cq(8_192), length as usize);
    let (a, b) = (made(), made());
    Qp::link(a.qp(), b.qp()).expect("both are new");
    (a, b)
}

//= invariant 3
#[test]
fn a_long_transfer_does_not_keep_small_sends_waiting() {
    on_one_processor(|machine, net| {
        let (long, _peer) = long_transfer(net, 16 << 20);
        let (a, b) = net.pair();
        let mut steps = 0;
        for context in 0..20 {
            b.receive(context, 8);
            a.send(context, 8);
            while a.sent().is_empty() {
                assert!(machine.step());
                steps += 1;
            }
        }
        // A small one waits for one quantum of the long one at most, which moves half a megabyte.
        assert!(steps <= 40, "{steps} quanta for 20 small sends");
        assert!(long.sent().is_empty(), "16 MiB take 32 quanta");
        // Nor was the long one kept waiting.
        let mut left = 0;
        while long.sent().is_empty() {
            assert!(machine.step());
            left += 1;
        }
        assert!(left <= 16, "{left} of 32 quanta after 20 small sends");
    });
}

#[test]
fn many_requests_of_one_queue_pair_do_not_keep_another_waiting() {
    // On the slow path, which messages of no bytes take, and on the fast one.
    for length in [0, 8] {
        on_one_processor(|machine, net| {
            let (many, peer) = deep_pair(net, 4_096);
            for context in 0..4_000 {
                peer.receive(context, length);
                many.send(context, length);
            }
            let (a, b) = net.pair();
            b.receive(0, 8);
            a.send(0, 8);
            machine.step();
            let done = many.sent().len();
            assert!((1..=128).contains(&done), "{done} requests in a quantum of at most 128");
            machine.step();
            assert_eq!(a.sent(), all([0], NtStatus::SUCCESS), "in the next quantum");
            net.settle();
            assert_eq!(done + many.sent().len(), 4_000);
        });
    }
}

#[test]
fn one_quantum_moves_a_bounded_number_of_bytes_for_many_requests_too() {
    // Short ones, of which a quantum ends at so many, and long ones.
    for (length, most) in [(4_096, 128), (65_536, 8)] {
        on_one_processor(|machine, net| {
            let (many, peer) = deep_pair(net, length);
            for context in 0..1_000 {
                many.post(context, peer.write_to(0), PLAIN, &[many.sge(0, length)]).expect("a write");
            }
            machine.step();
            let done = many.sent().len();
            assert!((1..=most).contains(&done), "{done} times {length} bytes in a quantum of at most 512 KiB");
            net.settle();
            assert_eq!(done + many.sent().len(), 1_000);
        });
    }
}

#[test]
fn silent_messages_that_are_carried_out_together_do_not_overspend_the_budget() {
    // The requests of a quantum end in the middle of a batch, and so do its bytes.
    for length in [8, 2_000] {
        on_one_processor(|_, net| {
            let (many, peer) = deep_pair(net, 4_096);
            for context in 0..400 {
                peer.receive(context, length);
                let silent = if context % 133 == 0 { PLAIN } else { Flags::SILENT_SUCCESS };
                let deferred = if context < 399 { Flags::DEFER } else { PLAIN };
                many.post(context, SEND, silent | deferred, &[many.sge(0, length)]).expect("a send");
            }
            net.settle();
            assert_eq!(many.sent(), all([0, 133, 266, 399], NtStatus::SUCCESS));
            assert_eq!(peer.received(), all(0..400, NtStatus::SUCCESS));
        });
    }
}

//= invariant 3
#[test]
fn one_quantum_moves_a_bounded_number_of_bytes() {
    on_one_processor(|machine, net| {
        let length = 8 << 20;
        let (a, _b) = long_transfer(net, length);
        let mut steps = 0;
        while a.sent().is_empty() {
            assert!(machine.step());
            steps += 1;
        }
        assert!(steps >= 8, "8 MiB in {steps} quanta of at most 1 MiB");
    });
}

#[test]
fn other_dpcs_run_between_quanta() {
    on_one_processor(|machine, net| {
        let (a, _b) = long_transfer(net, 8 << 20);
        let ran = Arc::new(AtomicUsize::new(0));
        let counter = ran.clone();
        let dpc = Dpc::try_new(machine, "other", move |_| {
            counter.fetch_add(1, Relaxed);
        })
        .expect("memory");
        dpc.set_target(Some(0));
        let mut queued = 0;
        while a.sent().is_empty() {
            queued += usize::from(dpc.queue(Arguments::NONE));
            assert!(machine.step());
        }
        assert!(ran.load(Relaxed) >= 7, "{} of {queued}", ran.load(Relaxed));
        net.settle();
        drop(dpc);
    });
}

#[test]
fn a_flush_of_a_deep_queue_takes_turns_too() {
    on_one_processor(|machine, net| {
        let parameters = QpParameters { receive_depth: 4_096, ..PARAMETERS };
        let receives = net.cq(8_192);
        let deep = net.qp_on(parameters, &net.cq(8), &receives, 4_096);
        for context in 0..4_000 {
            deep.receive(context, 0);
        }
        let (a, b) = net.pair();
        deep.flush();
        b.receive(0, 8);
        a.send(0, 8);
        machine.step();
        let done = deep.received().len();
        assert!((1..=128).contains(&done), "{done} receives in a quantum of at most 128");
        machine.step();
        assert_eq!(a.sent(), all([0], NtStatus::SUCCESS), "in the next quantum");
        net.settle();
    });
}

//= invariant 3
#[test]
fn queue_pairs_that_are_always_busy_get_equal_shares() {
    on_one_processor(|machine, net| {
        let pairs: Vec<_> = (0..5)
            .map(|_| {
                let (a, b) = (Arc::new(net.qp(PARAMETERS)), Arc::new(net.qp(PARAMETERS)));
                Qp::link(a.qp(), b.qp()).expect("both are new");
                let count = Arc::new(AtomicUsize::new(0));
                let (counter, weak_a, weak_b) = (count.clone(), Arc::downgrade(&a), Arc::downgrade(&b));
                // Posts again whatever has completed.
                a.send_cq().on_callback(move |cq, _| {
                    let Some((a, b)) = weak_a.upgrade().zip(weak_b.upgrade()) else { return };
                    for _ in cq.drain() {
                        counter.fetch_add(1, Relaxed);
                        b.receive_cq().drain();
                        b.receive(0, 8_192);
                        a.send(0, 8_192);
                    }
                    cq.arm(ArmType::Any);
                });
                a.send_cq().arm(ArmType::Any);
                for _ in 0..16 {
                    b.receive(0, 8_192);
                    a.send(0, 8_192);
                }
                (a, b, count)
            })
            .collect();
        for _ in 0..400 {
            machine.step();
        }
        let counts: Vec<_> = pairs.iter().map(|(_, _, count)| count.load(Relaxed)).collect();
        let (least, most) = (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
        assert!(least > 50, "{counts:?}");
        assert!(most <= least + least / 2, "{counts:?}");
        for (a, b, _) in &pairs {
            a.send_cq().on_callback(|_, _| {});
            a.close();
            b.close();
        }
        net.settle();
    });
}
