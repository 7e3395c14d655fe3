//! Queue pairs that fail with a completion queue or a shared receive queue.

use alloc::boxed::Box;

use fallible::{AllocError, Arc};

use crate::{os::SpinLock, slab::Slab};

/// Dependents that one run of a DPC fails before it queues itself again.
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
    /// Dependents that are failing at this moment: the DPC may run on several processors.
    failing: usize,
}

/// What [`Dependents::next_to_fail`] found.
enum ToFail {
    /// One to fail.
    Dependent(DependentRef),
    /// A number that is not in use. There may be more behind it.
    Nobody,
    /// No more.
    Done(Spread),
}

/// How far a failure has spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Spread {
    /// There may be more dependents to fail: the DPC has to run again.
    Unfinished,
    /// Another run fails the last dependents. It will find that all have failed.
    Elsewhere,
    /// All dependents have failed.
    Everywhere,
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
        self.next = if self.list.bound() == 0 { None } else { Some(0) };
    }

    /// Returns true if some have not failed yet.
    #[must_use]
    pub const fn are_failing(&self) -> bool {
        self.next.is_some() || self.failing > 0
    }

    /// The next dependent to fail. [`Dependents::has_failed`] follows when it has.
    fn next_to_fail(&mut self) -> ToFail {
        let number = self.next.filter(|number| *number < self.list.bound());
        self.next = number.map(|number| number + 1);
        let Some(number) = number else {
            return ToFail::Done(if self.failing == 0 { Spread::Everywhere } else { Spread::Elsewhere });
        };
        let Some(dependent) = self.list.get(number).cloned() else { return ToFail::Nobody };
        self.failing += 1;
        ToFail::Dependent(dependent)
    }

    const fn end_failing(&mut self) {
        self.failing -= 1;
    }
}

/// Fails a bounded number of the dependents that are in what `lock` protects. No lock is held while one fails.
pub fn fail_some<T>(lock: &impl SpinLock<T>, dependents: impl Fn(&mut T) -> &mut Dependents) -> Spread {
    for _ in 0..FAILURES_PER_RUN {
        match lock.with(|state| dependents(state).next_to_fail()) {
            ToFail::Dependent(dependent) => {
                dependent.fail();
                lock.with(|state| dependents(state).end_failing());
            }
            ToFail::Nobody => {}
            ToFail::Done(spread) => return spread,
        }
    }
    Spread::Unfinished
}
