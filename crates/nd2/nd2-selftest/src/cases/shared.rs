//! Shared receive queues.

use nd2::abi::HRESULT;

use crate::{
    Case, Client, Failure, World,
    case::{is, ok},
    cases::results::take,
    client::Overlapped,
    stream::made,
};

pub const CASES: &[Case] = &[
    Case::new("srq.pools_receives", "IND2SharedReceiveQueue, summary; CreateQueuePairWithSrq", pools),
    Case::new("srq.notifies_below_the_threshold", "IND2SharedReceiveQueue::Notify, summary", threshold),
    Case::new("srq.all_requests_end_together", "IND2SharedReceiveQueue::Notify, remarks 2", several),
    Case::new("srq.modify", "IND2SharedReceiveQueue::Modify", modify),
    Case::new("srq.limits", "IND2Adapter::CreateSharedReceiveQueue, return values", limits),
    Case::new("srq.affinity", "IND2SharedReceiveQueue::GetNotifyAffinity", affinity),
    Case::new("srq.canceled_and_removed", "IND2SharedReceiveQueue::Notify, return values", ends),
];

fn pools(world: &World) -> Result<String, Failure> {
    let srq = made("the shared queue", world.adapter.srq(world.file, 16, 4, 0))?;
    let queue = made("the queue", world.adapter.queue(world.file, 64, 0))?;
    let receivers = [
        made("a receiver", world.adapter.qp_with_srq(&queue, srq.as_ptr(), 1))?,
        made("another", world.adapter.qp_with_srq(&queue, srq.as_ptr(), 2))?,
    ];
    let sends = made("the queue of sends", world.adapter.queue(world.file, 64, 0))?;
    let memory = world.memory(4096, 0)?;
    let mut links = Vec::new();
    for receiver in &receivers {
        let sizes = crate::world::SIZES;
        let sender = made("a sender", world.adapter.qp(sends.as_ptr(), sends.as_ptr(), 0, sizes))?;
        links.push((world.connect(&sender, receiver)?, sender));
    }
    is("Receive on the queue pair", receivers[0].receive(1, &[]), HRESULT::ND_INVALID_DEVICE_REQUEST)?;
    // The first message waits for a receive, and does not break the connection.
    ok("Send", links[0].1.send(1, &[memory.sge(0, 8)], 0))?;
    world.settle();
    for number in [10, 20] {
        ok("Receive", srq.receive(number, &[memory.sge(64, 64)]))?;
    }
    ok("Send", links[1].1.send(2, &[memory.sge(0, 8)], 0))?;
    let results = take(world, &queue, 2)?;
    // Which of them takes which is not said.
    let sorted = |value: fn(&nd2::abi::ND2_RESULT) -> usize| {
        let mut values: Vec<_> = results.iter().map(value).collect();
        values.sort_unstable();
        values
    };
    is("queue pairs", sorted(|result| result.QueuePairContext.addr()), vec![1, 2])?;
    is("receives", sorted(|result| result.RequestContext.addr()), vec![10, 20])?;
    Ok("two queue pairs took their receives from one queue".into())
}

fn threshold(world: &World) -> Result<String, Failure> {
    let srq = made("the shared queue", world.adapter.srq(world.file, 16, 4, 2))?;
    let queue = made("the queue", world.adapter.queue(world.file, 64, 0))?;
    let receiver = made("the receiver", world.adapter.qp_with_srq(&queue, srq.as_ptr(), 1))?;
    let sender = made("the sender", world.adapter.qp(queue.as_ptr(), queue.as_ptr(), 0, crate::world::SIZES))?;
    let link = world.connect(&sender, &receiver)?;
    for number in 0..3 {
        ok("Receive", srq.receive(number, &[]))?;
    }
    let request = world.request();
    is("Notify", srq.notify(&request), HRESULT::ND_PENDING)?;
    world.pends("with 3 receives", &srq, &request)?;
    ok("Send", sender.send(0, &[], 0))?;
    take(world, &queue, 2)?;
    world.pends("with 2 receives", &srq, &request)?;
    ok("Send", sender.send(0, &[], 0))?;
    world.ends("with 1 receive", &srq, &request, HRESULT::ND_SUCCESS)?;
    take(world, &queue, 2)?;
    drop(link);
    Ok("when fewer than 2 receives are left".into())
}

