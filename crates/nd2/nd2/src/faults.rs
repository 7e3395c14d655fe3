//! Faults that an adapter makes because its settings ask for them.

use core::sync::atomic::{AtomicU32, Ordering};

use delay::Delay;

/// What an adapter does wrong, or late, so that a client can be seen to bear it. Zeros: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Every so many-th object or registration is refused for want of resources.
    pub refuse_every: u32,
    /// A queue pair fails after so many requests, receives not counted: its connection breaks.
    pub disconnect_after: u32,
    /// Completions that a client has not seen yet are seen so late, by `GetResults` and by requests for notification: all together
    /// that have come by then, as with an adapter that interrupts late.
    pub completion_delay: Delay,
    /// Overlapped requests that pend end so late, except those for notification of a queue, and those that are cancelled.
    pub request_delay: Delay,
}

/// The faults of an adapter, and how far it is from the next.
#[derive(Default)]
pub struct FaultState {
    faults: Faults,
    taken: AtomicU32,
}

impl FaultState {
    /// With these faults.
    pub const fn new(faults: Faults) -> Self {
        Self { faults, taken: AtomicU32::new(0) }
    }

    /// Counts an object or registration. Returns true if it is to be refused.
    pub fn refuses(&self) -> bool {
        let every = self.faults.refuse_every;
        every != 0 && (self.taken.fetch_add(1, Ordering::Relaxed).wrapping_add(1)).is_multiple_of(every)
    }

    /// Returns true if a queue pair fails that has posted so many requests.
    pub const fn breaks(&self, posted: u32) -> bool {
        self.faults.disconnect_after != 0 && posted == self.faults.disconnect_after
    }
}
