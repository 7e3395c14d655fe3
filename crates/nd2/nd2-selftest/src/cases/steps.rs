//! The example of eleven steps, and the two cases that are the same to an application (`IND2CompletionQueue::Notify`).

use nd2::abi::{HRESULT, notify::ND_CQ_NOTIFY_ANY};

use crate::{
    Case, Failure, World,
    case::{is, ok},
    client::Overlapped,
    stream::Stream,
};

pub const CASES: &[Case] = &[
    Case::new("notify.eleven_steps", "Notify, remarks 2, steps 1 to 11", eleven_steps),
    Case::new("notify.peek_after_rearming", "Notify, implementation note 1.1", case_1),
    Case::new("notify.race_between_drained_and_armed", "Notify, implementation note 2", race),
    Case::new("notify.case_1", "Notify, case 1, steps 1 to 3", case_1),
    Case::new("notify.case_2", "Notify, case 2, steps 1 to 4", case_2),
    Case::new("notify.case_1_in_two_steps", "Notify, note on case 1", case_1_split),
    Case::new("notify.when_it_is_called_does_not_matter", "Notify, after case 2", any_moment),
    Case::new("notify.what_was_taken_does_not_notify", "Notify, after case 2", taken),
];

fn eleven_steps(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let request = world.request();
    is("step 1: Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    world.pends("before step 2", &stream.queue, &request)?;
    let first = stream.deliver()?;
    world.ends("step 3: the request", &stream.queue, &request, HRESULT::ND_SUCCESS)?;
    let results = stream.queue.results(8);
    is("step 4: GetResults", results.len(), 1)?;
    is("step 4: the first completion", results[0].RequestContext.addr(), first)?;
    is("step 5: GetResults", stream.queue.results(8).len(), 0)?;
    is("step 6: Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    world.pends("before step 7", &stream.queue, &request)?;
    let second = stream.deliver()?;
    world.ends("step 8: the request", &stream.queue, &request, HRESULT::ND_SUCCESS)?;
    let results = stream.queue.results(8);
    is("step 9: GetResults", results.len(), 1)?;
    is("step 9: the second completion", results[0].RequestContext.addr(), second)?;
    is("step 10: GetResults", stream.queue.results(8).len(), 0)?;
    is("step 11: Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    world.pends("after step 11", &stream.queue, &request)?;
    ok("cancel", stream.queue.cancel())?;
    Ok("all eleven".into())
}

fn case_1(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let request = world.request();
    is("step 1: GetResults", stream.queue.results(8).len(), 0)?;
    let number = stream.deliver()?;
    world.now("step 3: Notify", &stream.queue, &request, stream.queue.notify(ND_CQ_NOTIFY_ANY, &request))?;
    stream.takes(&[number])?;
    Ok("Notify completes immediately".into())
}

fn case_2(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let request = world.request();
    is("step 1: GetResults", stream.queue.results(8).len(), 0)?;
    is("step 2: Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    let number = stream.deliver()?;
    world.ends("step 4: the request", &stream.queue, &request, HRESULT::ND_SUCCESS)?;
    stream.takes(&[number])?;
    Ok("Notify completes".into())
}

/// How a notification ends for an application that treats both ways alike.
fn notified(world: &World, stream: &Stream<'_>) -> Result<HRESULT, Failure> {
    let request = world.request();
    let result = stream.queue.notify(ND_CQ_NOTIFY_ANY, &request);
    if !result.is_pending() {
        return Ok(result);
    }
    world.until("the notification", || !stream.queue.outcome(&request, false).is_pending())?;
    Ok(stream.queue.outcome(&request, true))
}

fn case_1_split(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    stream.deliver()?;
    is("the notification", notified(world, &stream)?, HRESULT::ND_SUCCESS)?;
    Ok("ND_SUCCESS, whether it is returned or comes later".into())
}

fn race(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 64)?;
    let rounds = 50;
    for _ in 0..rounds {
        // The sender does not wait for anybody.
        let number = stream.receive()?;
        is("Send", stream.sender.send(0, &[stream.memory.sge(0, 8)], 0), HRESULT::ND_SUCCESS)?;
        let mut found = stream.queue.results(4);
        while found.is_empty() {
            is("the notification", notified(world, &stream)?, HRESULT::ND_SUCCESS)?;
            found = stream.queue.results(4);
        }
        is("the completion", found[0].RequestContext.addr(), number)?;
        stream.sends.results(8);
    }
    Ok(format!("{rounds} rounds with a sender in between: no notification was lost"))
}

fn any_moment(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    for before in [false, true] {
        let request = world.request();
        is("GetResults", stream.queue.results(8).len(), 0)?;
        if before {
            is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
            stream.deliver()?;
        } else {
            stream.deliver()?;
            world.now("Notify", &stream.queue, &request, stream.queue.notify(ND_CQ_NOTIFY_ANY, &request))?;
        }
        world.ends("the request", &stream.queue, &request, HRESULT::ND_SUCCESS)?;
        stream.queue.results(8);
    }
    Ok("an entry after the last GetResults ends a Notify issued before it or after it".into())
}

fn taken(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let request = world.request();
    let number = stream.deliver()?;
    stream.takes(&[number])?;
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    world.pends("the request", &stream.queue, &request)?;
    ok("cancel", stream.queue.cancel())?;
    Ok("a completion that was taken before is no news".into())
}
