//! Queues that are dead, destroyed, or whose adapter is gone (`IND2CompletionQueue::Notify`, return values).

use nd2::abi::{
    HRESULT,
    notify::{ND_CQ_NOTIFY_ANY, ND_CQ_NOTIFY_ERRORS, ND_CQ_NOTIFY_SOLICITED},
};

use crate::{
    Case, Client, Failure, World,
    case::{holds, is, ok},
    client::Overlapped,
    stream::{Stream, made},
    world::SIZES,
};

pub const CASES: &[Case] = &[
    Case::new("notify.internal_error", "Notify, return value 3.1", internal_error),
    Case::new("notify.internal_error_ends_queue_pairs", "Notify, return value 3.2", internal_error_qps),
    Case::new("notify.internal_error_no_more_completions", "Notify, return value 3.3", internal_error_silent),
    Case::new("notify.buffer_overflow", "Notify, return value 4.1", overflow),
    Case::new("notify.buffer_overflow_ends_queue_pairs", "Notify, return value 4.2", overflow_qps),
    Case::new("notify.buffer_overflow_no_more_completions", "Notify, return value 4.3", overflow_silent),
    Case::new("notify.a_dead_queue_answers_every_type", "Notify, return values 3, 4", every_type),
    Case::new("notify.canceled_when_destroyed", "Notify, return value 5", destroyed),
    Case::new("notify.destroyed_while_completions_come", "Notify, return value 5", destroyed_in_traffic),
    Case::new("notify.device_removed", "Notify, return value 7.1", removed),
    Case::new("notify.device_removed_only_cleanup", "Notify, return value 7.2", only_cleanup),
];

/// Breaks the queue as broken hardware would.
fn break_it(stream: &Stream<'_>) -> Result<(), Failure> {
    stream.world().break_queue(stream.queue.as_ptr())
}

/// Three requests, one of each type.
fn waiting(world: &World, stream: &Stream<'_>) -> Result<[Client; 3], Failure> {
    let requests = [(); 3].map(|()| world.request());
    let kinds = [ND_CQ_NOTIFY_ERRORS, ND_CQ_NOTIFY_SOLICITED, ND_CQ_NOTIFY_ANY];
    for (kind, request) in kinds.into_iter().zip(&requests) {
        is("Notify", stream.queue.notify(kind, request), HRESULT::ND_PENDING)?;
    }
    Ok(requests)
}

fn internal_error(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let requests = waiting(world, &stream)?;
    break_it(&stream)?;
    for request in &requests {
        world.ends("an outstanding request", &stream.queue, request, HRESULT::ND_INTERNAL_ERROR)?;
    }
    let late = world.request();
    world.refuses("Notify later", &late, stream.queue.notify(ND_CQ_NOTIFY_ANY, &late), HRESULT::ND_INTERNAL_ERROR)?;
    Ok("ND_INTERNAL_ERROR for what was outstanding and for what comes later".into())
}

/// Lets the queue fail with a request outstanding. At the moment of its end both queue pairs of the stream, of which one completes
/// in the queue, cannot be used any more.
fn queue_pairs_are_dead(
    world: &World,
    stream: &Stream<'_>,
    with: HRESULT,
    fail: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let request = world.request();
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ERRORS, &request), HRESULT::ND_PENDING)?;
    fail()?;
    world.until("the request", || !request.status().is_pending())?;
    is("a send at once", stream.receiver.send(0, &[], 0), HRESULT::ND_CONNECTION_INVALID)?;
    is("a send of its peer", stream.sender.send(0, &[], 0), HRESULT::ND_CONNECTION_INVALID)?;
    world.ends("the request", &stream.queue, &request, with)?;
    // A queue pair that is made with it is dead from the beginning.
    let queue = stream.queue.as_ptr();
    let (a, b) = (world.adapter.qp(queue, queue, 0, SIZES), world.adapter.qp(queue, queue, 0, SIZES));
    let (a, b) = (made("a new queue pair", a)?, made("another", b)?);
    is("a new connection", world.connect(&a, &b).is_err(), true)
}

fn internal_error_qps(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    queue_pairs_are_dead(world, &stream, HRESULT::ND_INTERNAL_ERROR, || break_it(&stream))?;
    Ok("nothing can be posted, nothing connected".into())
}

fn internal_error_silent(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let number = stream.deliver()?;
    break_it(&stream)?;
    let _ = stream.receiver.receive(99, &[]);
    let _ = stream.receiver.flush();
    world.settle();
    // What was reported before is still there.
    stream.takes(&[number])?;
    Ok("what was queued before, and nothing after it".into())
}

/// Lets the queue of the stream overrun: it holds two.
fn overrun(stream: &Stream<'_>) -> Result<[usize; 2], Failure> {
    let numbers = [stream.deliver()?, stream.deliver()?];
    stream.deliver()?;
    Ok(numbers)
}

fn overflow(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 2)?;
    let errors = world.request();
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ERRORS, &errors), HRESULT::ND_PENDING)?;
    overrun(&stream)?;
    world.ends("the outstanding request", &stream.queue, &errors, HRESULT::ND_BUFFER_OVERFLOW)?;
    let late = world.request();
    world.refuses("Notify later", &late, stream.queue.notify(ND_CQ_NOTIFY_ANY, &late), HRESULT::ND_BUFFER_OVERFLOW)?;
    Ok("3 completions in a queue for 2: ND_BUFFER_OVERFLOW".into())
}

