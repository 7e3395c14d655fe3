//! Queue pairs that fail with a completion queue or a shared receive queue.

use alloc::boxed::Box;

use fallible::{AllocError, Arc};

use crate::slab::Slab;

/// Dependents that one run of a deferred call fails before it queues itself again.
const FAILURES_PER_RUN: usize = 16;

/// Fails when the queue fails: a queue pair.
pub trait Dependent: Send + Sync + 'static {
    /// The queue has failed. Called with no lock held.
    fn fail(&self);
}

/// A reference to a dependent.
pub type DependentRef = Arc<Box<dyn Dependent>>;

/// The dependents of a queue, and how far its failure has spread.
#[derive(Default)]
pub struct Dependents {
    list: Slab<DependentRef>,
    /// The first dependent that has not failed yet. `None` while there is nothing to fail.
    next: Option<usize>,
}

/// What [`Dependents::next_to_fail`] found.
pub enum ToFail {
    /// One to fail.
    Dependent(DependentRef),
    /// A number that is not in use. There may be more behind it.
    Nobody,
    /// No more.
    Done,
}

impl Dependents {
    /// Adds a dependent and returns its number.
    ///
    /// # Errors
    ///
    /// [`AllocError`].
    pub fn insert(&mut self, dependent: DependentRef) -> Result<usize, AllocError> {
        self.list.try_insert(dependent)
    }

    /// Removes a dependent. The caller drops the reference after it has released the lock that protects `self`.
    #[must_use]
    pub fn remove(&mut self, number: usize) -> Option<DependentRef> {
        self.list.remove(number)
    }

    /// Begins to fail all dependents.
    pub const fn begin_failure(&mut self) {
        self.next = Some(0);
    }

    /// The next dependent to fail.
    pub fn next_to_fail(&mut self) -> ToFail {
        let Some(number) = self.next else { return ToFail::Done };
        if number >= self.list.bound() {
            self.next = None;
            return ToFail::Done;
        }
        self.next = Some(number + 1);
        self.list.get(number).cloned().map_or(ToFail::Nobody, ToFail::Dependent)
    }
}

/// Fails a bounded number of dependents, which `next` takes from their [`Dependents`] under the lock. Returns true if there may be
/// more.
pub fn fail_some(mut next: impl FnMut() -> ToFail) -> bool {
    for _ in 0..FAILURES_PER_RUN {
        match next() {
            ToFail::Dependent(dependent) => dependent.fail(),
            ToFail::Nobody => {}
            ToFail::Done => return false,
        }
    }
    true
}
