//! The queue pairs that depend on a queue, and fail with it.

use fallible::Shared;
use ndkpi::NtStatus;

use super::Qp;
use crate::{memory_status, os::Os, slab::Slab};

/// Queue pairs under numbers, and how far a failure has spread over them.
pub struct Attached<O: Os> {
    qps: Slab<Shared<Qp<O>>>,
    /// Queue pairs from this number on were not failed yet. `None` while there is nothing to fail.
    next: Option<usize>,
}

/// What [`Attached::next_to_fail`] found.
pub enum ToFail<O: Os> {
    /// A queue pair.
    Qp(Shared<Qp<O>>),
    /// A number that nobody has. There may be more behind it.
    Nobody,
    /// The end.
    Done,
}

impl<O: Os> Attached<O> {
    /// No queue pairs.
    pub const fn new() -> Self {
        Self { qps: Slab::new(), next: None }
    }

    /// Notes a queue pair and returns its number.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn insert(&mut self, qp: Shared<Qp<O>>) -> Result<usize, NtStatus> {
        self.qps.try_insert(qp).map_err(memory_status)
    }

    /// Forgets the queue pair of this number. The reference is to be dropped without the lock that protects `self`.
    pub fn remove(&mut self, number: usize) -> Option<Shared<Qp<O>>> {
        self.qps.remove(number)
    }

    /// All queue pairs are to be failed.
    pub const fn begin_failure(&mut self) {
        self.next = Some(0);
    }

    /// The next queue pair to fail.
    pub fn next_to_fail(&mut self) -> ToFail<O> {
        let Some(number) = self.next else { return ToFail::Done };
        if number >= self.qps.bound() {
            self.next = None;
            return ToFail::Done;
        }
        self.next = Some(number + 1);
        self.qps.get(number).cloned().map_or(ToFail::Nobody, ToFail::Qp)
    }
}
