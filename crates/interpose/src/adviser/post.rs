//! Duties of posts (`NDKPI 7.2`, `NDKPI 7.3`).

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use engine::os::SpinLock;
use ndkpi::{NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED as LOCAL_INVALIDATE, NDK_SGE, op_flags};

use super::{
    Adviser, Finding, Lock, Sink, State,
    node::{QpNode, body},
    queue::{InFlight, Queue, TOKENS},
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
const fn flags_of(args: &Args<'_>) -> u32 {
    match args {
        Args::Transfer { flags, .. }
        | Args::Bind { flags, .. }
        | Args::FastRegister { flags, .. }
        | Args::Invalidate { flags, .. } => *flags,
        _ => 0,
    }
}

const fn context_of(args: &Args<'_>) -> usize {
    match args {
        Args::Transfer { context, .. }
        | Args::Bind { context, .. }
        | Args::FastRegister { context, .. }
        | Args::Invalidate { context, .. } => *context,
        _ => 0,
    }
}

impl<O: InterposeOs, S: Sink> Adviser<O, S> {
    /// A post begins.
    pub(super) fn post_begins(&self, event: &Event<'_, State<O>>) {
        let node = event.object.state;
        if let Some(srq) = body!(node, Srq) {
            self.post_runs(event, &srq.running, &[]);
            if let Args::Transfer { sgl, .. } = event.args {
                self.check_list(event, &sgl, srq.max_sge);
                self.check_elements(event, sgl.elements(), node.parent.as_ref(), true);
            }
            self.goes_in_flight(event, &srq.receive, None);
            return;
        }
        let Some(qp) = body!(node, Qp) else { return };
        let is_receive = event.function == Function::Receive;
        let queues = [qp.receive_cq.as_ref(), qp.initiator_cq.as_ref()];
        let running = if is_receive { &qp.receive_running } else { &qp.initiator_running };
        self.post_runs(event, running, &queues);
        if is_receive && qp.srq.is_some() {
            self.found(Finding::ReceiveBesideSrq, node, event.function, format_args!("a receive"));
            return;
        }
        if !is_receive {
            self.check_initiator(event, qp);
        }
        self.check_arguments(event, qp);
        let (queue, cq) = if is_receive { (&qp.receive, &qp.receive_cq) } else { (&qp.initiator, &qp.initiator_cq) };
        self.goes_in_flight(event, queue, cq.as_ref());
    }

    /// Marks that a post runs. It is no mistake to post inside a notification to which the other post has led.
    fn post_runs(&self, event: &Event<'_, State<O>>, running: &AtomicU64, queues: &[Option<&State<O>>]) {
        let before = running.swap(event.call, SeqCst);
        if before == 0 {
            return;
        }
        let is_led_to = queues.iter().copied().flatten().filter_map(|cq| body!(cq, Cq)).any(|cq| {
            let callback = cq.callback.load(SeqCst);
            callback > before
        });
        if !is_led_to {
            let what = format_args!("{} while another post on the same queue runs", event.function.name());
            self.found(Finding::OverlappingPosts, event.object.state, event.function, what);
        }
    }

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
        qp.is_chained.store(op_flags::is_deferred(flags), SeqCst);
        let Some(adapter) = node.adapter_node() else { return };
        if event.function == Function::Read {
            let supported = adapter.info.AdapterFlags & LOCAL_INVALIDATE != 0;
            if op_flags::invalidates_read_sink(flags) && !supported {
                self.found(Finding::LocalInvalidate, node, event.function, format_args!("flags {flags:#x}"));
            }
            let limit = qp.read_limit.load(Relaxed);
            let reads = qp.initiator.with(Queue::reads);
            if limit != 0 && reads >= (limit - 1) as usize {
                let what = format_args!("{reads} reads are in flight, the limit is {}", limit - 1);
                self.found(Finding::ReadLimit, node, event.function, what);
            }
        }
    }

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
                self.check_elements(event, sgl.elements(), node.parent.as_ref(), is_written);
            }
            Args::Bind { .. } => self.check_bind(event),
            Args::FastRegister { .. } => self.check_fast_register(event),
            Args::Invalidate { .. } => self.check_invalidate(event),
            _ => {}
        }
    }

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
    fn goes_in_flight(&self, event: &Event<'_, State<O>>, queue: &Lock<O, Queue>, cq: Option<&State<O>>) {
        let node = event.object.state;
        let flags = flags_of(&event.args);
        let mut request = InFlight {
            context: context_of(&event.args),
            is_silent: op_flags::is_silent_success(flags) && event.function != Function::Receive,
            is_read: event.function == Function::Read,
            ..InFlight::default()
        };
        if let Args::Transfer { sgl, flags, .. } = event.args
            && !op_flags::is_inline(flags)
        {
            for (place, element) in request.tokens.iter_mut().zip(sgl.elements()) {
                *place = element.MemoryRegionToken;
            }
            request.count = u8::try_from(sgl.elements().len().min(TOKENS)).unwrap_or_default();
        }
        Self::use_regions(node, &request, true);
        if let Some(cq) = cq.and_then(|cq| body!(cq, Cq)) {
            cq.outstanding.fetch_add(1, SeqCst);
        }
        loop {
            if queue.with(|queue| queue.push(request)) {
                break;
            }
            // Silent requests at the head may have ended long ago; nobody can know, so they are not counted against the depth.
            if let Some(done) = queue.with(Queue::pop_silent) {
                Self::no_more_in_flight(cq, &done, Some(node));
                continue;
            }
            let (length, is_blurred) = queue.with(|queue| (queue.len(), queue.is_blurred));
            if !is_blurred {
                let what = format_args!("{length} requests are in flight already");
                self.found(Finding::QueueFull, node, event.function, what);
            }
            // Not followed. That is no harm if the provider refuses the request, as it should.
            queue.with(|queue| queue.is_overfull = true);
            Self::no_more_in_flight(cq, &request, Some(node));
            return;
        }
        self.check_overrun(event, queue, cq);
    }

    fn check_overrun(&self, event: &Event<'_, State<O>>, queue: &Lock<O, Queue>, cq: Option<&State<O>>) {
        let Some(node) = cq else { return };
        let Some(cq) = body!(node, Cq) else { return };
        let (outstanding, depth) = (cq.outstanding.load(SeqCst), cq.depth.load(Relaxed));
        if outstanding <= depth || queue.with(|queue| queue.is_blurred) {
            return;
        }
        let is_blurred = cq.qps.with(|qps| {
            qps.iter()
                .filter_map(|qp| body!(qp, Qp))
                .any(|qp| qp.initiator.with(|queue| queue.is_blurred) || qp.receive.with(|queue| queue.is_blurred))
        });
        if !is_blurred {
            let what = format_args!("{outstanding} requests in flight complete into a queue of {depth}");
            self.found(Finding::CqOverrun, node, event.function, what);
        }
    }

    /// A post has returned.
    pub(super) fn post_ends(event: &Event<'_, State<O>>) {
        let node = event.object.state;
        let failed = !event.outcome.status().is_success();
        if let Some(srq) = body!(node, Srq) {
            let _ = srq.running.compare_exchange(event.call, 0, SeqCst, SeqCst);
            if let Some(request) = Self::outcome_known(&srq.receive, failed) {
                Self::no_more_in_flight(None, &request, Some(node));
            }
            return;
        }
        let Some(qp) = body!(node, Qp) else { return };
        let is_receive = event.function == Function::Receive;
        let running = if is_receive { &qp.receive_running } else { &qp.initiator_running };
        let _ = running.compare_exchange(event.call, 0, SeqCst, SeqCst);
        if is_receive && qp.srq.is_some() {
            return;
        }
        if !failed {
            Self::posted(event);
        } else if !is_receive {
            // The provider pushes what was deferred before (`NDKPI 7.3`).
            qp.is_chained.store(false, SeqCst);
            Self::fast_register_failed(event);
        }
        let (queue, cq) = if is_receive { (&qp.receive, &qp.receive_cq) } else { (&qp.initiator, &qp.initiator_cq) };
        if let Some(request) = Self::outcome_known(queue, failed) {
            Self::no_more_in_flight(cq.as_ref(), &request, Some(node));
        }
    }

    /// A post has succeeded or failed. Returns the request that is not in flight after all.
    fn outcome_known(queue: &Lock<O, Queue>, failed: bool) -> Option<InFlight> {
        queue.with(|queue| {
            let was_overfull = core::mem::take(&mut queue.is_overfull);
            if was_overfull {
                queue.is_blurred |= !failed;
                return None;
            }
            if failed && !queue.is_blurred { queue.pop_newest() } else { None }
        })
    }

    /// A chain must have ended when the queue pair is flushed, disconnected or closed.
    pub(super) fn chain_must_have_ended(&self, event: &Event<'_, State<O>>) {
        self.chain_of(event.object.state, event);
    }

    pub(super) fn chain_of(&self, node: &State<O>, event: &Event<'_, State<O>>) {
        let Some(qp) = body!(node, Qp) else { return };
        if qp.is_chained.swap(false, SeqCst) {
            let what = format_args!("the last request was deferred");
            self.found(Finding::OpenDeferChain, node, event.function, what);
        }
    }
}

/// The bytes of a list.
fn length_of(elements: &[NDK_SGE]) -> u64 {
    elements.iter().map(|element| u64::from(element.Length)).sum()
}
