//! What the protocol asks of the adapter whose queue pairs it drives: memory and queues.
//!
//! Queue pairs are named by their number on the wire, requests and receives by whatever their owner calls them. Each call is for
//! the bytes of one packet at most; none may block.

use crate::failure::Failure;

/// The memory in question may not be used so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// What a peer wants with remote memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To read it.
    Read,
    /// To write it.
    Write,
}

/// A range of remote memory, as a peer names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The remote token.
    pub key: u32,
    /// The first byte.
    pub address: u64,
    /// Bytes; never zero.
    pub length: u32,
}

/// A receive that a message has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receive {
    /// What its owner calls it.
    pub context: u64,
    /// How many bytes fit.
    pub length: u32,
}

/// The completion of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// What the receive's owner calls it.
    pub context: u64,
    /// Bytes of the message.
    pub length: u32,
    /// The sender wants this side to be woken.
    pub solicited: bool,
    /// Immediate data, which NDK has not.
    pub immediate: Option<u32>,
    /// The remote token that the message has invalidated.
    pub invalidated: Option<u32>,
    /// Why it failed.
    pub outcome: Result<(), Failure>,
}

/// The completion of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// What the request's owner calls it.
    pub context: u64,
    /// Why it failed.
    pub outcome: Result<(), Failure>,
}

/// Memory, tokens and queues behind queue pairs.
pub trait Adapter {
    /// Checks that the peer of `qp` may use all of a range. Called before the first byte of a message moves.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the token is unknown, of another domain or queue pair, without the right, or the range is not inside.
    fn check(&mut self, qp: u32, remote: Remote, access: Access) -> Result<(), Refused>;

    /// Copies bytes that the peer reads, after the same check: the token may have been invalidated since.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    fn read(&mut self, qp: u32, key: u32, address: u64, into: &mut [u8]) -> Result<(), Refused>;

    /// Stores bytes that the peer writes, after the same check.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    fn write(&mut self, qp: u32, key: u32, address: u64, bytes: &[u8]) -> Result<(), Refused>;

    /// Ends the validity of a remote token, as the peer of `qp` asks.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the peer may not.
    fn invalidate(&mut self, qp: u32, key: u32) -> Result<(), Refused>;

    /// Takes the next receive; `None` if there is none: the peer will ask again.
    fn claim_receive(&mut self, qp: u32) -> Option<Receive>;

    /// Stores bytes of a message in a receive; they fit.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the receive's memory may not be used.
    fn fill_receive(&mut self, qp: u32, receive: &Receive, offset: u32, bytes: &[u8]) -> Result<(), Refused>;

    /// Completes a receive.
    fn complete_receive(&mut self, qp: u32, received: Received);

    /// Copies bytes of a request's local memory. May be asked more than once for the same bytes.
    ///
    /// # Errors
    ///
    /// [`Refused`] if that memory may not be used.
    fn gather(&mut self, qp: u32, context: u64, offset: u32, into: &mut [u8]) -> Result<(), Refused>;

    /// Stores bytes that a READ has brought in the request's local memory.
    ///
    /// # Errors
    ///
    /// [`Refused`] if that memory may not be used.
    fn scatter(&mut self, qp: u32, context: u64, offset: u32, bytes: &[u8]) -> Result<(), Refused>;

    /// Completes a request, in the order of posting. Not called for one that succeeds in silence.
    fn complete(&mut self, qp: u32, completed: Completed);
}
