//! `IND2Overlapped`, as completion queues have it.

use std::{sync::Barrier, thread};

use nd2::abi::{HRESULT, notify::ND_CQ_NOTIFY_ANY};

use crate::{
    Case, Client, Failure, Schedule, World,
    case::{is, ok},
    client::Overlapped,
    stream::{Stream, made},
    world::MAX_NOTIFY_REQUESTS,
};

pub const CASES: &[Case] = &[
    Case::new("overlapped.cancel_ends_all_requests", "CancelOverlappedRequests, return value 1", cancel),
    Case::new("overlapped.cancel_in_the_order_of_cancellation", "CancelOverlappedRequests, summary", cancel_order),
    Case::new("overlapped.cancel_keeps_the_order_of_issue", "CancelOverlappedRequests, summary", cancel_one_queue),
    Case::new("overlapped.cancel_loses_no_completion", "CancelOverlappedRequests, summary", cancel_loses_nothing),
    Case::new("overlapped.cancel_races_with_completions", "CancelOverlappedRequests, summary", cancel_race),
    Case::new("overlapped.cancel_by_several_threads", "CancelOverlappedRequests, summary", cancel_together),
    Case::new("overlapped.cancel_without_requests", "CancelOverlappedRequests, return value 1", cancel_nothing),
    Case::new("overlapped.result_without_waiting", "GetOverlappedResult, parameters 2", no_wait),
    Case::new("overlapped.result_with_waiting", "GetOverlappedResult, parameters 2", wait),
    Case::new("overlapped.waiting_needs_an_event", "GetOverlappedResult, parameters 2", no_event),
    Case::new("overlapped.result_stays_what_it_is", "GetOverlappedResult, remarks 4", stays),
    Case::new("overlapped.concurrent_waits", "GetOverlappedResult, remarks 3", concurrent),
    Case::new("overlapped.only_pending_is_reported", "Asynchronous operations 3", only_pending),
];

fn cancel(world: &World) -> Result<String, Failure> {
    let queue = made("the queue", world.adapter.queue(world.file, 8, 0))?;
    let requests = [(); 3].map(|()| world.request());
    for request in &requests {
        is("Notify", queue.notify(ND_CQ_NOTIFY_ANY, request), HRESULT::ND_PENDING)?;
    }
    ok("CancelOverlappedRequests", queue.cancel())?;
    for request in &requests {
        is("GetOverlappedResult", queue.outcome(request, false), HRESULT::ND_CANCELED)?;
        is("the event", request.is_signalled(), true)?;
    }
    // The queue lives on.
    is("Notify again", queue.notify(ND_CQ_NOTIFY_ANY, &requests[0]), HRESULT::ND_PENDING)?;
    ok("cancel", queue.cancel())?;
    Ok("3 requests end with ND_CANCELED before the call returns".into())
}

fn cancel_order(world: &World) -> Result<String, Failure> {
    let port = world.port()?;
    let queues = [made("1", world.adapter.queue(world.file, 8, 0))?, made("2", world.adapter.queue(world.file, 8, 0))?];
    for round in 0..20 {
        let requests = [world.request(), world.request()];
        for (queue, request) in queues.iter().zip(&requests) {
            is("Notify", queue.notify(ND_CQ_NOTIFY_ANY, request), HRESULT::ND_PENDING)?;
        }
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for index in order {
            ok("cancel", queues[index].cancel())?;
        }
        for index in order {
            let packet = port.get().map(|packet| (packet.overlapped, packet.status));
            is("the packet", packet, Some((requests[index].as_ptr(), HRESULT::ND_CANCELED)))?;
        }
    }
    Ok("two queues, cancelled in both orders, 20 times".into())
}

fn cancel_one_queue(world: &World) -> Result<String, Failure> {
    let port = world.port()?;
    let queue = made("the queue", world.adapter.queue(world.file, 8, 0))?;
    let requests = [(); 4].map(|()| world.request());
    for request in &requests {
        is("Notify", queue.notify(ND_CQ_NOTIFY_ANY, request), HRESULT::ND_PENDING)?;
    }
    ok("cancel", queue.cancel())?;
    for request in &requests {
        is("the packet", port.get().map(|packet| packet.overlapped), Some(request.as_ptr()))?;
    }
    Ok("4 requests of one queue, in the order of their issue".into())
}

fn cancel_loses_nothing(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let request = world.request();
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    ok("cancel", stream.queue.cancel())?;
    // The engine's queue is armed, and nobody waits.
    let number = stream.deliver()?;
    world.settle();
    world.now("Notify", &stream.queue, &request, stream.queue.notify(ND_CQ_NOTIFY_ANY, &request))?;
    stream.takes(&[number])?;
    Ok("a completion while nobody waits ends the next request at once".into())
}

fn cancel_race(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 64)?;
    let (rounds, mut cancelled) = (40, 0);
    for _ in 0..rounds {
        let request = world.request();
        is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
        let number = stream.receive()?;
        // Nobody waits until the message has arrived.
        ok("Send", stream.sender.send(0, &[stream.memory.sge(0, 8)], 0))?;
        ok("cancel", stream.queue.cancel())?;
        // Another thread may still be reporting it.
        let outcome = stream.queue.outcome(&request, true);
        world.until("the send", || !stream.sends.results(1).is_empty())?;
        match outcome {
            HRESULT::ND_SUCCESS => {}
            HRESULT::ND_CANCELED => {
                cancelled += 1;
                // Nobody was notified of the completion.
                world.now(
                    "Notify after the cancellation",
                    &stream.queue,
                    &request,
                    stream.queue.notify(ND_CQ_NOTIFY_ANY, &request),
                )?;
            }
            other => return Err(Failure::new(format!("the request: {other}"))),
        }
        stream.takes(&[number])?;
    }
    Ok(format!("{cancelled} of {rounds} requests were cancelled, the others completed, and no completion was lost"))
}

