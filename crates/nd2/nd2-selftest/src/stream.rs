//! Two connected queue pairs, one of which sends what completes in the queue of the other.

use std::{cell::Cell, ffi::c_void};

use nd2::abi::{HRESULT, op_flags::ND_OP_FLAG_SEND_AND_SOLICIT_EVENT};

use crate::{
    Failure, World,
    case::{is, ok},
    client::{Piece, Qp, Queue},
    world::{Link, SIZES},
};

/// The context of the queue pair that sends.
pub const SENDER: usize = 0x5E4D;
/// The context of the queue pair that receives.
pub const RECEIVER: usize = 0x4EC6;

/// A stream of messages into one completion queue.
pub struct Stream<'w> {
    world: &'w World,
    /// The queue that the cases are about: receives complete here.
    pub queue: Queue,
    /// Where sends complete.
    pub sends: Queue,
    /// The queue pair that sends.
    pub sender: Qp,
    /// The queue pair that receives.
    pub receiver: Qp,
    /// How they are connected.
    pub link: Link,
    /// Bytes for all of it: the first half is sent, the second received into.
    pub memory: Piece,
    posted: Cell<usize>,
}

/// An object that could not be made.
pub fn made<T>(what: &str, result: Result<T, HRESULT>) -> Result<T, Failure> {
    result.map_err(|result| Failure::new(format!("{what}: {result}")))
}

impl<'w> Stream<'w> {
    /// What it runs in.
    pub const fn world(&self) -> &'w World {
        self.world
    }

    /// A stream into a queue for `depth` results.
    ///
    /// # Errors
    ///
    /// What did not work.
    pub fn new(world: &'w World, depth: u32) -> Result<Self, Failure> {
        let queue = made("the queue", world.adapter.queue(world.file, depth, 0))?;
        let receive = queue.as_ptr();
        Self::into_queue(world, queue, receive)
    }

    /// A stream into the queue at `receive`.
    ///
    /// # Errors
    ///
    /// What did not work.
    pub fn into_queue(world: &'w World, queue: Queue, receive: *mut c_void) -> Result<Self, Failure> {
        let sends = made("the queue of sends", world.adapter.queue(world.file, 256, 0))?;
        let own = sends.as_ptr();
        let sender = made("the sender", world.adapter.qp(own, own, SENDER, SIZES))?;
        let receiver = made("the receiver", world.adapter.qp(receive, own, RECEIVER, SIZES))?;
        let link = world.connect(&sender, &receiver)?;
        let memory = world.memory(8192, 0)?;
        Ok(Self { world, queue, sends, sender, receiver, link, memory, posted: Cell::new(0) })
    }

    /// Posts a receive, whose context is the next number.
    ///
    /// # Errors
    ///
    /// What did not work.
    pub fn receive(&self) -> Result<usize, Failure> {
        self.posted.set(self.posted.get() + 1);
        ok("Receive", self.receiver.receive(self.posted.get(), &[self.memory.sge(4096, 64)]))?;
        Ok(self.posted.get())
    }

    /// Sends 8 bytes with these flags and waits until the hardware is done with it.
    ///
    /// # Errors
    ///
    /// What did not work.
    pub fn send(&self, flags: u32) -> Result<(), Failure> {
        ok("Send", self.sender.send(0, &[self.memory.sge(0, 8)], flags))?;
        let mut result = None;
        self.world.until("the send", || {
            result = self.sends.results(1).first().copied();
            result.is_some()
        })?;
        is("the send", result.map(|result| result.Status), Some(HRESULT::ND_SUCCESS))
    }

    /// The hardware adds a new completion to the queue. Returns the receive's context.
    ///
    /// # Errors
    ///
    /// What did not work.
    pub fn deliver(&self) -> Result<usize, Failure> {
        let number = self.receive()?;
        self.send(0)?;
        Ok(number)
    }

    /// The same for a message whose sender asks for an event.
    ///
    /// # Errors
    ///
    /// What did not work.
    pub fn deliver_solicited(&self) -> Result<usize, Failure> {
        let number = self.receive()?;
        self.send(ND_OP_FLAG_SEND_AND_SOLICIT_EVENT)?;
        Ok(number)
    }

    /// The hardware adds the completion of a failed receive to the queue.
    ///
    /// # Errors
    ///
    /// What did not work.
    pub fn deliver_failure(&self) -> Result<usize, Failure> {
        let number = self.receive()?;
        ok("Flush", self.receiver.flush())?;
        self.world.settle();
        Ok(number)
    }

    /// Takes what there is, and checks that it is these receives, and no more.
    ///
    /// # Errors
    ///
    /// What did not work.
    pub fn takes(&self, numbers: &[usize]) -> Result<(), Failure> {
        let results = self.queue.results(16);
        let found: Vec<_> = results.iter().map(|result| result.RequestContext.addr()).collect();
        is("the results", found, numbers.to_vec())?;
        is("the results after that", self.queue.results(16).len(), 0)
    }
}
