//! The requests in flight of one queue, in bounded memory.

use alloc::boxed::Box;

use fallible::try_slice;
use ndkpi::{NDK_RESULT, NtStatus};

/// The tokens of a request that are remembered.
pub const TOKENS: usize = 4;

/// A request in flight.
#[derive(Clone, Copy, Debug, Default)]
pub struct InFlight {
    /// The context that the consumer gave.
    pub context: usize,
    /// The local tokens of its elements.
    pub tokens: [u32; TOKENS],
    /// How many of them there are.
    pub count: u8,
    /// A success leaves no completion.
    pub is_silent: bool,
    /// It is a read.
    pub is_read: bool,
    /// Taken already, out of order (of a shared receive queue).
    pub is_taken: bool,
}

impl InFlight {
    /// The tokens.
    pub fn tokens(&self) -> &[u32] {
        self.tokens.get(..usize::from(self.count)).unwrap_or_default()
    }
}

/// What a completion says.
#[derive(Clone, Copy, Debug)]
pub struct Completed {
    /// The context of the queue pair.
    pub qp_context: usize,
    /// The context of the request.
    pub context: usize,
    /// If it was a receive, where the result says so.
    pub is_receive: Option<bool>,
    /// It is no success.
    pub has_failed: bool,
}

impl Completed {
    /// Of a result; the older kind does not say if it was a receive.
    pub fn new(result: &NDK_RESULT, is_receive: Option<bool>) -> Self {
        Self {
            qp_context: result.QPContext.addr(),
            context: result.RequestContext.addr(),
            is_receive,
            has_failed: !result.Status.is_success(),
        }
    }
}

/// The requests in flight, the oldest first.
pub struct Queue {
    slots: Box<[InFlight]>,
    head: usize,
    count: usize,
    /// Completions could not be told apart: nothing is certain any more.
    pub is_blurred: bool,
    /// The newest request found no place.
    pub is_overfull: bool,
}

impl Queue {
    /// For `depth` requests.
    pub fn try_new(depth: u32) -> Result<Self, NtStatus> {
        let slots = try_slice(depth.min(MOST) as usize, |_| InFlight::default())?;
        Ok(Self { slots, head: 0, count: 0, is_blurred: false, is_overfull: false })
    }

    /// How many are in flight.
    pub const fn len(&self) -> usize {
        self.count
    }

    fn at(&mut self, index: usize) -> Option<&mut InFlight> {
        let length = self.slots.len().max(1);
        self.slots.get_mut((self.head + index) % length)
    }

    /// Adds a request. `false` if there is no place.
    pub fn push(&mut self, request: InFlight) -> bool {
        if self.count >= self.slots.len() {
            return false;
        }
        let count = self.count;
        if let Some(slot) = self.at(count) {
            *slot = request;
        }
        self.count += 1;
        true
    }

    /// Takes back the newest request.
    pub fn pop_newest(&mut self) -> Option<InFlight> {
        self.count = self.count.checked_sub(1)?;
        let count = self.count;
        self.at(count).map(|slot| *slot)
    }

    /// Takes the oldest request.
    pub fn pop_oldest(&mut self) -> Option<InFlight> {
        if self.count == 0 {
            return None;
        }
        let oldest = self.at(0).map(|slot| *slot);
        self.head = (self.head + 1) % self.slots.len().max(1);
        self.count -= 1;
        oldest
    }

    /// Takes the oldest request if it is silent: whoever has filled the queue behind it knows that it has ended.
    pub fn pop_silent(&mut self) -> Option<InFlight> {
        if self.count > 0 && self.at(0).is_some_and(|slot| slot.is_silent) { self.pop_oldest() } else { None }
    }

    /// How many requests end with this completion: its own, and the silent ones before it. `None` if that cannot be.
    pub fn ends_with(&mut self, done: &Completed) -> Option<usize> {
        for index in 0..self.count {
            let slot = self.at(index)?;
            // It has succeeded without a completion, if at all: this one is another's of the same context.
            let is_another = slot.is_silent && !done.has_failed;
            if slot.context == done.context && !is_another {
                return Some(index + 1);
            }
            if !slot.is_silent {
                return None;
            }
        }
        None
    }

    /// Takes the oldest request with this context, wherever it is.
    pub fn take_any(&mut self, context: usize) -> Option<InFlight> {
        let mut found = None;
        for index in 0..self.count {
            let slot = self.at(index)?;
            if slot.context == context && !slot.is_taken {
                slot.is_taken = true;
                found = Some(*slot);
                break;
            }
        }
        while self.count > 0 && self.at(0).is_some_and(|slot| slot.is_taken) {
            self.pop_oldest();
        }
        found
    }

    /// Requests in flight of which a completion will tell.
    pub fn signalled(&mut self) -> usize {
        (0..self.count).filter(|&index| self.at(index).is_some_and(|slot| !slot.is_silent)).count()
    }

    /// Reads in flight.
    pub fn reads(&mut self) -> usize {
        (0..self.count).filter(|&index| self.at(index).is_some_and(|slot| slot.is_read)).count()
    }
}

/// More requests than this are not followed on one queue.
const MOST: u32 = 1 << 16;
