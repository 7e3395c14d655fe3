//! What NDKPI allows an adapter, and most hardware does to its consumers: messages that meet no receive fail, completions of
//! initiator requests come after those of the answers, bytes land in another order.

use std::collections::BTreeSet;

use engine::nic::{NicMode, NicRules, NotReady};
use host::machine::Machine;
use ndkpi::NtStatus;
use testing::qp_fixture::{Net, PARAMETERS, PLAIN, all};

const OK: NtStatus = NtStatus::SUCCESS;
const TIMEOUT: NtStatus = NtStatus::IO_TIMEOUT;
const CANCELLED: NtStatus = NtStatus::CANCELLED;

fn on_nics(rules: NicRules, test: impl Fn(&Net)) {
    for mode in [NicMode::Deferred, NicMode::Direct] {
        for seed in 0..4 {
            let machine = Machine::seeded(seed).preemption(20).start();
            let net = Net::with_rules(&machine, mode, NicRules { seed, ..rules });
            test(&net);
            drop(net);
            machine.run_until_idle();
            machine.shutdown();
        }
    }
}

const ROCE: NicRules =
    NicRules { not_ready: NotReady::Retry { retries: 3, interval: 100 }, in_order: true, initiator_delay: 0, seed: 0 };

//= NDKPI 7.2.7
#[test]
fn a_message_that_meets_no_receive_is_sent_again_and_then_fails_with_its_connection() {
    on_nics(ROCE, |net| {
        let (a, b) = net.pair();
        a.send(1, 8);
        a.send(2, 8);
        net.machine().run_for(250);
        assert_eq!(a.sent(), [], "not before the last retry");
        net.machine().run_for(100);
        assert_eq!(a.sent(), [(1, TIMEOUT), (2, CANCELLED)]);
        assert!(!a.qp().is_linked() && !b.qp().is_linked());
        assert_eq!(b.received(), []);
    });
}

#[test]
fn a_receive_in_time_takes_the_message_and_the_next_one_has_all_retries() {
    on_nics(ROCE, |net| {
        let (a, b) = net.pair();
        for context in 0..3 {
            a.send(context, 8);
            net.machine().run_for(250);
            b.receive(context, 8);
            net.settle();
            assert_eq!(a.sent(), all([context], OK));
            assert_eq!(b.received(), all([context], OK));
            net.machine().run_for(1_000);
        }
        // The receive was there before.
        b.receive(7, 8);
        a.send(7, 8);
        net.settle();
        assert_eq!((a.sent(), b.received()), (all([7], OK), all([7], OK)));
    });
}

#[test]
fn without_retries_a_message_that_meets_no_receive_fails_at_once() {
    on_nics(NicRules { not_ready: NotReady::Retry { retries: 0, interval: 100 }, ..ROCE }, |net| {
        let (a, b) = net.pair();
        a.send(1, 8);
        net.settle();
        assert_eq!(a.sent(), [(1, TIMEOUT)]);
        assert!(!b.qp().is_linked());
    });
}

//= NDKPI 7.2.7
#[test]
fn a_message_that_meets_no_receive_ends_the_connection_at_once_on_iwarp() {
    on_nics(NicRules { not_ready: NotReady::End, ..ROCE }, |net| {
        let (a, b) = net.pair();
        b.receive(1, 8);
        a.send(1, 8);
        net.settle();
        assert_eq!((a.sent(), b.received()), (all([1], OK), all([1], OK)));
        a.send(2, 8);
        net.settle();
        assert_eq!(a.sent(), [(2, TIMEOUT)]);
        assert!(!a.qp().is_linked() && !b.qp().is_linked());
        b.receive(3, 8);
        net.settle();
        assert_eq!(b.received(), [(3, CANCELLED)], "the peer's queue pair has failed too");
    });
}

#[test]
fn a_shared_receive_queue_that_is_empty_is_no_receive() {
    on_nics(ROCE, |net| {
        let srq = net.srq(8, 0);
        let (a, b) = net.pair_on(&srq, 1);
        a.send(1, 8);
        net.machine().run_for(1_000);
        assert_eq!(a.sent(), [(1, TIMEOUT)]);
        assert!(!b.qp().is_linked());
    });
}

