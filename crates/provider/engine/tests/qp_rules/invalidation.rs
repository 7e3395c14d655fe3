//! NDKPI 7.6: what a send that invalidates a token of the peer does, as far as queues are concerned.

use engine::{
    cq::{Operation, Received},
    memory::{Bind, Rights, Window},
    nic::NicMode,
    qp::{Flags, Work},
};
use fallible::Arc;
use host::{HostOs, machine::Machine};
use ndkpi::NtStatus;
use testing::qp_fixture::{Net, PARAMETERS, PLAIN, SEND, TestQp, TestSrq, all, on_nics};

/// A window on all bytes of `srq`, bound through `qp`, and its token.
fn window(net: &Net, srq: &TestSrq, qp: &TestQp) -> (Arc<Window<HostOs>>, u32) {
    let domain = srq.region().domain();
    let window = Window::try_new(domain).expect("memory");
    let buffer = srq.buffer();
    let bind = Bind { address: buffer.address(0), length: buffer.len() as u64, rights: Rights::REMOTE_WRITE };
    let posted = domain.prepare_bind(&window, srq.region(), &bind).expect("a bind");
    qp.post(99, Work::Bind(posted), PLAIN, &[]).expect("a bind");
    net.settle();
    assert_eq!(qp.sent(), all([99], NtStatus::SUCCESS));
    let token = window.remote_token();
    (window, token)
}

#[test]
fn the_receiver_hears_of_the_token_and_the_sender_of_a_send() {
    on_nics(|net| {
        let srq = net.srq(8, 0);
        let (a, b) = net.pair_on(&srq, 0);
        let (_window, token) = window(net, &srq, &b);
        srq.receive(1, 16);
        a.post(2, Work::Send { invalidate: Some(token) }, PLAIN, &[a.sge(0, 8)]).expect("a send");
        net.settle();
        let received = b.receive_cq().poll_entries(8);
        assert_eq!(received.len(), 1);
        assert_eq!(received[0].outcome.operation(), Operation::ReceiveAndInvalidate);
        assert_eq!(received[0].received, Received::new(8, token));
        let sent = a.send_cq().poll_entries(8);
        assert_eq!((sent[0].outcome.operation(), sent[0].outcome.status()), (Operation::Send, NtStatus::SUCCESS));
        let write = Work::Write { address: srq.buffer().address(0), token };
        a.post(3, write, PLAIN, &[a.sge(0, 8)]).expect("posted");
        net.settle();
        assert_eq!(a.sent(), all([3], NtStatus::REMOTE_RESOURCES), "the token is no good any more");
    });
}

#[test]
fn a_bind_and_an_invalidation_are_no_traffic() {
    on_nics(|net| {
        let srq = net.srq(8, 0);
        let (_a, b) = net.pair_on(&srq, 0);
        let before = net.nic().traffic();
        let (window, _) = window(net, &srq, &b);
        b.post(1, Work::Invalidate { token: window.invalidation_token() }, PLAIN, &[]).expect("an invalidation");
        net.settle();
        assert_eq!(b.sent(), all([1], NtStatus::SUCCESS));
        assert_eq!(net.nic().traffic(), before);
    });
}

#[test]
fn a_window_and_a_region_are_found_together_wherever_their_tokens_lie() {
    on_nics(|net| {
        let srq = net.srq(8, 0);
        let (a, b) = net.pair_on(&srq, 0);
        // More of each than a table of tokens has lanes: some lie in the same place of their tables.
        let windows: Vec<_> = (0..20).map(|_| window(net, &srq, &b)).collect();
        for number in 1..=20 {
            let source = a.more_bytes(8);
            source.buffer().write(0, &[number; 8]);
            for (_, token) in &windows {
                let write = Work::Write { address: srq.buffer().address(0), token: *token };
                a.post(0, write, PLAIN, &[source.sge(0, 8)]).expect("a write");
                net.settle();
                assert_eq!(a.sent(), all([0], NtStatus::SUCCESS));
                assert_eq!(srq.buffer().bytes(0, 8), [number; 8]);
                srq.buffer().write(0, &[0; 8]);
            }
        }
    });
}

#[test]
fn a_token_that_cannot_be_invalidated_ends_the_connection() {
    on_nics(|net| {
        let srq = net.srq(8, 0);
        let (a, b) = net.pair_on(&srq, 0);
        srq.receive(1, 16);
        a.post(2, Work::Send { invalidate: Some(0xDEAD_BEEF) }, PLAIN, &[a.sge(0, 8)]).expect("a send");
        net.settle();
        assert_eq!(a.sent(), all([2], NtStatus::REMOTE_RESOURCES));
        assert!(!b.qp().is_linked());
        assert_eq!(b.received(), all([1], NtStatus::CANCELLED), "the shared receive stays with who took it");
    });
}

