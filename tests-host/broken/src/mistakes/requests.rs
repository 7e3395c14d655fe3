//! Posting, and what a request does.

use super::{Edit, Mistake};

const POST: &str = "engine/src/qp/post.rs";
const EXECUTE: &str = "engine/src/qp/execute.rs";
const PROGRESS: &str = "engine/src/qp/progress.rs";
const SEND_QUEUE: &str = "engine/src/qp/send_queue.rs";

/// These mistakes.
pub const ALL: &[Mistake] = &[
    Mistake {
        name: "SilentSuccessCompletes",
        about: "A silent request completes although it has succeeded.",
        cases: &["post.silent-success", "notify.silent-success"],
        edits: &[Edit::wrong(POST, "self.contains(Self::SILENT_SUCCESS) && «status == NtStatus::SUCCESS»", "false")],
    },
    Mistake {
        name: "SilentFailureIsSilent",
        about: "A silent request does not complete although it has failed.",
        cases: &["post.silent-failure"],
        edits: &[Edit::wrong(
            POST,
            "self.contains(Self::SILENT_SUCCESS) && «status == NtStatus::SUCCESS»",
            "status != NtStatus::CANCELLED",
        )],
    },
    Mistake {
        name: "BytesWrong",
        about: "A receive says that it has one byte more than was sent.",
        cases: &["results.bytes-received"],
        edits: &[Edit::wrong(EXECUTE, "cq::Received::new(«length», 0)", "length + 1")],
    },
    Mistake {
        name: "DeferredStaysOnFailure",
        about: "What was deferred stays where it is when a post fails.",
        cases: &["post.deferred-then-failure"],
        edits: &[Edit::wrong(POST, "if «was_deferred» {", "false")],
    },
    Mistake {
        name: "UnconnectedPostAccepted",
        about: "An unconnected queue pair takes initiator requests.",
        cases: &["post.unconnected"],
        edits: &[Edit::wrong(POST, "if «!this.is_linked()» || this.is_dead() {", "false")],
    },
    Mistake {
        name: "TooManyElementsAccepted",
        about: "A queue pair takes one element more than it was created for.",
        cases: &["post.too-many-elements"],
        edits: &[Edit::wrong(POST, "*count <= «self.elements»", "self.elements + 1")],
    },
    Mistake {
        name: "RemoteErrorsFirst",
        about: "The peer's memory and receive are looked at before the request's own elements.",
        cases: &["protection.local-errors-first"],
        edits: &[
            Edit::wrong(PROGRESS, "«self.find_local(qp, request)»?; let Some(peer)", "Ok::<(), NtStatus>(())"),
            Edit::wrong(
                PROGRESS,
                "self.current = Some(Current { claim, moved: 0, invalidated: None });«»",
                "self.find_local(qp, request)?;",
            ),
        ],
    },
    Mistake {
        name: "RemoteInvalidateLate",
        about: "A send-and-invalidate invalidates after the receive has completed.",
        cases: &["invalidate.before-the-receive-completes", "invalidate.before-the-callback"],
        edits: &[
            Edit::state(
                SEND_QUEUE,
                "«»/// Local data of the current request.",
                "/* The token that the send before has invalidated, too late. */ \
                 pub late: Option<(Arc<crate::memory::Domain<O>>, u32)>,",
            ),
            Edit::state(SEND_QUEUE, "«»local: room(parameters.max_initiator_sge)?", "late: None, "),
            Edit::wrong(
                PROGRESS,
                "«»if current.invalidated.is_none() {",
                "if is_send { self.late = Some((domain.clone(), token)); return Ok(true); }",
            ),
            Edit::wrong(
                SEND_QUEUE,
                "«»if orders & order::TO_SEND_QUEUE != 0 {",
                "if let Some((domain, token)) = self.late.take() { let _ = domain.invalidate_remote(token); }",
            ),
            Edit::wrong(
                SEND_QUEUE,
                "let has_orders = «qp.initiating.orders.load(Ordering::Relaxed) != 0»;",
                "self.late.is_some() || qp.initiating.orders.load(Ordering::Relaxed) != 0",
            ),
        ],
    },
    Mistake {
        name: "FlushForgetsSilent",
        about: "A flush cancels silent requests silently.",
        cases: &["flush.silent-requests"],
        edits: &[Edit::wrong(
            POST,
            "self.contains(Self::SILENT_SUCCESS) && «status == NtStatus::SUCCESS»",
            "matches!(status, NtStatus::SUCCESS | NtStatus::CANCELLED)",
        )],
    },
];
