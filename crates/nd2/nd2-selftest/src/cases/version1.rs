//! `INDCompletionQueue`, the queue of version 1: its page on Notify, and what differs.

use std::ptr;

use nd2::abi::{
    HRESULT, IID_IND2CompletionQueue, IID_INDCompletionQueue, IID_INDOverlapped, IND2CompletionQueueVtbl,
    INDCompletionQueueVtbl, INDOverlappedVtbl, ND_RESULT,
    notify::{ND_CQ_NOTIFY_ANY, ND_CQ_NOTIFY_ERRORS, ND_CQ_NOTIFY_SOLICITED},
    op_flags::ND_OP_FLAG_SEND_AND_SOLICIT_EVENT,
};

use crate::{
    Case, Client, Failure, World,
    case::{is, ok},
    client::{Piece, Qp, Queue, Queue1},
    stream::made,
    world::{Link, SIZES},
};

pub const CASES: &[Case] = &[
    Case::new("v1.type_errors", "v1 Notify, parameters 1.1", errors),
    Case::new("v1.type_any", "v1 Notify, parameters 1.2", eleven_steps),
    Case::new("v1.type_solicited", "v1 Notify, parameters 1.3", solicited),
    Case::new("v1.success", "v1 Notify, return value 1", case_1),
    Case::new("v1.pending", "v1 Notify, return value 2", eleven_steps),
    Case::new("v1.failure", "v1 Notify, return value 3", failure),
    Case::new("v1.buffer_overflow", "v1 Notify, return value 4", errors),
    Case::new("v1.canceled", "v1 Notify, return value 5", canceled),
    Case::new("v1.insufficient_resources", "v1 Notify, return value 6", too_many),
    Case::new("v1.device_removed", "v1 Notify, return value 7", removed),
    Case::new("v1.leads_to_results", "v1 Notify, remarks 1", eleven_steps),
    Case::new("v1.eleven_steps", "v1 Notify, remarks 2, steps 1 to 11", eleven_steps),
    Case::new("v1.new_completions_since_the_last", "v1 Notify, remarks 2.1, 2.2", since_the_last),
    Case::new("v1.several_completions_one_notification", "v1 Notify, remarks 3", drain),
    Case::new("v1.several_requests", "v1 Notify, remarks 4", several),
    Case::new("v1.nothing_by_default", "v1 Notify, remarks 5", by_default),
    Case::new("v1.peek_after_rearming", "v1 Notify, implementation note 1", case_1),
    Case::new("v1.race_between_drained_and_armed", "v1 Notify, implementation note 2", race),
    Case::new("v1.case_1", "v1 Notify, case 1, steps 1 to 3", case_1),
    Case::new("v1.case_2", "v1 Notify, case 2, steps 1 to 4", case_2),
    Case::new("v1.case_1_in_two_steps", "v1 Notify, note on case 1", race),
    Case::new("v1.when_it_is_called_does_not_matter", "v1 Notify, after case 2", any_moment),
    Case::new("v1.any_takes_precedence", "NDSPI 8", precedence),
    Case::new("v1.resize", "v1 Resize", resize),
    Case::new("v1.results_are_the_clients_blocks", "v1 GetResults", blocks),
    Case::new("v1.get_overlapped_result_has_a_byte_count", "v1 INDOverlapped", several),
    Case::new("v1.interfaces_are_its_own", "v1 QueryInterface", interfaces),
];

/// A stream into a queue of version 1.
struct Stream<'w> {
    world: &'w World,
    queue: Queue1,
    sends: Queue,
    sender: Qp,
    receiver: Qp,
    memory: Piece,
    _link: Link,
}

impl<'w> Stream<'w> {
    fn new(world: &'w World, depth: u32) -> Result<Self, Failure> {
        let queue = made("the queue", world.adapter.queue1(world.file, depth))?;
        let sends = made("the queue of sends", world.adapter.queue(world.file, 64, 0))?;
        let sender = made("the sender", world.adapter.qp(sends.as_ptr(), sends.as_ptr(), 0, SIZES))?;
        let receiver = made("the receiver", world.adapter.qp(queue.as_ptr(), sends.as_ptr(), 0, SIZES))?;
        let link = world.connect(&sender, &receiver)?;
        let memory = world.memory(8192, 0)?;
        Ok(Self { world, queue, sends, sender, receiver, memory, _link: link })
    }

