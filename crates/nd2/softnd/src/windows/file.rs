//! Overlapped requests on Windows, without a driver.
//!
//! A client may bind the file's handle to a completion port, wait for the event in its structure, or ask the structure, and
//! all of it is the business of the I/O manager. So the end of a request is the end of a real one: a read of an empty pipe
//! that takes the client's structure as its own, and that is ended at once by a message or by a cancellation. Such a read
//! always pends first, and so is reported whatever the completion modes of the file are.
//!
//! A request that is outstanding has no read: the structure says "pending" because it is written there.
//!
//! ```text
//! STATUS_SUCCESS     a message: the structure and the completion port say so too
//! STATUS_CANCELLED   CancelIoEx: likewise
//! everything else    a read with room for as many bytes as the number of the status, and a message that is longer: the
//!                    structure and the port say STATUS_BUFFER_OVERFLOW, the count of bytes is the number, and
//!                    GetOverlappedResult makes the status of it
//! ```
//!
//! So the port says of every request whether it has failed. Why, only `GetOverlappedResult` says, which clients have to call
//! (`NDSPI 1`).

use core::{
    ffi::c_void,
    ptr::{self, NonNull},
    sync::atomic::{AtomicU32, Ordering},
};
use std::sync::{Mutex, OnceLock, PoisonError};

use nd2::{
    OverlappedFile,
    abi::{HANDLE, HRESULT, OVERLAPPED},
    back_end::RequestFile,
};
use ndkpi::NtStatus;
use windows_sys::{
    Wdk::Storage::FileSystem::NtReadFile,
    Win32::{
        Foundation::{DUPLICATE_SAME_ACCESS, DuplicateHandle, GENERIC_WRITE, INVALID_HANDLE_VALUE, STATUS_PENDING},
        Storage::FileSystem::{
            CreateFileW, FILE_FLAG_FIRST_PIPE_INSTANCE, FILE_FLAG_OVERLAPPED, OPEN_EXISTING, PIPE_ACCESS_DUPLEX,
            WriteFile,
        },
        System::{
            IO::{CancelIoEx, IO_STATUS_BLOCK},
            Pipes::{
                CreateNamedPipeW, PIPE_READMODE_MESSAGE, PIPE_REJECT_REMOTE_CLIENTS, PIPE_TYPE_MESSAGE, PIPE_WAIT,
                WaitNamedPipeW,
            },
            Threading::{GetCurrentProcess, GetCurrentProcessId, ResetEvent, SetEvent},
        },
    },
};

use crate::windows::handle::{Owned, event_of, handles_of, set_modes, wait_for};

/// The longest message: there are fewer results with names than this.
const LONGEST: usize = 64;
const _: () = assert!(HRESULT::NAMED.len() < LONGEST);

/// The number of a status: the length of its message. Never zero.
fn number_of(status: NtStatus) -> usize {
    let named = HRESULT::NAMED.iter().position(|result| result.to_status() == status);
    // What has no name is an internal error.
    named.or_else(|| HRESULT::NAMED.iter().position(|result| *result == HRESULT::ND_INTERNAL_ERROR)).unwrap_or(0) + 1
}

/// The status with this number. A request that was never outstanding has number zero, and has succeeded.
fn status_of(number: usize) -> NtStatus {
    let named = number.checked_sub(1).and_then(|index| HRESULT::NAMED.get(index));
    named.map_or(NtStatus::SUCCESS, |result| result.to_status())
}

/// Where a request's read puts its bytes. Nobody looks at them.
struct Bytes(Box<[u8; LONGEST]>);

/// One end of a pipe for the client, the other for the provider.
///
/// The client's is the end that a pipe is made with, and the only one until an object is made with the file: a client that
/// closes its handle before has closed all there was.
pub struct PipeFile {
    /// The client's handle, which is the client's to close.
    client: HANDLE,
    name: Vec<u16>,
    used: OnceLock<Used>,
    /// Locked while it begins to be used, so that only one thread does that.
    beginning: Mutex<()>,
}

