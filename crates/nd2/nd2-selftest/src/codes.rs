//! The second back end: every call is a control code to a session, as if the adapters were in a driver.
//!
//! The session is that of the driver (`nd2_control`), and the client's side that of the library (`softnd`). In between bytes are
//! copied, and requests end through the equivalents of Windows.

use std::{
    ffi::c_void,
    ptr::{self, NonNull},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::Ordering::{Acquire, Release},
    },
};

use host::{HostMdl, HostMemory, HostOs};
use nd2::{
    OverlappedFile, OverlappedOs, Quota,
    abi::{HANDLE, OVERLAPPED},
    back_end::RequestFile,
};
use nd2_control::{Adapter, Call, File, Request, Session, Sessions, System};
use ndkpi::NtStatus;
use softnd::driver::{Key, Registration, RemoteFile, Transport};

use crate::{OverlappedHost, host::HostFile};

/// The host's machine as an operating system with sessions.
#[derive(Clone)]
pub struct HostSystem {
    platform: OverlappedHost,
    devices: Arc<Mutex<Vec<Adapter<Self>>>>,
}

impl HostSystem {
    /// A system without adapters.
    #[must_use]
    pub fn new(platform: &OverlappedHost) -> Self {
        Self { platform: platform.clone(), devices: Arc::default() }
    }

