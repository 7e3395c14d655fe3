//! Processes: address spaces of their own, which end with them.
//!
//! Two processes can have different bytes at the same address. A driver sees a process's memory only through pages that the
//! system has locked for a request, at an address of the kernel's; when the process has gone they are taken out of reach, so a driver that
//! writes to them later ends the test.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{
        AtomicUsize,
        Ordering::{Acquire, Relaxed},
    },
};

use wdk_bindings::{NTSTATUS, STATUS_ACCESS_VIOLATION, STATUS_INVALID_HANDLE};

use super::file::{File, Pending};
use crate::{
    context,
    kernel::Kernel,
    pages::{LockedPages, Pages},
    platform,
    pool::PAGE,
    report::bug_check,
    rule::Rule,
    state::{State, lock},
    waiting,
    wdf::request::Ended,
    wdm::io::file::IoFile,
};

/// Where the memory of every process begins.
const FIRST: u64 = 0x10_0000;

/// A process. When it is dropped it ends as [`Process::kill`] says.
pub struct Process {
    state: Arc<State>,
    number: u32,
    first: u64,
    files: Mutex<Vec<Arc<File>>>,
    requests: Mutex<Vec<Pending>>,
    pages: Mutex<Vec<Arc<Pages>>>,
}

impl Kernel {
    /// A new process of 64 bits, whose memory begins low.
    #[must_use]
    pub fn process(&self) -> Process {
        self.process_from(FIRST)
    }

    /// A new process whose memory begins at `first`.
    ///
    /// # Panics
    ///
    /// If there have been too many.
    #[must_use]
    pub fn process_from(&self, first: u64) -> Process {
        // Multiples of four, none of which is that of the system's own.
        let number = 4 * (u32::try_from(self.state.next()).expect("a small number") + 1);
        let state = self.state.clone();
        state.process_runs(number, true);
        Process { state, number, first, files: Mutex::default(), requests: Mutex::default(), pages: Mutex::default() }
    }
}

impl Process {
    /// Its number.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Opens a device, for as long as the process lives.
    ///
    /// # Errors
    ///
    /// As [`Kernel::open`].
    pub fn open(&self, link: &str) -> Result<Arc<File>, NTSTATUS> {
        let file = Arc::new(context::in_process(self.number, || self.state.open(link))?);
        lock(&self.files).push(file.clone());
        Ok(file)
    }

    /// Opens a device of plain WDM. What is asked by the file is asked in the context of the process.
    ///
    /// # Errors
    ///
    /// As [`Kernel::open_device`].
    pub fn open_device(&self, link: &str) -> Result<IoFile, NTSTATUS> {
        context::in_process(self.number, || IoFile::open(&self.state, link))
    }

    /// A file that it has open.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_HANDLE` if it has none.
    pub fn first_file(&self) -> Result<Arc<File>, NTSTATUS> {
        lock(&self.files).first().cloned().ok_or(STATUS_INVALID_HANDLE)
    }

    /// Closes a file before the process ends, unless somebody else has it too.
    pub fn close(&self, file: &Arc<File>) {
        lock(&self.files).retain(|one| !Arc::ptr_eq(one, file));
    }

    /// Zeroed memory of its own, for reading, and for writing if that is asked for. The address is the process's.
    ///
    /// # Panics
    ///
    /// If the host has no memory.
    #[must_use]
    pub fn allocate(&self, length: usize, writable: bool) -> u64 {
        let bytes = platform::map(length.next_multiple_of(PAGE), writable);
        let mut pages = lock(&self.pages);
        let address = pages
            .iter()
            .rfind(|one| one.view.is_none())
            .map_or(self.first, |last| last.address + (last.length.next_multiple_of(PAGE) + PAGE) as u64);
        let new = Pages { address, length, writable, view: None, bytes, locks: AtomicUsize::new(0) };
        pages.push(Arc::new(new));
        address
    }

    /// Zeroed memory of its own, for a program that is code of the test: it reads and writes the bytes through the pointer, whose address
    /// is the process's, until it gives them back or the process ends. The kernel has them at another address, as always.
    ///
    /// # Panics
    ///
    /// If the host has no memory.
    #[cfg(unix)]
    #[must_use]
    pub fn allocate_view(&self, length: usize) -> *mut u8 {
        let [bytes, view] = platform::map_twice(length.next_multiple_of(PAGE));
        let (address, locks) = (view.expose_provenance() as u64, AtomicUsize::new(0));
        let new = Pages { address, length, writable: true, view: Some(view), bytes, locks };
        lock(&self.pages).push(Arc::new(new));
        view
    }

