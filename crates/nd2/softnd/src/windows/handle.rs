//! Handles, and requests that are waited for.

use core::ptr::{self, NonNull};

use nd2::abi::{HANDLE, OVERLAPPED};
use ndkpi::NtStatus;
use windows_sys::{
    Wdk::Foundation::{NtQueryObject, ObjectBasicInformation},
    Win32::{
        Foundation::CloseHandle,
        Storage::FileSystem::SetFileCompletionNotificationModes,
        System::{
            Threading::{CreateEventW, INFINITE, WaitForSingleObject},
            WindowsProgramming::{
                FILE_SKIP_COMPLETION_PORT_ON_SUCCESS, FILE_SKIP_SET_EVENT_ON_HANDLE, PUBLIC_OBJECT_BASIC_INFORMATION,
            },
        },
    },
};

/// A handle that is closed when this is dropped.
pub struct Owned(pub HANDLE);

// SAFETY: handles may be used by any thread.
unsafe impl Send for Owned {}
// SAFETY: as for `Send`.
unsafe impl Sync for Owned {}

impl Owned {
    /// An event that stays set until a request begins that has it.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn event() -> Result<Self, NtStatus> {
        // SAFETY: no attributes and no name are given.
        let event = unsafe { CreateEventW(ptr::null(), 1, 0, ptr::null()) };
        if event.is_null() { Err(NtStatus::INSUFFICIENT_RESOURCES) } else { Ok(Self(event)) }
    }

    /// Returns true if the event is set.
    pub fn is_set(&self) -> bool {
        // SAFETY: the handle is open.
        unsafe { WaitForSingleObject(self.0, 0) == 0 }
    }

    /// Waits until the event is set.
    pub fn wait(&self) {
        // SAFETY: the handle is open.
        unsafe { WaitForSingleObject(self.0, INFINITE) };
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the handle is this value's own.
        unsafe { CloseHandle(self.0) };
    }
}

/// Has a file report only requests that have pended, as documentation asks for.
///
/// # Errors
///
/// `STATUS_INSUFFICIENT_RESOURCES`.
///
/// # Safety
///
/// `file` is open.
pub unsafe fn set_modes(file: HANDLE) -> Result<(), NtStatus> {
    #[expect(clippy::cast_possible_truncation, reason = "two bits of a byte")]
    let modes = (FILE_SKIP_COMPLETION_PORT_ON_SUCCESS | FILE_SKIP_SET_EVENT_ON_HANDLE) as u8;
    // SAFETY: `file` is open (`# Safety`).
    let done = unsafe { SetFileCompletionNotificationModes(file, modes) };
    if done == 0 { Err(NtStatus::INSUFFICIENT_RESOURCES) } else { Ok(()) }
}

/// How many handles name the same file. `None` if it cannot be said.
pub fn handles_of(file: HANDLE) -> Option<u32> {
    let mut about = PUBLIC_OBJECT_BASIC_INFORMATION::default();
    #[expect(clippy::cast_possible_truncation, reason = "the size of a small structure")]
    let size = size_of::<PUBLIC_OBJECT_BASIC_INFORMATION>() as u32;
    let into = (&raw mut about).cast();
    // SAFETY: the call checks the handle, and the answer has a place of its size.
    let status = unsafe { NtQueryObject(file, ObjectBasicInformation, into, size, ptr::null_mut()) };
    (status >= 0).then_some(about.HandleCount)
}

/// The event without the bit that says that no completion port is to be told.
pub fn event_of(overlapped: &OVERLAPPED) -> HANDLE {
    overlapped.hEvent.map_addr(|address| address & !1)
}

/// Waits until `status` says that the request has ended, and returns how. `STATUS_INVALID_PARAMETER` if it has no event to wait
/// for.
///
/// # Safety
///
/// `overlapped` is valid, and its event a handle.
pub unsafe fn wait_for(overlapped: NonNull<OVERLAPPED>, status: impl Fn() -> NtStatus) -> NtStatus {
    loop {
        let now = status();
        if now != NtStatus::PENDING {
            return now;
        }
        // SAFETY: the structure is valid (`# Safety`).
        let event = event_of(unsafe { overlapped.as_ref() });
        if event.is_null() {
            return NtStatus::INVALID_PARAMETER;
        }
        // SAFETY: the event is a handle (`# Safety`).
        if unsafe { WaitForSingleObject(event, INFINITE) } != 0 {
            return NtStatus::INVALID_HANDLE;
        }
    }
}
