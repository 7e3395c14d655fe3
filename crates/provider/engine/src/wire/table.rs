//! The queue pairs that the stack drives: their memory, receives and requests.

use alloc::{boxed::Box, vec::Vec};

use fallible::{Arc, try_box, try_slice};
use roce::{
    Failure,
    adapter::{self, Adapter, Completed, Receive, Received, Refused, Remote},
};

use crate::{
    NtStatus,
    cq::Cause,
    memory::{self, Access, Lookup, Segment, Transfers},
    os::Os,
    qp::{Claim, Claimed, Failed, Qp},
};

/// A queue pair.
pub(super) struct Entry<O: Os> {
    number: u32,
    qp: Arc<Qp<O>>,
    /// The receive that a message is filling.
    claim: Option<Claim<O>>,
    /// Why its memory may not be used.
    unusable: Option<NtStatus>,
    /// Its memory. Has room for the most elements.
    sink: Vec<Segment<O>>,
    /// Transfers that still use what the last message has invalidated: its receive waits for them (`NDKPI 7.6`).
    transfers: Option<Transfers>,
    /// The message that waits.
    held: Option<Received>,
    /// A receive has failed, which ends the queue pair once the peer knows.
    has_failed: bool,
}

impl<O: Os> Entry<O> {
    /// The queue pair, and if one of its receives has failed. A receive that is claimed is given back.
    #[expect(clippy::boxed_local, reason = "unboxed it would lie on the stack of who gives the queue pair up")]
    pub fn finish(self: Box<Self>) -> (Arc<Qp<O>>, bool) {
        let Self { qp, claim, has_failed, .. } = *self;
        if let Some(claim) = claim {
            claim.give_back();
        }
        (qp, has_failed)
    }

    pub const fn qp(&self) -> &Arc<Qp<O>> {
        &self.qp
    }

    /// Completes the receive that is claimed.
    fn received(&mut self, received: &Received) {
        let Some(claim) = self.claim.take() else { return };
        claim.receive(received.length, received.solicited, received.invalidated);
    }

    fn give_back(&mut self) {
        self.sink.clear();
        self.unusable = None;
        if let Some(claim) = self.claim.take() {
            claim.give_back();
        }
    }
}

/// The queue pairs, at the places that their numbers say.
pub(super) struct Table<O: Os> {
    /// An entry for itself: on the stack of who takes one out lies a pointer.
    places: Box<[Option<Box<Entry<O>>>]>,
    /// Messages that wait for transfers.
    held: usize,
}

impl<O: Os> Table<O> {
    pub fn try_new(queue_pairs: usize) -> Result<Self, NtStatus> {
        Ok(Self { places: try_slice(queue_pairs.next_power_of_two().max(2), |_| None)?, held: 0 })
    }

    /// Returns true if receives wait for transfers.
    pub const fn has_held(&self) -> bool {
        self.held > 0
    }

    /// Completes the receives whose transfers are over. Returns true if some still wait.
    pub fn complete_held(&mut self) -> bool {
        if self.held == 0 {
            return false;
        }
        self.held = 0;
        for entry in self.places.iter_mut().flatten() {
            let Some(received) = entry.held else { continue };
            if entry.transfers.as_ref().is_none_or(Transfers::are_over) {
                (entry.held, entry.transfers) = (None, None);
                entry.received(&received);
            } else {
                self.held += 1;
            }
        }
        self.held > 0
    }

    fn place(&mut self, number: u32) -> Option<&mut Option<Box<Entry<O>>>> {
        let mask = self.places.len() - 1;
        self.places.get_mut(number as usize & mask)
    }

    pub fn insert(&mut self, number: u32, qp: &Arc<Qp<O>>) -> Result<(), NtStatus> {
        let mut sink = Vec::new();
        sink.try_reserve_exact(qp.receive_elements()).map_err(fallible::AllocError::from)?;
        let entry = try_box(Entry {
            number,
            qp: qp.clone(),
            claim: None,
            unusable: None,
            sink,
            transfers: None,
            held: None,
            has_failed: false,
        })?;
        *self.place(number).ok_or(NtStatus::INSUFFICIENT_RESOURCES)? = Some(entry);
        Ok(())
    }

    pub fn get_mut(&mut self, number: u32) -> Option<&mut Entry<O>> {
        self.place(number)?.as_deref_mut().filter(|entry| entry.number == number)
    }

    pub fn remove(&mut self, number: u32) -> Option<Box<Entry<O>>> {
        self.place(number)?.take_if(|entry| entry.number == number)
    }

    /// The bytes of a queue pair's side that a peer names.
    fn find(&mut self, qp: u32, remote: Remote, access: Access) -> Result<Segment<O>, Refused> {
        let entry = self.get_mut(qp).ok_or(Refused)?;
        entry.qp.domain().resolve(remote.key, remote.address, remote.length, access).map_err(|_| Refused)
    }
}