/// The provider's side of an open file.
struct Used {
    /// Another handle of the client's file, so that it stays when the client closes its own.
    file: Owned,
    /// The other end. Locked while a request ends, so that a message ends the read it is meant for.
    other: Mutex<(Owned, Bytes)>,
}

// SAFETY: handles may be used by any thread.
unsafe impl Send for PipeFile {}
// SAFETY: as for `Send`; the other end has a lock.
unsafe impl Sync for PipeFile {}

impl PipeFile {
    /// A file for overlapped requests, with the modes that documentation asks for.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new() -> Result<Self, NtStatus> {
        static FILES: AtomicU32 = AtomicU32::new(0);
        // SAFETY: no condition.
        let process = unsafe { GetCurrentProcessId() };
        let image = (&raw const FILES).addr();
        // A process may have loaded several copies of this library.
        let name = format!(r"\\.\pipe\softnd-{process}-{image:x}-{}", FILES.fetch_add(1, Ordering::Relaxed));
        let name: Vec<u16> = name.encode_utf16().chain([0]).collect();
        let access = PIPE_ACCESS_DUPLEX | FILE_FLAG_FIRST_PIPE_INSTANCE | FILE_FLAG_OVERLAPPED;
        let mode = PIPE_TYPE_MESSAGE | PIPE_READMODE_MESSAGE | PIPE_WAIT | PIPE_REJECT_REMOTE_CLIENTS;
        // SAFETY: the name ends with zero, and no attributes are given.
        let client = unsafe { CreateNamedPipeW(name.as_ptr(), access, mode, 1, 0, 4096, 0, ptr::null()) };
        let client = checked(client, NtStatus::INSUFFICIENT_RESOURCES)?;
        // SAFETY: the handle is open.
        unsafe { set_modes(client.0) }?;
        let handle = client.0;
        core::mem::forget(client);
        Ok(Self { client: handle, name, used: OnceLock::new(), beginning: Mutex::new(()) })
    }

    fn begin_to_use(&self) -> Result<Used, NtStatus> {
        let name = self.name.as_ptr();
        // SAFETY: the name ends with zero, and no attributes are given.
        let other = unsafe { CreateFileW(name, GENERIC_WRITE, 0, ptr::null(), OPEN_EXISTING, 0, ptr::null_mut()) };
        // There is no such pipe if the client has closed its end.
        let other = checked(other, NtStatus::INVALID_HANDLE)?;
        let mut file = ptr::null_mut();
        // SAFETY: no condition.
        let process = unsafe { GetCurrentProcess() };
        // SAFETY: the handle is the client's word, and the new one has a place.
        let copied =
            unsafe { DuplicateHandle(process, self.client, process, &raw mut file, 0, 0, DUPLICATE_SAME_ACCESS) };
        if copied == 0 {
            return Err(NtStatus::INVALID_HANDLE);
        }
        Ok(Used { file: Owned(file), other: Mutex::new((other, Bytes(Box::new([0; LONGEST])))) })
    }
}

fn checked(handle: HANDLE, status: NtStatus) -> Result<Owned, NtStatus> {
    if handle == INVALID_HANDLE_VALUE { Err(status) } else { Ok(Owned(handle)) }
}

impl RequestFile for PipeFile {
    fn handle(&self) -> HANDLE {
        self.client
    }

    fn is_closed(&self) -> bool {
        match self.used.get() {
            // Only the provider's own handle is left.
            Some(used) => handles_of(used.file.0) == Some(1),
            // SAFETY: the name ends with zero. A pipe that is there is found at once.
            None => unsafe { WaitNamedPipeW(self.name.as_ptr(), 1) == 0 },
        }
    }

    fn close(&self) {
        // Closes the handle, which is not the client's any more.
        drop(Owned(self.client));
    }

    unsafe fn status(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: the structure is valid (`# Safety` of the trait).
        let overlapped = unsafe { overlapped.as_ref() };
        match overlapped.status().to_status() {
            NtStatus::SUCCESS | NtStatus::BUFFER_OVERFLOW => status_of(overlapped.InternalHigh.load(Ordering::Acquire)),
            status => status,
        }
    }

