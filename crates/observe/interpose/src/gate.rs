//! Holds the close of a provider's object back while this layer still has something to do on it.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire},
};

/// The consumer has closed the object.
const CLOSED: u32 = 1 << 31;

/// Counts what holds the close of one object back.
#[derive(Default)]
pub struct Gate(AtomicU32);

impl Gate {
    /// Holds the close back until [`Gate::leave`]. `false` if it has begun: then nothing may be done on the provider's object.
    pub fn enter(&self) -> bool {
        let mut now = self.0.load(Acquire);
        while now & CLOSED == 0 {
            match self.0.compare_exchange_weak(now, now + 1, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(changed) => now = changed,
            }
        }
        false
    }

    /// Ends what [`Gate::enter`] has begun. `true` if the caller has to close the provider's object now.
    #[must_use]
    pub fn leave(&self) -> bool {
        self.0.fetch_sub(1, AcqRel) == CLOSED | 1
    }

    /// The consumer has closed the object.
    pub fn is_closed(&self) -> bool {
        self.0.load(Acquire) & CLOSED != 0
    }

    /// The consumer closes the object. `false` if that is held back: who [leaves](Gate::leave) last closes it.
    #[must_use]
    pub fn close(&self) -> bool {
        self.0.fetch_or(CLOSED, AcqRel) == 0
    }
}
