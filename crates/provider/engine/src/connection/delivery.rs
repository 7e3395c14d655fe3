//! The order of the calls to a connector's client.

use ntstatus::NtStatus;

use super::{ConnectorRequest, DisconnectReason};
use crate::wire::RejectReason;

/// A call to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Completed(ConnectorRequest, NtStatus, Option<RejectReason>),
    Disconnected(DisconnectReason),
}

/// The pending calls to a client, and whether they may be made now.
///
/// There is room for one answer and one indication: a connector has one request at a time, and one connection in its life.
#[derive(Default)]
pub(super) struct Delivery {
    answer: Option<(ConnectorRequest, NtStatus, Option<RejectReason>)>,
    indication: Option<DisconnectReason>,
    /// A call to the client runs.
    delivering: bool,
    /// The result of a call has to reach the consumer first.
    held: bool,
    /// The consumer wants no indication (any more).
    silent: bool,
}

impl Delivery {
    /// A request has its answer, which another machine may have given a reason for.
    pub fn answer(&mut self, request: ConnectorRequest, status: NtStatus, reason: Option<RejectReason>) {
        debug_assert!(self.answer.is_none(), "a connector has one request at a time");
        self.answer = Some((request, status, reason));
    }

    /// The connection has ended.
    pub const fn indicate(&mut self, reason: DisconnectReason) {
        if !self.silent {
            self.indication = Some(reason);
        }
    }

    /// No indication begins from now on: the consumer has disconnected or closed (`NDKPI 7.7.6`).
    pub const fn silence(&mut self) {
        self.silent = true;
        self.indication = None;
    }

    /// Returns true if the client has not been told of an answer yet, so that it cannot build on it.
    pub const fn is_unanswered(&self) -> bool {
        self.answer.is_some()
    }

    /// Holds everything back until [`Delivery::release`].
    pub const fn hold(&mut self) {
        self.held = true;
    }

    /// Ends [`Delivery::hold`]. Returns true if there is something to tell.
    #[must_use]
    pub const fn release(&mut self) -> bool {
        self.held = false;
        self.has_more()
    }

    /// Returns what to tell next: an answer before the indication. `None` while a call runs: who made that call asks again.
    pub fn begin(&mut self) -> Option<Event> {
        if self.delivering || self.held {
            return None;
        }
        let answer = self.answer.take().map(|(request, status, reason)| Event::Completed(request, status, reason));
        let event = answer.or_else(|| self.indication.take().map(Event::Disconnected));
        self.delivering = event.is_some();
        event
    }

    /// The call has returned. Returns true if there is more to tell.
    #[must_use]
    pub const fn end(&mut self) -> bool {
        self.delivering = false;
        self.has_more()
    }

    const fn has_more(&self) -> bool {
        !self.held && (self.answer.is_some() || self.indication.is_some())
    }
}

#[cfg(test)]
mod tests {
    use ntstatus::NtStatus;

    use super::{
        super::{ConnectorRequest, DisconnectReason},
        Delivery, Event,
    };

    const ACCEPTED: Event = Event::Completed(ConnectorRequest::Accept, NtStatus::SUCCESS, None);
    const ENDED: Event = Event::Disconnected(DisconnectReason::Failed);

    #[test]
    fn the_answer_comes_before_the_indication_and_not_at_the_same_time() {
        let mut delivery = Delivery::default();
        delivery.indicate(DisconnectReason::Failed);
        delivery.answer(ConnectorRequest::Accept, NtStatus::SUCCESS, None);
        assert!(delivery.is_unanswered());
        assert_eq!(delivery.begin(), Some(ACCEPTED));
        assert!(!delivery.is_unanswered());
        assert_eq!(delivery.begin(), None, "a call runs");
        assert!(delivery.end());
        assert_eq!(delivery.begin(), Some(ENDED));
        assert!(!delivery.end());
        assert_eq!(delivery.begin(), None);
    }

    #[test]
    fn what_is_held_comes_after_the_release() {
        let mut delivery = Delivery::default();
        delivery.hold();
        delivery.indicate(DisconnectReason::Failed);
        assert_eq!(delivery.begin(), None);
        assert!(delivery.release());
        assert_eq!(delivery.begin(), Some(ENDED));
    }

    #[test]
    fn silence_takes_the_indication_back_but_no_answer() {
        let mut delivery = Delivery::default();
        delivery.indicate(DisconnectReason::Failed);
        delivery.answer(ConnectorRequest::Disconnect, NtStatus::CANCELLED, None);
        delivery.silence();
        delivery.indicate(DisconnectReason::Closed);
        assert_eq!(delivery.begin(), Some(Event::Completed(ConnectorRequest::Disconnect, NtStatus::CANCELLED, None)));
        assert!(!delivery.end());
    }
}
