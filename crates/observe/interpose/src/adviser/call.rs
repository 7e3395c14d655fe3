//! Duties that all calls have, and what is seen in the arguments alone.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use engine::os::SpinLock;
use ndkpi::{
    NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED as MODERATION, NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED as RESIZE,
    NDK_ADAPTER_INFO,
};

use super::{
    Adviser, Finding, Sink, State,
    node::{AdapterNode, StackContext, body},
};
use crate::{Args, ConnectArgs, Event, Function, InterposeOs, OutArgs};

const PASSIVE_LEVEL: u8 = 0;
const DISPATCH_LEVEL: u8 = 2;

/// No buffer that NDKPI fills is longer, in bytes: an address, private data, the adapter's information.
const LONGEST: u32 = 1 << 16;

/// How far from its caller a frame may be that is taken for one of the same stack, in bytes, where nothing else is known.
const NEAR: usize = 64 << 10;

/// What InfiniBand's connection manager leaves of the private data of a request, an accept and a reject, in bytes.
const ROCE_REQUEST: u32 = 56;
const ROCE_ACCEPT: u32 = 196;
const ROCE_REJECT: u32 = 148;

impl<O: InterposeOs, S: Sink> Adviser<O, S> {
    /// Looks at a call.
    pub(super) fn check_call(&self, event: &Event<'_, State<O>>) {
        self.check_place(event);
        let Some(adapter) = event.object.state.adapter_node() else { return };
        let has_completion = event.request.is_none_or(|request| request.has_completion);
        if !has_completion {
            self.found(Finding::MissingCallback, event.object.state, event.function, format_args!("no completion"));
        }
        match event.args {
            Args::CreateCq { has_notification: false, .. } => {
                let what = format_args!("no notification callback");
                self.found(Finding::SilentQueue, event.object.state, event.function, what);
            }
            Args::CreateListener { has_event: false, .. } => {
                let what = format_args!("no connect event");
                self.found(Finding::MissingCallback, event.object.state, event.function, what);
            }
            Args::QueryAdapterInfo { out, .. } | Args::Address { out } => self.check_length(event, out),
            Args::GetConnectionData { out, .. } => {
                self.check_length(event, out);
                if out.buffer == 0 && out.length.is_some_and(|length| length != 0) {
                    let what = format_args!("no buffer, and a length of {}", out.length.unwrap_or_default());
                    self.found(Finding::Length, event.object.state, event.function, what);
                }
            }
            Args::Connect(connect) => self.check_private_data(event, &adapter.info, &connect),
            _ => {}
        }
        self.check_limits(event, &adapter.info);
        self.context_begins(event);
    }

    /// Looks at where a call is made: all that posts, polls and arms have in common.
    #[inline(always)]
    pub(super) fn check_place(&self, event: &Event<'_, State<O>>) {
        self.check_irql(event);
        self.check_stack(event);
    }

    #[inline(always)]
    fn check_irql(&self, event: &Event<'_, State<O>>) {
        let most = match event.function {
            Function::QueryAdapterInfo | Function::CloseAdapter => PASSIVE_LEVEL,
            _ => DISPATCH_LEVEL,
        };
        let irql = self.os.irql();
        if irql > most {
            let what = format_args!("called at IRQL {irql}, at most {most} is allowed");
            self.found(Finding::WrongIrql, event.object.state, event.function, what);
        }
    }

    fn check_length(&self, event: &Event<'_, State<O>>, out: OutArgs) {
        match out.length {
            None => self.found(Finding::Length, event.object.state, event.function, format_args!("no length")),
            Some(length) if length > LONGEST => {
                let what = format_args!("a length of {length:#x} bytes");
                self.found(Finding::Length, event.object.state, event.function, what);
            }
            Some(_) => {}
        }
    }

    fn check_private_data(&self, event: &Event<'_, State<O>>, info: &NDK_ADAPTER_INFO, connect: &ConnectArgs<'_>) {
        let (most, roce) = match event.function {
            Function::Connect | Function::ConnectWithSharedEndpoint => (info.MaxCallerData, ROCE_REQUEST),
            Function::Accept | Function::AcceptEx => (info.MaxCalleeData, ROCE_ACCEPT),
            Function::Reject => (info.MaxCalleeData, ROCE_REJECT),
            _ => return,
        };
        let length = connect.private_data_length;
        if length > most {
            let what = format_args!("{length} bytes, the adapter carries {most}");
            self.found(Finding::PrivateData, event.object.state, event.function, what);
        } else if length > roce {
            let what = format_args!("{length} bytes, of which RoCE carries {roce}");
            self.found(Finding::PrivateDataRoce, event.object.state, event.function, what);
        }
    }

    fn check_limits(&self, event: &Event<'_, State<O>>, info: &NDK_ADAPTER_INFO) {
        let over = |what: &str, asked: u32, most: u32| {
            if asked > most {
                let what = format_args!("{what} of {asked}, the adapter has {most}");
                self.found(Finding::AboveLimit, event.object.state, event.function, what);
            }
        };
        match event.args {
            Args::CreateCq { depth, .. } | Args::ResizeCq { depth } => over("a depth", depth, info.MaxCqDepth),
            Args::CreateSrq { depth, max_sge, .. } => {
                over("a depth", depth, info.MaxSrqDepth);
                over("a number of elements", max_sge, info.MaxReceiveRequestSge);
            }
            Args::ModifySrq { depth, .. } => over("a depth", depth, info.MaxSrqDepth),
            Args::CreateQp(args) => {
                over("a receive depth", args.receive_depth, info.MaxReceiveQueueDepth);
                over("an initiator depth", args.initiator_depth, info.MaxInitiatorQueueDepth);
                over("a number of receive elements", args.receive_sge, info.MaxReceiveRequestSge);
                over("a number of initiator elements", args.initiator_sge, info.MaxInitiatorRequestSge);
                over("an inline size", args.inline_data, info.MaxInlineDataSize);
            }
            Args::RegisterMr { length, .. } if length > info.MaxRegistrationSize => {
                let what = format_args!("{length} bytes, the adapter registers {}", info.MaxRegistrationSize);
                self.found(Finding::AboveLimit, event.object.state, event.function, what);
            }
            _ => {}
        }
    }

