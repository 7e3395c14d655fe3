//! The library in a process of the simulated kernel: how its control codes get to the driver, as `softnd.dll` sends them on Windows.
//!
//! | Windows | here |
//! |---|---|
//! | `NtDeviceIoControlFile`, waited for | a request of the process |
//! | with the client's structure | a request whose end stores the status, sets the event and tells the port |
//! | of a direct method | a request for which the system locks pages of the process |
//! | `WaitForSingleObject` | a wait of the simulated kernel |
//!
//! The framework marks every request as pending before the driver sees it, and always returns `STATUS_PENDING` (`FxIoQueue::QueueRequest` in
//! its published source). So a program is told that for each request that comes to the driver, also for one that has ended then.

use std::{
    ffi::c_void,
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError},
};

use nd2::{
    OverlappedFile, OverlappedOs,
    abi::{HANDLE, OVERLAPPED},
    back_end::RequestFile,
};
use nd2_control::wire::LINK_NAME;
use nd2_selftest::{HostFile, OverlappedHost};
use ndkpi::NtStatus;
use simulated_kernel::{File, Pending, Process};
use softnd::driver::{Key, Registration, RemoteFile, Transport};

/// A process's session with the driver.
#[derive(Clone)]
pub struct ProcessTransport {
    process: Arc<Process>,
    platform: OverlappedHost,
    file: Arc<File>,
    key: Key,
}

fn status_of<T>(result: Result<T, i32>) -> Result<T, NtStatus> {
    result.map_err(NtStatus)
}

impl ProcessTransport {
    /// Opens the driver's device and begins a session.
    pub fn open(process: Process, platform: &OverlappedHost) -> Result<Self, NtStatus> {
        let file = status_of(process.open(LINK_NAME))?;
        let number = process.number().to_le_bytes();
        let key = Key::try_new(|key| {
            key[..number.len()].copy_from_slice(&number);
            Ok::<_, NtStatus>(())
        })?;
        let this = Self { process: Arc::new(process), platform: platform.clone(), file, key };
        let (code, word) = this.key.begin();
        this.ask(&this.file, code, &word, &mut [])?;
        Ok(this)
    }

    /// The process.
    pub const fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// The process, whose handles are left to its end.
    pub fn into_process(self) -> Arc<Process> {
        self.process
    }

    /// Sends a control code and waits for its end.
    fn ask(&self, file: &File, code: u32, input: &[u8], output: &mut [u8]) -> Result<usize, NtStatus> {
        let answer = self.process.begin(file, code, input, output.len()).wait();
        status_of(if answer.is_success() { Ok(()) } else { Err(answer.status) })?;
        output[..answer.bytes.len()].copy_from_slice(&answer.bytes);
        Ok(answer.bytes.len())
    }
}

impl Transport for ProcessTransport {
    type File = ProcessFile;
    type Registration = Locked;

    fn call(&self, code: u32, input: &[u8], output: &mut [u8]) -> Result<usize, NtStatus> {
        self.ask(&self.file, code, input, output)
    }

    fn open(&self) -> Result<ProcessFile, NtStatus> {
        let open = status_of(self.process.open(LINK_NAME))?;
        let (code, word) = self.key.join();
        self.ask(&open, code, &word, &mut [])?;
        Ok(ProcessFile { process: self.process.clone(), open, client: Arc::new(self.platform.create_file()?) })
    }

    unsafe fn register(
        &self,
        code: u32,
        input: &[u8],
        (address, length): (*const c_void, usize),
    ) -> Result<Locked, NtStatus> {
        let range = (address.expose_provenance() as u64, length);
        let request = status_of(self.process.begin_direct(&self.file, code, input, range))?;
        Ok(Locked(Mutex::new(Standing::Pending(request))))
    }
}

enum Standing {
    Pending(Pending),
    Ended(NtStatus),
}

/// A registration.
pub struct Locked(Mutex<Standing>);

impl Registration for Locked {
    fn status(&self) -> NtStatus {
        let mut standing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Standing::Pending(request) = &*standing
            && request.is_complete()
        {
            *standing = Standing::Ended(NtStatus(request.clone().wait().status));
        }
        match *standing {
            Standing::Pending(_) => NtStatus::PENDING,
            Standing::Ended(status) => status,
        }
    }
}

/// A file of the session, for overlapped requests.
pub struct ProcessFile {
    process: Arc<Process>,
    /// The library's handle.
    open: Arc<File>,
    /// The client's, with its completion port.
    client: Arc<HostFile>,
}

impl Drop for ProcessFile {
    fn drop(&mut self) {
        self.process.close(&self.open);
    }
}

/// A structure of a client, which keeps it until its request has ended.
struct MovedOverlapped(NonNull<OVERLAPPED>);

// SAFETY: the structure is the system's until the request ends, except for reading its atomic fields.
unsafe impl Send for MovedOverlapped {}

impl RequestFile for ProcessFile {
    fn handle(&self) -> HANDLE {
        self.client.handle()
    }

    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    fn close(&self) {
        self.client.close();
    }

    unsafe fn status(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: `overlapped` is valid (the trait's `# Safety`).
        unsafe { self.client.status(overlapped) }
    }

    unsafe fn wait(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: `overlapped` is valid (the trait's `# Safety`).
        let now = || unsafe { self.client.status(overlapped) };
        // SAFETY: the structure is valid (`# Safety` of the trait).
        if now() == NtStatus::PENDING && unsafe { overlapped.as_ref() }.hEvent.is_null() {
            return NtStatus::INVALID_PARAMETER;
        }
        self.process.wait_until("GetOverlappedResult", || now() != NtStatus::PENDING);
        now()
    }
}

impl RemoteFile for ProcessFile {
    unsafe fn begin(&self, code: u32, input: &[u8], overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: no request is outstanding on `overlapped`, which is kept until this one ends (the trait's `# Safety`).
        unsafe { self.client.begin(overlapped) };
        let (client, place) = (self.client.clone(), MovedOverlapped(overlapped));
        self.process.begin_reported(&self.open, code, input, move |status| {
            let MovedOverlapped(overlapped) = { place };
            // SAFETY: the request was begun, and ends once.
            unsafe { client.complete(overlapped, NtStatus(status)) };
        });
        NtStatus::PENDING
    }
}
