//! Duties at a completion queue (`NDKPI 7.1`).

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use engine::os::SpinLock;
use ndkpi::{NDK_CQ_NOTIFY_ANY, NDK_CQ_NOTIFY_ERRORS, NDK_CQ_NOTIFY_SOLICITED, NDK_OPERATION_TYPE, NtStatus};

use super::{
    Adviser, Finding, Sink, State,
    node::{CqNode, Look, QpNode, body},
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

impl<O: InterposeOs, S: Sink> Adviser<O, S> {
    /// A poll or arm begins.
    pub(super) fn cq_call_begins(&self, event: &Event<'_, State<O>>) {
        let node = event.object.state;
        let Some(cq) = body!(node, Cq) else { return };
        let is_arm = event.function == Function::ArmCq;
        let before = cq.running.swap(event.call * 2 + u64::from(is_arm), SeqCst);
        if before != 0 {
            let what = format_args!("{} while another call on it runs", event.function.name());
            self.found(Finding::OverlappingCqCalls, node, event.function, what);
        }
        if let Args::ArmCq { kind } = event.args {
            self.armed(event, cq, kind);
        }
    }

    /// A poll or arm has returned.
    pub(super) fn cq_call_ends(event: &Event<'_, State<O>>) {
        let Some(cq) = body!(event.object.state, Cq) else { return };
        let is_arm = event.function == Function::ArmCq;
        // If another call has begun meanwhile, this is not the one to end.
        let _ = cq.running.compare_exchange(event.call * 2 + u64::from(is_arm), 0, SeqCst, SeqCst);
    }

    fn armed(&self, event: &Event<'_, State<O>>, cq: &CqNode<O>, kind: u32) {
        let node = event.object.state;
        let new = strength(kind);
        let _ = cq.look.compare_exchange(Look::FULL, Look::ARMED_UNSEEN, SeqCst, SeqCst);
        if new == 0 {
            self.found(Finding::UnknownArm, node, event.function, format_args!("a type of {kind}"));
            return;
        }
        let before = cq.armed.fetch_max(new, SeqCst);
        if before > new {
            let what = format_args!("a type of {kind}, armed for a stronger one already");
            self.found(Finding::WeakerArm, node, event.function, what);
        }
    }

    /// A notification begins.
    pub(super) fn notified(&self, event: &Event<'_, State<O>>) {
        let node = event.object.state;
        let Some(cq) = body!(node, Cq) else { return };
        cq.armed.store(0, SeqCst);
        // The arm that led here has done its work, even if it has not returned yet.
        let running = cq.running.load(SeqCst);
        if running & 1 == 1 {
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
    pub(super) fn polled(event: &Event<'_, State<O>>) {
        let Some(cq) = body!(event.object.state, Cq) else { return };
        let Outcome::Count(count) = event.outcome else { return };
        match event.args {
            Args::GetCqResults { room, results } => {
                cq.looked(count >= room);
                for result in results {
                    Self::retire(cq, &Completed::new(result, None));
                }
            }
            Args::GetCqResultsEx { room, results } => {
                cq.looked(count >= room);
                for result in results {
                    let is_receive = Some(result.Type.is_receive());
                    Self::retire(cq, &Completed::new(&(*result).into(), is_receive));
                    if result.Type == NDK_OPERATION_TYPE::RECEIVE_AND_INVALIDATE
                        && let Some(token) = result.invalidated_token()
                    {
                        Self::invalidated_by_peer(event.object.state, token);
                    }
                }
            }
            _ => {}
        }
    }

    /// Takes a completed request out of its queue.
    fn retire(cq: &CqNode<O>, done: &Completed) {
        // A reference to the queue pair, so that its locks are not taken inside that of the list.
        let found = cq.qps.with(|qps| {
            let mut same = qps.iter().filter(|qp| body!(qp, Qp).is_some_and(|qp| qp.args.context == done.qp_context));
            let first = same.next().cloned();
            (first, same.next().is_some())
        });
        let (Some(node), several) = found else { return };
        let Some(qp) = body!(node, Qp) else { return };
        if several {
            // Which of them it was cannot be told: say nothing of any.
            cq.qps.with(|qps| {
                for qp in qps.iter().filter_map(|qp| body!(qp, Qp)) {
                    if qp.args.context == done.qp_context {
                        qp.initiator.with(|queue| queue.is_blurred = true);
                        qp.receive.with(|queue| queue.is_blurred = true);
                    }
                }
            });
            return;
        }
        let initiator = qp.initiator.with(|queue| queue.ends_with(done));
        let receive = match &qp.srq {
            Some(_) => None,
            None => qp.receive.with(|queue| queue.ends_with(done)),
        };
        match (done.is_receive, initiator, receive) {
            (Some(true), ..) | (None, None, Some(_)) => Self::retire_receive(qp, done),
            (Some(false), Some(count), _) | (None, Some(count), None) => Self::retire_initiator(qp, count),
            (None, None, None) if qp.srq.is_some() => Self::retire_receive(qp, done),
            _ => {
                qp.initiator.with(|queue| queue.is_blurred = true);
                qp.receive.with(|queue| queue.is_blurred = true);
            }
        }
    }

    fn retire_initiator(qp: &QpNode<O>, count: usize) {
        for _ in 0..count {
            let Some(done) = qp.initiator.with(Queue::pop_oldest) else { return };
            Self::no_more_in_flight(qp.initiator_cq.as_ref(), &done, qp.initiator_cq.as_ref());
        }
    }

    fn retire_receive(qp: &QpNode<O>, done: &Completed) {
        if let Some(srq) = &qp.srq {
            let Some(srq_node) = body!(srq, Srq) else { return };
            if let Some(done) = srq_node.receive.with(|queue| queue.take_any(done.context)) {
                Self::no_more_in_flight(None, &done, Some(srq));
            }
            return;
        }
        let done = qp.receive.with(|queue| {
            let is_next = queue.ends_with(done) == Some(1);
            queue.is_blurred |= !is_next;
            if is_next { queue.pop_oldest() } else { None }
        });
        if let Some(done) = done {
            Self::no_more_in_flight(qp.receive_cq.as_ref(), &done, qp.receive_cq.as_ref());
        }
    }

    /// The queue pair is there: its completions are followed.
    pub(super) fn attach(event: &Event<'_, State<O>>) {
        let Some(created) = event.created else { return };
        let Some(qp) = body!(created.state, Qp) else { return };
        let is_one = match (&qp.receive_cq, &qp.initiator_cq) {
            (Some(receive), Some(initiator)) => receive.id == initiator.id,
            _ => false,
        };
        let queues =
            if is_one { [qp.receive_cq.as_ref(), None] } else { [qp.receive_cq.as_ref(), qp.initiator_cq.as_ref()] };
        for cq in queues.into_iter().flatten().filter_map(|cq| body!(cq, Cq)) {
            let node = created.state.clone();
            let left = cq.qps.with(|qps| {
                if qps.len() < qps.capacity() {
                    qps.push(node);
                    return None;
                }
                // No place was kept, because others were faster: this one's completions are not followed.
                Some(node)
            });
            drop(left);
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
