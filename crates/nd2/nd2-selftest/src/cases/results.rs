//! `ND2_RESULT` and `IND2CompletionQueue::GetResults`.

use nd2::abi::{
    HRESULT, ND2_REQUEST_TYPE, ND2_RESULT,
    mr_flags::{ND_MR_FLAG_ALLOW_REMOTE_READ, ND_MR_FLAG_ALLOW_REMOTE_WRITE},
    op_flags::{ND_OP_FLAG_ALLOW_READ, ND_OP_FLAG_INLINE, ND_OP_FLAG_SILENT_SUCCESS},
};

use crate::{
    Case, Failure, World,
    case::{holds, is, ok},
    client::{Queue, foreign},
    stream::{Stream, made},
};

pub const CASES: &[Case] = &[
    Case::new("result.bytes_of_receives", "ND2_RESULT, BytesTransferred", bytes),
    Case::new("result.queue_pair_context", "ND2_RESULT, QueuePairContext", types),
    Case::new("result.request_context", "ND2_RESULT, RequestContext", types),
    Case::new("result.request_types", "ND2_RESULT, RequestType", types),
    Case::new("result.success", "ND2_RESULT, table: ND_SUCCESS", types),
    Case::new("result.buffer_overflow", "ND2_RESULT, table: ND_BUFFER_OVERFLOW", buffer_overflow),
    Case::new("result.access_violation", "ND2_RESULT, table: ND_ACCESS_VIOLATION", access_violation),
    Case::new("result.canceled", "ND2_RESULT, table: ND_CANCELED", canceled),
    Case::new("result.invalid_device_request", "ND2_RESULT, table: ND_INVALID_DEVICE_REQUEST", invalid_request),
    Case::new("result.io_timeout", "ND2_RESULT, table: ND_IO_TIMEOUT", io_timeout),
    Case::new("result.remote_error", "ND2_RESULT, table: ND_REMOTE_ERROR", remote_error),
    Case::new("result.added_when_the_request_completes", "ND2_RESULT, remarks, after the list", when),
    Case::new("results.fewer_than_asked_for_at_the_end", "GetResults, return value; remarks 1.1, 1.2", count),
    Case::new("results.an_array_of_no_places", "GetResults, parameters 2", count),
    Case::new("results.contexts_tell_requests_apart", "GetResults, remarks 1.4", order),
    Case::new("results.initiator_requests_in_order", "GetResults, remarks 2.1", order),
    Case::new("results.receives_in_order", "GetResults, remarks 2.1", receives_in_order),
    Case::new("results.of_a_released_queue_pair", "IND2QueuePair, remarks", released),
];

/// What is in a queue, taken so many at a time.
fn drain(queue: &Queue, batch: u32) -> impl Iterator<Item = ND2_RESULT> {
    std::iter::from_fn(move || Some(queue.results(batch)).filter(|some| !some.is_empty())).flatten()
}

/// What comes out of a queue until there are so many.
pub fn take(world: &World, queue: &Queue, count: usize) -> Result<Vec<ND2_RESULT>, Failure> {
    let mut results = Vec::new();
    world.until("results", || {
        results.extend(drain(queue, 16));
        results.len() >= count
    })?;
    is("the number of results", results.len(), count)?;
    Ok(results)
}

fn statuses(results: &[ND2_RESULT]) -> Vec<(ND2_REQUEST_TYPE, HRESULT)> {
    results.iter().map(|result| (result.RequestType, result.Status)).collect()
}

fn bytes(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    for length in [0, 1, 64] {
        ok("Receive", stream.receiver.receive(1, &[stream.memory.sge(4096, 64)]))?;
        let list = [stream.memory.sge(0, length)];
        ok("Send", stream.sender.send(0, if length == 0 { &[] } else { &list }, 0))?;
        let results = take(world, &stream.queue, 1)?;
        is("bytes", (results[0].BytesTransferred, results[0].Status), (length, HRESULT::ND_SUCCESS))?;
    }
    Ok("0, 1 and 64".into())
}

