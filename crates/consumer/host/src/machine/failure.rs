//! Panics on processors. A thread of the machine cannot pass them on, so it records them.

use std::{
    any::Any,
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
};

/// A routine that panicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The processor it ran on.
    pub processor: u32,
    /// The name of the DPC or timer.
    pub routine: &'static str,
    /// The panic message.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "processor {}, `{}`: {}", self.processor, self.routine, self.message)
    }
}

/// The failures of one machine.
#[derive(Default)]
pub struct Failures {
    any: AtomicBool,
    list: Mutex<Vec<Failure>>,
}

impl Failures {
    /// Records a failure, and prints it at once.
    pub fn record(&self, failure: Failure) {
        eprintln!("machine: {failure}");
        self.list.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
        self.any.store(true, Release);
    }

    /// Returns true if there are any failures.
    pub fn any(&self) -> bool {
        self.any.load(Acquire)
    }

    /// Takes all failures.
    pub fn take(&self) -> Vec<Failure> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        self.any.store(false, Release);
        std::mem::take(&mut *list)
    }

    /// Describes the first failure, and says how many there are.
    pub fn summary(&self) -> Option<String> {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let first = list.first()?;
        Some(match list.len() {
            1 => first.to_string(),
            count => format!("{first} (and {} more)", count - 1),
        })
    }
}

/// The words of a panic.
pub fn message_of(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
