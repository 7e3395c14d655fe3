//! Lists of logical pages: what a fast registration is made of (`NDKPI 7.4`).

use alloc::boxed::Box;

use fallible::{Arc, try_slice};
use ntstatus::NtStatus;

use super::{
    MemoryTable,
    mapping::{Mappings, PAGE_SIZE},
};
use crate::{
    os::Os,
    sync::{AtomicU64, Ordering},
};

/// Bytes whose logical addresses follow each other.
#[derive(Clone, Copy)]
pub struct Run {
    pub address: u64,
    pub length: u64,
}

/// The bytes from offset `at` of a list of pages on, as far as their addresses follow each other, `most` at most.
///
/// `page` gives the address of each page of the list.
pub fn run_at(page: impl Fn(usize) -> Option<u64>, at: u64, most: u64) -> Option<Run> {
    let index = usize::try_from(at / PAGE_SIZE).ok()?;
    let inside = at % PAGE_SIZE;
    let (mut last, mut length) = (page(index)?, PAGE_SIZE - inside);
    let address = last.checked_add(inside)?;
    for index in index + 1.. {
        if length >= most {
            break;
        }
        match page(index) {
            Some(next) if last.checked_add(PAGE_SIZE) == Some(next) => {
                last = next;
                length += PAGE_SIZE;
            }
            _ => break,
        }
    }
    Some(Run { address, length: length.min(most) })
}

/// How a [`PageList`] keeps its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An entry is a page: there is room for as many pages as entries, and one is found by its index.
    Pages,
    /// An entry is up to 4096 pages that follow each other: their address, and in its low bits how many follow the
    /// first. They are found one after the other, so such lists are short.
    Runs,
}

/// Pages in an entry of a list of runs: what the low bits of a page's address can count.
const MOST_IN_RUN: usize = 4096;
const _: () = assert!(MOST_IN_RUN as u64 == PAGE_SIZE);

/// Room for the pages of one fast registration, made when the region is initialised.
///
/// The entries are atomic only because they are written after they were made. No list is written while it is read: one post
/// reserves it and fills it, and later registrations read it.
pub struct PageList<O: Os> {
    table: Arc<MemoryTable<O>>,
    form: Form,
    entries: Box<[AtomicU64]>,
}

impl<O: Os> PageList<O> {
    pub fn try_new(table: &Arc<MemoryTable<O>>, form: Form, room: u32) -> Result<Arc<Self>, NtStatus> {
        let entries = try_slice(room as usize, |_| AtomicU64::new(0))?;
        Arc::try_new(Self { table: table.clone(), form, entries }).map_err(Into::into)
    }

    /// Returns true if a registration with this number of runs fits. The caller knows that it has no more pages than the region.
    pub fn has_room(&self, runs: usize) -> bool {
        self.form == Form::Pages || runs <= self.entries.len()
    }

    /// Fills the list. What does not fit is left out.
    pub fn set(&self, pages: &[u64]) {
        let mut entries = self.entries.iter();
        let mut put = |entry| {
            if let Some(place) = entries.next() {
                place.store(entry, Ordering::Relaxed);
            }
        };
        if self.form == Form::Pages {
            return pages.iter().copied().for_each(put);
        }
        let follows = |last: &u64, next: &u64| last.checked_add(PAGE_SIZE) == Some(*next);
        for run in pages.chunk_by(follows).flat_map(|run| run.chunks(MOST_IN_RUN)) {
            put(run[0] | (run.len() as u64 - 1));
        }
    }

    /// The mappings in which the pages lie.
    pub fn mappings(&self) -> &Mappings<O> {
        self.table.mappings()
    }

    /// See [`run_at`].
    pub fn run(&self, at: u64, most: u64) -> Option<Run> {
        let entry = |index: usize| self.entries.get(index).map(|entry| entry.load(Ordering::Relaxed));
        if self.form == Form::Pages {
            return run_at(entry, at, most);
        }
        let mut left = at;
        for entry in self.entries.iter().map(|entry| entry.load(Ordering::Relaxed)) {
            let length = (entry % PAGE_SIZE + 1) * PAGE_SIZE;
            if left < length {
                let address = (entry / PAGE_SIZE * PAGE_SIZE).checked_add(left)?;
                return Some(Run { address, length: (length - left).min(most) });
            }
            left -= length;
        }
        None
    }

    /// Returns true if live mappings cover `length` bytes from offset `at` on.
    pub fn are_mapped(&self, at: u64, length: u64) -> bool {
        self.mappings().cover_runs(|at, most| self.run(at, most), at, at + length).is_some()
    }
}

impl<O: Os> Mappings<O> {
    /// How many runs the bytes from offset `at` to `end` make, if live mappings cover them all. `run` gives the run at an offset.
    ///
    /// One look-up for each run.
    pub fn cover_runs(&self, run: impl Fn(u64, u64) -> Option<Run>, mut at: u64, end: u64) -> Option<usize> {
        let mut runs = 0;
        while at < end {
            let run = run(at, end - at)?;
            if !self.cover(run.address, run.length) {
                return None;
            }
            at += run.length;
            runs += 1;
        }
        Some(runs)
    }
}