    /// The hardware adds a new completion, whose result belongs in `block`.
    fn deliver(&self, block: &mut ND_RESULT, flags: u32) -> Result<(), Failure> {
        *block = EMPTY;
        let context = ptr::from_mut(block).expose_provenance();
        let context = ptr::with_exposed_provenance_mut(context);
        ok("Receive", self.receiver.receive_at(context, &[self.memory.sge(4096, 64)]))?;
        ok("Send", self.sender.send(0, &[self.memory.sge(0, 8)], flags))?;
        self.world.until("the send", || !self.sends.results(1).is_empty())
    }

    fn ends(&self, what: &str, request: &Client, with: HRESULT) -> Result<(), Failure> {
        self.world.until(what, || !self.queue.outcome(request, false).0.is_pending())?;
        is(what, self.queue.outcome(request, true), (with, 0))
    }

    fn now(&self, what: &str, request: &Client, result: HRESULT) -> Result<(), Failure> {
        self.world.policy_holds(what, result)?;
        if result.is_pending() { self.ends(what, request, HRESULT::ND_SUCCESS) } else { Ok(()) }
    }

    fn pends(&self, what: &str, request: &Client) -> Result<(), Failure> {
        self.world.settle();
        is(what, self.queue.outcome(request, false).0, HRESULT::ND_PENDING)
    }
}

const EMPTY: ND_RESULT = ND_RESULT { Status: HRESULT::ND_PENDING, BytesTransferred: usize::MAX };

fn errors(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 1)?;
    let (mut a, mut b, request) = (EMPTY, EMPTY, world.request());
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ERRORS, &request), HRESULT::ND_PENDING)?;
    stream.deliver(&mut a, 0)?;
    stream.pends("after a completion", &request)?;
    stream.deliver(&mut b, 0)?;
    stream.ends("after an overrun", &request, HRESULT::ND_BUFFER_OVERFLOW)?;
    world.refuses(
        "Notify later",
        &request,
        stream.queue.notify(ND_CQ_NOTIFY_ANY, &request),
        HRESULT::ND_BUFFER_OVERFLOW,
    )?;
    Ok("ND_BUFFER_OVERFLOW after an overrun".into())
}

fn solicited(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let (mut a, mut b, request) = (EMPTY, EMPTY, world.request());
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_SOLICITED, &request), HRESULT::ND_PENDING)?;
    stream.deliver(&mut a, 0)?;
    stream.pends("after a plain send", &request)?;
    stream.deliver(&mut b, ND_OP_FLAG_SEND_AND_SOLICIT_EVENT)?;
    stream.ends("after a send with the flag", &request, HRESULT::ND_SUCCESS)?;
    Ok("not after a plain send, but after one with the flag".into())
}

fn eleven_steps(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let (mut blocks, request) = ([EMPTY; 2], world.request());
    for block in &mut blocks {
        is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
        stream.pends("before the completion", &request)?;
        stream.deliver(block, 0)?;
        stream.ends("the request", &request, HRESULT::ND_SUCCESS)?;
        is("GetResults", stream.queue.results(4), vec![ptr::from_mut(block)])?;
        is("GetResults again", stream.queue.results(4).len(), 0)?;
    }
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    stream.pends("the last", &request)?;
    ok("cancel", stream.queue.cancel())?;
    Ok("all eleven".into())
}

fn case_1(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let (mut block, request) = (EMPTY, world.request());
    is("GetResults", stream.queue.results(4).len(), 0)?;
    stream.deliver(&mut block, 0)?;
    stream.now("Notify", &request, stream.queue.notify(ND_CQ_NOTIFY_ANY, &request))?;
    Ok("Notify completes immediately".into())
}

fn case_2(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let (mut block, request) = (EMPTY, world.request());
    is("GetResults", stream.queue.results(4).len(), 0)?;
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    stream.deliver(&mut block, 0)?;
    stream.ends("the request", &request, HRESULT::ND_SUCCESS)?;
    Ok("Notify completes".into())
}