/// What the status of a failure leaves open.
const fn cause_of(failure: Failure) -> Option<Cause> {
    match failure {
        Failure::RetryExceeded => Some(Cause::Unanswered),
        Failure::RnrRetryExceeded => Some(Cause::NoReceive),
        Failure::RemoteInvalidRequest => Some(Cause::InvalidRequest),
        Failure::RemoteAccess => Some(Cause::RemoteAccess),
        Failure::RemoteOperation => Some(Cause::RemoteOperation),
        _ => None,
    }
}

impl<O: Os> Adapter for Table<O> {
    fn check(&mut self, qp: u32, remote: Remote, access: adapter::Access) -> Result<(), Refused> {
        let is_write = access == adapter::Access::Write;
        self.find(qp, remote, if is_write { Access::RemoteWrite } else { Access::RemoteRead }).map(drop)
    }

    fn read(&mut self, qp: u32, key: u32, address: u64, into: &mut [u8]) -> Result<(), Refused> {
        let entry = self.get_mut(qp).ok_or(Refused)?;
        entry.qp.domain().read(Lookup { token: key, access: Access::RemoteRead }, address, into).map_err(|_| Refused)
    }

    fn write(&mut self, qp: u32, key: u32, address: u64, bytes: &[u8]) -> Result<(), Refused> {
        let entry = self.get_mut(qp).ok_or(Refused)?;
        entry.qp.domain().write(Lookup { token: key, access: Access::RemoteWrite }, address, bytes).map_err(|_| Refused)
    }

    fn invalidate(&mut self, qp: u32, key: u32) -> Result<(), Refused> {
        let entry = self.get_mut(qp).ok_or(Refused)?;
        let domain = entry.qp.domain();
        let transfers = domain.transfers(key);
        domain.invalidate_remote(key).map_err(|_| Refused)?;
        entry.transfers = Some(transfers);
        Ok(())
    }

    fn claim_receive(&mut self, qp: u32) -> Option<Receive> {
        let entry = self.get_mut(qp)?;
        if entry.held.is_some() {
            // The peer asks again.
            return None;
        }
        entry.sink.clear();
        let (claim, unusable) = match Qp::claim(&entry.qp, 0, &mut entry.sink) {
            Claimed::Nothing => return None,
            Claimed::Receive(claim) => (claim, None),
            Claimed::Unusable(claim, status) => (claim, Some(status)),
        };
        let length = claim.length();
        (entry.claim, entry.unusable) = (Some(claim), unusable);
        Some(Receive { context: 0, length })
    }

    fn fill_receive(&mut self, qp: u32, _: &Receive, offset: u32, bytes: &[u8]) -> Result<(), Refused> {
        let entry = self.get_mut(qp).ok_or(Refused)?;
        if entry.unusable.is_some() {
            return Err(Refused);
        }
        memory::write(&entry.sink, offset as usize, bytes);
        Ok(())
    }

    fn complete_receive(&mut self, qp: u32, received: Received) {
        let Some(entry) = self.get_mut(qp) else { return };
        match received.outcome {
            Ok(()) => {
                entry.sink.clear();
                if entry.transfers.take_if(|transfers| transfers.are_over()).is_none() && entry.transfers.is_some() {
                    entry.held = Some(received);
                    self.held += 1;
                    return;
                }
                entry.received(&received);
            }
            // The message has not come whole, and will not: the receive is as good as before.
            Err(Failure::Flushed | Failure::Disconnected) => entry.give_back(),
            Err(failure) => {
                entry.sink.clear();
                let status = entry.unusable.take().unwrap_or_else(|| failure.status());
                entry.has_failed = matches!(failure, Failure::ReceiveTooShort | Failure::ReceiveProtection);
                if let Some(claim) = entry.claim.take() {
                    claim.fail(status);
                }
            }
        }
    }

    fn gather(&mut self, qp: u32, context: u64, offset: u32, into: &mut [u8]) -> Result<(), Refused> {
        self.get_mut(qp).ok_or(Refused)?.qp.gather(context, offset, into).map_err(|_| Refused)
    }

    fn scatter(&mut self, qp: u32, context: u64, offset: u32, bytes: &[u8]) -> Result<(), Refused> {
        self.get_mut(qp).ok_or(Refused)?.qp.scatter(context, offset, bytes).map_err(|_| Refused)
    }

    fn complete(&mut self, qp: u32, Completed { context, outcome }: Completed) {
        let Some(entry) = self.get_mut(qp) else { return };
        let outcome = outcome.map_err(|failure| match failure {
            // The queue pair has failed with its receive: it is dead once the peer knows.
            Failure::Flushed | Failure::Disconnected if entry.has_failed => Failed::Behind,
            Failure::Flushed | Failure::Disconnected => Failed::Flushed,
            failure => Failed::Itself(failure.status(), cause_of(failure)),
        });
        Qp::landed(&entry.qp, context, outcome);
    }
}
