//! What this layer asks of an operating system besides what the engine asks.

use alloc::vec::Vec;
use core::{ffi::c_void, ptr::NonNull};

use engine::{connection::InterfaceAddress, os::Os};
use ndkpi::NtStatus;

use crate::{abi::OVERLAPPED, back_end::RequestFile};

/// An operating system with overlapped requests and clients in the same address space.
pub trait OverlappedOs: Clone + Send + Sync + 'static {
    /// What the engine runs on.
    type Os: Os;
    /// Where overlapped requests are performed: what the client has a file handle of.
    type File: OverlappedFile;
    /// What keeps the pages of a registration where they are, for [`register_pages`](crate::register_pages). It is dropped
    /// when nothing uses the bytes any more, at `IRQL <= DISPATCH_LEVEL` with no lock held.
    type Pages: Send + 'static;

    /// What the engine runs on.
    fn os(&self) -> &Self::Os;

    /// A file for overlapped requests, with a new handle that is the client's to close.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    fn create_file(&self) -> Result<Self::File, NtStatus>;

    /// The addresses of the machine's interfaces now, if adapters are to have those and not the ones that they were made with.
    /// `PASSIVE_LEVEL`. No lock is held.
    fn interfaces(&self) -> Option<Vec<InterfaceAddress>> {
        None
    }

    /// A client was refused something because the adapter has no more: `name` is the setting to change. No lock is held.
    fn limit_reached(&self, name: &'static str, most: u64);

    /// The client's bytes at `address`.
    ///
    /// # Errors
    ///
    /// `STATUS_ACCESS_VIOLATION` if there are no such bytes, or they cannot be written and `writable` is asked for;
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    ///
    /// # Safety
    ///
    /// Bytes that are there stay there as long as the value lives.
    unsafe fn memory(
        &self,
        address: *const c_void,
        length: usize,
        writable: bool,
    ) -> Result<<Self::Os as Os>::Memory, NtStatus>;
}

/// A file on which overlapped requests are performed.
///
/// An overlapped request begins with [`OverlappedFile::begin`] and ends with one [`OverlappedFile::complete`]. In between the
/// client keeps the structure. Requests that end before their method returns never begin: the client looks for an end only
/// when it was told `ND_PENDING`.
pub trait OverlappedFile: RequestFile {
    /// Gets ready for the first request: an object is about to be made with the file. May be called again.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_HANDLE` if the client has closed the handle, `STATUS_INSUFFICIENT_RESOURCES`.
    fn prepare(&self) -> Result<(), NtStatus>;

    /// The request is outstanding from now on: its event is reset and its status is pending. Called with locks held.
    ///
    /// # Safety
    ///
    /// `overlapped` is valid and no request is outstanding on it.
    unsafe fn begin(&self, overlapped: NonNull<OVERLAPPED>);

    /// The request ends: its status is stored, its event set, and the completion port of the file, if it has one, is told. No
    /// lock is held. The client may free the structure before this returns.
    ///
    /// # Safety
    ///
    /// `overlapped` was begun and not completed.
    unsafe fn complete(&self, overlapped: NonNull<OVERLAPPED>, status: NtStatus);
}
