//! `IND2CompletionQueue::Notify`: what satisfies which type, and several requests at a time.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use nd2::{
    CompletionPolicy,
    abi::{
        HRESULT,
        notify::{ND_CQ_NOTIFY_ANY, ND_CQ_NOTIFY_ERRORS, ND_CQ_NOTIFY_SOLICITED},
    },
};

use crate::{
    Case, Client, Failure, World,
    case::{holds, is, ok},
    client::Overlapped,
    stream::{Stream, made},
    world::MAX_NOTIFY_REQUESTS,
};

pub const CASES: &[Case] = &[
    Case::new("notify.errors_wait_for_errors", "Notify, parameters 1.1", errors),
    Case::new("notify.any_is_satisfied_by_the_next_completion", "Notify, parameters 1.2", any),
    Case::new("notify.solicited_waits_for_a_solicited_send", "Notify, parameters 1.3", solicited),
    Case::new("notify.unknown_types_are_refused", "Notify, parameters 1", unknown_type),
    Case::new("notify.the_structure_is_used_until_the_end", "Notify, parameters 2", structure),
    Case::new("notify.success_is_final", "Notify, return value 1", success),
    Case::new("notify.pending", "Notify, return value 2", any),
    Case::new("notify.leads_to_results", "Notify, remarks 1", any),
    Case::new("notify.new_completions_since_the_last", "Notify, remarks 2.1", since_the_last),
    Case::new("notify.triggering_completions_do_not_trigger_again", "Notify, remarks 2.2", not_again),
    Case::new("notify.one_completion_ends_several_requests", "Notify, remarks 2.3", several),
    Case::new("notify.several_completions_one_notification", "Notify, remarks 3", drain),
    Case::new("notify.several_requests_may_be_outstanding", "Notify, remarks 4.1", several),
    Case::new("notify.all_end_at_the_next_event", "Notify, remarks 4.2, 4.3", all_at_once),
    Case::new("notify.threads_in_parallel", "Notify, remarks 4.4", parallel),
    Case::new("notify.nothing_by_default", "Notify, remarks 5.1", nothing_by_default),
    Case::new("notify.arms_for_the_type", "Notify, remarks 5.2", rearms),
    Case::new("notify.any_takes_precedence", "Notify, remarks 6.1", precedence),
    Case::new("notify.any_changes_the_type", "Notify, remarks 6.2", changes_type),
    Case::new("notify.solicited_after_any_leaves_any", "Notify, remarks 6.1", solicited_after_any),
    Case::new("notify.errors_beside_others", "Notify, remarks 4.2, with parameters 1.1", errors_beside_others),
    Case::new("notify.errors_always_satisfy", "IND2QueuePair::Send, flags 3", errors_always_satisfy),
    Case::new("notify.too_many_requests", "Notify, return value 6", too_many),
];

fn errors(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 2)?;
    let request = world.request();
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ERRORS, &request), HRESULT::ND_PENDING)?;
    stream.deliver()?;
    stream.deliver_solicited()?;
    world.pends("after successful completions", &stream.queue, &request)?;
    // One more than it holds.
    stream.deliver()?;
    world.ends("after the overrun", &stream.queue, &request, HRESULT::ND_BUFFER_OVERFLOW)?;
    Ok("not after 2 completions, but after an overrun".into())
}

fn any(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let request = world.request();
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    world.pends("before a completion", &stream.queue, &request)?;
    let number = stream.deliver()?;
    world.ends("after a completion", &stream.queue, &request, HRESULT::ND_SUCCESS)?;
    world.until("the event", || request.is_signalled())?;
    stream.takes(&[number])?;
    Ok("pending, then ND_SUCCESS with the completion there".into())
}

fn solicited(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let request = world.request();
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_SOLICITED, &request), HRESULT::ND_PENDING)?;
    stream.deliver()?;
    world.pends("after a plain send", &stream.queue, &request)?;
    stream.deliver_solicited()?;
    world.ends("after a send with the flag", &stream.queue, &request, HRESULT::ND_SUCCESS)?;
    Ok("not after a plain send, but after one with the flag".into())
}

fn unknown_type(world: &World) -> Result<String, Failure> {
    let queue = made("the queue", world.adapter.queue(world.file, 8, 0))?;
    let request = world.request();
    for kind in [3, 4, u32::MAX] {
        world.refuses("Notify", &request, queue.notify(kind, &request), HRESULT::ND_INVALID_PARAMETER)?;
    }
    is("the structure", request.status(), world.structure_after(HRESULT::ND_INVALID_PARAMETER))?;
    Ok("ND_INVALID_PARAMETER, the structure untouched".into())
}