fn types(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let far = world.memory(4096, ND_MR_FLAG_ALLOW_REMOTE_READ | ND_MR_FLAG_ALLOW_REMOTE_WRITE)?;
    let window = made("the window", world.adapter.window())?;
    let list = [stream.memory.sge(0, 8)];
    let (at, token) = (far.address(0), far.region.remote_token());
    ok("Receive", stream.receiver.receive(10, &[stream.memory.sge(4096, 64)]))?;
    ok("Send", stream.sender.send(1, &list, 0))?;
    ok("Bind", stream.sender.bind(2, &far.region, &window, (at, 64), ND_OP_FLAG_ALLOW_READ))?;
    ok("Invalidate", stream.sender.invalidate(3, &window, 0))?;
    ok("Read", stream.sender.read(4, &list, at, token, 0))?;
    ok("Write", stream.sender.write(5, &list, at, token, 0))?;
    let results = take(world, &stream.sends, 5)?;
    let success = |kind| (kind, HRESULT::ND_SUCCESS);
    let wanted = [
        ND2_REQUEST_TYPE::SEND,
        ND2_REQUEST_TYPE::BIND,
        ND2_REQUEST_TYPE::INVALIDATE,
        ND2_REQUEST_TYPE::READ,
        ND2_REQUEST_TYPE::WRITE,
    ];
    is("types and statuses", statuses(&results), wanted.map(success).to_vec())?;
    let contexts: Vec<_> =
        results.iter().map(|result| (result.QueuePairContext.addr(), result.RequestContext.addr())).collect();
    is("contexts", contexts, (1..=5).map(|request| (crate::stream::SENDER, request)).collect())?;
    let received = take(world, &stream.queue, 1)?;
    is("the receive", statuses(&received), vec![success(ND2_REQUEST_TYPE::RECEIVE)])?;
    is("its contexts", received[0].QueuePairContext.addr(), crate::stream::RECEIVER)?;
    Ok("all six types, each with its contexts".into())
}

fn buffer_overflow(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    ok("Receive", stream.receiver.receive(1, &[stream.memory.sge(4096, 4)]))?;
    ok("Send", stream.sender.send(1, &[stream.memory.sge(0, 8)], 0))?;
    let received = statuses(&take(world, &stream.queue, 1)?);
    is("the receive", received, vec![(ND2_REQUEST_TYPE::RECEIVE, HRESULT::ND_BUFFER_OVERFLOW)])?;
    let sent = statuses(&take(world, &stream.sends, 1)?);
    is("the send", sent, vec![(ND2_REQUEST_TYPE::SEND, HRESULT::ND_REMOTE_ERROR)])?;
    Ok("8 bytes for a receive of 4".into())
}

fn access_violation(world: &World) -> Result<String, Failure> {
    let wrong = foreign(0x1000, 8, 0x1234_5678);
    let stream = Stream::new(world, 8)?;
    ok("Send", stream.receiver.receive(0, &[stream.memory.sge(4096, 64)]))?;
    ok("Send", stream.sender.send(1, &[wrong], 0))?;
    let sent = statuses(&take(world, &stream.sends, 1)?);
    is("the send", sent, vec![(ND2_REQUEST_TYPE::SEND, HRESULT::ND_ACCESS_VIOLATION)])?;
    let stream = Stream::new(world, 8)?;
    ok("Receive", stream.receiver.receive(0, &[wrong]))?;
    ok("Send", stream.sender.send(1, &[stream.memory.sge(0, 8)], 0))?;
    let received = statuses(&take(world, &stream.queue, 1)?);
    is("the receive", received, vec![(ND2_REQUEST_TYPE::RECEIVE, HRESULT::ND_ACCESS_VIOLATION)])?;
    for read in [true, false] {
        let stream = Stream::new(world, 8)?;
        let far = world.memory(4096, ND_MR_FLAG_ALLOW_REMOTE_READ | ND_MR_FLAG_ALLOW_REMOTE_WRITE)?;
        let (at, token) = (far.address(0), far.region.remote_token());
        let (post, kind) = if read {
            (stream.sender.read(1, &[wrong], at, token, 0), ND2_REQUEST_TYPE::READ)
        } else {
            (stream.sender.write(1, &[wrong], at, token, 0), ND2_REQUEST_TYPE::WRITE)
        };
        ok("post", post)?;
        let found = statuses(&take(world, &stream.sends, 1)?);
        is("read or write", found, vec![(kind, HRESULT::ND_ACCESS_VIOLATION)])?;
    }
    Ok("a token that nobody has, in a send, a receive, a read and a write".into())
}