#[test]
fn the_receive_completes_when_nobody_uses_the_memory_any_more_and_later_requests_follow() {
    // One processor: each step moves a megabyte.
    for inline in [true, false] {
        let machine = Machine::seeded(0).processors(1).start();
        let net = Net::new(&machine, NicMode::Deferred);
        let length = 4 << 20;
        let srq = net.try_srq(8, 0, length).expect("memory");
        let (a, b) = net.pair_on(&srq, 1);
        let (_window, token) = window(&net, &srq, &b);
        let writer = net.qp_on(PARAMETERS, &net.cq(8), &net.cq(8), length);
        let target = net.joined_on(&srq, 2, &writer);
        writer.buffer().fill(7);
        let all_of_it = u32::try_from(length).expect("small");
        let write = Work::Write { address: srq.buffer().address(0), token };
        writer.post(1, write, PLAIN, &[writer.sge(0, all_of_it)]).expect("a write");
        machine.step();
        assert_eq!(writer.sent(), [], "in the middle of it");
        for context in 0..2 {
            srq.post(context, &[srq.sge(context * 32, 32)]).expect("a receive");
        }
        let invalidate = Work::Send { invalidate: Some(token) };
        if inline {
            a.post_inline(2, invalidate, PLAIN, &[b"the first message"]).expect("a send");
            a.post_inline(3, SEND, PLAIN, &[b"the second one"]).expect("a send");
        } else {
            a.buffer().write(0, b"the first messagethe second one");
            a.post(2, invalidate, PLAIN, &[a.sge(0, 17)]).expect("a send");
            a.post(3, SEND, PLAIN, &[a.sge(17, 14)]).expect("a send");
        }
        while b.receive_cq().calls() == 0 && a.sent().is_empty() {
            assert!(machine.step());
        }
        assert_eq!(writer.sent(), all([1], NtStatus::SUCCESS), "what was in progress came to its end first");
        net.settle();
        assert_eq!(b.received(), all(0..2, NtStatus::SUCCESS));
        assert_eq!(srq.buffer().bytes(32, 14), b"the second one", "inline {inline}");
        drop((target, writer, a, b, srq, net));
        machine.run_until_idle();
        machine.shutdown();
    }
}

#[test]
fn a_bind_is_carried_out_when_nobody_uses_what_was_bound_before() {
    // One processor: each step moves a megabyte.
    let machine = Machine::seeded(0).processors(1).start();
    let net = Net::new(&machine, NicMode::Deferred);
    let length = 4 << 20;
    let srq = net.try_srq(8, 0, length).expect("memory");
    let (a, b) = net.pair_on(&srq, 1);
    let (window, token) = window(&net, &srq, &b);
    let writer = net.qp_on(PARAMETERS, &net.cq(8), &net.cq(8), length);
    let target = net.joined_on(&srq, 2, &writer);
    let all_of_it = u32::try_from(length).expect("small");
    let write = Work::Write { address: srq.buffer().address(0), token };
    writer.post(1, write, PLAIN, &[writer.sge(0, all_of_it)]).expect("a write");
    machine.step();
    assert_eq!(writer.sent(), [], "in the middle of it");
    // On two queue pairs: the bind does not wait for the invalidation to complete.
    target.post(2, Work::Invalidate { token: window.invalidation_token() }, PLAIN, &[]).expect("an invalidation");
    let bind = Bind { address: srq.buffer().address(0), length: 1, rights: Rights::REMOTE_READ };
    let posted = srq.region().domain().prepare_bind(&window, srq.region(), &bind).expect("a bind");
    b.post(3, Work::Bind(posted), PLAIN, &[]).expect("a bind");
    let bound = loop {
        let bound = b.sent();
        if !bound.is_empty() {
            break bound;
        }
        assert!(machine.step());
    };
    assert_eq!(bound, all([3], NtStatus::SUCCESS));
    assert_eq!(writer.sent(), all([1], NtStatus::SUCCESS), "what was in progress came to its end first");
    net.settle();
    assert_eq!(target.sent(), all([2], NtStatus::SUCCESS));
    drop((window, target, writer, a, b, srq, net));
    machine.run_until_idle();
    machine.shutdown();
}

#[test]
fn a_read_that_is_to_invalidate_its_sink_needs_one_that_can_be() {
    on_nics(|net| {
        let (a, b) = net.pair();
        a.post(1, b.read_from(0), Flags::LOCAL_INVALIDATE, &[a.sge(0, 8)]).expect("a read");
        net.settle();
        assert_eq!(a.sent(), all([1], NtStatus::INVALID_DEVICE_REQUEST), "a region that was registered by a call");
        assert!(!a.qp().is_linked());
    });
}
