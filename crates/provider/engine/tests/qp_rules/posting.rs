//! NDKPI 7.3 and 5.7: what a post accepts, and with which status it refuses.

use std::{
    cell::Cell,
    ops::{Deref, DerefMut},
};

use engine::qp::{Flags, Lend, Payload, Qp, QpParameters, Sge, SqProducer};
use ndkpi::NtStatus;
use testing::qp_fixture::{PARAMETERS, PLAIN, SEND, all, on_nics};

#[test]
fn an_initiator_request_needs_a_connection() {
    on_nics(|net| {
        let (a, b) = (net.qp(PARAMETERS), net.qp(PARAMETERS));
        let element = [a.sge(0, 8)];
        for work in [SEND, b.write_to(0), b.read_from(0)] {
            assert_eq!(a.post(0, work, PLAIN, &element), Err(NtStatus::CONNECTION_INVALID));
        }
        assert_eq!(a.post_inline(0, SEND, PLAIN, &[&[1]]), Err(NtStatus::CONNECTION_INVALID));
        net.settle();
        assert_eq!(a.sent(), []);
        Qp::link(a.qp(), b.qp()).expect("both are new");
        b.receive(0, 8);
        a.send(0, 8);
        net.settle();
        assert_eq!(a.sent(), all([0], NtStatus::SUCCESS));
        a.unlink();
        assert_eq!(a.post(0, SEND, PLAIN, &element), Err(NtStatus::CONNECTION_INVALID), "not any more");
        assert_eq!(b.post(0, SEND, PLAIN, &[]), Err(NtStatus::CONNECTION_INVALID), "nor on the other side");
    });
}

#[test]
fn a_receive_may_be_posted_before_the_connection() {
    on_nics(|net| {
        let (a, b) = (net.qp(PARAMETERS), net.qp(PARAMETERS));
        b.receive(1, 8);
        b.receive(2, 8);
        net.settle();
        Qp::link(a.qp(), b.qp()).expect("both are new");
        a.send(0, 8);
        a.send(0, 8);
        net.settle();
        assert_eq!(b.received(), all([1, 2], NtStatus::SUCCESS));
    });
}

#[test]
fn a_send_waits_for_a_receive() {
    on_nics(|net| {
        let (a, b) = net.pair();
        a.send(1, 8);
        a.send(2, 8);
        net.settle();
        assert_eq!(a.sent(), []);
        b.receive(3, 8);
        net.settle();
        assert_eq!(a.sent(), all([1], NtStatus::SUCCESS));
        b.receive(4, 8);
        net.settle();
        assert_eq!(a.sent(), all([2], NtStatus::SUCCESS));
        assert_eq!(b.received(), all([3, 4], NtStatus::SUCCESS));
    });
}

//= NDKPI 7.3.3
#[test]
fn a_full_initiator_queue_is_no_more_entries() {
    on_nics(|net| {
        let (a, b) = net.pair_with(QpParameters { initiator_depth: 3, ..PARAMETERS });
        for context in 0..3 {
            a.send(context, 8);
        }
        assert_eq!(a.post(3, SEND, PLAIN, &[]), Err(NtStatus::NO_MORE_ENTRIES));
        assert_eq!(a.post_inline(3, SEND, PLAIN, &[&[1]]), Err(NtStatus::NO_MORE_ENTRIES));
        net.settle();
        assert_eq!(a.sent(), [], "the peer has no receive");
        b.receive(0, 8);
        net.settle();
        assert_eq!(a.sent(), all([0], NtStatus::SUCCESS));
        a.send(3, 8);
        assert_eq!(a.post(4, SEND, PLAIN, &[]), Err(NtStatus::NO_MORE_ENTRIES), "one place was free");
        for context in 1..4 {
            b.receive(context, 8);
        }
        net.settle();
        assert_eq!(a.sent(), all(1..4, NtStatus::SUCCESS), "what was refused never completes");
    });
}

//= NDKPI 7.2.2
#[test]
fn a_full_receive_queue_is_no_more_entries() {
    on_nics(|net| {
        let (a, b) = net.pair_with(QpParameters { receive_depth: 2, ..PARAMETERS });
        b.receive(0, 8);
        b.receive(1, 8);
        assert_eq!(b.post_receive(2, &[]), Err(NtStatus::NO_MORE_ENTRIES));
        a.send(0, 8);
        net.settle();
        b.receive(2, 8);
        assert_eq!(b.post_receive(3, &[]), Err(NtStatus::NO_MORE_ENTRIES));
        a.send(0, 8);
        a.send(0, 8);
        net.settle();
        assert_eq!(b.received(), all(0..3, NtStatus::SUCCESS));
    });
}