fn canceled(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    ok("Receive", stream.receiver.receive(1, &[stream.memory.sge(4096, 64)]))?;
    ok("Flush", stream.receiver.flush())?;
    let found = statuses(&take(world, &stream.queue, 1)?);
    is("a flushed receive", found, vec![(ND2_REQUEST_TYPE::RECEIVE, HRESULT::ND_CANCELED)])?;
    // The second send waits for a receive, and everything behind it for the second send.
    let window = made("the window", world.adapter.window())?;
    let far = world.memory(4096, ND_MR_FLAG_ALLOW_REMOTE_READ)?;
    let (at, list) = (far.address(0), [stream.memory.sge(0, 8)]);
    ok("Send", stream.sender.send(1, &list, 0))?;
    ok("Bind", stream.sender.bind(2, &far.region, &window, (at, 8), ND_OP_FLAG_ALLOW_READ))?;
    ok("Invalidate", stream.sender.invalidate(3, &window, 0))?;
    ok("Read", stream.sender.read(4, &list, at, far.region.remote_token(), 0))?;
    ok("Write", stream.sender.write(5, &list, at, far.region.remote_token(), 0))?;
    world.settle();
    ok("Flush", stream.sender.flush())?;
    let found = take(world, &stream.sends, 5)?;
    let canceled = found.iter().all(|result| result.Status == HRESULT::ND_CANCELED);
    holds("all five initiator requests are ND_CANCELED", canceled)?;
    Ok("all six types, flushed".into())
}

fn invalid_request(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let window = made("the window", world.adapter.window())?;
    ok("Invalidate", stream.sender.invalidate(1, &window, 0))?;
    let found = statuses(&take(world, &stream.sends, 1)?);
    is("a window that is not bound", found, vec![(ND2_REQUEST_TYPE::INVALIDATE, HRESULT::ND_INVALID_DEVICE_REQUEST)])?;
    let stream = Stream::new(world, 8)?;
    let far = world.memory(4096, ND_MR_FLAG_ALLOW_REMOTE_READ)?;
    for _ in 0..2 {
        ok("Bind", stream.sender.bind(1, &far.region, &window, (far.address(0), 8), ND_OP_FLAG_ALLOW_READ))?;
    }
    let found = statuses(&take(world, &stream.sends, 2)?);
    let bound = (ND2_REQUEST_TYPE::BIND, HRESULT::ND_SUCCESS);
    is("a window that is bound", found, vec![bound, (ND2_REQUEST_TYPE::BIND, HRESULT::ND_INVALID_DEVICE_REQUEST)])?;
    Ok("invalidating an unbound window, binding a bound one".into())
}

fn io_timeout(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    // Waits for a receive that never comes.
    ok("Send", stream.sender.send(1, &[stream.memory.sge(0, 8)], 0))?;
    ok("Send", stream.sender.send(2, &[stream.memory.sge(0, 8)], 0))?;
    world.settle();
    let Stream { receiver, sends, link, .. } = stream;
    drop(receiver);
    let found = statuses(&take(world, &sends, 2)?);
    let sent = |status| (ND2_REQUEST_TYPE::SEND, status);
    is("the sends", found, vec![sent(HRESULT::ND_IO_TIMEOUT), sent(HRESULT::ND_CANCELED)])?;
    drop(link);
    Ok("the queue pair at the other end is gone; what was behind it is ND_CANCELED".into())
}

