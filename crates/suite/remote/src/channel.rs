//! What carries calls from the one machine to the other.

use ndkpi::NtStatus;

/// The bytes of a call or an answer at most: they fit into a datagram everywhere.
pub const MOST: usize = 1_200;

/// Carries calls to the agent on the other machine.
pub trait Channel: Send + Sync {
    /// Sends a call, waits for its answer, and returns the answer's length. The call was carried out once, whatever the network has
    /// lost. Several threads call at a time; one of them waits for events, up to some tens of milliseconds, so the other machine has
    /// to take calls of more than one at a time. At `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// The channel is dead: `STATUS_IO_TIMEOUT`, `STATUS_CONNECTION_ABORTED` and the like. It is not asked again.
    fn call(&self, call: &[u8], answer: &mut [u8]) -> Result<usize, NtStatus>;

    /// Returns true if the caller may wait: it is at `PASSIVE_LEVEL` and holds no lock. At any IRQL.
    fn may_wait(&self) -> bool;
}
