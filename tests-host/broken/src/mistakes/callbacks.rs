//! Arms and callbacks of completion queues.

use super::{Edit, Mistake};

const NOTIFY: &str = "engine/src/cq/notify.rs";
const CQ: &str = "engine/src/cq/mod.rs";
const CQ_OBJECT: &str = "provider/src/cq.rs";
const COMPLETION: &str = "provider/src/completion.rs";

/// These mistakes.
pub const ALL: &[Mistake] = &[
    Mistake {
        name: "ArmDowngraded",
        about: "A weaker arm takes the place of a stronger one.",
        cases: &["arm.merge-any-errors", "arm.merge-any-solicited", "arm.merge-solicited-errors"],
        edits: &[Edit::wrong(NOTIFY, "«first.map_or(second, |first| first.max(second))»", "second")],
    },
    Mistake {
        name: "ArmMissesQueuedEntry",
        about: "An arm does not look at what is in the queue already.",
        cases: &["notify.at-once-any", "notify.at-once-solicited"],
        edits: &[Edit::wrong(NOTIFY, "self.view.taken = taken; «self.decide()»", "Action::default()")],
    },
    Mistake {
        name: "ArmIsNotOneShot",
        about: "An arm stays after its callback.",
        cases: &["arm.one-callback-per-arm"],
        edits: &[
            Edit::wrong(NOTIFY, "if satisfied { self.view.arm = «None»;", "self.view.arm"),
            Edit::wrong(NOTIFY, "self.view.arm = «None»; self.make_due()", "self.view.arm"),
        ],
    },
    Mistake {
        name: "UnarmedCallback",
        about: "A queue that is not armed calls back.",
        cases: &["arm.new-queue-is-unarmed"],
        edits: &[
            Edit::wrong(
                NOTIFY,
                "«»self.view.newest = self.view.newest.wrapping_add(1);",
                "if !self.closed { self.view.arm = Some(ArmType::Any); }",
            ),
            Edit::wrong(CQ, "let is_ignored = «self.ignores_plain» && outcome.is_plain()", "false"),
        ],
    },
    Mistake {
        name: "PlainEntrySolicits",
        about: "A plain entry satisfies SOLICITED.",
        cases: &["arm.solicited-ignores-plain"],
        edits: &[
            Edit::wrong(NOTIFY, "(true, false) => «Self::Plain»", "Self::Solicited"),
            Edit::wrong(CQ, "let is_ignored = «self.ignores_plain» && outcome.is_plain()", "false"),
        ],
    },
    Mistake {
        name: "SolicitedEntryIsPlain",
        about: "A solicited entry is like any other.",
        cases: &["arm.solicited-ignores-plain", "notify.at-once-solicited"],
        edits: &[Edit::wrong(NOTIFY, "(true, true) => «Self::Solicited»", "Self::Plain")],
    },
    Mistake {
        name: "FailedRequestDoesNotSolicit",
        about: "A failed request does not satisfy SOLICITED.",
        cases: &["arm.solicited-by-error"],
        edits: &[Edit::wrong(NOTIFY, "(false, _) => «Self::Failed»", "Self::Plain")],
    },
    Mistake {
        name: "EntryDuringCallbackLost",
        about: "A completion that comes while a callback runs is taken for one that the callback knows.",
        cases: &["notify.entry-during-callback", "notify.arm-before-entry-during-callback", "stress.sleeping-consumer"],
        edits: &[Edit::wrong(
            NOTIFY,
            "«»self.callback = if self.due { Callback::Queued }",
            "(self.view.last_callback, self.due) = (self.view.newest, false);",
        )],
    },
    Mistake {
        name: "CallbackInsideArm",
        about: "A callback begins inside `NdkArmCq`.",
        cases: &["notify.not-inside-arm"],
        edits: &[Edit::wrong(
            CQ,
            "«»if queue { this.dpc.queue(this); } } /// Prevents further callbacks.",
            "if queue { return Self::notify(this); }",
        )],
    },
    Mistake {
        name: "CallbackReentered",
        about: "A second callback begins while one runs, if that arms the queue.",
        cases: &["notify.entry-during-callback"],
        edits: &[
            Edit::wrong(
                CQ,
                "«»if queue { this.dpc.queue(this); } } /// Prevents further callbacks.",
                "if this.state.with(|state| state.settle().reenter()) { return Self::notify(this); }",
            ),
            Edit::state(
                NOTIFY,
                "«»/// Prevents further callbacks.",
                "/* The callback that is due does not wait for the one that runs. */ \
                 pub(super) fn reenter(&mut self) -> bool { \
                     let reenters = self.due && self.callback == Callback::Running; \
                     if reenters { \
                         self.callback = Callback::Queued; \
                     } \
                     reenters \
                 }",
            ),
        ],
    },
    Mistake {
        name: "CallbackUnderLock",
        about: "A callback is made with the queue's lock held.",
        cases: &["arm.one-callback-per-arm"],
        edits: &[Edit::wrong(
            CQ,
            "«»for _ in 0..CALLBACKS_PER_RUN {",
            "return this.state.with(|state| { \
                 if let Some(status) = state.settle().begin() { \
                     this.client.notify(status); \
                     let _ = state.settle().end(); \
                 } \
             });",
        )],
    },
    Mistake {
        name: "CallbackAfterClose",
        about: "A callback comes after the close has completed.",
        cases: &["close.armed-queue"],
        edits: &[
            Edit::state(
                CQ_OBJECT,
                "adapter: ObjectRef<Adapter<O>>, «»}",
                "late: (Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>, usize),",
            ),
            Edit::state(CQ_OBJECT, "adapter: adapter.clone()«» }", ", late: (callback, context.expose_provenance())"),
            Edit::state(
                CQ_OBJECT,
                "«»const TABLE: &'static NDK_CQ_DISPATCH",
                "/* The close has completed. */ \
                 pub fn call_late(&self) { \
                     if let (Some(callback), context) = self.late { \
                         /* SAFETY: none: this is the mistake. The suite keeps its contexts until the adapter is closed. */ \
                         unsafe { callback(ptr::with_exposed_provenance_mut(context), NtStatus::SUCCESS) }; \
                     } \
                 }",
            ),
            Edit::wrong(COMPLETION, "«»drop(object);", "if let AnyObject::Cq(cq) = &object { cq.call_late(); }"),
        ],
    },
    Mistake {
        name: "CallbackAfterCloseBegan",
        about: "A callback that is due when the queue is closed is made all the same.",
        cases: &["notify.close-inside"],
        edits: &[Edit::wrong(NOTIFY, "«»self.closed = true;", "return;")],
    },
];
