//! Duties of posts (`NDKPI 7.2`, `NDKPI 7.3`).

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use engine::os::SpinLock as _;
use ndkpi::{NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED as LOCAL_INVALIDATE, NDK_SGE, op_flags};

use super::{
    Adviser, Finding, Sink, State,
    node::{Attached, CqNode, QpNode, SrqNode, body},
    queue::{COUNTED, Posted, Queue, READ, SILENT},
};
use crate::{Args, Event, Function, InterposeOs, List};

/// The flags that a request accepts.
const fn accepted(function: Function) -> Option<u32> {
    Some(match function {
        Function::Send | Function::SendAndInvalidate => op_flags::SEND,
        Function::Read => op_flags::READ,
        Function::Write => op_flags::WRITE,
        Function::Bind => op_flags::BIND,
        Function::FastRegister => op_flags::FAST_REGISTER,
        Function::Invalidate => op_flags::INVALIDATE,
        _ => return None,
    })
}

/// The flags that a request was given.
#[inline(always)]
const fn flags_of(args: &Args<'_>) -> u32 {
    match *args {
        Args::Transfer { flags, .. }
        | Args::Bind { flags, .. }
        | Args::FastRegister { flags, .. }
        | Args::Invalidate { flags, .. } => flags,
        _ => 0,
    }
}

/// What a post has done, for its return.
#[derive(Clone, Copy, Debug, Default)]
pub enum Post {
    /// Nothing.
    #[default]
    NotFollowed,
    /// Its request is in flight.
    InFlight(Posted),
    /// There was no place for its request.
    Overfull,
}

