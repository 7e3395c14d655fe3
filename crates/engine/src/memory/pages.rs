//! Lists of logical pages: what a fast registration is made of (`NDKPI 7.4`).

use alloc::boxed::Box;

use fallible::{Arc, try_slice};
use ndkpi::NtStatus;

use super::{
    MemoryTable,
    mapping::{Mappings, PAGE_SIZE},
};
use crate::{
    memory_status,
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

/// Room for the pages of one fast registration, made when the region is initialised.
///
/// The pages are atomic only because they are written after they were made. Nobody writes a list that somebody reads: it is
/// filled while one post has it reserved, and read under registrations that came after.
pub struct PageList<O: Os> {
    table: Arc<MemoryTable<O>>,
    pages: Box<[AtomicU64]>,
}

impl<O: Os> PageList<O> {
    pub fn try_new(table: &Arc<MemoryTable<O>>, room: u32) -> Result<Arc<Self>, NtStatus> {
        let pages = try_slice(room as usize, |_| AtomicU64::new(0)).map_err(memory_status)?;
        Arc::try_new(Self { table: table.clone(), pages }).map_err(memory_status)
    }

    /// Fills the list.
    pub fn set(&self, pages: &[u64]) {
        for (place, page) in self.pages.iter().zip(pages) {
            place.store(*page, Ordering::Relaxed);
        }
    }

    /// The mappings in which the pages lie.
    pub fn mappings(&self) -> &Mappings<O> {
        self.table.mappings()
    }

    fn page(&self, index: usize) -> Option<u64> {
        self.pages.get(index).map(|page| page.load(Ordering::Relaxed))
    }

    /// See [`run_at`].
    pub fn run(&self, at: u64, most: u64) -> Option<Run> {
        run_at(|index| self.page(index), at, most)
    }

    /// Whether live mappings cover `length` bytes from offset `at` on.
    pub fn are_mapped(&self, at: u64, length: u64) -> bool {
        self.mappings().cover_runs(|index| self.page(index), at, at + length).is_some()
    }
}

impl<O: Os> Mappings<O> {
    /// Whether live mappings cover all bytes from `first_byte` to `end` of a list of `pages`, and how many runs they make.
    ///
    /// One look-up for each run.
    pub fn cover_runs(&self, page: impl Fn(usize) -> Option<u64>, first_byte: u64, end: u64) -> Option<usize> {
        let (mut at, mut runs) = (first_byte, 0);
        while at < end {
            let run = run_at(&page, at, end - at)?;
            if !self.cover(run.address, run.length) {
                return None;
            }
            at += run.length;
            runs += 1;
        }
        Some(runs)
    }
}