    /// Gives memory back. Pages that are locked stay until they are not.
    ///
    /// # Panics
    ///
    /// If the process has no memory there.
    pub fn free(&self, address: u64) {
        let mut pages = lock(&self.pages);
        let place = pages.iter().position(|one| one.address == address).expect("memory of the process");
        let gone = pages.remove(place);
        drop(pages);
        // The system keeps the frames of locked pages.
        if gone.locks.load(Acquire) != 0 {
            std::mem::forget(gone);
        }
    }

    fn find(&self, address: u64, length: usize) -> Option<(Arc<Pages>, usize)> {
        let pages = lock(&self.pages);
        let found = pages.iter().find(|one| (one.address..one.address + one.length as u64).contains(&address))?;
        let offset = usize::try_from(address - found.address).ok()?;
        (length <= found.length - offset).then(|| (found.clone(), offset))
    }

    /// Writes to its memory.
    ///
    /// # Panics
    ///
    /// If the process has none there, or may not write it.
    pub fn write(&self, address: u64, bytes: &[u8]) {
        let (pages, offset) = self.find(address, bytes.len()).expect("memory of the process");
        assert!(pages.writable, "memory that can be written");
        let place = pages.bytes.wrapping_add(offset);
        // SAFETY: the range was found in the pages, which are mapped; registered memory is written by several at a time by nature.
        unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Reads its memory.
    ///
    /// # Panics
    ///
    /// If the process has none there.
    #[must_use]
    pub fn read(&self, address: u64, length: usize) -> Vec<u8> {
        let (pages, offset) = self.find(address, length).expect("memory of the process");
        let mut bytes = vec![0; length];
        let place = pages.bytes.wrapping_add(offset);
        // SAFETY: as in `write`, the other way round.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(place, length) };
        bytes
    }

    /// Sends a control code, which ends with the process at the latest.
    #[must_use]
    pub fn begin(&self, file: &File, code: u32, input: &[u8], output: usize) -> Pending {
        self.keep(file.begin(code, input, output))
    }

    /// Sends a control code whose end `ended` is told, as the system tells a program by its structure, event and port: when the driver
    /// completes the request, on whatever thread, with no lock held. Nobody takes the answer.
    pub fn begin_reported(&self, file: &File, code: u32, input: &[u8], ended: impl FnOnce(NTSTATUS) + Send + 'static) {
        let ended: Ended = Box::new(ended);
        self.keep(file.begin_reported(code, input, ended));
    }

    /// Waits for `what`, as a thread of the process does: until `condition` holds.
    pub fn wait_until(&self, what: &str, condition: impl FnMut() -> bool) {
        waiting::until(&self.state, None, what, condition);
    }

    /// How many of its requests have not ended.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        lock(&self.requests).iter().filter(|one| !one.is_complete()).count()
    }

    /// Sends a control code of a direct method, whose second buffer is in the process's memory. The system locks its pages.
    ///
    /// # Errors
    ///
    /// `STATUS_ACCESS_VIOLATION` if there are no such pages, or they cannot be written and the method wants to: the driver does not hear of
    /// it.
    pub fn begin_direct(
        &self,
        file: &File,
        code: u32,
        input: &[u8],
        (address, length): (u64, usize),
    ) -> Result<Pending, NTSTATUS> {
        const METHOD_OUT_DIRECT: u32 = 2;
        if length == 0 {
            // There is nothing to lock.
            return Ok(self.begin(file, code, input, 0));
        }
        let (pages, offset) = self.find(address, length).ok_or(STATUS_ACCESS_VIOLATION)?;
        if code % 4 == METHOD_OUT_DIRECT && !pages.writable {
            return Err(STATUS_ACCESS_VIOLATION);
        }
        Ok(self.keep(file.begin_locked(code, input, LockedPages::new(pages, offset, length))))
    }

    fn keep(&self, pending: Pending) -> Pending {
        let mut requests = lock(&self.requests);
        for reported in requests.iter().filter(|one| one.is_reported()) {
            let _ = reported.collect();
        }
        requests.retain(|one| !one.is_collected());
        requests.push(pending.clone());
        pending
    }

    /// Ends the process, in the order in which Windows does it: its threads end, whose requests are cancelled and waited for;
    /// then its handles are closed; then its memory goes.
    pub fn kill(self) {
        drop(self);
    }

    fn end(&mut self) {
        self.state.process_runs(self.number, false);
        let requests = std::mem::take(self.requests.get_mut().unwrap_or_else(PoisonError::into_inner));
        for request in &requests {
            if !request.is_complete() {
                request.cancel();
            }
        }
        for request in &requests {
            request.abandon();
        }
        drop(std::mem::take(self.files.get_mut().unwrap_or_else(PoisonError::into_inner)));
        for pages in std::mem::take(self.pages.get_mut().unwrap_or_else(PoisonError::into_inner)) {
            let locks = pages.locks.load(Relaxed);
            if locks != 0 {
                let address = pages.address;
                bug_check(Rule::LockedPages, format_args!("a process ends with pages at {address:#x} locked"));
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}