#[test]
fn the_place_of_a_request_is_free_when_its_completion_can_be_seen() {
    on_nics(|net| {
        let (a, b) = net.pair_with(QpParameters { initiator_depth: 1, receive_depth: 1, ..PARAMETERS });
        let (a, b) = (std::sync::Arc::new(a), std::sync::Arc::new(b));
        let weak = std::sync::Arc::downgrade(&b);
        b.receive_cq().on_callback(move |cq, _| {
            let b = weak.upgrade().expect("the test is not over");
            for context in cq.drain() {
                b.receive(context + 1, 8);
            }
            cq.arm(engine::cq::notify::ArmType::Any);
        });
        let weak = std::sync::Arc::downgrade(&a);
        a.send_cq().on_callback(move |cq, _| {
            let a = weak.upgrade().expect("the test is not over");
            for context in cq.drain().into_iter().filter(|context| *context < 100) {
                a.send(context + 1, 8);
            }
            cq.arm(engine::cq::notify::ArmType::Any);
        });
        a.send_cq().arm(engine::cq::notify::ArmType::Any);
        b.receive_cq().arm(engine::cq::notify::ArmType::Any);
        b.receive(0, 8);
        a.send(0, 8);
        net.settle();
        assert!(a.send_cq().calls() >= 100, "a queue of one request, 101 requests");
    });
}

//= NDKPI 7.3.3
#[test]
fn too_many_elements_are_a_data_overrun() {
    on_nics(|net| {
        let (a, b) = net.pair();
        let elements = [a.sge(0, 1); 5];
        for work in [SEND, b.write_to(0), b.read_from(0)] {
            assert_eq!(a.post(0, work, PLAIN, &elements), Err(NtStatus::DATA_OVERRUN));
        }
        assert_eq!(a.post_receive(0, &elements), Err(NtStatus::DATA_OVERRUN));
        a.post(1, SEND, PLAIN, &elements[..4]).expect("exactly the limit");
        b.post_receive(1, &[b.sge(0, 1); 4]).expect("exactly the limit");
        net.settle();
        assert_eq!(a.sent(), all([1], NtStatus::SUCCESS));
    });
}

//= NDKPI 7.3.3
#[test]
fn more_bytes_than_a_transfer_may_have_are_a_buffer_overflow() {
    on_nics(|net| {
        let (a, b) = net.pair_with(QpParameters { max_transfer: 1_000, ..PARAMETERS });
        for elements in [vec![a.sge(0, 1_001)], vec![a.sge(0, 500), a.sge(0, 501)], vec![a.sge(0, u32::MAX); 2]] {
            assert_eq!(a.post(0, SEND, PLAIN, &elements), Err(NtStatus::BUFFER_OVERFLOW));
            assert_eq!(a.post_receive(0, &elements), Err(NtStatus::BUFFER_OVERFLOW));
        }
        a.post(1, SEND, PLAIN, &[a.sge(0, 1_000)]).expect("exactly the limit");
        b.post_receive(1, &[b.sge(0, 1_000)]).expect("exactly the limit");
        net.settle();
        assert_eq!(a.sent(), all([1], NtStatus::SUCCESS));
    });
}

#[test]
fn a_refused_post_leaves_nothing_in_the_queue() {
    on_nics(|net| {
        let (a, b) =
            net.pair_with(QpParameters { initiator_depth: 2, receive_depth: 2, max_transfer: 100, ..PARAMETERS });
        for _ in 0..20 {
            // Refused after elements or inline bytes were taken in.
            let long = [a.sge(0, 50), a.sge(0, 40), a.sge(0, 11)];
            assert_eq!(a.post(0, SEND, PLAIN, &long), Err(NtStatus::BUFFER_OVERFLOW));
            assert_eq!(b.post_receive(0, &long), Err(NtStatus::BUFFER_OVERFLOW));
            assert_eq!(a.post_inline(0, SEND, PLAIN, &[&[1; 64], &[1; 37]]), Err(NtStatus::INVALID_BUFFER_SIZE));
        }
        a.buffer().write(0, b"good");
        b.post_receive(1, &[b.sge(0, 2), b.sge(2, 2)]).expect("a receive");
        a.post(1, SEND, PLAIN, &[a.sge(0, 3), a.sge(3, 1)]).expect("a send");
        b.post_receive(2, &[b.sge(10, 6)]).expect("a receive");
        a.post_inline(2, SEND, PLAIN, &[b"inl", b"ine"]).expect("a send");
        net.settle();
        assert_eq!(a.sent(), all([1, 2], NtStatus::SUCCESS));
        assert_eq!(b.buffer().bytes(0, 4), b"good");
        assert_eq!(b.buffer().bytes(10, 6), b"inline");
    });
}

