//! Memory of processes, and pages of it that are locked for a request.

use std::sync::{
    Arc,
    atomic::{
        AtomicUsize,
        Ordering::{AcqRel, Acquire},
    },
};

use crate::{
    platform::{self, PAGE},
    report::bug_check,
    rule::Rule,
};

/// Some pages of a process.
pub struct Pages {
    /// As the process knows them.
    pub address: u64,
    pub length: usize,
    pub writable: bool,
    /// Where code of the test has the same bytes, at the process's address.
    pub view: Option<*mut u8>,
    /// As the kernel does.
    pub bytes: *mut u8,
    /// Requests for which they are locked.
    pub locks: AtomicUsize,
}

// SAFETY: the bytes are memory that any thread may use, and nobody makes references to them.
unsafe impl Send for Pages {}
// SAFETY: as for `Send`.
unsafe impl Sync for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.locks.load(Acquire) != 0 && !std::thread::panicking() {
            bug_check(Rule::LockedPages, format_args!("pages at {:#x} go while they are locked", self.address));
        }
        // SAFETY: the mapping is this value's, and nobody has a reference into it.
        unsafe { platform::unmap(self.bytes, self.length.next_multiple_of(PAGE)) };
        if let Some(view) = self.view {
            // SAFETY: the mapping is this value's, and nobody has a reference into it.
            unsafe { platform::unmap(view, self.length.next_multiple_of(PAGE)) };
        }
    }
}

/// A range whose pages are locked for a request.
pub struct LockedPages {
    pages: Arc<Pages>,
    offset: usize,
    length: usize,
}

impl LockedPages {
    /// Locks so many bytes from this one on.
    pub(crate) fn new(pages: Arc<Pages>, offset: usize, length: usize) -> Self {
        pages.locks.fetch_add(1, AcqRel);
        Self { pages, offset, length }
    }

    /// Where it is, as the kernel knows it.
    pub(crate) fn address(&self) -> usize {
        self.pages.bytes.wrapping_add(self.offset).expose_provenance()
    }

    pub(crate) const fn length(&self) -> usize {
        self.length
    }
}

impl Drop for LockedPages {
    fn drop(&mut self) {
        self.pages.locks.fetch_sub(1, AcqRel);
    }
}