fn structure(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let request = world.request();
    if let Some(event) = request.event() {
        event.set();
    }
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    is("the status in the structure", request.status(), HRESULT::ND_PENDING)?;
    is("the event", request.is_signalled(), false)?;
    stream.deliver()?;
    world.ends("the request", &stream.queue, &request, HRESULT::ND_SUCCESS)?;
    is("the status in the structure", request.status(), HRESULT::ND_SUCCESS)?;
    // The same structure again.
    is("Notify again", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    world.pends("the second request", &stream.queue, &request)?;
    ok("cancel", stream.queue.cancel())?;
    Ok("pending and its event reset, then the outcome; good for a second request".into())
}

fn success(world: &World) -> Result<String, Failure> {
    let port = world.port()?;
    let stream = Stream::new(world, 8)?;
    world.drain(&port);
    stream.deliver()?;
    let request = world.request();
    world.now("Notify", &stream.queue, &request, stream.queue.notify(ND_CQ_NOTIFY_ANY, &request))?;
    world.settle();
    is("GetOverlappedResult", stream.queue.outcome(&request, false), HRESULT::ND_SUCCESS)?;
    // What a method says is not reported again. What it said to be pending is, once.
    let packet = port.get().map(|packet| (packet.overlapped, packet.status));
    match packet {
        None => {
            holds("not pending by policy", world.policy() != CompletionPolicy::Pending)?;
            is("the event", request.is_signalled(), false)?;
        }
        Some(packet) => {
            holds("pending by policy", world.policy() != CompletionPolicy::Inline)?;
            is("the packet", packet, (request.as_ptr(), HRESULT::ND_SUCCESS))?;
            is("the event", request.is_signalled(), true)?;
        }
    }
    is("packets after that", port.get(), None)?;
    Ok("ND_SUCCESS at return and no event and no packet, or ND_PENDING and both".into())
}

fn since_the_last(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let request = world.request();
    stream.deliver()?;
    world.now(
        "a completion since the beginning",
        &stream.queue,
        &request,
        stream.queue.notify(ND_CQ_NOTIFY_ANY, &request),
    )?;
    is("none since", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    stream.deliver()?;
    world.ends("one since", &stream.queue, &request, HRESULT::ND_SUCCESS)?;
    is("none since", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    ok("cancel", stream.queue.cancel())?;
    Ok("complete exactly when there was a completion since the last notification".into())
}

fn not_again(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let request = world.request();
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    let number = stream.deliver()?;
    world.ends("the first", &stream.queue, &request, HRESULT::ND_SUCCESS)?;
    // The completion stays in the queue.
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    world.pends("the second", &stream.queue, &request)?;
    let next = stream.deliver()?;
    world.ends("after another completion", &stream.queue, &request, HRESULT::ND_SUCCESS)?;
    stream.takes(&[number, next])?;
    Ok("a completion that was left in the queue does not notify again".into())
}

/// Three requests of these types.
fn three(world: &World, stream: &Stream<'_>, kinds: [u32; 3]) -> Result<[Client; 3], Failure> {
    let requests = [(); 3].map(|()| world.request());
    for (kind, request) in kinds.into_iter().zip(&requests) {
        is("Notify", stream.queue.notify(kind, request), HRESULT::ND_PENDING)?;
    }
    Ok(requests)
}

fn several(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let requests = three(world, &stream, [ND_CQ_NOTIFY_ANY; 3])?;
    stream.deliver()?;
    for request in &requests {
        world.ends("a request", &stream.queue, request, HRESULT::ND_SUCCESS)?;
    }
    Ok("3 requests, 1 completion".into())
}

fn all_at_once(world: &World) -> Result<String, Failure> {
    let port = world.port()?;
    let stream = Stream::new(world, 8)?;
    world.drain(&port);
    let requests = three(world, &stream, [ND_CQ_NOTIFY_ANY; 3])?;
    stream.deliver()?;
    let mut order = Vec::new();
    world.until("three packets", || {
        order.extend(std::iter::from_fn(|| port.get()));
        order.len() >= 3
    })?;
    let order: Vec<_> = order.iter().map(|packet| packet.overlapped).collect();
    is("the order", order, requests.iter().map(Client::as_ptr).collect())?;
    Ok("all three, in the order of their issue".into())
}

fn parallel(world: &World) -> Result<String, Failure> {
    if !matches!(world.schedule(), crate::Schedule::Threads) {
        return Ok("only with threads".into());
    }
    // Room for all of them: the sender does not wait for the readers.
    let stream = Stream::new(world, 256)?;
    let (messages, readers) = (200, 3);
    let sent = AtomicBool::new(false);
    let (platform, queue) = (&world.platform, &stream.queue);
    let read = || {
        let request = Client::new(platform);
        let mut own = Vec::new();
        loop {
            let results = queue.results(4);
            own.extend(results.iter().map(|result| result.RequestContext.addr()));
            if results.is_empty() {
                let mut result = queue.notify(ND_CQ_NOTIFY_ANY, &request);
                if result.is_pending() {
                    result = queue.outcome(&request, true);
                }
                let is_over = match result {
                    HRESULT::ND_SUCCESS => false,
                    HRESULT::ND_CANCELED => sent.load(Ordering::Acquire),
                    _ => true,
                };
                if is_over {
                    return own;
                }
            }
        }
    };
    let numbers = thread::scope(|scope| {
        let threads: Vec<_> = (0..readers).map(|_| scope.spawn(read)).collect();
        let result = (0..messages).try_for_each(|_| stream.deliver().map(drop));
        sent.store(true, Ordering::Release);
        while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            let _ = stream.queue.cancel();
            thread::yield_now();
        }
        let all: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        result.map(|()| all)
    })?;
    let mut all = Vec::new();
    for reader in numbers {
        let own = reader.map_err(|_| Failure::new("a reader has panicked"))?;
        holds("each reader's results are in order", own.is_sorted())?;
        all.extend(own);
    }
    all.extend(stream.queue.results(256).iter().map(|result| result.RequestContext.addr()));
    all.sort_unstable();
    is("all results", all, (1..=messages).collect())?;
    Ok(format!("{readers} threads shared {messages} results"))
}

fn drain(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 16)?;
    let request = world.request();
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    let numbers = [stream.deliver()?, stream.deliver()?, stream.deliver()?];
    world.ends("the request", &stream.queue, &request, HRESULT::ND_SUCCESS)?;
    let first = stream.queue.results(2).len();
    let rest = stream.queue.results(2).len();
    is("full, then fewer than asked for", (first, rest), (2, 1))?;
    Ok(format!("{} results behind one notification; fewer than asked for means that there are no more", numbers.len()))
}

fn nothing_by_default(world: &World) -> Result<String, Failure> {
    let port = world.port()?;
    let stream = Stream::new(world, 8)?;
    world.drain(&port);
    stream.deliver()?;
    world.settle();
    holds("nothing comes to the port", port.get().is_none())?;
    Ok("no request, no notification".into())
}

fn rearms(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let request = world.request();
    for kind in [ND_CQ_NOTIFY_ANY, ND_CQ_NOTIFY_SOLICITED, ND_CQ_NOTIFY_ANY] {
        is("Notify", stream.queue.notify(kind, &request), HRESULT::ND_PENDING)?;
        if kind == ND_CQ_NOTIFY_SOLICITED {
            stream.deliver()?;
            world.pends("SOLICITED after a plain send", &stream.queue, &request)?;
        }
        let number = if kind == ND_CQ_NOTIFY_ANY { stream.deliver()? } else { stream.deliver_solicited()? };
        world.ends("the request", &stream.queue, &request, HRESULT::ND_SUCCESS)?;
        let last = stream.queue.results(8).last().map(|result| result.RequestContext.addr());
        is("the result", last, Some(number))?;
    }
    Ok("each request arms for its own type, once".into())
}

fn precedence(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let requests = three(world, &stream, [ND_CQ_NOTIFY_SOLICITED, ND_CQ_NOTIFY_ANY, ND_CQ_NOTIFY_SOLICITED])?;
    stream.deliver()?;
    for request in &requests {
        world.ends("after a plain send", &stream.queue, request, HRESULT::ND_SUCCESS)?;
    }
    // That was for the requests of the time.
    let request = world.request();
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_SOLICITED, &request), HRESULT::ND_PENDING)?;
    stream.deliver()?;
    world.pends("SOLICITED alone after a plain send", &stream.queue, &request)?;
    ok("cancel", stream.queue.cancel())?;
    Ok("a plain send ends SOLICITED requests too, while one for ANY is outstanding".into())
}