#[test]
fn a_queue_of_no_requests_takes_none() {
    on_nics(|net| {
        let (a, b) = net.pair_with(QpParameters { initiator_depth: 0, receive_depth: 0, ..PARAMETERS });
        assert_eq!(a.post(0, SEND, PLAIN, &[]), Err(NtStatus::NO_MORE_ENTRIES));
        assert_eq!(a.post_inline(0, SEND, PLAIN, &[&[1]]), Err(NtStatus::NO_MORE_ENTRIES));
        assert_eq!(b.post_receive(0, &[]), Err(NtStatus::NO_MORE_ENTRIES));
    });
}

//= NDKPI 7.3.2
#[test]
fn an_element_list_need_only_be_valid_during_the_call() {
    on_nics(|net| {
        let (a, b) = net.pair();
        a.buffer().write(0, b"abcd");
        {
            let mut from = vec![a.sge(0, 4)];
            let mut to = vec![b.sge(0, 4)];
            a.post(0, SEND, PLAIN, &from).expect("a send");
            b.post_receive(0, &to).expect("a receive");
            from[0].token = 0;
            to[0].address = 0;
        }
        net.settle();
        assert_eq!(b.buffer().bytes(0, 4), b"abcd");
    });
}

#[test]
fn posting_allocates_nothing() {
    on_nics(|net| {
        let (a, b) = net.pair();
        let (from, to) = ([a.sge(0, 100); 4], [b.sge(0, 100); 4]);
        let post = |times| {
            for _ in 0..times {
                b.post_receive(0, &to).expect("a receive");
                a.post(0, SEND, PLAIN, &from).expect("a send");
                b.post_receive(0, &to).expect("a receive");
                a.post_inline(0, SEND, PLAIN, &[&[1; 200]]).expect("a send");
            }
        };
        // The first time teaches the machine which locks there are.
        post(1);
        net.settle();
        assert_eq!(a.sent().len(), 2);
        let count = testing::allocation::count(|| post(16));
        assert_eq!(count, 0);
        let count = testing::allocation::count(|| net.settle());
        assert_eq!(count, 0, "nor does carrying it out");
        assert_eq!(a.sent().len(), 32);
    });
}

/// A guard that notes when it is dropped, as the poster's end of a queue.
struct Guard<'a>(&'a mut SqProducer, &'a Cell<bool>);

impl Deref for Guard<'_> {
    type Target = SqProducer;

    fn deref(&self) -> &SqProducer {
        self.0
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut SqProducer {
        self.0
    }
}

impl Lend<SqProducer> for Guard<'_> {
    type Lent = Self;

    fn lend(self) -> Result<Self, NtStatus> {
        Ok(self)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.1.set(true);
    }
}

#[test]
fn the_end_of_a_queue_is_given_back_before_the_request_has_an_effect() {
    on_nics(|net| {
        let (a, b) = net.pair();
        b.receive(0, 0);
        let mut queue = a.take_initiator().into_queue();
        let is_back = Cell::new(false);
        let elements = Payload::of_elements([a.sge(0, 0); 2].into_iter());
        let posted = Qp::post(a.qp(), 1, SEND, Flags::DEFER, elements, Guard(&mut queue, &is_back));
        assert_eq!(posted, Ok(()));
        assert!(is_back.replace(false));
        // The guard is back before the doorbell rings, so what the callback would post finds it.
        let posted = Qp::refuse(a.qp(), NtStatus::INVALID_PARAMETER, Guard(&mut queue, &is_back));
        assert_eq!(posted, Err(NtStatus::INVALID_PARAMETER));
        assert!(is_back.get());
        net.settle();
        assert_eq!(a.sent(), all([1], NtStatus::SUCCESS));
    });
}

#[test]
fn the_room_of_a_queue_pair_in_its_engine_is_that_of_the_next_one() {
    on_nics(|net| {
        let lives = |times| {
            for _ in 0..times {
                net.qp(PARAMETERS).close();
                net.settle();
            }
        };
        // The first time teaches the machine which locks there are.
        lives(16);
        assert_eq!(testing::allocation::growth(|| lives(256)), 0);
    });
}

#[test]
fn entries_of_a_queue_pair_take_what_each_request_may_carry() {
    let depth = PARAMETERS.initiator_depth as usize;
    let bytes = |change: fn(&mut QpParameters)| {
        let mut parameters = PARAMETERS;
        change(&mut parameters);
        parameters.entry_bytes() - PARAMETERS.entry_bytes()
    };
    assert_eq!(bytes(|parameters| parameters.max_initiator_sge += 1), depth * size_of::<Sge>());
    assert_eq!(bytes(|parameters| parameters.max_receive_sge += 1), depth * size_of::<Sge>());
    assert_eq!(bytes(|parameters| parameters.inline_size += 16), depth * 16);
}
