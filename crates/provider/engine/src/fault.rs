//! Deliberate mistakes, for the proof that the conformance suite finds them.
//!
//! A build without the feature `faults`, and so every driver and every program, has none: [`is`] is `false` there at compile
//! time. With it one mistake at a time can be switched on, for the whole program. In the code they all have one form:
//! [`mistake!`](crate::mistake).

/// Where a deliberate mistake can be made: what is wrong, and what would be right.
///
/// `mistake!(Fault => wrong, else right)` is an expression, `mistake!(Fault => wrong)` a statement that is nothing in a build
/// without mistakes. `mistake!(Fault if condition => ...)` is made under a condition only.
#[macro_export]
macro_rules! mistake {
    ($fault:ident $(if $condition:expr)? => $wrong:expr) => {
        if $crate::fault::is($crate::fault::Fault::$fault) $(&& $condition)? {
            $wrong;
        }
    };
    ($fault:ident $(if $condition:expr)? => $wrong:expr, else $right:expr) => {
        if $crate::fault::is($crate::fault::Fault::$fault) $(&& $condition)? { $wrong } else { $right }
    };
}

/// A mistake. Each is one that a provider has been shipped with, or that its rule is there to prevent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// A weaker arm takes the place of a stronger one.
    ArmDowngraded = 1,
    /// An arm does not look at what is in the queue already.
    ArmMissesQueuedEntry,
    /// An arm stays after its callback.
    ArmIsNotOneShot,
    /// A queue that is not armed calls back.
    UnarmedCallback,
    /// A plain entry satisfies SOLICITED.
    PlainEntrySolicits,
    /// A solicited entry is like any other.
    SolicitedEntryIsPlain,
    /// A failed request does not satisfy SOLICITED.
    FailedRequestDoesNotSolicit,
    /// A completion that comes while a callback runs is taken for one that the callback knows.
    EntryDuringCallbackLost,
    /// A callback begins inside `NdkArmCq`.
    CallbackInsideArm,
    /// A second callback begins while one runs, if that arms the queue.
    CallbackReentered,
    /// A callback is made with the queue's lock held.
    CallbackUnderLock,
    /// A callback comes after the close has completed.
    CallbackAfterClose,
    /// A callback that is due when the queue is closed is made all the same.
    CallbackAfterCloseBegan,
    /// A close completes although successors are open.
    CloseCompletesEarly,
    /// A close returns a failure.
    CloseFails,
    /// A completion that does not fit is dropped silently.
    OverrunSilent,
    /// An overrun is reported, but the queue pairs go on.
    OverrunLeavesQueuePairs,
    /// A queue holds one entry more than its depth.
    DepthOffByOne,
    /// A resize loses an entry.
    ResizeLosesEntry,
    /// A resize takes the arm away.
    ResizeDisarms,
    /// The count of the moderation does not end a hold.
    ModerationIgnoresCount,
    /// The interval of the moderation does not end a hold.
    ModerationIgnoresInterval,
    /// A failure of the queue is held back by moderation.
    ModerationHoldsFailure,
    /// A moderation without a limit on either side is accepted.
    ModerationWithoutLimit,
    /// Two entries change places.
    WrongOrder,
    /// A silent request completes although it has succeeded.
    SilentSuccessCompletes,
    /// A silent request does not complete although it has failed.
    SilentFailureIsSilent,
    /// A receive says that it has one byte more than was sent.
    BytesWrong,
    /// What was deferred stays where it is when a post fails.
    DeferredStaysOnFailure,
    /// An unconnected queue pair takes initiator requests.
    UnconnectedPostAccepted,
    /// A queue pair takes one element more than it was created for.
    TooManyElementsAccepted,
    /// A range may end one byte behind its registration.
    RangeOffByOneAbove,
    /// A range may begin one byte before its registration.
    RangeOffByOneBelow,
    /// Rights are not checked.
    RightsNotChecked,
    /// A read does not put its data where only local write is granted.
    ReadSinkRequired,
    /// The peer's memory and receive are looked at before the request's own elements.
    RemoteErrorsFirst,
    /// Local write is taken for remote write, which is two bits.
    LocalWriteIsRemoteWrite,
    /// Tokens of other protection domains are taken.
    DomainNotChecked,
    /// Peers may use the privileged token.
    PrivilegedTokenIsRemote,
    /// A token stays valid after its invalidation.
    TokenAfterInvalidate,
    /// A token stays valid after the deregistration.
    TokenAfterDeregister,
    /// A deregistration completes while transfers use the bytes.
    DeregisterDoesNotWait,
    /// An invalidation completes while transfers use the bytes.
    InvalidateDoesNotWait,
    /// The close of a fast-registered region or of a window completes while transfers use the bytes.
    CloseDoesNotWait,
    /// A transfer through a window holds the window, and not the fast-registered region that it is bound to.
    WindowForgetsRegion,
    /// A send-and-invalidate invalidates after the receive has completed.
    RemoteInvalidateLate,
    /// An incoming disconnect flushes.
    FlushOnIncomingDisconnect,
    /// A disconnect of the consumer's own does not flush.
    DisconnectDoesNotFlush,
    /// A flush cancels silent requests silently.
    FlushForgetsSilent,
    /// The consumer hears twice that the connection has ended.
    SecondDisconnectIndication,
    /// The consumer is told of the disconnect that it asked for itself.
    IndicationOfOwnDisconnect,
    /// A disconnect completes before what was posted is carried out.
    DisconnectDoesNotDrain,
    /// The size of private data is that of the buffer, not the one required.
    PrivateDataLengthWrong,
    /// An accept completes before the connect is completed.
    AcceptCompletesEarly,
    /// A listener takes connections after its close has begun.
    ClosedListenerAccepts,
    /// Pausing connect events has no effect.
    PauseIgnored,
    /// Read limits are reported and not kept.
    ReadLimitIgnored,
    /// The notification of a shared receive queue stays armed.
    SrqNotificationIsNotOneShot,
    /// A threshold of 0 takes the arm of a shared receive queue away.
    SrqZeroThresholdDisarms,
    /// A request returns its status and completes too.
    CompletesTwice,
    /// A create request that pends writes the place for the object.
    PendingCreateWritesPlace,
    /// A function writes to the operating system's part of the header.
    ReservedBlockTouched,
    /// A minor version above the highest is opened.
    MinorVersionNotChecked,
}