fn changes_type(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let [first, second] = [(); 2].map(|()| world.request());
    is("Notify SOLICITED", stream.queue.notify(ND_CQ_NOTIFY_SOLICITED, &first), HRESULT::ND_PENDING)?;
    stream.deliver()?;
    world.pends("SOLICITED after a plain send", &stream.queue, &first)?;
    // The completion that is there satisfies ANY at once, and the queue is one for ANY now.
    world.now("Notify ANY", &stream.queue, &second, stream.queue.notify(ND_CQ_NOTIFY_ANY, &second))?;
    world.ends("the SOLICITED request", &stream.queue, &first, HRESULT::ND_SUCCESS)?;
    Ok("the outstanding request for SOLICITED ends with the event for ANY".into())
}

fn solicited_after_any(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let [first, second] = [(); 2].map(|()| world.request());
    is("Notify ANY", stream.queue.notify(ND_CQ_NOTIFY_ANY, &first), HRESULT::ND_PENDING)?;
    is("Notify SOLICITED", stream.queue.notify(ND_CQ_NOTIFY_SOLICITED, &second), HRESULT::ND_PENDING)?;
    stream.deliver()?;
    world.ends("the ANY request", &stream.queue, &first, HRESULT::ND_SUCCESS)?;
    world.ends("the SOLICITED request", &stream.queue, &second, HRESULT::ND_SUCCESS)?;
    Ok("a later request for SOLICITED does not weaken the queue".into())
}

