//! Duties at a completion queue (`NDKPI 7.1`).

use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use engine::os::SpinLock;
use ndkpi::{
    NDK_CQ_NOTIFY_ANY, NDK_CQ_NOTIFY_ERRORS, NDK_CQ_NOTIFY_SOLICITED, NDK_OPERATION_TYPE, NDK_RESULT, NtStatus,
};

use super::{
    Adviser, Finding, Sink, State,
    node::{Attached, CqNode, Look, Node, QpNode, SrqNode, body},
    queue::{Completed, Queue},
};
use crate::{Args, Event, Function, InterposeOs, Outcome};

/// So many notifications without a poll between are no accident.
const UNPOLLED: u32 = 3;

/// How strong an arm is (`NDKPI 7.1.4`).
const fn strength(kind: u32) -> u32 {
    match kind {
        NDK_CQ_NOTIFY_ANY => 3,
        NDK_CQ_NOTIFY_SOLICITED => 2,
        NDK_CQ_NOTIFY_ERRORS => 1,
        _ => 0,
    }
}

impl<O: InterposeOs> CqNode<O> {
    /// Takes completed requests out of their queues.
    fn retire(&self, all: impl ExactSizeIterator<Item = Completed>) {
        if all.len() == 0 {
            return;
        }
        let counted = self.qps.with(|qps| {
            // Most completions are of the same queue pair as the one before.
            let (mut context, mut found, mut counted) = (None, 0..0, 0);
            for done in all {
                let has_failed = done.has_failed;
                if context != Some(done.qp_context) {
                    let first = qps.partition_point(|there| there.context < done.qp_context);
                    let same = qps[first..].iter().take_while(|there| there.context == done.qp_context).count();
                    (context, found) = (Some(done.qp_context), first..first + same);
                }
                if has_failed {
                    qps[found.clone()].iter().filter_map(|there| body!(there.node, Qp)).for_each(QpNode::mark_over);
                }
                counted += match &qps[found.clone()] {
                    [] => 0,
                    [one] => one.retire(&done),
                    // Which of them it was cannot be told: say nothing of any.
                    several => {
                        several.iter().filter_map(|there| body!(there.node, Qp)).for_each(QpNode::blur);
                        0
                    }
                };
            }
            counted
        });
        self.ended(counted);
    }
}

impl<O: InterposeOs> QpNode<O> {
    /// Its completions cannot be told apart from others: those of its receives cannot either, whatever queue they come from.
    fn blur(&self) {
        self.initiator.blur();
        self.receive.blur();
        if let Some(srq) = self.shared() {
            srq.receive.blur();
        }
    }

    /// What it was asked for is not carried out any more, or nobody knows.
    pub fn mark_over(&self) {
        self.is_over.store(true, SeqCst);
    }

    /// Its shared receive queue.
    fn shared(&self) -> Option<&SrqNode<O>> {
        self.srq.as_ref().and_then(|srq| body!(srq, Srq))
    }
}

impl<O: InterposeOs> Attached<O> {
    /// Takes a completed request out of its queue, and the silent ones before it. Returns how many of them were counted.
    fn retire(&self, done: &Completed) -> u32 {
        let Some(qp) = body!(self.node, Qp) else { return 0 };
        let may_be_receive = self.receive && done.is_receive != Some(false);
        let may_be_initiator = self.initiator && done.is_receive != Some(true);
        let initiator = if may_be_initiator { qp.initiator.ends_with(done) } else { None };
        if let Some(srq) = qp.shared().filter(|_| may_be_receive) {
            let is_known = srq.taking.with(|()| match initiator {
                Some(_) => !srq.receive.has(done.context),
                None => srq.receive.end_any(done.context),
            });
            let ended = initiator.filter(|_| is_known);
            if !is_known {
                qp.blur();
            }
            return ended.map_or(0, |ended| {
                qp.initiator.end(ended);
                ended.counted
            });
        }
        let receive = if may_be_receive { qp.receive.ends_with(done) } else { None };
        let (queue, ended) = match (initiator, receive) {
            (None, Some(ended)) => (&qp.receive, ended),
            (Some(ended), None) => (&qp.initiator, ended),
            _ => {
                qp.blur();
                return 0;
            }
        };
        queue.end(ended);
        ended.counted
    }
}

