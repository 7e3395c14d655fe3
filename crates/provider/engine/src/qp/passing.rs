//! Requests that the peer does not see, behind others that are on their way to it.
//!
//! - A *fast registration* or a *bind* is carried out at once: it changes no memory that another request may use, for its region or window
//!   has none before. It completes in its turn. If a request before it fails it has not been, and is undone.
//! - An *invalidation* lets those behind it pass, and is carried out when those before it have completed: a packet that goes out again
//!   finds its memory as it was. What would use that memory, or give the region other memory, waits for it.
//!
//! One that could not be carried out now waits until all before it have completed, so that nothing behind a request that fails reaches the
//! peer.

use fallible::Arc;

use super::{Flags, NtStatus, Qp, Work, request::WorkRequest, send_queue::SendQueue};
use crate::{
    memory::{Posted, are_of_one_object},
    os::Os,
};

impl WorkRequest {
    /// The token of the memory of this side whose use the request ends when it is carried out.
    const fn ended_token(&self) -> Option<u32> {
        match self.work {
            Work::Invalidate { token } => Some(token),
            Work::Read { .. } if self.flags.contains(Flags::LOCAL_INVALIDATE) => Some(self.data.first_token()),
            _ => None,
        }
    }

    /// Returns true if it ends the use of memory of this side.
    pub(super) const fn ends_memory(&self) -> bool {
        self.ended_token().is_some()
    }
}

impl<O: Os> SendQueue<O> {
    /// Puts a request that the peer does not see behind the `ahead` ones that are on their way, so that those behind it can follow. Returns
    /// false if it has to wait for them.
    pub(super) fn pass(&mut self, qp: &Qp<O>, request: &WorkRequest, ahead: usize) -> bool {
        if self.flights.as_ref().is_none_or(|flights| ahead >= flights.room()) {
            return false;
        }
        let outcome = match request.work {
            Work::FastRegister(posted) | Work::Bind(posted) => {
                if self.is_waited_for(request, posted, ahead) || !qp.domain.may_commit(posted) {
                    return false;
                }
                qp.domain.commit(posted)
            }
            Work::Invalidate { token } => {
                if self.uses_what_ends(request, ahead) || !qp.domain.may_invalidate(token) {
                    return false;
                }
                // It is carried out when its turn to complete has come.
                Ok(())
            }
            Work::Send { .. } | Work::Read { .. } | Work::Write { .. } => return false,
        };
        if let Some(flights) = &mut self.flights {
            flights.has_failed = outcome.is_err();
            flights.put(request, Some(outcome.err().unwrap_or(NtStatus::SUCCESS)));
        }
        true
    }

    /// The requests among the first `ahead` for which `is_it` holds, if there is one.
    fn has_ahead(&mut self, ahead: usize, is_it: impl Fn(&WorkRequest) -> bool) -> bool {
        (0..ahead).any(|index| self.requests.get(index).is_some_and(&is_it))
    }

    /// Returns true if a fast registration or bind has to wait for one of those before it: its fence is for that, or the memory that it
    /// gives anew is not free yet.
    fn is_waited_for(&mut self, request: &WorkRequest, posted: Posted, ahead: usize) -> bool {
        let is_fenced = request.flags.contains(Flags::READ_FENCE);
        if is_fenced && self.has_ahead(ahead, |before| matches!(before.work, Work::Read { .. })) {
            return true;
        }
        // The region of a bind is not known here.
        let is_bind = matches!(request.work, Work::Bind(_));
        let frees = |before: &WorkRequest| {
            before.ended_token().is_some_and(|token| is_bind || are_of_one_object(token, posted.token()))
        };
        self.has_endings() && self.has_ahead(ahead, frees)
    }

    fn has_endings(&self) -> bool {
        self.flights.as_ref().is_some_and(|flights| flights.endings > 0)
    }

    /// Returns true if a request names memory whose use one of the `ahead` before it ends.
    pub(super) fn uses_what_ends(&mut self, request: &WorkRequest, ahead: usize) -> bool {
        if !self.has_endings() {
            return false;
        }
        let Some(begins) = self.flights.as_ref().map(|flights| flights.handed) else { return false };
        let mut index = 0;
        let is_ended = |this: &mut Self, token: u32| {
            this.has_ahead(ahead, |before| before.ended_token().is_some_and(|ended| are_of_one_object(ended, token)))
        };
        if let Work::Invalidate { token } = request.work {
            return is_ended(self, token);
        }
        while let Some(element) = self.element(request, begins, index) {
            if is_ended(self, element.token) {
                return true;
            }
            index += 1;
        }
        false
    }

    /// The status of a request that has [passed](Self::pass) and whose turn to complete has come; `None` if it has to wait for transfers.
    /// `done` is how it has gone so far.
    pub(super) fn passed(&mut self, qp: &Arc<Qp<O>>, request: &WorkRequest, done: NtStatus) -> Option<NtStatus> {
        // One that waits for transfers is carried out already.
        let is_begun = self.current.is_some();
        if !is_begun && (self.broken || qp.is_dead()) {
            if let (Work::FastRegister(posted) | Work::Bind(posted), true) = (request.work, done.is_success()) {
                // A peer may have invalidated it already.
                let _ = qp.domain.invalidate(posted.token());
            }
            return Some(NtStatus::CANCELLED);
        }
        let ended = match request.work {
            Work::Invalidate { .. } => match self.last_step(qp, request) {
                Ok(true) => NtStatus::SUCCESS,
                Ok(false) => return None,
                Err(status) => status,
            },
            _ => done,
        };
        if !ended.is_success() {
            Qp::fail(qp);
            self.broken = true;
        }
        Some(ended)
    }
}