fn errors_beside_others(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    for (kind, deliver) in
        [(ND_CQ_NOTIFY_ANY, Stream::deliver as fn(&_) -> _), (ND_CQ_NOTIFY_SOLICITED, Stream::deliver_solicited)]
    {
        // Whichever of them comes first.
        for kinds in [[ND_CQ_NOTIFY_ERRORS, kind], [kind, ND_CQ_NOTIFY_ERRORS]] {
            let requests = [(); 2].map(|()| world.request());
            for (kind, request) in kinds.into_iter().zip(&requests) {
                is("Notify", stream.queue.notify(kind, request), HRESULT::ND_PENDING)?;
            }
            deliver(&stream)?;
            for request in &requests {
                world.ends("a request", &stream.queue, request, HRESULT::ND_SUCCESS)?;
            }
            stream.queue.results(8);
        }
    }
    let alone = world.request();
    is("Notify ERRORS", stream.queue.notify(ND_CQ_NOTIFY_ERRORS, &alone), HRESULT::ND_PENDING)?;
    stream.deliver()?;
    world.pends("the only request", &stream.queue, &alone)?;
    Ok("an event ends all requests, also those for ERRORS; alone these wait for errors".into())
}

fn errors_always_satisfy(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let requests = three(world, &stream, [ND_CQ_NOTIFY_ERRORS, ND_CQ_NOTIFY_SOLICITED, ND_CQ_NOTIFY_ANY])?;
    stream.deliver_failure()?;
    for request in &requests {
        world.ends("a request", &stream.queue, request, HRESULT::ND_SUCCESS)?;
    }
    // One that comes too late finds the failure as well.
    stream.queue.results(8);
    stream.deliver_failure()?;
    for kind in [ND_CQ_NOTIFY_ERRORS, ND_CQ_NOTIFY_SOLICITED] {
        let request = world.request();
        let result = stream.queue.notify(kind, &request);
        // The first takes the event.
        if kind == ND_CQ_NOTIFY_ERRORS {
            world.now("Notify", &stream.queue, &request, result)?;
        } else {
            is("Notify", result, HRESULT::ND_PENDING)?;
            world.pends("the second", &stream.queue, &request)?;
            ok("cancel", stream.queue.cancel())?;
        }
    }
    Ok("a failed request ends requests of all three types".into())
}

fn too_many(world: &World) -> Result<String, Failure> {
    let queue = made("the queue", world.adapter.queue(world.file, 8, 0))?;
    let requests: Vec<_> = (0..MAX_NOTIFY_REQUESTS).map(|_| world.request()).collect();
    for request in &requests {
        is("Notify", queue.notify(ND_CQ_NOTIFY_ANY, request), HRESULT::ND_PENDING)?;
    }
    let more = world.request();
    world.refuses("one more", &more, queue.notify(ND_CQ_NOTIFY_ANY, &more), HRESULT::ND_INSUFFICIENT_RESOURCES)?;
    is("its structure", more.status(), world.structure_after(HRESULT::ND_INSUFFICIENT_RESOURCES))?;
    ok("cancel", queue.cancel())?;
    for request in &requests {
        world.ends("the others", &queue, request, HRESULT::ND_CANCELED)?;
    }
    Ok(format!("ND_INSUFFICIENT_RESOURCES for the one after {MAX_NOTIFY_REQUESTS}"))
}