/// Adds to a list, where `place` says, if there is room. `false` if there is none, because others were faster: it is not followed.
pub(super) fn add<T: Send, L: SpinLock<Vec<T>>>(list: &L, item: T, place: impl FnOnce(&[T], &T) -> usize) -> bool {
    let left = list.with(|list| {
        if list.len() < list.capacity() {
            list.insert(place(list, &item), item);
            return None;
        }
        Some(item)
    });
    // What is left is a reference, which is given back without the lock.
    left.is_none()
}

/// Takes the first of a list that it is, if it is there.
pub(super) fn take<T: Send, L: SpinLock<Vec<T>>>(list: &L, is_it: impl FnMut(&T) -> bool) -> Option<T> {
    list.with(|list| list.iter().position(is_it).map(|place| list.remove(place)))
}

pub(super) fn is_same<O: InterposeOs>(first: &State<O>, second: &State<O>) -> bool {
    core::ptr::eq::<Node<O>>(&raw const **first, &raw const **second)
}

impl<O: InterposeOs, S: Sink> Adviser<O, S> {
    /// A poll or arm begins.
    #[inline(always)]
    pub(super) fn cq_call_begins(&self, event: &Event<'_, State<O>>) {
        let node = event.object.state;
        let Some(cq) = body!(node, Cq) else { return };
        let is_arm = event.function == Function::ArmCq;
        let before = cq.running.load(Relaxed);
        if is_arm {
            cq.arming.store(self.os.thread(), Relaxed);
        }
        cq.running.store(event.call * 2 + u64::from(is_arm), Relaxed);
        if before != 0 {
            let what = format_args!("{} while another call on it runs", event.function.name());
            self.found(Finding::OverlappingCqCalls, node, event.function, what);
        }
        if let Args::ArmCq { kind } = event.args {
            self.armed(event.object.state, cq, kind);
        }
    }

    /// A poll or arm has returned.
    #[inline(always)]
    pub(super) fn cq_call_ends(event: &Event<'_, State<O>>) {
        let Some(cq) = body!(event.object.state, Cq) else { return };
        let is_arm = event.function == Function::ArmCq;
        // If another call has begun meanwhile, this is not the one to end.
        if cq.running.load(Relaxed) == event.call * 2 + u64::from(is_arm) {
            cq.running.store(0, Relaxed);
        }
    }

    fn armed(&self, node: &State<O>, cq: &CqNode<O>, kind: u32) {
        let new = strength(kind);
        if cq.look.load(SeqCst) == Look::FULL {
            Self::armed_unseen(cq);
        }
        if !cq.has_notification {
            let what = format_args!("armed, and it was created without a notification callback");
            self.found(Finding::MissingCallback, node, Function::ArmCq, what);
        }
        if new == 0 {
            self.found(Finding::UnknownArm, node, Function::ArmCq, format_args!("a type of {kind}"));
            return;
        }
        let before = cq.armed.fetch_max(new, SeqCst);
        if before == 0 {
            self.follow_arm(node);
        }
        if before > new {
            let what = format_args!("a type of {kind}, armed for a stronger one already");
            self.found(Finding::WeakerArm, node, Function::ArmCq, what);
        }
    }

    /// Armed after a poll that was full. Only if no request is in flight any more is it known that nothing is left.
    #[cold]
    fn armed_unseen(cq: &CqNode<O>) {
        let may_be_left = cq.qps.with(|qps| {
            qps.iter().any(|there| {
                let has_shared = there.receive && body!(there.node, Qp).is_some_and(|qp| qp.srq.is_some());
                has_shared || there.queues().any(Queue::may_complete)
            })
        });
        if !may_be_left {
            let _ = cq.look.compare_exchange(Look::FULL, Look::EMPTY, SeqCst, SeqCst);
        } else if cq.look.compare_exchange(Look::FULL, Look::ARMED_UNSEEN, SeqCst, SeqCst).is_ok() {
            // Inside a notification, if it is this thread on which that runs: its return will tell.
            cq.armed_in.store(cq.callback.load(SeqCst), SeqCst);
        }
    }

