//! What queues hold, and what becomes of their moderation, resizes and overruns.

use super::{Edit, Mistake};

const CQ: &str = "engine/src/cq/mod.rs";
const NOTIFY: &str = "engine/src/cq/notify.rs";
const CQ_OBJECT: &str = "provider/src/cq.rs";
const SRQ: &str = "engine/src/qp/srq.rs";

/// These mistakes.
pub const ALL: &[Mistake] = &[
    Mistake {
        name: "OverrunSilent",
        about: "A completion that does not fit is dropped silently.",
        cases: &["overrun.reported-to-errors", "overrun.reported-to-solicited", "overrun.reported-to-any"],
        edits: &[Edit::wrong(CQ, "return «self.fail(CqFailure::Overrun)»;", "false")],
    },
    Mistake {
        name: "OverrunLeavesQueuePairs",
        about: "An overrun is reported, but the queue pairs go on.",
        cases: &["overrun.every-queue-pair"],
        edits: &[Edit::wrong(CQ, "«self.dependents.begin_failure()»;", "()")],
    },
    Mistake {
        name: "DepthOffByOne",
        about: "A queue holds one entry more than its depth.",
        cases: &["overrun.queued-entries"],
        edits: &[Edit::wrong(CQ, "ring::try_new(«depth», first)", "depth + 1")],
    },
    Mistake {
        name: "ResizeLosesEntry",
        about: "A resize loses an entry.",
        cases: &["resize.grow", "resize.shrink", "resize.at-random"],
        edits: &[
            Edit::wrong(
                CQ,
                "«»if self.settle().failure().is_some() { return false; } if !self.entries.push(",
                "if crate::switch::recall() { return false; }",
            ),
            Edit::wrong(CQ, "«»Ok((unused, state.update(", "crate::switch::remember();"),
            Edit::wrong(CQ, "let is_ignored = «self.ignores_plain» && outcome.is_plain()", "false"),
        ],
    },
    Mistake {
        name: "ResizeDisarms",
        about: "A resize takes the arm away.",
        cases: &["resize.keeps-the-arm"],
        edits: &[Edit::wrong(NOTIFY, "«»self.moderation = self.moderation.at_depth(depth);", "self.view.arm = None;")],
    },
    Mistake {
        name: "ModerationIgnoresCount",
        about: "The count of the moderation does not end a hold.",
        cases: &["moderation.count-alone", "moderation.count-of-the-depth"],
        edits: &[Edit::wrong(NOTIFY, "let ends = «urgent || self.moderation.counted(hold.completions)»;", "false")],
    },
    Mistake {
        name: "ModerationIgnoresInterval",
        about: "The interval of the moderation does not end a hold.",
        cases: &["moderation.interval-alone"],
        edits: &[Edit::wrong(CQ, "«»self.notify.hold_for(cq.os.now(), micros);", "return;")],
    },
    Mistake {
        name: "ModerationHoldsFailure",
        about: "A failure of the queue is held back by moderation.",
        cases: &["moderation.overrun"],
        edits: &[
            Edit::wrong(NOTIFY, "let urgent = «class == Class::Failed || full»;", "false"),
            Edit::wrong(
                NOTIFY,
                "«»if self.hold.is_some() { self.make_due() }",
                "if self.hold.is_some() { return Action::default(); }",
            ),
        ],
    },
    Mistake {
        name: "ModerationWithoutLimit",
        about: "A moderation without a limit on either side is accepted.",
        cases: &["moderation.no-limit-at-all"],
        edits: &[Edit::wrong(
            CQ,
            "«Moderation::new(interval, count, state.depth, this.os.timer_resolution())»?",
            "Moderation::new(interval, count, state.depth, this.os.timer_resolution()).or(Ok(Moderation::OFF))",
        )],
    },
    Mistake {
        name: "WrongOrder",
        about: "Two entries change places.",
        cases: &["results.order-of-receives", "results.order-of-initiator-requests"],
        edits: &[Edit::wrong(
            CQ_OBJECT,
            "«»// At most `count`.",
            "if taken >= 2 { \
                 /* SAFETY: the array has at least the two entries that were taken. */ \
                 let second = unsafe { results.add(1) }; \
                 /* SAFETY: both were written. */ \
                 unsafe { results.swap(second) }; \
             }",
        )],
    },
    Mistake {
        name: "SrqNotificationIsNotOneShot",
        about: "The notification of a shared receive queue stays armed.",
        cases: &["srq.notification", "srq.one-shot"],
        edits: &[Edit::wrong(SRQ, "self.armed = «false»; self.due = true;", "true")],
    },
    Mistake {
        name: "SrqZeroThresholdDisarms",
        about: "A threshold of 0 takes the arm of a shared receive queue away.",
        cases: &["srq.threshold-zero-keeps-the-arm"],
        edits: &[Edit::wrong(
            SRQ,
            "«»let is_due = |state: &mut State<O>| {",
            "if threshold == 0 { this.state.with(|state| state.armed = false); }",
        )],
    },
];