    unsafe fn wait(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: `overlapped` is valid, and its event a handle (the trait's `# Safety`).
        unsafe { wait_for(overlapped, || self.status(overlapped)) }
    }
}

impl OverlappedFile for PipeFile {
    fn prepare(&self) -> Result<(), NtStatus> {
        let beginning = self.beginning.lock().unwrap_or_else(PoisonError::into_inner);
        if self.used.get().is_none() {
            let used = self.begin_to_use()?;
            // Nobody else begins, so it is empty.
            drop(self.used.set(used));
        } else if self.is_closed() {
            return Err(NtStatus::INVALID_HANDLE);
        }
        drop(beginning);
        Ok(())
    }

    unsafe fn begin(&self, overlapped: NonNull<OVERLAPPED>) {
        // SAFETY: the structure is valid (`# Safety` of the trait).
        let overlapped = unsafe { overlapped.as_ref() };
        overlapped.InternalHigh.store(0, Ordering::Relaxed);
        overlapped.Internal.store(NtStatus::PENDING.to_bits() as usize, Ordering::Release);
        let event = event_of(overlapped);
        if !event.is_null() {
            // SAFETY: the event is a handle (the client's promise).
            unsafe { ResetEvent(event) };
        }
    }

    unsafe fn complete(&self, overlapped: NonNull<OVERLAPPED>, status: NtStatus) {
        let number = number_of(status);
        let (event, context) = {
            // SAFETY: the structure is valid until the request has ended (`# Safety` of the trait).
            let overlapped = unsafe { overlapped.as_ref() };
            (
                event_of(overlapped),
                if overlapped.hEvent.addr() & 1 == 0 { ptr::from_ref(overlapped) } else { ptr::null() },
            )
        };
        // Objects are made only with files that are in use.
        let Some(used) = self.used.get() else { return };
        let mut other = used.other.lock().unwrap_or_else(PoisonError::into_inner);
        let (writer, Bytes(bytes)) = &mut *other;
        let place = overlapped.as_ptr().cast::<IO_STATUS_BLOCK>();
        let into: *mut c_void = bytes.as_mut_ptr().cast();
        #[expect(clippy::cast_possible_truncation, reason = "at most a small constant")]
        let (longest, room) = (LONGEST as u32, if status.is_success() { LONGEST } else { number } as u32);
        // SAFETY: the file is open; the structure begins with what takes the status, and is valid until that has been
        // written; the bytes stay until the read has ended, which it does below.
        let read = unsafe {
            NtReadFile(used.file.0, event, None, context.cast(), place, into, room, ptr::null(), ptr::null())
        };
        let ended = if read != STATUS_PENDING {
            false
        } else if status == NtStatus::CANCELLED {
            // SAFETY: the file is open, and the structure names the read.
            unsafe { CancelIoEx(used.file.0, place.cast_const().cast()) != 0 }
        } else {
            let mut written = 0;
            #[expect(clippy::cast_possible_truncation, reason = "below a small constant")]
            let length = (number + usize::from(!status.is_success())) as u32;
            let message = [0_u8; LONGEST];
            // SAFETY: the other end is open, and the message as long as it says.
            let sent = unsafe { WriteFile(writer.0, message.as_ptr(), length, &raw mut written, ptr::null_mut()) != 0 };
            if sent && !status.is_success() {
                let mut end = IO_STATUS_BLOCK::default();
                // The end of the message, which nobody is told of, and which is there: this does not wait.
                let (file, end) = (used.file.0, &raw mut end);
                // SAFETY: the file is open, and the bytes and the place for the status stay until the read has ended.
                unsafe {
                    NtReadFile(file, ptr::null_mut(), None, ptr::null(), end, into, longest, ptr::null(), ptr::null())
                };
            }
            sent
        };
        drop(other);
        if !ended {
            // The pipe does not work. The structure and the event do.
            // SAFETY: the request has not ended, so the structure is valid.
            let overlapped = unsafe { overlapped.as_ref() };
            overlapped.InternalHigh.store(number, Ordering::Relaxed);
            overlapped.Internal.store(status.to_bits() as usize, Ordering::Release);
            if !event.is_null() {
                // SAFETY: the event is a handle (the client's promise).
                unsafe { SetEvent(event) };
            }
        }
    }
}
