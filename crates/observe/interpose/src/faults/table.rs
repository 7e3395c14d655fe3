//! The one table of faults.

use ndkpi::NtStatus;

use super::statuses::{failures, has_completion, refusals, results};
use crate::Function;

/// What is known of a kind of fault.
#[derive(Debug)]
pub struct Page {
    /// The name on the command line.
    pub name: &'static str,
    /// What happens.
    pub what: &'static str,
    /// The calls and callbacks that it happens to.
    pub operations: &'static str,
    /// The section that makes it legitimate.
    pub section: &'static str,
    /// The rule there.
    pub rule: &'static str,
    /// It takes a delay.
    pub has_delay: bool,
    /// It takes a status.
    pub has_status: bool,
}

macro_rules! kinds {
    ($($item:ident = $number:literal $name:literal $section:literal ($delay:literal, $status:literal)
        what $what:literal operations $operations:literal rule $rule:literal;)+) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Kind {
            $(#[doc = concat!($what, " (", $section, ").")] $item = $number,)+
        }

        impl Kind {
            /// All of them, by number.
            pub const ALL: &'static [Self] = &[$(Self::$item),+];

            /// What is known of it.
            #[must_use]
            pub const fn page(self) -> &'static Page {
                match self {
                    $(Self::$item => &Page {
                        name: $name,
                        what: $what,
                        operations: $operations,
                        section: $section,
                        rule: $rule,
                        has_delay: $delay,
                        has_status: $status,
                    },)+
                }
            }
        }
    };
}

kinds! {
    Refuse = 1 "refuse" "NDKPI 5" (false, true)
        what "A call fails at once, with a status that its page has"
        operations "creations, BuildLAM, RegisterMr, InitializeFastRegisterMr, ResizeCq, moderation, initiator requests, Connect, Listen"
        rule "The page of each function lists its statuses, STATUS_INSUFFICIENT_RESOURCES above all. A post that fails is not posted; the queue pair stays usable.";
    Fail = 2 "fail" "NDKPI 5" (true, true)
        what "A request or creation pends, and completes with a failure"
        operations "creations, BuildLAM, RegisterMr, InitializeFastRegisterMr, ResizeCq, Connect, CompleteConnect, Accept, Listen"
        rule "The statuses of a function that may pend come in the call or in its completion.";
    Late = 3 "late" "NDKPI 5" (true, false)
        what "A completion comes by a callback, after the call has returned STATUS_PENDING"
        operations "every function with a completion; of a close the provider hears later, of a listener's at once"
        rule "A provider may pend any request, creation and close, and complete it when it likes.";
    Early = 4 "early" "NDKPI 5" (false, false)
        what "A completion comes by a callback, before the call returns STATUS_PENDING"
        operations "every function with a completion but closes"
        rule "The callback may run before the function returns STATUS_PENDING, on the same stack; the consumer may close the object inside.";
    Event = 5 "event" "NDKPI 7.1.6" (true, false)
        what "An event callback comes late"
        operations "notifications of completion queues, connect events, disconnect events"
        rule "An interrupt may be delayed after the completion that satisfies an arm; a connect event waits as long as the peer's connect does; a disconnect event may come after the consumer's own disconnect (7.7.6).";
    Hold = 6 "hold" "NDKPI 7.1.8" (true, false)
        what "Completions are seen late: polls find nothing for a while"
        operations "GetCqResults, GetCqResultsEx"
        rule "When a request completes is not said anywhere. Held back is only what came after the last notification, so that the next arm is satisfied by it (7.1.5).";
    Result = 7 "result" "NDKPI 7.2" (false, true)
        what "A work request completes with a failure, and its queue pair is broken: what comes after it is cancelled"
        operations "GetCqResults, GetCqResultsEx, of queue pairs whose context no other one of the completion queue has"
        rule "On a failed completion the connection is broken and later requests complete with STATUS_CANCELLED.";
    Disconnect = 8 "disconnect" "NDKPI 7.7.6" (true, false)
        what "A connection ends some time after it was established: the peer hears of a disconnect, the consumer of an abort"
        operations "CompleteConnect, Accept"
        rule "A disconnect event comes when the peer disconnects or the connection aborts for any reason.";
    CqError = 9 "cq-error" "NDKPI 7.1.10" (false, false)
        what "A completion queue fails with STATUS_INTERNAL_ERROR, and its queue pairs with it"
        operations "ArmCq, GetCqResults, GetCqResultsEx"
        rule "After a fatal error of the hardware the queue and every queue pair on it are unusable, nothing completes any more, and who has armed it is notified.";
    Overrun = 10 "overrun" "NDKPI 7.1.10" (false, false)
        what "A completion queue fails with STATUS_BUFFER_OVERFLOW, as if more had completed than it has entries"
        operations "ArmCq, GetCqResults, GetCqResultsEx"
        rule "An overrun is the consumer's mistake, so hardware shows it to no consumer that counts. What it does to the queue is what a fatal error does.";
    Remove = 11 "remove" "NDIS-NDK 4" (false, false)
        what "The adapter goes without a word: its connections end, connects and listens fail, nobody opens it again"
        operations "posts, Connect, Accept, Listen"
        rule "An adapter can be pulled. Its consumers have disconnect events and flushed queue pairs before plug and play tells them to close.";
    NotReady = 12 "not-ready" "NDKPI 7.2" (false, false)
        what "A send completes with STATUS_IO_TIMEOUT, as if the peer had had no receive for it, and its queue pair is broken"
        operations "GetCqResultsEx, of sends of queue pairs whose context no other one of the completion queue has"
        rule "A message that meets no receive is sent again a few times (RoCE) or not at all (iWARP), and then ends the connection.";
    Cross = 13 "cross" "NDKPI 7.1.8" (false, false)
        what "Receives are seen before the initiator completions that a poll finds with them, so that an answer comes before the completion of what it answers"
        operations "GetCqResultsEx"
        rule "The order of completions is that of each queue of a queue pair. Between the two queues there is none.";
}