impl Fault {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::ArmDowngraded,
        Self::ArmMissesQueuedEntry,
        Self::ArmIsNotOneShot,
        Self::UnarmedCallback,
        Self::PlainEntrySolicits,
        Self::SolicitedEntryIsPlain,
        Self::FailedRequestDoesNotSolicit,
        Self::EntryDuringCallbackLost,
        Self::CallbackInsideArm,
        Self::CallbackReentered,
        Self::CallbackUnderLock,
        Self::CallbackAfterClose,
        Self::CallbackAfterCloseBegan,
        Self::CloseCompletesEarly,
        Self::CloseFails,
        Self::OverrunSilent,
        Self::OverrunLeavesQueuePairs,
        Self::DepthOffByOne,
        Self::ResizeLosesEntry,
        Self::ResizeDisarms,
        Self::ModerationIgnoresCount,
        Self::ModerationIgnoresInterval,
        Self::ModerationHoldsFailure,
        Self::ModerationWithoutLimit,
        Self::WrongOrder,
        Self::SilentSuccessCompletes,
        Self::SilentFailureIsSilent,
        Self::BytesWrong,
        Self::DeferredStaysOnFailure,
        Self::UnconnectedPostAccepted,
        Self::TooManyElementsAccepted,
        Self::RangeOffByOneAbove,
        Self::RangeOffByOneBelow,
        Self::RightsNotChecked,
        Self::ReadSinkRequired,
        Self::RemoteErrorsFirst,
        Self::LocalWriteIsRemoteWrite,
        Self::DomainNotChecked,
        Self::PrivilegedTokenIsRemote,
        Self::TokenAfterInvalidate,
        Self::TokenAfterDeregister,
        Self::DeregisterDoesNotWait,
        Self::InvalidateDoesNotWait,
        Self::CloseDoesNotWait,
        Self::WindowForgetsRegion,
        Self::RemoteInvalidateLate,
        Self::FlushOnIncomingDisconnect,
        Self::DisconnectDoesNotFlush,
        Self::FlushForgetsSilent,
        Self::SecondDisconnectIndication,
        Self::IndicationOfOwnDisconnect,
        Self::DisconnectDoesNotDrain,
        Self::PrivateDataLengthWrong,
        Self::AcceptCompletesEarly,
        Self::ClosedListenerAccepts,
        Self::PauseIgnored,
        Self::ReadLimitIgnored,
        Self::SrqNotificationIsNotOneShot,
        Self::SrqZeroThresholdDisarms,
        Self::CompletesTwice,
        Self::PendingCreateWritesPlace,
        Self::ReservedBlockTouched,
        Self::MinorVersionNotChecked,
    ];
}

#[cfg(feature = "faults")]
mod switch {
    use core::sync::atomic::{AtomicBool, AtomicU8, Ordering::SeqCst};

    use super::Fault;

    /// The number of the mistake that is made; 0 is none.
    static CURRENT: AtomicU8 = AtomicU8::new(0);
    static REMEMBERED: AtomicBool = AtomicBool::new(false);

    /// Makes this mistake from now on, or none.
    pub fn set(fault: Option<Fault>) {
        REMEMBERED.store(false, SeqCst);
        CURRENT.store(fault.map_or(0, |fault| fault as u8), SeqCst);
    }

    /// Returns true if this mistake is made.
    #[inline]
    #[must_use]
    pub fn is(fault: Fault) -> bool {
        CURRENT.load(SeqCst) == fault as u8
    }

    /// Returns true if any mistake is made.
    #[inline]
    #[must_use]
    pub fn is_any() -> bool {
        CURRENT.load(SeqCst) != 0
    }

    /// For a mistake that shows later: returns true if there was a reason to make it, and forgets the reason.
    #[must_use]
    pub fn recall() -> bool {
        REMEMBERED.swap(false, SeqCst)
    }

    /// For a mistake that shows later: there is a reason to make it.
    pub fn remember() {
        REMEMBERED.store(true, SeqCst);
    }
}

#[cfg(not(feature = "faults"))]
mod switch {
    use super::Fault;

    /// Returns true if this mistake is made: never.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "nothing of it must be left")]
    #[must_use]
    pub const fn is(_: Fault) -> bool {
        false
    }

    /// As [`is`].
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "nothing of it must be left")]
    #[must_use]
    pub const fn is_any() -> bool {
        false
    }

    /// As [`is`].
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "nothing of it must be left")]
    #[must_use]
    pub const fn recall() -> bool {
        false
    }

    /// There is nothing to remember.
    #[inline]
    pub const fn remember() {}
}

pub use switch::*;