#[test]
fn a_queue_pair_that_is_closed_while_it_waits_goes_at_once() {
    let delayed = NicRules { initiator_delay: 1_000_000, ..ROCE };
    on_nics(NicRules { not_ready: NotReady::Retry { retries: 3, interval: 1_000_000 }, ..delayed }, |net| {
        let (a, b) = net.pair();
        for context in 0..4 {
            b.receive(context, 8);
        }
        for context in 0..5 {
            a.send(context, 8);
        }
        net.settle();
        a.close();
        net.settle();
        // All have completed, in order, and no timer keeps the queue pair.
        assert_eq!(b.received(), all(0..4, OK));
        let sent = a.sent();
        assert_eq!(sent, [all(0..4, OK), vec![(4, CANCELLED)]].concat());
        let is_gone = a.into_witness();
        net.settle();
        assert!(is_gone());
    });
}

//= NDKPI 7.1.8
#[test]
fn an_answer_may_come_before_the_completion_of_what_it_answers_and_after_it() {
    let mut orders = BTreeSet::new();
    for seed in 0..40 {
        let machine = Machine::seeded(seed).start();
        let net =
            Net::with_rules(&machine, NicMode::Deferred, NicRules { seed, initiator_delay: 50, ..NicRules::default() });
        let (a, b) = net.pair();
        b.receive(1, 8);
        a.receive(1, 8);
        a.send(1, 8);
        net.settle();
        assert_eq!(b.received(), all([1], OK), "a receive is never late");
        b.send(1, 8);
        net.settle();
        assert_eq!(a.received(), all([1], OK));
        let was_first = a.sent();
        machine.run_for(60);
        orders.insert(was_first.len());
        assert_eq!([was_first, a.sent()].concat(), all([1], OK), "once, and not later than that");
        drop((a, b, net));
        machine.run_until_idle();
        machine.shutdown();
    }
    assert_eq!(orders, BTreeSet::from([0, 1]), "either order happens");
}

//= NDKPI 7.1.8
#[test]
fn initiator_completions_that_are_late_keep_their_order() {
    on_nics(NicRules { initiator_delay: 80, ..NicRules::default() }, |net| {
        let (a, b) = net.pair();
        let mut seen = Vec::new();
        for context in 0..100 {
            if context % 3 == 0 {
                a.post(context, b.write_to(0), PLAIN, &[a.sge(0, 64)]).expect("posted");
            } else {
                b.receive(context, 8);
                a.send(context, 8);
            }
            net.machine().run_for(context as u64 % 50);
            seen.extend(a.sent());
        }
        net.machine().run_for(1_000);
        seen.extend(a.sent());
        assert_eq!(seen, all(0..100, OK));
    });
}

/// The order in which the lines of a transfer of `length` bytes land, seen by sampling is not possible here: what is checked is that
/// every byte lands, wherever it begins.
#[test]
fn bytes_that_land_in_any_order_land_all() {
    on_nics(NicRules { in_order: false, ..NicRules::default() }, |net| {
        let (a, b) = net.pair_with(PARAMETERS);
        let bytes: Vec<u8> = (0..32_768_u32).map(|byte| byte.to_le_bytes()[0] ^ byte.to_le_bytes()[1]).collect();
        a.buffer().write(0, &bytes);
        for length in [1, 63, 64, 65, 1000, 4096, 4097, 30_000, 32_768] {
            b.buffer().fill(0);
            a.post(1, b.write_to(0), PLAIN, &[a.sge(0, length)]).expect("posted");
            net.settle();
            assert_eq!(a.sent(), all([1], OK));
            let count = length as usize;
            assert_eq!(b.buffer().bytes(0, count), bytes[..count], "{length}");
            b.receive(2, length);
            a.send(2, length);
            net.settle();
            assert_eq!((a.sent(), b.received()), (all([2], OK), all([2], OK)));
            assert_eq!(b.buffer().bytes(0, count), bytes[..count], "{length}");
        }
        for length in [1, 15, 16, 17, 48, 49, 200, 256] {
            b.buffer().fill(0);
            a.post_inline(3, b.write_to(0), PLAIN, &[&bytes[..length]]).expect("posted");
            net.settle();
            assert_eq!((a.sent(), b.buffer().bytes(0, length)), (all([3], OK), bytes[..length].to_vec()), "{length}");
            assert_eq!(b.buffer().bytes(length, 64), [0; 64], "{length}");
        }
    });
}