    /// Sets the adapters that there are.
    pub fn set_devices(&self, devices: &[Adapter<Self>]) {
        let before = std::mem::replace(&mut *self.list(), devices.to_vec());
        drop(before);
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Adapter<Self>>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl System for HostSystem {
    type Os = HostOs;
    type Request = HostRequest;

    fn os(&self) -> &HostOs {
        OverlappedOs::os(&self.platform)
    }

    fn each_device(&self, each: &mut dyn FnMut(&Adapter<Self>)) {
        let devices = self.list().clone();
        devices.iter().for_each(each);
    }

    fn limit_reached(&self, name: &'static str, most: u64) {
        OverlappedOs::limit_reached(&self.platform, name, most);
    }
}

/// How a request has ended, with its answer.
type SharedAnswer = Arc<Mutex<Option<(NtStatus, Vec<u8>)>>>;

/// Who waits for a request.
enum Waits {
    /// The caller, for the answer.
    Caller(SharedAnswer),
    /// The client, at its structure.
    Client(Arc<Reported>),
}

/// A request of a client with its structure.
struct Reported {
    file: Arc<HostFile>,
    overlapped: NonNull<OVERLAPPED>,
    /// What the method has answered itself.
    answer: Mutex<Option<NtStatus>>,
}

// SAFETY: the structure is the provider's alone until the request ends, except for reading its atomic fields.
unsafe impl Send for Reported {}
// SAFETY: as for `Send`.
unsafe impl Sync for Reported {}

/// A request.
pub struct HostRequest {
    input: Vec<u8>,
    output: Vec<u8>,
    locked: Option<(usize, usize)>,
    waits: Waits,
}

impl HostRequest {
    fn new(input: &[u8], output: usize, waits: Waits) -> Self {
        Self { input: input.to_vec(), output: vec![0xA5; output], locked: None, waits }
    }

    fn end(self, status: NtStatus, information: usize, by_method: bool) {
        match self.waits {
            Waits::Caller(place) => {
                let mut bytes = self.output;
                assert!(information <= bytes.len(), "more bytes than there is room for");
                bytes.truncate(information);
                *place.lock().unwrap_or_else(PoisonError::into_inner) = Some((status, bytes));
            }
            Waits::Client(reported) if by_method => {
                *reported.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
            }
            Waits::Client(reported) => {
                // SAFETY: the request was begun, and ends once.
                unsafe { reported.file.complete(reported.overlapped, status) };
            }
        }
    }
}

impl Request<HostSystem> for HostRequest {
    fn input(&self) -> &[u8] {
        &self.input
    }

    fn output(&mut self) -> &mut [u8] {
        &mut self.output
    }

    fn locked(&self, base: u64) -> Result<HostMemory, NtStatus> {
        let (address, length) = self.locked.ok_or(NtStatus::ACCESS_VIOLATION)?;
        if address as u64 != base {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let mdl = HostMdl { next: ptr::null_mut(), address: ptr::with_exposed_provenance_mut(address), length };
        // SAFETY: the descriptor is valid, and the client keeps the bytes as long as they are registered.
        unsafe { HostMemory::from_mdl(&raw const mdl, length) }.map_err(|status| match status {
            NtStatus::INVALID_PARAMETER => NtStatus::ACCESS_VIOLATION,
            status => status,
        })
    }

    fn watch(&self, _: &fallible::Arc<Call<HostSystem>>) -> Result<(), NtStatus> {
        // Nobody cancels requests here; the simulated kernel does.
        Ok(())
    }

    fn unwatch(&self) -> bool {
        true
    }

    fn complete(self, status: NtStatus, information: usize) {
        self.end(status, information, false);
    }

    fn answer(self, status: NtStatus) {
        self.end(status, 0, true);
    }
}

/// A file of the driver's device. Closed when this is dropped.
struct OpenFile(fallible::Arc<File<HostSystem>>);

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The session of the one program that there is.
#[derive(Clone)]
pub struct HostTransport {
    platform: OverlappedHost,
    sessions: fallible::Arc<Sessions<HostSystem>>,
    file: Arc<OpenFile>,
    key: Key,
}

impl HostTransport {
    /// Begins a session.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(system: &HostSystem) -> Result<Self, NtStatus> {
        let sessions = Sessions::try_new(system, Quota::default(), 1)?;
        let file = Arc::new(OpenFile(File::try_new(&sessions, std::process::id())?));
        let key = Key::try_new(|key| {
            key.fill(0x5D);
            Ok::<_, NtStatus>(())
        })?;
        let (code, word) = key.begin();
        send(&file.0, code, &word, &mut [])?;
        Ok(Self { platform: system.platform.clone(), sessions, file, key })
    }

    /// The driver's side.
    #[must_use]
    pub fn session(&self) -> fallible::Arc<Session<HostSystem>> {
        self.file.0.session().expect("a session that has begun")
    }
}

/// A registration: ended, or not.
pub struct HostRegistration(SharedAnswer);

impl Registration for HostRegistration {
    fn status(&self) -> NtStatus {
        let ended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ended.as_ref().map_or(NtStatus::PENDING, |(status, _)| *status)
    }
}

/// A file of the session.
pub struct SessionFile {
    file: Arc<HostFile>,
    open: OpenFile,
}

/// Sends a control code by a file and waits for its end.
fn send(file: &fallible::Arc<File<HostSystem>>, code: u32, input: &[u8], output: &mut [u8]) -> Result<usize, NtStatus> {
    let place = Arc::new(Mutex::new(None));
    file.serve(code, HostRequest::new(input, output.len(), Waits::Caller(place.clone())));
    let ended = place.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (status, bytes) = ended.expect("a call that does not pend has ended");
    if status != NtStatus::SUCCESS {
        return Err(status);
    }
    output[..bytes.len()].copy_from_slice(&bytes);
    Ok(bytes.len())
}

impl Transport for HostTransport {
    type File = SessionFile;
    type Registration = HostRegistration;

    fn call(&self, code: u32, input: &[u8], output: &mut [u8]) -> Result<usize, NtStatus> {
        send(&self.file.0, code, input, output)
    }

    fn open(&self) -> Result<SessionFile, NtStatus> {
        let open = OpenFile(File::try_new(&self.sessions, std::process::id())?);
        let (code, word) = self.key.join();
        send(&open.0, code, &word, &mut [])?;
        Ok(SessionFile { file: Arc::new(self.platform.create_file()?), open })
    }

    unsafe fn register(
        &self,
        code: u32,
        input: &[u8],
        (address, length): (*const c_void, usize),
    ) -> Result<HostRegistration, NtStatus> {
        let place = Arc::new(Mutex::new(None));
        let mut request = HostRequest::new(input, 0, Waits::Caller(place.clone()));
        request.locked = Some((address.expose_provenance(), length));
        self.file.0.serve(code, request);
        let registration = HostRegistration(place);
        match registration.status() {
            NtStatus::PENDING => Ok(registration),
            status => Err(status),
        }
    }
}

impl RequestFile for SessionFile {
    fn handle(&self) -> HANDLE {
        self.file.handle()
    }

    fn is_closed(&self) -> bool {
        self.file.is_closed()
    }

    fn close(&self) {
        self.file.close();
    }

    unsafe fn status(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: `overlapped` is valid (the trait's `# Safety`).
        unsafe { self.file.status(overlapped) }
    }

    unsafe fn wait(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: `overlapped` is valid, and its event a handle (the trait's `# Safety`).
        unsafe { self.file.wait(overlapped) }
    }
}

impl RemoteFile for SessionFile {
    unsafe fn begin(&self, code: u32, input: &[u8], overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // What the method answers itself leaves the structure and the event as they are.
        // SAFETY: the structure is valid (`# Safety` of the trait).
        let before = unsafe { overlapped.as_ref() }.Internal.load(Acquire);
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (the trait's `# Safety`).
        unsafe { self.file.begin(overlapped) };
        let reported = Arc::new(Reported { file: self.file.clone(), overlapped, answer: Mutex::new(None) });
        self.open.0.serve(code, HostRequest::new(input, 0, Waits::Client(reported.clone())));
        let answer = reported.answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(status) = answer else { return NtStatus::PENDING };
        // SAFETY: the request has ended without a report, so the client has the structure still.
        unsafe { overlapped.as_ref() }.Internal.store(before, Release);
        status
    }
}