fn since_the_last(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let (mut blocks, request) = ([EMPTY; 2], world.request());
    let [first, second] = &mut blocks;
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    stream.deliver(first, 0)?;
    stream.ends("the first", &request, HRESULT::ND_SUCCESS)?;
    // The completion stays in the queue.
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    stream.pends("the second", &request)?;
    stream.deliver(second, 0)?;
    stream.ends("after another completion", &request, HRESULT::ND_SUCCESS)?;
    is("GetResults", stream.queue.results(8), blocks.iter_mut().map(ptr::from_mut).collect())?;
    Ok("a completion that was left in the queue does not notify again".into())
}

fn race(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 64)?;
    let rounds = 30;
    for _ in 0..rounds {
        let mut block = EMPTY;
        let context = ptr::from_mut(&mut block);
        ok("Receive", stream.receiver.receive_at(context.cast(), &[stream.memory.sge(4096, 64)]))?;
        // The sender does not wait for anybody.
        ok("Send", stream.sender.send(0, &[stream.memory.sge(0, 8)], 0))?;
        let mut found = stream.queue.results(4);
        while found.is_empty() {
            let request = world.request();
            let result = stream.queue.notify(ND_CQ_NOTIFY_ANY, &request);
            if result.is_pending() {
                stream.ends("the notification", &request, HRESULT::ND_SUCCESS)?;
            } else {
                ok("the notification", result)?;
            }
            found = stream.queue.results(4);
        }
        is("the block", found, vec![context])?;
        world.until("the send", || !stream.sends.results(1).is_empty())?;
    }
    Ok(format!("{rounds} rounds: ND_SUCCESS, whether it is returned or comes later, and none lost"))
}

fn any_moment(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    for before in [false, true] {
        let (mut block, request) = (EMPTY, world.request());
        is("GetResults", stream.queue.results(8).len(), 0)?;
        if before {
            is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
            stream.deliver(&mut block, 0)?;
            stream.ends("the request", &request, HRESULT::ND_SUCCESS)?;
        } else {
            stream.deliver(&mut block, 0)?;
            stream.now("Notify", &request, stream.queue.notify(ND_CQ_NOTIFY_ANY, &request))?;
        }
        is("GetResults", stream.queue.results(8), vec![ptr::from_mut(&mut block)])?;
    }
    Ok("an entry after the last GetResults ends a Notify issued before it or after it".into())
}

fn precedence(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let (mut block, [solicited, any]) = (EMPTY, [(); 2].map(|()| world.request()));
    is("Notify SOLICITED", stream.queue.notify(ND_CQ_NOTIFY_SOLICITED, &solicited), HRESULT::ND_PENDING)?;
    is("Notify ANY", stream.queue.notify(ND_CQ_NOTIFY_ANY, &any), HRESULT::ND_PENDING)?;
    stream.deliver(&mut block, 0)?;
    stream.ends("the SOLICITED request", &solicited, HRESULT::ND_SUCCESS)?;
    stream.ends("the ANY request", &any, HRESULT::ND_SUCCESS)?;
    Ok("a plain send ends SOLICITED requests too, while one for ANY is outstanding".into())
}

fn failure(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let request = world.request();
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    world.break_queue(stream.queue.as_ptr())?;
    stream.ends("the request", &request, HRESULT::ND_FAILURE)?;
    world.refuses("Notify later", &request, stream.queue.notify(ND_CQ_NOTIFY_ERRORS, &request), HRESULT::ND_FAILURE)?;
    world.until("the queue pair", || stream.receiver.send(0, &[], 0) == HRESULT::ND_CONNECTION_INVALID)?;
    Ok(format!("ND_FAILURE, which is {} here", HRESULT::ND_FAILURE))
}

