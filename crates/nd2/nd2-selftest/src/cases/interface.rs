//! What the queue is for (`IND2CompletionQueue`, remarks).

use nd2::abi::{HRESULT, ND2_REQUEST_TYPE, notify::ND_CQ_NOTIFY_ANY};

use crate::{
    Case, Failure, World,
    case::{holds, is, ok},
    stream::{RECEIVER, SENDER, Stream, made},
    world::SIZES,
};

pub const CASES: &[Case] = &[
    Case::new("interface.one_queue_for_everything", "Interface, remarks 1.1", one_queue),
    Case::new("interface.two_queues_for_one_queue_pair", "Interface, remarks 1.2", two_queues),
    Case::new("interface.events_go_to_a_completion_port", "Interface, remarks 1.3, 1.4", completion_port),
    Case::new("interface.the_diagram", "Interface, remarks 2", diagram),
    Case::new("interface.contexts_come_back", "Interface, remarks 3.1", contexts),
    Case::new("interface.no_waiting_to_look", "Interface, remarks 3.2, 3.3", no_waiting),
];

fn one_queue(world: &World) -> Result<String, Failure> {
    let queue = made("the queue", world.adapter.queue(world.file, 64, 0))?;
    let all = queue.as_ptr();
    let a = made("a", world.adapter.qp(all, all, 1, SIZES))?;
    let b = made("b", world.adapter.qp(all, all, 2, SIZES))?;
    let _link = world.connect(&a, &b)?;
    let memory = world.memory(4096, 0)?;
    for (from, to) in [(&a, &b), (&b, &a)] {
        ok("Receive", to.receive(0, &[memory.sge(0, 8)]))?;
        ok("Send", from.send(0, &[memory.sge(8, 8)], 0))?;
    }
    let mut results = Vec::new();
    world.until("four results", || {
        results.extend(queue.results(8));
        results.len() >= 4
    })?;
    let mut found: Vec<_> =
        results.iter().map(|result| (result.QueuePairContext.addr(), result.RequestType.0)).collect();
    found.sort_unstable();
    is("queue pair and type", found, vec![(1, 0), (1, 1), (2, 0), (2, 1)])?;
    Ok("receives and sends of two queue pairs in one queue".into())
}

fn two_queues(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    ok("Receive", stream.receiver.receive(1, &[stream.memory.sge(4096, 64)]))?;
    ok("Send", stream.sender.send(2, &[stream.memory.sge(0, 8)], 0))?;
    let mut sent = Vec::new();
    world.until("the send", || {
        sent.extend(stream.sends.results(8));
        !sent.is_empty()
    })?;
    let received = stream.queue.results(8);
    is("the send's type", sent[0].RequestType, ND2_REQUEST_TYPE::SEND)?;
    is("results in the receive queue", received.len(), 1)?;
    is("the receive's type", received[0].RequestType, ND2_REQUEST_TYPE::RECEIVE)?;
    Ok("receives in one queue, sends in another".into())
}

fn completion_port(world: &World) -> Result<String, Failure> {
    let port = world.port()?;
    let stream = Stream::new(world, 8)?;
    // What the connection had to say.
    world.drain(&port);
    let request = world.request();
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    stream.deliver()?;
    world.ends("the request", &stream.queue, &request, HRESULT::ND_SUCCESS)?;
    let mut packet = None;
    world.until("the packet", || {
        packet = port.get();
        packet.is_some()
    })?;
    let packet = packet.map(|packet| (packet.overlapped, packet.status));
    is("the packet", packet, Some((request.as_ptr(), HRESULT::ND_SUCCESS)))?;
    holds("one packet", port.get().is_none())?;
    Ok("a packet with the request's address and status".into())
}

fn diagram(world: &World) -> Result<String, Failure> {
    let adapter = &world.adapter;
    let cq1 = made("CQ1", adapter.queue(world.file, 64, 0))?;
    let cq2 = made("CQ2", adapter.queue(world.file, 64, 0))?;
    // Both queues of the first, and the initiator queue of the second, complete in CQ1; its receives in CQ2.
    let qp1 = made("QP1", adapter.qp(cq1.as_ptr(), cq1.as_ptr(), 1, SIZES))?;
    let qp2 = made("QP2", adapter.qp(cq2.as_ptr(), cq1.as_ptr(), 2, SIZES))?;
    let _link = world.connect(&qp1, &qp2)?;
    let memory = world.memory(4096, 0)?;
    for (from, to) in [(&qp1, &qp2), (&qp2, &qp1)] {
        ok("Receive", to.receive(0, &[memory.sge(0, 8)]))?;
        ok("Send", from.send(0, &[memory.sge(8, 8)], 0))?;
    }
    let (mut first, mut second) = (Vec::new(), Vec::new());
    world.until("all results", || {
        first.extend(cq1.results(8));
        second.extend(cq2.results(8));
        first.len() + second.len() >= 4
    })?;
    let mut first: Vec<_> = first.iter().map(|result| (result.QueuePairContext.addr(), result.RequestType.0)).collect();
    first.sort_unstable();
    is("CQ1", first, vec![(1, 0), (1, 1), (2, 1)])?;
    let second: Vec<_> = second.iter().map(|result| (result.QueuePairContext.addr(), result.RequestType.0)).collect();
    is("CQ2", second, vec![(2, 0)])?;
    Ok("CQ1 has three of the four results, CQ2 the receive of QP2".into())
}

fn contexts(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    ok("Receive", stream.receiver.receive(usize::MAX, &[stream.memory.sge(4096, 64)]))?;
    ok("Send", stream.sender.send(0xABCD_EF01_2345, &[stream.memory.sge(0, 8)], 0))?;
    let mut sent = Vec::new();
    world.until("the send", || {
        sent.extend(stream.sends.results(8));
        !sent.is_empty()
    })?;
    let received = stream.queue.results(8);
    let contexts = |result: &nd2::abi::ND2_RESULT| (result.QueuePairContext.addr(), result.RequestContext.addr());
    is("the send", contexts(&sent[0]), (SENDER, 0xABCD_EF01_2345))?;
    is("the receive", received.first().map(contexts), Some((RECEIVER, usize::MAX)))?;
    Ok("both contexts of both requests".into())
}

fn no_waiting(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    is("results of an empty queue", stream.queue.results(4).len(), 0)?;
    stream.deliver()?;
    // No request for notification was ever issued.
    is("results", stream.queue.results(4).len(), 1)?;
    Ok("results are there without any overlapped request".into())
}