impl Kind {
    /// The kind with this number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| *kind as u32 == number)
    }

    /// The kind with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.page().name == name)
    }

    /// Returns true if it happens to calls of this function, or to this callback.
    #[must_use]
    pub const fn happens_to(self, function: Function) -> bool {
        use Function as F;
        match self {
            Self::Refuse => refusals(function).is_some(),
            Self::Fail => failures(function).is_some(),
            Self::Late => has_completion(function),
            Self::Early => has_completion(function) && !matches!(function, F::Close),
            Self::Event => {
                matches!(function, F::CqNotification | F::ConnectEvent | F::DisconnectEvent | F::DisconnectEventEx)
            }
            Self::NotReady | Self::Cross => matches!(function, F::GetCqResultsEx),
            Self::Hold | Self::Result => matches!(function, F::GetCqResults | F::GetCqResultsEx),
            Self::Disconnect => {
                matches!(function, F::CompleteConnect | F::CompleteConnectEx | F::Accept | F::AcceptEx)
            }
            Self::CqError | Self::Overrun => matches!(function, F::ArmCq | F::GetCqResults | F::GetCqResultsEx),
            Self::Remove => matches!(
                function,
                F::Send
                    | F::SendAndInvalidate
                    | F::Read
                    | F::Write
                    | F::Receive
                    | F::SrqReceive
                    | F::Connect
                    | F::ConnectWithSharedEndpoint
                    | F::Accept
                    | F::AcceptEx
                    | F::Listen
            ),
        }
    }

    /// The statuses that it may have with this function, the usual one first.
    pub const fn statuses(self, function: Function) -> &'static [NtStatus] {
        let statuses = match self {
            Self::Refuse => refusals(function),
            Self::Fail => failures(function),
            Self::Result => Some((results(Some(ndkpi::NDK_OPERATION_TYPE::SEND)), "")),
            _ => None,
        };
        match statuses {
            Some((statuses, _)) => statuses,
            None => &[],
        }
    }
}
