//! A request of the framework as a session has it.

use driver_common::os::KernelMemory;
use fallible::Arc;
use kernel::{Buffered, wdf::Request};
use nd2_control::Call;
use ndkpi::NtStatus;

use super::{NdSystem, REQUEST, cancelled};

/// A request of a process.
pub struct NdRequest(Request);

impl NdRequest {
    /// Takes a request over.
    #[must_use]
    pub const fn new(request: Request) -> Self {
        Self(request)
    }
}

impl nd2_control::Request<NdSystem> for NdRequest {
    fn input(&self) -> &[u8] {
        self.0.whole_input()
    }

    fn output(&mut self) -> &mut [u8] {
        self.0.whole_output()
    }

    fn locked(&self, base: u64) -> Result<KernelMemory, NtStatus> {
        let (bytes, len) = self.0.locked().map_err(|status| match status {
            // A buffer of no bytes is none.
            NtStatus::BUFFER_TOO_SMALL => NtStatus::ACCESS_VIOLATION,
            status => status,
        })?;
        // SAFETY: the framework keeps the pages locked and mapped until the request is completed. The session completes it when
        // nothing refers to the bytes any more, and writes to them only if they were locked for that.
        unsafe { KernelMemory::from_mapping(base, bytes, len) }
    }

    fn watch(&self, call: &Arc<Call<NdSystem>>) -> Result<(), NtStatus> {
        // SAFETY: the request is live, and requests of the device carry a context of this kind. The framework takes it away when
        // the request is completed.
        unsafe { REQUEST.put(self.0.handle().cast(), call.clone()) };
        // SAFETY: a call completes its request after `unwatch`, or when `cancelled` has asked it to.
        unsafe { self.0.mark_cancelable(Some(cancelled)) }
    }

    fn unwatch(&self) -> bool {
        self.0.unmark_cancelable()
    }

    fn complete(self, status: NtStatus, information: usize) {
        self.0.complete(status, information);
    }
}