    /// Calls on a completion queue that need a flag of the adapter.
    pub(super) fn cq_control(&self, event: &Event<'_, State<O>>) {
        let node = event.object.state;
        let (Some(adapter), Some(cq)) = (node.adapter_node(), body!(node, Cq)) else { return };
        match event.args {
            Args::ResizeCq { depth } => {
                if adapter.info.AdapterFlags & RESIZE == 0 {
                    self.found(Finding::ResizeUnsupported, node, event.function, format_args!("a resize"));
                }
                // Whether and when it succeeds is not known yet: the greater depth counts until then.
                cq.depth.fetch_max(depth, Relaxed);
            }
            Args::Moderation { .. } if adapter.info.AdapterFlags & MODERATION == 0 => {
                self.found(Finding::ModerationUnsupported, node, event.function, format_args!("moderation"));
            }
            Args::Moderation { interval: u32::MAX, count } if count == u32::MAX || count > cq.depth.load(Relaxed) => {
                let what = format_args!("no limit of time, and a count of {count}");
                self.found(Finding::ModerationUnlimited, node, event.function, what);
            }
            _ => {}
        }
    }

    /// A shared receive queue may have another depth from now on: its requests are not followed by number any more.
    pub(super) fn srq_modified(event: &Event<'_, State<O>>) {
        if let (Some(srq), Args::ModifySrq { depth, .. }) = (body!(event.object.state, Srq), event.args)
            && depth != 0
        {
            srq.receive.blur();
        }
    }

    /// Returns true if an address lies on the stack of the caller.
    fn is_on_stack(&self, address: usize) -> bool {
        let here = 0_u8;
        let here = core::ptr::from_ref(&here).addr();
        let (lowest, highest) = self.os.stack_limits().unwrap_or_else(|| (here, here.saturating_add(NEAR)));
        address > here && (lowest..highest).contains(&address)
    }

    /// A call begins whose completion has a context. If that lies on the stack of the thread, it is remembered until the call has ended
    /// without pending or the completion has come, which may be before the call returns.
    fn context_begins(&self, event: &Event<'_, State<O>>) {
        let Some(context) = event.request.map(|request| request.context) else { return };
        if self.is_off_thread() || !self.is_on_stack(context) {
            return;
        }
        let Some(adapter) = event.object.state.adapter_node() else { return };
        let thread = self.os.place().thread;
        let used = adapter.stack.with(|contexts| {
            let free = contexts.iter_mut().find(|place| place.call == 0);
            free.map(|place| *place = StackContext { call: event.call, thread, address: context }).is_some()
        });
        if used {
            adapter.stack_used.fetch_add(1, SeqCst);
        }
    }

    /// Returns true where the stack need not be that of the thread: a DPC is said to be on the thread that it has interrupted, and
    /// has a stack of its own.
    fn is_off_thread(&self) -> bool {
        self.os.irql() >= DISPATCH_LEVEL
    }

    /// A request pends.
    pub(super) fn pends(&self, event: &Event<'_, State<O>>) {
        if event.function == Function::Close
            && event.request.is_some_and(|request| !self.is_off_thread() && self.is_on_stack(request.context))
        {
            self.close_waits(event);
        }
    }

    /// A call has ended, or its completion is called: its context need not live any more.
    pub(super) fn context_ends(event: &Event<'_, State<O>>) {
        let Some(adapter) = event.object.state.adapter_node() else { return };
        if event.request.is_none() || adapter.stack_used.load(SeqCst) == 0 {
            return;
        }
        let was_there = adapter.stack.with(|contexts| {
            let place = contexts.iter_mut().find(|place| place.call == event.call);
            place.map(|place| *place = StackContext::default()).is_some()
        });
        if was_there {
            adapter.stack_used.fetch_sub(1, SeqCst);
        }
    }

    /// Looks for contexts of this thread whose frames have returned, if there are contexts on stacks at all.
    #[inline(always)]
    fn check_stack(&self, event: &Event<'_, State<O>>) {
        if let Some(adapter) = event.object.state.adapter_node()
            && adapter.stack_used.load(Relaxed) != 0
        {
            self.check_contexts(event.object.state, event.function, adapter);
        }
    }

    #[cold]
    fn check_contexts(&self, node: &State<O>, function: Function, adapter: &AdapterNode<O>) {
        if self.is_off_thread() {
            return;
        }
        let here = 0_u8;
        let here = core::ptr::from_ref(&here).addr();
        let thread = self.os.place().thread;
        let is_gone = |place: &StackContext| place.address < here && here - place.address < NEAR;
        let gone = adapter.stack.with(|contexts| {
            let place =
                contexts.iter_mut().find(|place| place.call != 0 && place.thread == thread && is_gone(place))?;
            Some(core::mem::take(place).address)
        });
        if let Some(address) = gone {
            adapter.stack_used.fetch_sub(1, SeqCst);
            let what = format_args!("the context {address:#x} of a request that pends is below the stack");
            self.found(Finding::StackContext, node, function, what);
        }
    }
}