fn canceled(world: &World) -> Result<String, Failure> {
    let queue = made("the queue", world.adapter.queue1(world.file, 8))?;
    let request = world.request();
    is("Notify", queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    drop(queue);
    world.until("the request", || !request.status().is_pending())?;
    is("the request", request.status(), HRESULT::ND_CANCELED)?;
    Ok("ND_CANCELED".into())
}

fn too_many(world: &World) -> Result<String, Failure> {
    let queue = made("the queue", world.adapter.queue1(world.file, 8))?;
    let requests: Vec<_> = (0..crate::world::MAX_NOTIFY_REQUESTS).map(|_| world.request()).collect();
    for request in &requests {
        is("Notify", queue.notify(ND_CQ_NOTIFY_ANY, request), HRESULT::ND_PENDING)?;
    }
    let more = world.request();
    world.refuses("one more", &more, queue.notify(ND_CQ_NOTIFY_ANY, &more), HRESULT::ND_INSUFFICIENT_RESOURCES)?;
    ok("cancel", queue.cancel())?;
    Ok("ND_INSUFFICIENT_RESOURCES".into())
}

fn removed(world: &World) -> Result<String, Failure> {
    let queue = made("the queue", world.adapter.queue1(world.file, 8))?;
    let request = world.request();
    is("Notify", queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    world.remove(0);
    is("the request", queue.outcome(&request, true).0, HRESULT::ND_DEVICE_REMOVED)?;
    world.refuses("Notify", &request, queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_DEVICE_REMOVED)?;
    Ok("ND_DEVICE_REMOVED".into())
}

fn drain(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let (mut blocks, request) = ([EMPTY; 3], world.request());
    is("Notify", stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    for block in &mut blocks {
        stream.deliver(block, 0)?;
    }
    stream.ends("the request", &request, HRESULT::ND_SUCCESS)?;
    is("results", (stream.queue.results(2).len(), stream.queue.results(2).len()), (2, 1))?;
    Ok("3 results behind one notification".into())
}

fn several(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let (mut block, requests) = (EMPTY, [(); 3].map(|()| world.request()));
    // The page names no exception by type.
    let kinds = [ND_CQ_NOTIFY_ERRORS, ND_CQ_NOTIFY_ANY, ND_CQ_NOTIFY_SOLICITED];
    for (kind, request) in kinds.into_iter().zip(&requests) {
        is("Notify", stream.queue.notify(kind, request), HRESULT::ND_PENDING)?;
    }
    stream.deliver(&mut block, 0)?;
    for request in &requests {
        stream.ends("a request", request, HRESULT::ND_SUCCESS)?;
    }
    Ok("3 requests of 3 types, 1 completion, 0 bytes".into())
}

fn by_default(world: &World) -> Result<String, Failure> {
    let port = world.port()?;
    let stream = Stream::new(world, 8)?;
    world.drain(&port);
    let mut block = EMPTY;
    stream.deliver(&mut block, 0)?;
    world.settle();
    is("packets", port.get(), None)?;
    Ok("no request, no notification".into())
}

fn resize(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 4)?;
    let mut blocks = [EMPTY; 3];
    for block in &mut blocks {
        stream.deliver(block, 0)?;
    }
    is("below the results", stream.queue.resize(2), HRESULT::ND_BUFFER_OVERFLOW)?;
    is("more than 32 bits", stream.queue.resize((1 << 40) + 64), HRESULT::ND_INVALID_PARAMETER)?;
    is("none", stream.queue.resize(0), HRESULT::ND_INVALID_PARAMETER)?;
    ok("Resize", stream.queue.resize(1024))?;
    is("results", stream.queue.results(8).len(), 3)?;
    Ok("SIZE_T entries: the same limits, nothing lost".into())
}

fn blocks(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let mut blocks = [EMPTY; 3];
    for block in &mut blocks {
        stream.deliver(block, 0)?;
    }
    is("before GetResults", blocks[0].Status, HRESULT::ND_PENDING)?;
    let places: Vec<_> = blocks.iter_mut().map(ptr::from_mut).collect();
    is("the pointers", stream.queue.results(8), places)?;
    for block in &blocks {
        is("a block", (block.Status, block.BytesTransferred), (HRESULT::ND_SUCCESS, 8))?;
    }
    Ok("the addresses that the client gave, with status and bytes".into())
}

fn interfaces(world: &World) -> Result<String, Failure> {
    let queue = made("the queue", world.adapter.queue1(world.file, 8))?;
    let same = made("INDCompletionQueue", queue.query::<INDCompletionQueueVtbl>(&IID_INDCompletionQueue))?;
    is("the pointer", same.as_ptr(), queue.as_ptr())?;
    made("INDOverlapped", queue.query::<INDOverlappedVtbl>(&IID_INDOverlapped))?;
    let other = queue.query::<IND2CompletionQueueVtbl>(&IID_IND2CompletionQueue).err();
    is("version 2", other, Some(HRESULT::E_NOINTERFACE))?;
    Ok("INDCompletionQueue and INDOverlapped, not those of version 2".into())
}
