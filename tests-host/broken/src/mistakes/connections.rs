//! Connections, and how they end.

use super::{Edit, Mistake};

const ENDING: &str = "engine/src/connection/ending.rs";
const CONNECTOR: &str = "provider/src/connector.rs";
const STATE: &str = "engine/src/connection/state.rs";
const CONNECT: &str = "provider/src/connect.rs";
const ESTABLISH: &str = "engine/src/connection/establish.rs";
const LISTENER: &str = "engine/src/connection/listener.rs";
const LINK: &str = "engine/src/qp/link.rs";

/// These mistakes.
pub const ALL: &[Mistake] = &[
    Mistake {
        name: "FlushOnIncomingDisconnect",
        about: "An incoming disconnect flushes.",
        cases: &["disconnect.incoming-does-not-flush"],
        edits: &[Edit::wrong(ENDING, "Some(qp) if «failing» =>", "true")],
    },
    Mistake {
        name: "DisconnectDoesNotFlush",
        about: "A disconnect of the consumer's own does not flush.",
        cases: &["disconnect.flushes-own-receives"],
        edits: &[Edit::wrong(ENDING, "Some(qp) if «failing» =>", "false")],
    },
    Mistake {
        name: "SecondDisconnectIndication",
        about: "The consumer hears twice that the connection has ended.",
        cases: &["disconnect.graceful", "disconnect.close-aborts"],
        edits: &[Edit::wrong(
            CONNECTOR,
            "«»match event { Some(DisconnectEvent::Plain",
            "if let Some(DisconnectEvent::Plain(callback, context)) = event { \
                 /* SAFETY: the consumer's callback, with its context (`NDKPI 6`); no lock is held. */ \
                 unsafe { callback(context) }; \
             }",
        )],
    },
    Mistake {
        name: "IndicationOfOwnDisconnect",
        about: "The consumer is told of the disconnect that it asked for itself.",
        cases: &["disconnect.graceful"],
        edits: &[
            Edit::wrong(ENDING, "«end.connector.silence()»;", "()"),
            Edit::wrong(
                STATE,
                "Connector::answer(&self.connector, ConnectorRequest::Disconnect, ending.answer(role));«»",
                "Connector::indicate(&self.connector, DisconnectReason::Disconnected);",
            ),
        ],
    },
    Mistake {
        name: "DisconnectDoesNotDrain",
        about: "A disconnect completes before what was posted is carried out.",
        cases: &["disconnect.carries-out-what-was-posted"],
        edits: &[Edit::wrong(
            ENDING,
            "«»if let Some(qp) = &qps[role] { Qp::drain(qp);",
            "Self::end(this, Ending::Graceful); return Ok(Disconnect::Pending);",
        )],
    },
    Mistake {
        name: "PrivateDataLengthWrong",
        about: "The size of private data is that of the buffer, not the one required.",
        cases: &["connect.private-data-sizes"],
        edits: &[Edit::wrong(CONNECT, "unsafe { length.write(«required») };", "required.min(room)")],
    },
    Mistake {
        name: "AcceptCompletesEarly",
        about: "An accept completes before the connect is completed.",
        cases: &["connect.accept-pends"],
        edits: &[Edit::wrong(
            ESTABLISH,
            "state.answer(Role::Active, ConnectorRequest::Connect, NtStatus::SUCCESS);«» Ok(())",
            "state.answer(Role::Passive, ConnectorRequest::Accept, NtStatus::SUCCESS);",
        )],
    },
    Mistake {
        name: "ClosedListenerAccepts",
        about: "A listener takes connections after its close has begun.",
        cases: &["connect.closed-listener-refuses"],
        edits: &[Edit::wrong(LISTENER, "«»let (listed, local, waits) =", "return;")],
    },
    Mistake {
        name: "PauseIgnored",
        about: "Pausing connect events has no effect.",
        cases: &["connect.paused-events"],
        edits: &[Edit::wrong(LISTENER, "pub fn pause(&self, paused: bool) { «»", "return;")],
    },
    Mistake {
        name: "ReadLimitIgnored",
        about: "Read limits are reported and not kept.",
        cases: &["connect.no-reads"],
        edits: &[Edit::wrong(LINK, "self.no_reads.store(«!allowed», Ordering::Release)", "false")],
    },
];
