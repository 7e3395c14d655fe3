//! The driver's device: control codes, sent with `NtDeviceIoControlFile` because its statuses are the driver's.
//!
//! ```text
//! DriverTransport   a file of its own, for calls that are waited for and for registrations; never closed before the session
//! DriverFile        a file for each CreateOverlappedFile: the client's handle, and another one of the same file
//! ```
//!
//! The system cancels what a thread has issued and what still pends when that thread ends, except on files that belong to a
//! completion port. A registration must outlive the thread that has made it, so the transport's own file belongs to a port. Nobody
//! reads that port: no packet is queued for a request without a context.

use core::{
    ffi::c_void,
    ptr::{self, NonNull},
    sync::atomic::{AtomicUsize, Ordering},
};
use std::{
    fs::{File, OpenOptions},
    io,
    os::windows::{
        fs::OpenOptionsExt,
        io::{AsRawHandle, IntoRawHandle},
    },
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use nd2::{
    abi::{HANDLE, OVERLAPPED},
    back_end::RequestFile,
};
use ndkpi::NtStatus;
use windows_sys::{
    Wdk::System::IO::NtDeviceIoControlFile,
    Win32::{
        Storage::FileSystem::FILE_FLAG_OVERLAPPED,
        System::IO::{CancelIoEx, CreateIoCompletionPort, IO_STATUS_BLOCK},
    },
};

use crate::{
    choice::DEVICE,
    driver::{Key, Registration, RemoteFile, Transport},
    windows::handle::{Owned, event_of, handles_of, set_modes, wait_for},
};

/// Where the system stores how a request of the library's own has ended: as an `IO_STATUS_BLOCK`, and read while it may be
/// written.
#[repr(C)]
struct Block {
    status: AtomicUsize,
    information: AtomicUsize,
}

const _: () = assert!(size_of::<Block>() == size_of::<IO_STATUS_BLOCK>());

impl Block {
    const fn new() -> Self {
        Self { status: AtomicUsize::new(NtStatus::PENDING.to_bits() as usize), information: AtomicUsize::new(0) }
    }

    fn status(&self) -> NtStatus {
        #[expect(clippy::cast_possible_truncation, reason = "a status is 32 bits")]
        NtStatus::from_bits(self.status.load(Ordering::Acquire) as u32)
    }
}

/// A process's session with the driver.
#[derive(Clone)]
pub struct DriverTransport(Arc<Session>);

struct Session {
    file: File,
    key: Key,
    /// The port to which the file belongs.
    _port: Owned,
    /// Events that no request has.
    events: Mutex<Vec<Owned>>,
    /// Registrations that nobody looks at any more, and that may still be ending.
    ending: Mutex<Vec<Standing>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(FILE_FLAG_OVERLAPPED).open(DEVICE)
}

/// Sends a control code.
///
/// # Safety
///
/// `file` is open; `event` is null or an event; `block` takes the outcome, and the bytes of `output` are valid, until the request
/// has ended, if it pends.
unsafe fn control(
    file: &File,
    event: HANDLE,
    context: *const c_void,
    block: *mut IO_STATUS_BLOCK,
    (code, input): (u32, &[u8]),
    output: (*mut c_void, usize),
) -> Result<NtStatus, NtStatus> {
    let length = |bytes: usize| u32::try_from(bytes).map_err(|_| NtStatus::INVALID_PARAMETER);
    let (from, bytes) = (input.as_ptr().cast(), length(input.len())?);
    let (into, room) = (output.0, length(output.1)?);
    let file = file.as_raw_handle();
    // SAFETY: file, event, block and output stay until the request has ended (`# Safety`). The system copies the input before it returns.
    let status = unsafe { NtDeviceIoControlFile(file, event, None, context, block, code, from, bytes, into, room) };
    Ok(NtStatus(status))
}

impl DriverTransport {
    /// Opens the driver's device and begins a session.
    ///
    /// # Errors
    ///
    /// The device is not there, may not be opened by this process, or does not speak this version of its control codes.
    pub fn open() -> io::Result<Self> {
        let file = open()?;
        // SAFETY: the file is open, and the port a new one.
        let port = unsafe { CreateIoCompletionPort(file.as_raw_handle(), ptr::null_mut(), 0, 1) };
        if port.is_null() {
            return Err(io::Error::last_os_error());
        }
        let key = Key::try_new(getrandom::fill).map_err(|error| io::Error::other(error.to_string()))?;
        let (events, ending) = (Mutex::default(), Mutex::default());
        let this = Self(Arc::new(Session { file, key, _port: Owned(port), events, ending }));
        let (code, word) = this.0.key.begin();
        this.0.call(&this.0.file, code, &word, &mut []).map_err(|status| io::Error::other(status.to_string()))?;
        Ok(this)
    }
}

impl Session {
    fn take_event(&self) -> Result<Owned, NtStatus> {
        let free = lock(&self.events).pop();
        free.map_or_else(Owned::event, Ok)
    }

    fn give_back(&self, event: Owned) {
        lock(&self.events).push(event);
    }

    /// Sends a control code and waits for its end.
    fn call(&self, file: &File, code: u32, input: &[u8], output: &mut [u8]) -> Result<usize, NtStatus> {
        let event = self.take_event()?;
        let block = Block::new();
        let place = ptr::from_ref(&block).cast_mut().cast();
        let room = (output.as_mut_ptr().cast(), output.len());
        // SAFETY: the file is open; this waits for the end of the request, which uses the event, the block, and the output.
        let issued = unsafe { control(file, event.0, ptr::null(), place, (code, input), room) };
        let status = match issued {
            Ok(NtStatus::PENDING) => {
                event.wait();
                block.status()
            }
            Ok(status) | Err(status) => status,
        };
        self.give_back(event);
        if status == NtStatus::SUCCESS {
            Ok(block.information.load(Ordering::Relaxed).min(output.len()))
        } else {
            Err(status)
        }
    }

    /// Forgets registrations that have ended.
    fn sweep(&self) {
        let mut ending = lock(&self.ending);
        // The event comes after the status.
        while let Some(ended) = ending.iter().position(|one| one.event.is_set()) {
            let ended = ending.swap_remove(ended);
            self.give_back(ended.event);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Every object is closed, so what is left is about to end. Nothing could be closed without memory: then the driver ends
        // the registrations that are taken back from it.
        // SAFETY: the file is open.
        unsafe { CancelIoEx(self.file.as_raw_handle(), ptr::null()) };
        for one in lock(&self.ending).drain(..) {
            one.event.wait();
        }
    }
}

impl Transport for DriverTransport {
    type File = DriverFile;
    type Registration = DriverRegistration;

    fn call(&self, code: u32, input: &[u8], output: &mut [u8]) -> Result<usize, NtStatus> {
        self.0.call(&self.0.file, code, input, output)
    }

    fn open(&self) -> Result<DriverFile, NtStatus> {
        let file = open().map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        let (code, word) = self.0.key.join();
        self.0.call(&file, code, &word, &mut [])?;
        // SAFETY: the file is open.
        unsafe { set_modes(file.as_raw_handle()) }?;
        let own = file.try_clone().map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        // From here on it is the client's to close.
        Ok(DriverFile { client: file.into_raw_handle(), own })
    }

    unsafe fn register(
        &self,
        code: u32,
        input: &[u8],
        (address, length): (*const c_void, usize),
    ) -> Result<DriverRegistration, NtStatus> {
        self.0.sweep();
        let standing = Standing { block: Box::new(Block::new()), event: self.0.take_event()? };
        let place = ptr::from_ref(&*standing.block).cast_mut().cast();
        let bytes = (address.cast_mut(), length);
        // SAFETY: the file is open; the block and the event stay until the request has ended. The system checks and locks the bytes.
        let issued = unsafe { control(&self.0.file, standing.event.0, ptr::null(), place, (code, input), bytes) };
        match issued {
            Ok(NtStatus::PENDING) => Ok(DriverRegistration { transport: self.clone(), standing: Some(standing) }),
            // A registration that has ended at once is none.
            Ok(status) | Err(status) => {
                Err(if status == NtStatus::SUCCESS { NtStatus::INVALID_DEVICE_STATE } else { status })
            }
        }
    }
}

/// A request that pends as long as bytes are registered.
struct Standing {
    block: Box<Block>,
    event: Owned,
}

/// A registration.
pub struct DriverRegistration {
    transport: DriverTransport,
    /// Always there, until it is dropped.
    standing: Option<Standing>,
}

impl Registration for DriverRegistration {
    fn status(&self) -> NtStatus {
        self.standing.as_ref().map_or(NtStatus::CANCELLED, |standing| standing.block.status())
    }
}

impl Drop for DriverRegistration {
    fn drop(&mut self) {
        let session = &self.transport.0;
        lock(&session.ending).extend(self.standing.take());
        session.sweep();
    }
}

/// A file of the session, for overlapped requests.
pub struct DriverFile {
    /// The client's handle, which is the client's to close.
    client: HANDLE,
    /// Another handle of the same file.
    own: File,
}

// SAFETY: handles may be used by any thread.
unsafe impl Send for DriverFile {}
// SAFETY: as for `Send`.
unsafe impl Sync for DriverFile {}

impl RequestFile for DriverFile {
    fn handle(&self) -> HANDLE {
        self.client
    }

    fn is_closed(&self) -> bool {
        // Only the library's own handle is left.
        handles_of(self.own.as_raw_handle()) == Some(1)
    }

    fn close(&self) {
        // Closes the handle, which is not the client's any more.
        drop(Owned(self.client));
    }

    unsafe fn status(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: the structure is valid (`# Safety` of the trait).
        unsafe { overlapped.as_ref() }.status().to_status()
    }

    unsafe fn wait(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: `overlapped` is valid, and its event a handle (the trait's `# Safety`).
        unsafe { wait_for(overlapped, || self.status(overlapped)) }
    }
}

impl RemoteFile for DriverFile {
    unsafe fn begin(&self, code: u32, input: &[u8], overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        let (event, context) = {
            // SAFETY: the structure is valid (`# Safety` of the trait).
            let client = unsafe { overlapped.as_ref() };
            client.InternalHigh.store(0, Ordering::Relaxed);
            client.Internal.store(NtStatus::PENDING.to_bits() as usize, Ordering::Release);
            let context = if client.hEvent.addr() & 1 == 0 { overlapped.as_ptr().cast() } else { ptr::null_mut() };
            (event_of(client), context)
        };
        // The structure begins with what takes the status.
        let place = overlapped.as_ptr().cast::<IO_STATUS_BLOCK>();
        let none = (ptr::null_mut(), 0);
        // SAFETY: the file is open, the event null or the client's, and the client keeps the structure until a request that pends
        // has ended.
        match unsafe { control(&self.own, event, context, place, (code, input), none) } {
            Ok(status) if status != NtStatus::SUCCESS && !status.is_error() => {
                // It pends, or it has ended with a warning, which is reported like the end of one that has pended.
                NtStatus::PENDING
            }
            Ok(status) | Err(status) => {
                // SAFETY: the request has ended without a report, so the client has the structure still.
                unsafe { overlapped.as_ref() }.Internal.store(status.to_bits() as usize, Ordering::Release);
                status
            }
        }
    }
}