fn several(world: &World) -> Result<String, Failure> {
    let port = world.port()?;
    let srq = made("the shared queue", world.adapter.srq(world.file, 16, 4, 0))?;
    let requests = [(); 3].map(|()| world.request());
    for request in &requests {
        is("Notify", srq.notify(request), HRESULT::ND_PENDING)?;
    }
    world.pends("without a threshold", &srq, &requests[0])?;
    // The queue is empty: below any threshold.
    ok("Modify", srq.modify(0, 5))?;
    for request in &requests {
        world.ends("a request", &srq, request, HRESULT::ND_SUCCESS)?;
    }
    let mut order = Vec::new();
    world.until("three packets", || {
        order.extend(std::iter::from_fn(|| port.get()).map(|packet| packet.overlapped));
        order.len() >= 3
    })?;
    is("the order", order, requests.iter().map(Client::as_ptr).collect())?;
    Ok("3 requests, 1 event, in the order of their issue".into())
}

fn modify(world: &World) -> Result<String, Failure> {
    let srq = made("the shared queue", world.adapter.srq(world.file, 4, 4, 0))?;
    for number in 0..4 {
        ok("Receive", srq.receive(number, &[]))?;
    }
    is("full", srq.receive(4, &[]), HRESULT::ND_NO_MORE_ENTRIES)?;
    is("below the receives", srq.modify(3, 0), HRESULT::ND_BUFFER_OVERFLOW)?;
    is("above the limit", srq.modify(u32::MAX, 0), HRESULT::ND_INVALID_PARAMETER)?;
    ok("nothing", srq.modify(0, 0))?;
    ok("larger", srq.modify(8, 0))?;
    ok("Receive", srq.receive(4, &[]))?;
    Ok("larger, and not below what is outstanding".into())
}

fn limits(world: &World) -> Result<String, Failure> {
    let info = world.config().info;
    let depth = info.MaxSharedReceiveQueueDepth + 1;
    let made_with = |depth, sge| world.adapter.srq(world.file, depth, sge, 0).err();
    is("depth", made_with(depth, 1), Some(HRESULT::ND_INVALID_PARAMETER_3))?;
    is("no depth", made_with(0, 1), Some(HRESULT::ND_INVALID_PARAMETER_3))?;
    is("pieces", made_with(4, info.MaxReceiveSge + 1), Some(HRESULT::ND_INVALID_PARAMETER_4))?;
    let queue = made("the queue", world.adapter.queue(world.file, 8, 0))?;
    let qp = world.adapter.qp_with_srq(&queue, queue.as_ptr(), 0).err();
    is("no shared queue", qp, Some(HRESULT::ND_INVALID_PARAMETER_4))?;
    let srq = made("the shared queue", world.adapter.srq(world.file, 4, 1, 0))?;
    let memory = world.memory(64, 0)?;
    is("pieces of a receive", srq.receive(1, &[memory.sge(0, 8); 2]), HRESULT::ND_DATA_OVERRUN)?;
    Ok("the parameter that is wrong, by its number".into())
}

fn affinity(world: &World) -> Result<String, Failure> {
    let srq = made("the shared queue", world.adapter.srq(world.file, 4, 1, 0))?;
    let (group, mask) = made("GetNotifyAffinity", srq.affinity())?;
    is("group and processors", (group, mask.count_ones()), (0, 1))?;
    Ok(format!("{mask:#b}"))
}

fn ends(world: &World) -> Result<String, Failure> {
    let srq = made("the shared queue", world.adapter.srq(world.file, 4, 1, 0))?;
    let request = world.request();
    is("Notify", srq.notify(&request), HRESULT::ND_PENDING)?;
    ok("cancel", srq.cancel())?;
    is("the request", srq.outcome(&request, false), HRESULT::ND_CANCELED)?;
    is("Notify", srq.notify(&request), HRESULT::ND_PENDING)?;
    world.remove(0);
    is("the request", srq.outcome(&request, false), HRESULT::ND_DEVICE_REMOVED)?;
    world.refuses("Notify", &request, srq.notify(&request), HRESULT::ND_DEVICE_REMOVED)?;
    Ok("ND_CANCELED, ND_DEVICE_REMOVED".into())
}
