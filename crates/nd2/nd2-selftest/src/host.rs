//! Overlapped requests on the host's machine: handles, events, and completion ports.

use std::{
    collections::{HashMap, VecDeque},
    ffi::c_void,
    ptr::{self, NonNull},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use engine::connection::InterfaceAddress;
use host::{
    HostMdl, HostMemory, HostOs,
    machine::{Event, EventKind, MachineRef},
};
use nd2::{
    OverlappedFile, OverlappedOs,
    abi::{HANDLE, HRESULT, OVERLAPPED},
    back_end::RequestFile,
};
use ndkpi::NtStatus;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a handle is a handle of.
#[derive(Clone)]
enum Object {
    Event(Arc<Event>),
    File(Arc<FileState>),
}

struct FileState {
    port: Mutex<Option<Arc<CompletionPort>>>,
}

/// Handles, and what they name.
struct Handles {
    machine: MachineRef,
    /// Files that the provider has.
    files: AtomicUsize,
    /// Limits that clients have reached.
    reached: Mutex<Vec<(&'static str, u64)>>,
    /// The addresses of the machine's interfaces, if adapters follow them.
    interfaces: Mutex<Option<Vec<InterfaceAddress>>>,
    open: Mutex<(usize, HashMap<usize, Object>)>,
}

impl Handles {
    fn add(&self, object: Object) -> HANDLE {
        let mut open = lock(&self.open);
        // Like handles of Windows: multiples of four.
        open.0 += 4;
        let handle = open.0;
        open.1.insert(handle, object);
        drop(open);
        ptr::without_provenance_mut(handle)
    }

    fn get(&self, handle: HANDLE) -> Option<Object> {
        // The lowest bit says that no completion port is to be told.
        lock(&self.open).1.get(&(handle.addr() & !1)).cloned()
    }

    fn event(&self, handle: HANDLE) -> Option<Arc<Event>> {
        match self.get(handle)? {
            Object::Event(event) => Some(event),
            Object::File(_) => None,
        }
    }

    fn close(&self, handle: HANDLE) {
        // Dropped after the lock is released.
        let closed = lock(&self.open).1.remove(&handle.addr());
        drop(closed);
    }
}

/// A handle that is closed when this is dropped.
pub struct Handle {
    handles: Arc<Handles>,
    handle: HANDLE,
}

// SAFETY: the handle is a number.
unsafe impl Send for Handle {}
// SAFETY: as for `Send`.
unsafe impl Sync for Handle {}

impl Handle {
    /// The handle.
    #[must_use]
    pub const fn get(&self) -> HANDLE {
        self.handle
    }

    /// Returns true if the event is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.handles.event(self.handle).is_some_and(|event| event.is_set())
    }

    /// Sets the event.
    pub fn set(&self) {
        if let Some(event) = self.handles.event(self.handle) {
            event.set();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.handles.close(self.handle);
    }
}

/// What a completion port says: which request has ended, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The request's structure.
    pub overlapped: *mut OVERLAPPED,
    /// Its status.
    pub status: HRESULT,
}

// SAFETY: the structure is only named.
unsafe impl Send for Packet {}

/// A completion port.
pub struct CompletionPort {
    packets: Mutex<VecDeque<Packet>>,
}

impl CompletionPort {
    /// The next packet, if there is one: `GetQueuedCompletionStatus` with a timeout of zero.
    #[must_use]
    pub fn get(&self) -> Option<Packet> {
        lock(&self.packets).pop_front()
    }
}

/// A file for overlapped requests.
pub struct HostFile {
    handles: Arc<Handles>,
    handle: HANDLE,
    state: Arc<FileState>,
}

// SAFETY: the handle is a number.
unsafe impl Send for HostFile {}
// SAFETY: as for `Send`.
unsafe impl Sync for HostFile {}

impl RequestFile for HostFile {
    fn handle(&self) -> HANDLE {
        self.handle
    }

    fn is_closed(&self) -> bool {
        self.handles.get(self.handle).is_none()
    }

    fn close(&self) {
        self.handles.close(self.handle);
    }

    unsafe fn status(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: the structure is valid (`# Safety` of the trait).
        unsafe { overlapped.as_ref() }.status().to_status()
    }

    unsafe fn wait(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        loop {
            // SAFETY: the structure is valid (`# Safety` of the trait).
            let now = unsafe { self.status(overlapped) };
            if now != NtStatus::PENDING {
                return now;
            }
            // SAFETY: the structure is valid (`# Safety` of the trait).
            let event = unsafe { overlapped.as_ref() }.hEvent;
            let Some(event) = self.handles.event(event) else { return NtStatus::INVALID_PARAMETER };
            event.wait();
        }
    }
}

impl OverlappedFile for HostFile {
    fn prepare(&self) -> Result<(), NtStatus> {
        Ok(())
    }

    unsafe fn begin(&self, overlapped: NonNull<OVERLAPPED>) {
        // SAFETY: the structure is valid (`# Safety` of the trait).
        let overlapped = unsafe { overlapped.as_ref() };
        overlapped.InternalHigh.store(0, Ordering::Relaxed);
        overlapped.Internal.store(NtStatus::PENDING.to_bits() as usize, Ordering::Release);
        if let Some(event) = self.handles.event(overlapped.hEvent) {
            event.reset();
        }
    }

    unsafe fn complete(&self, overlapped: NonNull<OVERLAPPED>, status: NtStatus) {
        HostOs::assert_callback_context();
        let (event, silent) = {
            // SAFETY: the structure is valid until its status says that the request has ended (`# Safety` of the trait).
            let overlapped = unsafe { overlapped.as_ref() };
            assert!(overlapped.status().is_pending(), "a request ends twice: {:?}", overlapped.status());
            let found = (self.handles.event(overlapped.hEvent), overlapped.hEvent.addr() & 1 != 0);
            overlapped.Internal.store(status.to_bits() as usize, Ordering::Release);
            found
        };
        if let Some(event) = event {
            event.set();
        }
        if !silent && let Some(port) = &*lock(&self.state.port) {
            lock(&port.packets).push_back(Packet { overlapped: overlapped.as_ptr(), status: status.into() });
        }
    }
}

impl Drop for HostFile {
    fn drop(&mut self) {
        self.handles.close(self.handle);
        self.handles.files.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The host's machine as an operating system with overlapped requests.
#[derive(Clone)]
pub struct OverlappedHost {
    os: HostOs,
    handles: Arc<Handles>,
}

impl OverlappedHost {
    /// The platform on `machine`.
    #[must_use]
    pub fn new(machine: &MachineRef) -> Self {
        let handles = Handles {
            machine: machine.clone(),
            files: AtomicUsize::new(0),
            reached: Mutex::default(),
            interfaces: Mutex::default(),
            open: Mutex::new((0x100, HashMap::new())),
        };
        Self { os: HostOs::new(machine), handles: Arc::new(handles) }
    }

    /// An event that stays set until a request begins with it.
    #[must_use]
    pub fn event(&self) -> Handle {
        let event = Event::new(&self.handles.machine, EventKind::Notification);
        Handle { handle: self.handles.add(Object::Event(Arc::new(event))), handles: self.handles.clone() }
    }

    /// Closes a file's handle, as its client does: `CloseHandle`.
    pub fn close(&self, file: HANDLE) {
        self.handles.close(file);
    }

    /// The limits that clients have reached since this was asked last, with their names.
    #[must_use]
    pub fn limits_reached(&self) -> Vec<(&'static str, u64)> {
        std::mem::take(&mut *lock(&self.handles.reached))
    }

    /// Has adapters follow the machine's interfaces, which have these addresses now.
    pub fn set_interfaces(&self, interfaces: &[InterfaceAddress]) {
        *lock(&self.handles.interfaces) = Some(interfaces.to_vec());
    }

    /// How many files the provider has.
    #[must_use]
    pub fn files(&self) -> usize {
        self.handles.files.load(Ordering::Relaxed)
    }

    /// Lets the ends of requests on a file come to a port: `CreateIoCompletionPort`. `None` if it is no open file.
    #[must_use]
    pub fn completion_port(&self, file: HANDLE) -> Option<Arc<CompletionPort>> {
        let Object::File(file) = self.handles.get(file)? else { return None };
        let port = Arc::new(CompletionPort { packets: Mutex::new(VecDeque::new()) });
        *lock(&file.port) = Some(port.clone());
        Some(port)
    }
}

impl OverlappedOs for OverlappedHost {
    type Os = HostOs;
    type File = HostFile;
    type Pages = ();

    fn os(&self) -> &HostOs {
        &self.os
    }

    fn create_file(&self) -> Result<HostFile, NtStatus> {
        let state = Arc::new(FileState { port: Mutex::new(None) });
        let handle = self.handles.add(Object::File(state.clone()));
        self.handles.files.fetch_add(1, Ordering::Relaxed);
        Ok(HostFile { handles: self.handles.clone(), handle, state })
    }

    fn interfaces(&self) -> Option<Vec<InterfaceAddress>> {
        lock(&self.handles.interfaces).clone()
    }

    fn limit_reached(&self, name: &'static str, most: u64) {
        lock(&self.handles.reached).push((name, most));
    }

    unsafe fn memory(&self, address: *const c_void, length: usize, _writable: bool) -> Result<HostMemory, NtStatus> {
        let mdl = HostMdl { next: ptr::null_mut(), address: address.cast_mut().cast(), length };
        // SAFETY: the descriptor is valid, and the bytes stay until the memory is dropped (`# Safety` of the trait).
        unsafe { HostMemory::from_mdl(&raw const mdl, length) }.map_err(|status| match status {
            // No bytes, or at an address where none can be.
            NtStatus::INVALID_PARAMETER => NtStatus::ACCESS_VIOLATION,
            status => status,
        })
    }
}