fn overflow_qps(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 2)?;
    queue_pairs_are_dead(world, &stream, HRESULT::ND_BUFFER_OVERFLOW, || overrun(&stream).map(drop))?;
    Ok("nothing can be posted, nothing connected".into())
}

fn overflow_silent(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 2)?;
    let numbers = overrun(&stream)?;
    world.settle();
    stream.takes(&numbers)?;
    Ok("the 2 that fit, and nothing after them".into())
}

fn every_type(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 2)?;
    let outstanding = world.request();
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ERRORS, &outstanding), HRESULT::ND_PENDING)?;
    overrun(&stream)?;
    world.ends("the outstanding request", &stream.queue, &outstanding, HRESULT::ND_BUFFER_OVERFLOW)?;
    for _ in 0..2 {
        for kind in [ND_CQ_NOTIFY_ERRORS, ND_CQ_NOTIFY_SOLICITED, ND_CQ_NOTIFY_ANY] {
            let request = world.request();
            world.refuses("Notify", &request, stream.queue.notify(kind, &request), HRESULT::ND_BUFFER_OVERFLOW)?;
        }
    }
    Ok("the same status for every type, as often as it is asked".into())
}

fn destroyed(world: &World) -> Result<String, Failure> {
    let port = world.port()?;
    let queue = made("the queue", world.adapter.queue(world.file, 8, 0))?;
    // Something to ask for results after the queue is gone.
    let other = made("another queue", world.adapter.queue(world.file, 8, 0))?;
    let requests = [(); 3].map(|()| world.request());
    for request in &requests {
        is("Notify", queue.notify(ND_CQ_NOTIFY_ANY, request), HRESULT::ND_PENDING)?;
    }
    drop(queue);
    for request in &requests {
        world.ends("a request", &other, request, HRESULT::ND_CANCELED)?;
        let packet = port.get().map(|packet| (packet.overlapped, packet.status));
        is("the packet", packet, Some((request.as_ptr(), HRESULT::ND_CANCELED)))?;
    }
    Ok("3 requests end with ND_CANCELED, in the order of their issue".into())
}

fn destroyed_in_traffic(world: &World) -> Result<String, Failure> {
    let (rounds, mut cancelled) = (6, 0);
    for _ in 0..rounds {
        let stream = Stream::new(world, 64)?;
        let requests = waiting(world, &stream)?;
        for _ in 0..3 {
            stream.receive()?;
            ok("Send", stream.sender.send(0, &[stream.memory.sge(0, 8)], 0))?;
        }
        let Stream { queue, sends, receiver, .. } = stream;
        drop(queue);
        // The queue pair goes on without it.
        for request in &requests {
            world.until("a request", || !request.status().is_pending())?;
            let result = sends.outcome(request, false);
            cancelled += usize::from(result == HRESULT::ND_CANCELED);
            let ended = [HRESULT::ND_SUCCESS, HRESULT::ND_CANCELED].contains(&result);
            is(&format!("a request has ended with {result}"), ended, true)?;
        }
        drop(receiver);
    }
    Ok(format!("{cancelled} of {} requests end with ND_CANCELED, the others were completed before", rounds * 3))
}

fn removed(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let requests = waiting(world, &stream)?;
    world.remove(0);
    for request in &requests {
        world.ends("an outstanding request", &stream.queue, request, HRESULT::ND_DEVICE_REMOVED)?;
    }
    let late = world.request();
    world.refuses("Notify later", &late, stream.queue.notify(ND_CQ_NOTIFY_ANY, &late), HRESULT::ND_DEVICE_REMOVED)?;
    Ok("ND_DEVICE_REMOVED for what was outstanding and for what comes later".into())
}

fn only_cleanup(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let number = stream.deliver()?;
    let posted = stream.receive()?;
    world.remove(0);
    let refused = HRESULT::ND_DEVICE_REMOVED;
    let request = world.request();
    is("CreateCompletionQueue", world.adapter.queue(world.file, 8, 0).err(), Some(refused))?;
    is("CreateMemoryWindow", world.adapter.window().err(), Some(refused))?;
    is("CreateOverlappedFile", world.adapter.file().err(), Some(refused))?;
    is("Send", stream.sender.send(0, &[], 0), refused)?;
    is("Resize", stream.queue.resize(16), refused)?;
    // Cleaning up.
    let mut taken = Vec::new();
    world.until("what was posted", || {
        taken.extend(stream.queue.results(8));
        taken.len() >= 2
    })?;
    let taken: Vec<_> = taken.iter().map(|result| (result.RequestContext.addr(), result.Status)).collect();
    is("GetResults", taken, vec![(number, HRESULT::ND_SUCCESS), (posted, HRESULT::ND_CANCELED)])?;
    ok("CancelOverlappedRequests", stream.queue.cancel())?;
    ok("Flush", stream.sender.flush())?;
    world.now("Deregister", &stream.memory.region, &request, stream.memory.region.deregister(&request))?;
    drop(stream);
    world.settle();
    holds("no references to the adapter but the provider's and the opened one's", world.references() <= 2)?;
    Ok("making and posting are refused; results, cancel, flush, deregister and release work".into())
}