fn remote_error(world: &World) -> Result<String, Failure> {
    let far = world.memory(4096, ND_MR_FLAG_ALLOW_REMOTE_READ | ND_MR_FLAG_ALLOW_REMOTE_WRITE)?;
    for read in [true, false] {
        let stream = Stream::new(world, 8)?;
        let list = [stream.memory.sge(0, 8)];
        // Four bytes are beyond the end of the region.
        let (at, token) = (far.address(4092), far.region.remote_token());
        let (post, kind) = if read {
            (stream.sender.read(1, &list, at, token, 0), ND2_REQUEST_TYPE::READ)
        } else {
            (stream.sender.write(1, &list, at, token, 0), ND2_REQUEST_TYPE::WRITE)
        };
        ok("post", post)?;
        let found = statuses(&take(world, &stream.sends, 1)?);
        is("beyond the region", found, vec![(kind, HRESULT::ND_REMOTE_ERROR)])?;
    }
    Ok("a read and a write beyond the peer's memory".into())
}

fn when(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let number = stream.receive()?;
    world.settle();
    is("before the send", stream.queue.results(8).len(), 0)?;
    stream.send(0)?;
    stream.takes(&[number])?;
    ok("silent send", stream.sender.send(1, &[], ND_OP_FLAG_SILENT_SUCCESS))?;
    ok("its receive", stream.receiver.receive(2, &[]))?;
    take(world, &stream.queue, 1)?;
    world.settle();
    is("results of a silent success", stream.sends.results(8).len(), 0)?;
    Ok("not before the message has arrived".into())
}

fn count(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    for _ in 0..5 {
        stream.deliver()?;
    }
    let counts: Vec<_> = [0, 2, 2, 2, 2].map(|most| stream.queue.results(most).len()).to_vec();
    is("results", counts, vec![0, 2, 2, 1, 0])?;
    Ok("5 results in calls for 0, 2, 2, 2, 2: 0, 2, 2, 1, 0".into())
}

fn order(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 64)?;
    let far = world.memory(4096, ND_MR_FLAG_ALLOW_REMOTE_READ | ND_MR_FLAG_ALLOW_REMOTE_WRITE)?;
    let window = made("the window", world.adapter.window())?;
    let (at, token, list) = (far.address(0), far.region.remote_token(), [stream.memory.sge(0, 8)]);
    // A window has room for so many binds that are posted.
    let rounds = 4;
    for round in 0..rounds {
        stream.receive()?;
        let first = round * 5;
        ok("Send", stream.sender.send(first, &list, if round % 2 == 0 { ND_OP_FLAG_INLINE } else { 0 }))?;
        ok("Bind", stream.sender.bind(first + 1, &far.region, &window, (at, 8), ND_OP_FLAG_ALLOW_READ))?;
        ok("Read", stream.sender.read(first + 2, &list, at, token, 0))?;
        ok("Invalidate", stream.sender.invalidate(first + 3, &window, 0))?;
        ok("Write", stream.sender.write(first + 4, &list, at, token, 0))?;
    }
    let results = take(world, &stream.sends, rounds * 5)?;
    let contexts: Vec<_> = results.iter().map(|result| result.RequestContext.addr()).collect();
    is("contexts", contexts, (0..rounds * 5).collect())?;
    Ok(format!("{} requests of five types, in the order of their issue", rounds * 5))
}

fn receives_in_order(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 64)?;
    let mut numbers = Vec::new();
    for _ in 0..20 {
        numbers.push(stream.receive()?);
    }
    for _ in 0..20 {
        stream.send(0)?;
    }
    let mut found = Vec::new();
    world.until("all", || {
        found.extend(drain(&stream.queue, 7).map(|result| result.RequestContext.addr()));
        found.len() >= 20
    })?;
    is("receives", found, numbers)?;
    Ok("20 receives, in the order of their issue".into())
}

fn released(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let first = stream.deliver()?;
    let second = stream.receive()?;
    let Stream { receiver, queue, sender, link, memory, .. } = stream;
    drop(receiver);
    world.settle();
    let results = queue.results(8);
    let found: Vec<_> = results.iter().map(|result| (result.RequestContext.addr(), result.Status)).collect();
    is("results", found, vec![(first, HRESULT::ND_SUCCESS), (second, HRESULT::ND_CANCELED)])?;
    drop((sender, link, memory));
    Ok("what was there, and ND_CANCELED for what was outstanding".into())
}
