//! How control codes get to the driver.

use std::{ffi::c_void, ptr::NonNull};

use nd2::{abi::OVERLAPPED, back_end::RequestFile};
use ndkpi::NtStatus;

/// A process's session with the driver.
pub trait Transport: Clone + Send + Sync + 'static {
    /// A file of the session, for overlapped requests.
    type File: RemoteFile;
    /// A registration that stands.
    type Registration: Registration;

    /// Sends a control code and waits for its end. Returns the bytes of the answer.
    ///
    /// # Errors
    ///
    /// The status of the request, if it is not success.
    fn call(&self, code: u32, input: &[u8], output: &mut [u8]) -> Result<usize, NtStatus>;

    /// Another file of the session, with a new handle that is the client's to close.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    fn open(&self) -> Result<Self::File, NtStatus>;

    /// Sends a control code of a direct method, which locks the bytes and stays as long as they are registered.
    ///
    /// # Errors
    ///
    /// The status of the request, if it has ended at once.
    ///
    /// # Safety
    ///
    /// Bytes that are there stay there as long as they are registered.
    unsafe fn register(
        &self,
        code: u32,
        input: &[u8],
        bytes: (*const c_void, usize),
    ) -> Result<Self::Registration, NtStatus>;
}

/// A request that keeps bytes registered.
pub trait Registration: Send + Sync + 'static {
    /// `STATUS_PENDING` while it stands, and then how it has ended.
    fn status(&self) -> NtStatus;
}

/// A file for overlapped requests.
pub trait RemoteFile: RequestFile {
    /// Sends a control code with the client's structure. `STATUS_PENDING` if its end is reported there.
    ///
    /// # Safety
    ///
    /// `overlapped` is valid, no request is outstanding on it, and the client keeps it until a request that pends ends.
    unsafe fn begin(&self, code: u32, input: &[u8], overlapped: NonNull<OVERLAPPED>) -> NtStatus;
}