    /// A notification has returned. What it has armed with completions left, and not looked at again, sleeps.
    pub(super) fn notification_returned(&self, event: &Event<'_, State<O>>) {
        let node = event.object.state;
        let Some(cq) = body!(node, Cq) else { return };
        let _ = cq.callback.compare_exchange(event.call, 0, SeqCst, SeqCst);
        let was_here = cq.armed_in.load(SeqCst) == event.call && cq.arming.load(SeqCst) == self.os.thread();
        if was_here && cq.look.load(SeqCst) == Look::ARMED_UNSEEN {
            let what = format_args!("armed after a poll that was full, and the callback has returned without another");
            self.found(Finding::NotDrained, node, Function::ArmCq, what);
        }
    }

    /// A completion queue is closed.
    pub(super) fn queue_closes(&self, node: &State<O>, cq: &CqNode<O>) {
        if cq.look.load(SeqCst) == Look::ARMED_UNSEEN && cq.armed.load(SeqCst) != 0 {
            let what =
                format_args!("armed after a poll that was full, and closed without another poll or notification");
            self.found(Finding::NotDrained, node, Function::Close, what);
        }
    }

    /// A notification begins.
    pub(super) fn notified(&self, event: &Event<'_, State<O>>) {
        let node = event.object.state;
        let Some(cq) = body!(node, Cq) else { return };
        cq.armed.store(0, SeqCst);
        // The arm that led here has done its work, if it waits on this thread. On another one it still runs, and no poll may.
        let running = cq.running.load(SeqCst);
        if running & 1 == 1 && cq.arming.load(SeqCst) == self.os.thread() {
            let _ = cq.running.compare_exchange(running, 0, SeqCst, SeqCst);
        }
        cq.callback.store(event.call, SeqCst);
        let unpolled = cq.unpolled.fetch_add(1, SeqCst) + 1;
        if event.outcome.status() != NtStatus::SUCCESS {
            return;
        }
        if cq.look.load(SeqCst) == Look::ARMED_UNSEEN {
            let what = format_args!("armed after a poll that was full, and notified again without another poll");
            self.found(Finding::NotDrained, node, event.function, what);
        } else if unpolled >= UNPOLLED {
            let what = format_args!("{unpolled} notifications without a poll");
            self.found(Finding::NotDrained, node, event.function, what);
        }
    }

    /// A poll has returned: what has completed is not in flight any more.
    #[inline(always)]
    pub(super) fn polled(&self, event: &Event<'_, State<O>>) {
        let Outcome::Count(count) = event.outcome else { return };
        match event.args {
            Args::GetCqResults { room, results } => {
                if !results.is_empty() {
                    Self::mark_blind(event.object.state);
                }
                self.took(event.object.state, count >= room, results, |result| (*result, None));
            }
            Args::GetCqResultsEx { room, results } => {
                let node = event.object.state;
                self.took(node, count >= room, results, |result| ((*result).into(), Some(result.Type)));
                let invalidated = NDK_OPERATION_TYPE::RECEIVE_AND_INVALIDATE;
                for result in results.iter().filter(|result| result.Type == invalidated) {
                    let context = result.QPContext.addr();
                    if !result.invalidated_token().is_some_and(|token| Self::invalidated_by_peer(node, context, token))
                    {
                        Self::mark_blind(node);
                    }
                }
            }
            _ => {}
        }
    }

    /// A poll has hidden from the adviser, or may have, that a peer has invalidated a token.
    fn mark_blind(node: &State<O>) {
        if let Some(cq) = body!(node, Cq)
            && !cq.is_blind.load(Relaxed)
        {
            cq.is_blind.store(true, SeqCst);
        }
    }