fn cancel_together(world: &World) -> Result<String, Failure> {
    if world.schedule() != Schedule::Threads {
        return Ok("only with threads".into());
    }
    let port = world.port()?;
    let queue = made("the queue", world.adapter.queue(world.file, 8, 0))?;
    let (rounds, threads) = (100, 3);
    for _ in 0..rounds {
        let requests = [(); MAX_NOTIFY_REQUESTS as usize].map(|()| world.request());
        for request in &requests {
            is("Notify", queue.notify(ND_CQ_NOTIFY_ANY, request), HRESULT::ND_PENDING)?;
        }
        let start = Barrier::new(threads);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    start.wait();
                    queue.cancel()
                });
            }
        });
        for request in &requests {
            is("the packet", port.get().map(|packet| packet.overlapped), Some(request.as_ptr()))?;
        }
    }
    Ok(format!("{threads} threads, {rounds} times: all requests of the queue, in the order of their issue"))
}

fn cancel_nothing(world: &World) -> Result<String, Failure> {
    let queue = made("the queue", world.adapter.queue(world.file, 8, 0))?;
    ok("CancelOverlappedRequests", queue.cancel())?;
    Ok("ND_SUCCESS".into())
}

fn no_wait(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let request = world.request();
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    is("GetOverlappedResult", stream.queue.outcome(&request, false), HRESULT::ND_PENDING)?;
    stream.deliver()?;
    world.ends("the request", &stream.queue, &request, HRESULT::ND_SUCCESS)?;
    Ok("ND_PENDING while it is outstanding".into())
}

fn wait(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let request = world.request();
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    stream.receive()?;
    ok("Send", stream.sender.send(0, &[stream.memory.sge(0, 8)], 0))?;
    is("GetOverlappedResult", stream.queue.outcome(&request, true), HRESULT::ND_SUCCESS)?;
    Ok("returns when the message has arrived".into())
}

fn no_event(world: &World) -> Result<String, Failure> {
    let queue = made("the queue", world.adapter.queue(world.file, 8, 0))?;
    let request = Client::without_event();
    is("Notify", queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    is("waiting", queue.outcome(&request, true), HRESULT::ND_INVALID_PARAMETER)?;
    is("not waiting", queue.outcome(&request, false), HRESULT::ND_PENDING)?;
    ok("cancel", queue.cancel())?;
    is("afterwards", queue.outcome(&request, true), HRESULT::ND_CANCELED)?;
    Ok("ND_INVALID_PARAMETER instead of a wait without end".into())
}

fn stays(world: &World) -> Result<String, Failure> {
    let queue = made("the queue", world.adapter.queue(world.file, 8, 0))?;
    let request = world.request();
    is("Notify", queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    ok("cancel", queue.cancel())?;
    for wait in [false, true, false] {
        is("GetOverlappedResult", queue.outcome(&request, wait), HRESULT::ND_CANCELED)?;
    }
    Ok("an error stays an error".into())
}

fn concurrent(world: &World) -> Result<String, Failure> {
    if world.schedule() != Schedule::Threads {
        return Ok("only with threads".into());
    }
    let stream = Stream::new(world, 8)?;
    let requests = [(); 4].map(|()| world.request());
    for request in &requests {
        is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, request), HRESULT::ND_PENDING)?;
    }
    let results = thread::scope(|scope| {
        let queue = &stream.queue;
        let waiters = requests.each_ref().map(|request| scope.spawn(move || queue.outcome(request, true)));
        stream.deliver()?;
        Ok::<_, Failure>(waiters.map(|waiter| waiter.join().unwrap_or(HRESULT::ND_UNSUCCESSFUL)))
    })?;
    is("the results", results, [HRESULT::ND_SUCCESS; 4])?;
    Ok("4 threads wait for 4 requests of one queue".into())
}

fn only_pending(world: &World) -> Result<String, Failure> {
    let port = world.port()?;
    let stream = Stream::new(world, 8)?;
    world.drain(&port);
    let request = world.request();
    stream.deliver()?;
    let result = stream.queue.notify(ND_CQ_NOTIFY_ANY, &request);
    world.now("Notify", &stream.queue, &request, result)?;
    world.settle();
    let packets = std::iter::from_fn(|| port.get()).count();
    is("packets", packets, usize::from(result.is_pending()))?;
    is("the event", request.is_signalled(), result.is_pending())?;
    let refused = world.request();
    let result = stream.queue.notify(7, &refused);
    world.refuses("Notify", &refused, result, HRESULT::ND_INVALID_PARAMETER)?;
    world.settle();
    let packets = std::iter::from_fn(|| port.get()).count();
    is("packets", packets, usize::from(result.is_pending()))?;
    is("the event", refused.is_signalled(), result.is_pending())?;
    Ok("a packet and an event for what was ND_PENDING, none for ND_SUCCESS or an error".into())
}
