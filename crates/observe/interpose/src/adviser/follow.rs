//! What a consumer may wait for, for a sink that follows it: who sees a consumer wait for ever can then say what for.
//!
//! Nothing here is a finding. A queue that is not armed, or a close that pends, is as it has to be most of the time.

use core::sync::atomic::Ordering::SeqCst;

use ndkpi::NtStatus;

use super::{
    Adviser, FRAMES, Sink, State,
    node::{CqNode, Node, body},
};
use crate::{Event, Function, InterposeOs, ObjectId, Outcome, Phase};

/// What an object depends on at most: its parent, two completion queues and a shared receive queue.
pub const MOST_ANTECEDENTS: usize = 4;

/// A step towards something that a consumer may wait for. `key` is a number that no other object has as long as this one is there, whatever
/// adapter it is of.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// An object is there.
    Opened {
        /// The object.
        key: usize,
        /// What it is called.
        object: ObjectId,
        /// The keys of what it depends on; 0 where there is nothing more.
        on: [usize; MOST_ANTECEDENTS],
        /// The address of the consumer's notification callback, of a completion queue; 0 without one.
        notification: usize,
        /// Who created it: return addresses, the innermost first.
        creator: &'a [usize; FRAMES],
    },
    /// The close of an object begins.
    Closing {
        /// The object.
        key: usize,
    },
    /// A call begins that need not be over when it returns.
    Began {
        /// The object.
        key: usize,
        /// The number of the call, among those of its adapter.
        call: u64,
        /// What the object is called.
        object: ObjectId,
        /// What was called.
        function: Function,
        /// By whom: return addresses, the innermost first.
        caller: &'a [usize; FRAMES],
    },
    /// The call is over: it has returned without pending, or its completion is called.
    Ended {
        /// The object.
        key: usize,
        /// The number of the call.
        call: u64,
    },
    /// The notification callback of a completion queue has returned, and the queue is not armed.
    Unarmed {
        /// The completion queue.
        key: usize,
    },
    /// The queue was polled for the first time after a notification.
    Polled {
        /// The completion queue.
        key: usize,
        /// By whom: return addresses, the innermost first.
        caller: &'a [usize; FRAMES],
    },
    /// A completion queue is armed that was not.
    Armed {
        /// The completion queue.
        key: usize,
    },
}

/// The key of an object.
fn key_of<O: InterposeOs>(node: &State<O>) -> usize {
    core::ptr::from_ref::<Node<O>>(node).addr()
}

impl<O: InterposeOs, S: Sink> Adviser<O, S> {
    /// Return addresses of who calls.
    fn caller(&self) -> [usize; FRAMES] {
        let mut caller = [0; FRAMES];
        self.os.stack(&mut caller);
        caller
    }

    /// What is no post, arm or poll, if the sink follows.
    pub(super) fn follow(&self, event: &Event<'_, State<O>>) {
        if !self.sink.follows() {
            return;
        }
        let key = key_of(event.object.state);
        let is_close = matches!(event.function, Function::Close | Function::CloseAdapter);
        let may_pend = event.request.is_some() || is_close;
        let call = event.call;
        match event.phase {
            Phase::Call if may_pend => {
                let (object, function, caller) = (event.object.id, event.function, self.caller());
                self.sink.follow(&Step::Began { key, call, object, function, caller: &caller });
                if is_close {
                    self.sink.follow(&Step::Closing { key });
                }
            }
            Phase::Return if event.outcome == Outcome::Status(NtStatus::PENDING) => {}
            Phase::Return | Phase::Callback => {
                if may_pend {
                    self.sink.follow(&Step::Ended { key, call });
                }
                if let Some(created) = event.created {
                    self.follow_object(created.state);
                }
            }
            Phase::CallbackReturn if event.function == Function::CqNotification => self.follow_notification(event),
            Phase::Call | Phase::CallbackReturn => {}
        }
    }

    fn follow_object(&self, node: &State<O>) {
        let mut on = [0; MOST_ANTECEDENTS];
        on.iter_mut().zip(node.antecedents()).for_each(|(place, antecedent)| *place = key_of(antecedent));
        let notification = body!(node, Cq).map_or(0, |cq| cq.notification);
        let (key, object) = (key_of(node), node.id);
        self.sink.follow(&Step::Opened { key, object, on, notification, creator: &node.creator });
    }

    fn follow_notification(&self, event: &Event<'_, State<O>>) {
        let Some(cq) = body!(event.object.state, Cq).filter(|cq| cq.armed.load(SeqCst) == 0) else { return };
        let key = key_of(event.object.state);
        self.sink.follow(&Step::Unarmed { key });
        // Whoever has armed it meanwhile has said so before that.
        if cq.armed.load(SeqCst) != 0 {
            self.sink.follow(&Step::Armed { key });
        }
    }

    /// A queue is armed that was not.
    #[cold]
    pub(super) fn follow_arm(&self, node: &State<O>) {
        if self.sink.follows() {
            self.sink.follow(&Step::Armed { key: key_of(node) });
        }
    }

    /// A queue is polled that was not since its last notification.
    #[cold]
    pub(super) fn follow_poll(&self, node: &State<O>, cq: &CqNode<O>) {
        cq.unpolled.store(0, SeqCst);
        if self.sink.follows() {
            self.sink.follow(&Step::Polled { key: key_of(node), caller: &self.caller() });
        }
    }
}