    /// A poll has taken these. `parts` makes a result of the older kind of one, and says which request it is of, if it can.
    fn took<R>(
        &self,
        node: &State<O>,
        was_full: bool,
        results: &[R],
        parts: impl Fn(&R) -> (NDK_RESULT, Option<NDK_OPERATION_TYPE>),
    ) {
        let Some(cq) = body!(node, Cq) else { return };
        cq.looked(was_full);
        if cq.unpolled.load(Relaxed) != 0 {
            self.follow_poll(node, cq);
        }
        for (result, kind) in results.iter().map(&parts).filter(|(result, _)| !result.Status.is_success()) {
            self.request_failed(node.id, kind, result.Status);
        }
        cq.retire(results.iter().map(|result| {
            let (result, kind) = parts(result);
            Completed::new(&result, kind.map(NDK_OPERATION_TYPE::is_receive))
        }));
    }

    /// A queue pair or shared receive queue is there: its requests are followed.
    pub(super) fn attach(event: &Event<'_, State<O>>) {
        let Some(created) = event.created else { return };
        let node = created.state;
        if let Some(pd) = node.domain() {
            add(&pd.queues, node.clone(), |queues, _| queues.len());
        }
        let Some(qp) = body!(node, Qp) else { return };
        let id = |cq: &Option<State<O>>| cq.as_ref().map(|cq| cq.id);
        let queues = [&qp.receive_cq, &qp.initiator_cq];
        let is_one = id(queues[0]) == id(queues[1]);
        for (index, cq) in queues.into_iter().enumerate().take(if is_one { 1 } else { 2 }) {
            let Some(cq) = cq.as_ref().and_then(|cq| body!(cq, Cq)) else { continue };
            let attached = Attached {
                context: qp.args.context,
                node: node.clone(),
                initiator: is_one || index == 1,
                receive: index == 0,
            };
            let room = attached.room();
            if add(&cq.qps, attached, |qps, new| qps.partition_point(|there| there.context < new.context)) {
                cq.room.fetch_add(room, Relaxed);
            } else {
                qp.blur();
            }
        }
    }

    /// A region is there: one for fast registration is found by what its mappings and peers do.
    pub(super) fn region_made(event: &Event<'_, State<O>>) {
        let Some(node) = event.created.map(|created| created.state) else { return };
        if let Some(adapter) = node.adapter_node()
            && body!(node, Mr).is_some_and(|mr| mr.is_fast)
        {
            add(&adapter.fast, node.clone(), |regions, _| regions.len());
        }
    }

    /// A region is no more.
    pub(super) fn region_gone(node: &State<O>) {
        if let Some(adapter) = node.adapter_node() {
            drop(take(&adapter.fast, |there| is_same(there, node)));
        }
    }

    /// A queue pair or shared receive queue is no more.
    pub(super) fn detach(node: &State<O>) {
        if let Some(pd) = node.domain() {
            drop(take(&pd.queues, |there| is_same(there, node)));
        }
        let Some(qp) = body!(node, Qp) else { return };
        // What it has received may still be in the completion queue (`NDKPI 7.1.8`), where nobody knows any more whose it was.
        if let Some(srq) = qp.shared() {
            srq.receive.blur();
        }
        for cq in [&qp.receive_cq, &qp.initiator_cq].into_iter().flatten().filter_map(|cq| body!(cq, Cq)) {
            if let Some(attached) = take(&cq.qps, |there| is_same(&there.node, node)) {
                cq.room.fetch_sub(attached.room(), Relaxed);
            }
        }
    }

    /// A resize has ended.
    pub(super) fn resized(event: &Event<'_, State<O>>) {
        // The completion of a resize that pended has no depth among its arguments: the greater one stays.
        let (Some(cq), Args::ResizeCq { depth }) = (body!(event.object.state, Cq), event.args) else { return };
        if event.outcome.status().is_success() {
            cq.depth.store(depth, Relaxed);
        }
    }
}
