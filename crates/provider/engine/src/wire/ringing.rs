//! How queue pairs tell the wire that there is something to do for them.

use alloc::{boxed::Box, collections::VecDeque};

use fallible::{AllocError, Arc, try_slice};

use super::Wire;
use crate::{
    os::{Dpc, Os, SpinLock},
    qp::Carrier,
};

/// The queue pairs that have rung, each once.
pub(super) struct Rung {
    order: VecDeque<u32>,
    /// By the places of the queue pairs in the stack.
    has_rung: Box<[bool]>,
}

impl Rung {
    pub fn try_new(queue_pairs: usize) -> Result<Self, AllocError> {
        let has_rung = try_slice(queue_pairs.next_power_of_two().max(2), |_| false)?;
        let mut order = VecDeque::new();
        order.try_reserve_exact(has_rung.len())?;
        Ok(Self { order, has_rung })
    }

    fn flag(&mut self, number: u32) -> Option<&mut bool> {
        let mask = self.has_rung.len() - 1;
        self.has_rung.get_mut(number as usize & mask)
    }

    pub fn push(&mut self, number: u32) {
        // If another queue pair has had the place before, it has rung for this one too.
        if let Some(flag) = self.flag(number)
            && !core::mem::replace(flag, true)
        {
            self.order.push_back(number);
        } else if let Some(place) = self.same_place(number) {
            *place = number;
        }
    }

    fn same_place(&mut self, number: u32) -> Option<&mut u32> {
        let mask = u32::try_from(self.has_rung.len() - 1).unwrap_or(u32::MAX);
        self.order.iter_mut().find(|queued| **queued & mask == number & mask && **queued != number)
    }

    /// The one that has rung first.
    pub fn pop(&mut self) -> Option<u32> {
        let number = self.order.pop_front()?;
        if let Some(flag) = self.flag(number) {
            *flag = false;
        }
        Some(number)
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

impl<O: Os> Wire<O> {
    /// There may be something to do for a queue pair.
    pub(super) fn ring(this: &Arc<Self>, number: u32) {
        this.rung.with(|rung| rung.push(number));
        this.dpc.queue(this);
    }
}

/// The bell of a queue pair. It keeps the wire.
pub(super) struct Ringer<O: Os> {
    wire: Arc<Wire<O>>,
    number: u32,
}

impl<O: Os> Ringer<O> {
    pub const fn new(wire: Arc<Wire<O>>, number: u32) -> Self {
        Self { wire, number }
    }
}

impl<O: Os> Carrier for Ringer<O> {
    fn ring(&self) {
        Wire::ring(&self.wire, self.number);
    }
}