/// Where the requests of a queue complete.
enum Side<'a, O: InterposeOs> {
    /// In this completion queue.
    Cq(Option<&'a State<O>>),
    /// In those of the queue pairs that use this shared receive queue.
    Srq(&'a SrqNode<O>),
}

impl<O: InterposeOs, S: Sink> Adviser<O, S> {
    /// A post begins.
    #[inline(always)]
    pub(super) fn post_begins(&self, event: &Event<'_, State<O>>) -> Post {
        let node = event.object.state;
        if let (Function::SrqReceive, Some(srq)) = (event.function, body!(node, Srq)) {
            self.post_runs(event, &srq.receive, &[]);
            if let Args::Transfer { sgl, .. } = event.args {
                self.check_list(event, &sgl, srq.max_sge);
                self.check_elements(node, event.function, sgl.elements(), node.parent.as_ref(), true);
            }
            return self.goes_in_flight(event, &srq.receive, &Side::Srq(srq));
        }
        let Some(qp) = body!(node, Qp) else { return Post::NotFollowed };
        let is_receive = event.function == Function::Receive;
        let (queue, cq) = if is_receive { (&qp.receive, &qp.receive_cq) } else { (&qp.initiator, &qp.initiator_cq) };
        self.post_runs(event, queue, &[&qp.receive_cq, &qp.initiator_cq]);
        if is_receive && qp.srq.is_some() {
            self.found(Finding::ReceiveBesideSrq, node, event.function, format_args!("a receive"));
            return Post::NotFollowed;
        }
        if is_receive {
            qp.receives.posted.fetch_add(1, SeqCst);
        } else {
            self.check_initiator(event, qp);
        }
        self.check_arguments(event, qp);
        self.goes_in_flight(event, queue, &Side::Cq(cq.as_ref()))
    }

    /// Marks that a post runs. It is no mistake to post inside a notification to which the other post has led.
    #[inline(always)]
    fn post_runs(&self, event: &Event<'_, State<O>>, queue: &Queue, queues: &[&Option<State<O>>]) {
        let before = queue.begin_post(event.call);
        if before != 0 {
            self.post_overlaps(event.object.state, event.function, before, queues);
        }
    }

    /// A post on the same queue seems to run, with the number `before`.
    #[cold]
    fn post_overlaps(&self, node: &State<O>, function: Function, before: u64, queues: &[&Option<State<O>>]) {
        let is_led_to = queues.iter().filter_map(|cq| cq.as_ref()).filter_map(|cq| body!(cq, Cq)).any(|cq| {
            let callback = cq.callback.load(SeqCst);
            callback >= before
        });
        if !is_led_to {
            let what = format_args!("{} while another post on the same queue runs", function.name());
            self.found(Finding::OverlappingPosts, node, function, what);
        }
    }

    #[inline(always)]
    fn check_initiator(&self, event: &Event<'_, State<O>>, qp: &QpNode<O>) {
        let node = event.object.state;
        let flags = flags_of(&event.args);
        if let Some(accepted) = accepted(event.function) {
            let refused = op_flags::not_accepted(flags, accepted);
            if refused != 0 {
                let what = format_args!("flags {flags:#x}, of which {refused:#x} are not for this request");
                self.found(Finding::BadFlags, node, event.function, what);
            }
        }
        if !qp.was_connected.load(Relaxed) {
            let what = format_args!("no connect or accept was called with the queue pair");
            self.found(Finding::PostBeforeConnection, node, event.function, what);
        }
        qp.initiator.set_chained(op_flags::is_deferred(flags));
        let Some(adapter) = node.adapter_node() else { return };
        if event.function == Function::Read {
            let supported = adapter.info.AdapterFlags & LOCAL_INVALIDATE != 0;
            if op_flags::invalidates_read_sink(flags) && !supported {
                self.found(Finding::LocalInvalidate, node, event.function, format_args!("flags {flags:#x}"));
            }
            let limit = qp.read_limit.load(Relaxed);
            let reads = qp.initiator.reads();
            if limit != 0 && reads >= limit - 1 && !qp.initiator.is_blurred() {
                let what = format_args!("{reads} reads are in flight, the limit is {}", limit - 1);
                self.found(Finding::ReadLimit, node, event.function, what);
            }
        }
    }

    /// A message was posted, and there may be no receive for it. If the peer's post of one has not even begun by now, nothing but luck has
    /// it come in time.
    #[cold]
    fn look_for_receive(&self, event: &Event<'_, State<O>>, qp: &QpNode<O>, message: u64) {
        let Some(receives) = qp.messages.peer.with(|peer| peer.clone()) else { return };
        let there = receives.posted.load(SeqCst);
        qp.messages.known.store(there, Relaxed);
        if message > there && !qp.is_over.load(SeqCst) {
            let what = format_args!("message {message} of the connection; the peer has posted {there} receives");
            self.found(Finding::LateReceive, event.object.state, event.function, what);
        }
    }

    #[inline(always)]
    fn check_arguments(&self, event: &Event<'_, State<O>>, qp: &QpNode<O>) {
        let node = event.object.state;
        match event.args {
            Args::Transfer { sgl, flags, .. } if op_flags::is_inline(flags) => {
                self.check_list(event, &sgl, u32::MAX);
                let length = length_of(sgl.elements());
                if length > u64::from(qp.args.inline_data) {
                    let what = format_args!("{length} bytes, the queue pair has room for {}", qp.args.inline_data);
                    self.found(Finding::InlineTooLong, node, event.function, what);
                }
            }
            Args::Transfer { sgl, .. } => {
                let reads = node.adapter_node().map_or(u32::MAX, |adapter| adapter.info.MaxReadRequestSge);
                let most = match event.function {
                    Function::Receive => qp.args.receive_sge,
                    Function::Read => reads.min(qp.args.initiator_sge),
                    _ => qp.args.initiator_sge,
                };
                self.check_list(event, &sgl, most);
                let is_written = matches!(event.function, Function::Receive | Function::Read);
                self.check_elements(node, event.function, sgl.elements(), node.parent.as_ref(), is_written);
            }
            Args::Bind { .. } => self.check_bind(event),
            Args::FastRegister { .. } => self.check_fast_register(event),
            Args::Invalidate { .. } => self.check_invalidate(event),
            _ => {}
        }
    }

    #[inline(always)]
    fn check_list(&self, event: &Event<'_, State<O>>, sgl: &List<'_, NDK_SGE>, most: u32) {
        let node = event.object.state;
        if sgl.is_missing() {
            let what = format_args!("{} elements and no list", sgl.count());
            self.found(Finding::MissingList, node, event.function, what);
        } else if sgl.count() > most {
            let what = format_args!("{} elements, at most {most} are allowed", sgl.count());
            self.found(Finding::TooManySges, node, event.function, what);
        }
        let length = length_of(sgl.elements());
        let most = node.adapter_node().map_or(u32::MAX, |adapter| adapter.info.MaxTransferLength);
        if length > u64::from(most) {
            let what = format_args!("{length} bytes, the adapter carries {most}");
            self.found(Finding::TooLong, node, event.function, what);
        }
    }

    /// The request is in flight from now on, unless the provider refuses it.
    #[inline(always)]
    fn goes_in_flight(&self, event: &Event<'_, State<O>>, queue: &Queue, side: &Side<'_, O>) -> Post {
        let node = event.object.state;
        let cq = match *side {
            Side::Cq(cq) => match cq.and_then(|node| body!(node, Cq)) {
                Some(cq) => Some(cq),
                // Nobody hears of its completions.
                None => return Post::NotFollowed,
            },
            Side::Srq(_) => None,
        };
        let (context, flags, elements) = match event.args {
            Args::Transfer { context, flags, sgl, .. } => (context, flags, sgl.elements()),
            Args::Bind { context, flags, .. }
            | Args::FastRegister { context, flags, .. }
            | Args::Invalidate { context, flags } => (context, flags, [].as_slice()),
            _ => return Post::NotFollowed,
        };
        let elements = if op_flags::is_inline(flags) { &[] } else { elements };
        let mut kind = if op_flags::is_silent_success(flags) { SILENT } else { 0 };
        if event.function == Function::Read {
            kind |= READ;
        }
        // Who is blurred is not followed to the end, so it is not counted either.
        if cq.is_some_and(CqNode::is_tight) && !queue.is_blurred() {
            kind |= COUNTED;
        }
        match queue.push(context, kind, elements) {
            Some(posted) if !posted.is_counted() => Post::InFlight(posted),
            posted => self.without_ease((node, event.function), queue, side, (context, kind, elements), posted),
        }
    }

    /// The request is counted against a completion queue, or there is no place for it yet.
    #[inline(never)]
    fn without_ease(
        &self,
        (node, function): (&State<O>, Function),
        queue: &Queue,
        side: &Side<'_, O>,
        (context, kind, elements): (usize, u32, &[NDK_SGE]),
        mut posted: Option<Posted>,
    ) -> Post {
        loop {
            if let Some(posted) = posted {
                if posted.is_counted() {
                    self.check_overrun(function, side);
                }
                return Post::InFlight(posted);
            }
            // Silent requests at the head may have ended long ago; nobody can know, so they are not counted against the depth.
            let ended = match *side {
                Side::Cq(node) => node.and_then(|node| body!(node, Cq)).and_then(|cq| {
                    let ended = cq.qps.with(|_| queue.end_silent())?;
                    cq.ended(ended.counted);
                    Some(ended)
                }),
                Side::Srq(srq) => srq.taking.with(|()| queue.end_silent()),
            };
            if ended.is_none() {
                break;
            }
            posted = queue.push(context, kind, elements);
        }
        if !queue.is_blurred() {
            let what = format_args!("{} requests are in flight already", queue.len());
            self.found(Finding::QueueFull, node, function, what);
        }
        // Not followed. That is no harm if the provider refuses the request, as it should.
        Post::Overfull
    }

    /// One more counted request completes into this queue.
    fn check_overrun(&self, function: Function, side: &Side<'_, O>) {
        let Side::Cq(Some(node)) = *side else { return };
        let Some(cq) = body!(node, Cq) else { return };
        let (outstanding, depth) = (cq.outstanding.fetch_add(1, Relaxed) + 1, cq.depth.load(Relaxed));
        if outstanding <= depth || cq.qps.with(|qps| qps.iter().flat_map(Attached::queues).any(Queue::is_blurred)) {
            return;
        }
        let what = format_args!("{outstanding} requests in flight complete into a queue of {depth}");
        self.found(Finding::CqOverrun, node, function, what);
    }

    /// A post has returned.
    #[inline(always)]
    pub(super) fn post_ends(&self, event: &Event<'_, State<O>>, post: Post) {
        let node = event.object.state;
        let failed = !event.outcome.status().is_success();
        if failed {
            self.failed(event.function, event.object.id, event.outcome.status());
        }
        if let (Function::SrqReceive, Some(srq)) = (event.function, body!(node, Srq)) {
            srq.receive.end_post(event.call);
            Self::outcome_known(&srq.receive, None, post, failed);
            return;
        }
        let Some(qp) = body!(node, Qp) else { return };
        let is_receive = event.function == Function::Receive;
        let (queue, cq) = if is_receive { (&qp.receive, &qp.receive_cq) } else { (&qp.initiator, &qp.initiator_cq) };
        queue.end_post(event.call);
        if is_receive && qp.srq.is_some() {
            return;
        }
        if !failed {
            if is_message(event.function) {
                // Posts on one queue do not run at the same time; where they do, one is missed.
                let message = qp.messages.posted.load(Relaxed) + 1;
                qp.messages.posted.store(message, Relaxed);
                if message > qp.messages.known.load(Relaxed) {
                    self.look_for_receive(event, qp, message);
                }
            }
            Self::posted(event);
        } else if !is_receive {
            // The provider pushes what was deferred before (`NDKPI 7.3`).
            qp.initiator.set_chained(false);
            if event.function == Function::FastRegister {
                Self::fast_register_failed(event.related[0], event.call);
            }
        }
        Self::outcome_known(queue, cq.as_ref(), post, failed);
    }

    /// A post has succeeded or failed.
    #[inline(always)]
    fn outcome_known(queue: &Queue, cq: Option<&State<O>>, post: Post, failed: bool) {
        match post {
            Post::InFlight(posted) if failed && !queue.is_blurred() => {
                queue.take_back(posted);
                if posted.is_counted()
                    && let Some(cq) = cq.and_then(|cq| body!(cq, Cq))
                {
                    cq.ended(1);
                }
            }
            Post::Overfull if !failed => queue.blur(),
            _ => {}
        }
    }

    /// A chain must have ended when the queue pair is flushed, disconnected or closed.
    pub(super) fn chain_must_have_ended(&self, event: &Event<'_, State<O>>) {
        self.chain_of(event.object.state, event);
    }

    pub(super) fn chain_of(&self, node: &State<O>, event: &Event<'_, State<O>>) {
        let Some(qp) = body!(node, Qp) else { return };
        if qp.initiator.take_chain() {
            let what = format_args!("the last request was deferred");
            self.found(Finding::OpenDeferChain, node, event.function, what);
        }
    }
}

/// Takes a receive of the peer.
const fn is_message(function: Function) -> bool {
    matches!(function, Function::Send | Function::SendAndInvalidate)
}

/// The bytes of a list.
fn length_of(elements: &[NDK_SGE]) -> u64 {
    elements.iter().map(|element| u64::from(element.Length)).sum()
}
