//! Hooks that see when nothing happens any more: a queue that calls nobody, with requests that nobody has looked for.

use std::{
    format,
    string::String,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    vec::Vec,
};

use host::HostOs;
use interpose::{Args, Event, Function, Hooks, ObjectId, Outcome, Phase, Verdict};
use ndkpi::{NDK_ADAPTER_INFO, NDK_OBJECT_TYPE, NDK_OP_FLAG_SILENT_SUCCESS, NtStatus};

/// What happens on all adapters of a machine.
#[derive(Default)]
pub struct Activity {
    events: AtomicU64,
    queues: Mutex<Vec<Arc<Queue>>>,
}

impl Activity {
    /// How much has happened: a larger number than before if anything has.
    pub fn events(&self) -> u64 {
        self.events.load(Relaxed)
    }

    /// The completion queues that sleep: they have called back, were not armed since, and requests of theirs were not found by a
    /// poll. A line for each. It says something only if nothing happens any more.
    pub fn asleep(&self) -> Vec<String> {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let asleep = queues.iter().filter(|queue| queue.sleeps());
        asleep
            .map(|queue| {
                let (id, left) = (queue.id, queue.posted.load(Relaxed));
                let requests = if left == 1 { "request was" } else { "requests were" };
                format!(
                    "{id} was not armed again after its callback, and {left} {requests} not polled: an arm is good for \
                     one callback (NDKPI 7.1.3)"
                )
            })
            .collect()
    }
}

/// What is known of a completion queue.
pub struct Queue {
    id: ObjectId,
    /// It has called back, and was not armed since.
    is_spent: AtomicBool,
    is_closed: AtomicBool,
    /// Requests that leave a completion, less those that polls have found.
    posted: AtomicI64,
}

impl Queue {
    fn sleeps(&self) -> bool {
        self.is_spent.load(Relaxed) && !self.is_closed.load(Relaxed) && self.posted.load(Relaxed) > 0
    }
}

/// What is kept of an object.
pub enum State {
    Cq(Arc<Queue>),
    /// Where its receives complete, and where its other requests do.
    Qp([Option<Arc<Queue>>; 2]),
    Other,
}

impl State {
    const fn queue(&self) -> Option<&Arc<Queue>> {
        if let Self::Cq(queue) = self { Some(queue) } else { None }
    }
}

/// The hooks of one adapter.
pub struct Watch {
    os: HostOs,
    activity: Arc<Activity>,
}

impl Watch {
    pub const fn new(os: HostOs, activity: Arc<Activity>) -> Self {
        Self { os, activity }
    }

    /// A request was posted.
    fn posted(event: &Event<'_, State>) {
        let State::Qp([receives, others]) = event.object.state else { return };
        let flags = match event.args {
            Args::Transfer { flags, .. }
            | Args::Bind { flags, .. }
            | Args::FastRegister { flags, .. }
            | Args::Invalidate { flags, .. } => flags,
            _ => 0,
        };
        let queue = if event.function == Function::Receive { receives } else { others };
        if let Some(queue) = queue
            && flags & NDK_OP_FLAG_SILENT_SUCCESS == 0
        {
            queue.posted.fetch_add(1, Relaxed);
        }
    }
}

impl Hooks for Watch {
    type Os = HostOs;
    type State = State;
    type Call = ();

    fn os(&self) -> &HostOs {
        &self.os
    }

    fn adapter(&self, _: &NDK_ADAPTER_INFO) -> Result<State, NtStatus> {
        Ok(State::Other)
    }

    fn object(&self, event: &Event<'_, State>, id: ObjectId) -> Result<State, NtStatus> {
        Ok(match id.kind {
            NDK_OBJECT_TYPE::CQ => {
                let (is_spent, is_closed, posted) = (AtomicBool::new(false), AtomicBool::new(false), AtomicI64::new(0));
                let queue = Arc::new(Queue { id, is_spent, is_closed, posted });
                self.activity.queues.lock().unwrap_or_else(PoisonError::into_inner).push(queue.clone());
                State::Cq(queue)
            }
            NDK_OBJECT_TYPE::QP => {
                let queue =
                    |index: usize| event.related.get(index).copied().flatten().and_then(|cq| cq.state.queue().cloned());
                State::Qp([queue(0), queue(1)])
            }
            _ => State::Other,
        })
    }

    fn event(&self, event: &Event<'_, State>, (): &mut ()) -> Verdict {
        self.activity.events.fetch_add(1, Relaxed);
        let queue = event.object.state.queue();
        match (event.phase, event.function, queue) {
            // Before the provider hears of it: a callback can begin during the call.
            (Phase::Call, Function::ArmCq, Some(queue)) => queue.is_spent.store(false, Relaxed),
            (Phase::Callback, Function::CqNotification, Some(queue)) => queue.is_spent.store(true, Relaxed),
            (Phase::Call, Function::Close, Some(queue)) => {
                queue.is_closed.store(true, Relaxed);
                let mut all = self.activity.queues.lock().unwrap_or_else(PoisonError::into_inner);
                all.retain(|there| !Arc::ptr_eq(there, queue));
            }
            (Phase::Return, function, Some(queue)) if function.is_poll() => {
                if let Outcome::Count(count) = event.outcome {
                    queue.posted.fetch_sub(count.into(), Relaxed);
                }
            }
            (Phase::Return, function, _) if function.is_post() && event.outcome.status().is_success() => {
                Self::posted(event);
            }
            _ => {}
        }
        Verdict::Forward
    }
}
