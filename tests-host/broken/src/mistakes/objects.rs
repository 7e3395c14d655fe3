//! Objects: how requests complete, and closes.

use super::{Edit, Mistake};

const OBJECT: &str = "provider/src/object.rs";
const COMPLETION: &str = "provider/src/completion.rs";
const CQ_OBJECT: &str = "provider/src/cq.rs";
const DEVICE: &str = "provider/src/device.rs";

/// These mistakes.
pub const ALL: &[Mistake] = &[
    Mistake {
        name: "CloseCompletesEarly",
        about: "A close completes although successors are open.",
        cases: &["close.queue-waits-for-queue-pair", "close.domain-waits-for-children"],
        edits: &[
            Edit::wrong(
                OBJECT,
                "«»// SAFETY: the consumer does not use the pointer after close, and closes once.",
                "if let Some(completion) = completion { \
                     /* SAFETY: nobody reads the cell before the last reference is gone, and the consumer's is not given back yet. */ \
                     unsafe { *object.close.get() = Some(CloseRequest { completion: None, context }) }; \
                     /* SAFETY: the consumer's callback, with its context (`NDKPI 6`); no lock is held. */ \
                     unsafe { completion(context) }; \
                 }",
            ),
            Edit::wrong(
                OBJECT,
                "match «timing» { CompletionTiming::Inline => { *last.close",
                "CompletionTiming::Later",
            ),
        ],
    },
    Mistake {
        name: "CloseFails",
        about: "A close returns a failure.",
        cases: &["object.create-and-close"],
        edits: &[Edit::wrong(OBJECT, "drop(last); «NtStatus::SUCCESS»", "NtStatus::INTERNAL_ERROR")],
    },
    Mistake {
        name: "CompletesTwice",
        about: "A request returns its status and completes too.",
        cases: &["object.requests-complete-once"],
        edits: &[Edit::wrong(
            COMPLETION,
            "CompletionTiming::Inline => «status»,",
            "{ callback(events).deliver(); status }",
        )],
    },
    Mistake {
        name: "PendingCreateWritesPlace",
        about: "A create request that pends writes the place for the object.",
        cases: &["object.create-and-close"],
        edits: &[Edit::wrong(
            COMPLETION,
            "«»// The reference goes to the consumer only when nothing can fail any more.",
            "if let Some(object) = &object { \
                 /* SAFETY: `out` is valid for a write (`# Safety`). */ \
                 unsafe { self.out.write(object.as_public()) }; \
             }",
        )],
    },
    Mistake {
        name: "ReservedBlockTouched",
        about: "A function writes to the operating system's part of the header.",
        cases: &["object.layer-of-the-operating-system"],
        edits: &[Edit::wrong(
            CQ_OBJECT,
            "«»let kind = ArmType::from_value(kind)",
            "/* SAFETY: the caller passes an open queue. */ \
             unsafe { (*cq).Header.NdkReserved.rf = [ptr::null_mut(); 4] };",
        )],
    },
    Mistake {
        name: "MinorVersionNotChecked",
        about: "A minor version above the highest is opened.",
        cases: &["version.higher-minor-is-refused"],
        edits: &[Edit::wrong(
            DEVICE,
            "«version.negotiate(this.config.versions)»?",
            "{ \
                 let same = |_| NDK_VERSION::new(version.Major, 0).negotiate(this.config.versions); \
                 version.negotiate(this.config.versions).or_else(same) \
             }",
        )],
    },
];
