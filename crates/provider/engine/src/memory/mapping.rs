//! Logical addresses: the adapter's own address space (`NDKPI 3.7`, `7.5`).
//!
//! ```text
//! 63 62            43 42        34 33                       0
//! +-+----------------+------------+--------------------------+
//! |0| number         | generation | offset                   |
//! +-+----------------+------------+--------------------------+
//! ```
//!
//! The number is a slot in the table of mappings. Zero is not one, so the lowest address is far above anything that is
//! really an offset, a length or a null pointer. The generation counts how often the slot was used: addresses of a mapping
//! that was released name nothing for the next 511 mappings in its slot, and at least [`REST`] others come between two of them. An
//! address says nothing about where the bytes are, and no processor can use it.

use fallible::Arc;
use ntstatus::NtStatus;

use super::{
    pinned::{Pinned, Release, Released},
    slots::SlotTable,
};
use crate::os::{Memory, Os};

/// Bytes in a page, of the consumer's memory and of logical addresses (`NDKPI 3.8`).
pub const PAGE_SIZE: u64 = 4096;

const OFFSET_BITS: u32 = 34;
const GENERATION_BITS: u32 = 9;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;

/// Mappings at one time.
pub const MOST: u32 = (1 << (63 - OFFSET_BITS - GENERATION_BITS)) - 1 - REST;

/// The longest mapping, wherever in a page it begins. The last page of a mapping's addresses is never used, so that pages
/// of different mappings never follow each other.
pub const MAX_LENGTH: u64 = (1 << OFFSET_BITS) - 2 * PAGE_SIZE;

/// The least number of other slots that are used before a slot is used again.
const REST: u32 = 4096;

/// A logical address, taken apart.
#[derive(Clone, Copy)]
struct Parts {
    number: u32,
    generation: u32,
    offset: u64,
}

impl Parts {
    #[inline]
    const fn of(address: u64) -> Self {
        Self {
            // An address above the largest has a number above the largest.
            number: (address >> (OFFSET_BITS + GENERATION_BITS)) as u32,
            generation: (address >> OFFSET_BITS) as u32 & GENERATION_MASK,
            offset: address & ((1 << OFFSET_BITS) - 1),
        }
    }

    const fn address(self) -> u64 {
        (self.number as u64) << (OFFSET_BITS + GENERATION_BITS) | (self.generation as u64) << OFFSET_BITS | self.offset
    }
}

/// How many pages a range of `length` bytes touches that begins at `first_byte` in its first page.
#[must_use]
pub const fn pages_touched(first_byte: u32, length: u64) -> u64 {
    if length == 0 { 0 } else { (first_byte as u64 + length).div_ceil(PAGE_SIZE) }
}

/// The logical addresses of a pinned range (`NDKPI 3.8`): a plain value, which [`MemoryTable::unmap`] ends.
///
/// [`MemoryTable::unmap`]: super::MemoryTable::unmap
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    base: u64,
    pages: u32,
    first_byte: u32,
}

impl Mapping {
    /// What names the mapping when it is released. Never zero, and not a pointer: it may lie in the consumer's memory.
    #[must_use]
    pub const fn key(&self) -> u64 {
        self.base
    }

    /// The number of pages.
    #[must_use]
    pub const fn pages(&self) -> u32 {
        self.pages
    }

    /// Where in the first page the range begins (FBO).
    #[must_use]
    pub const fn first_byte(&self) -> u32 {
        self.first_byte
    }

    /// The logical addresses of the pages. They follow each other, which NDKPI does not promise.
    #[must_use]
    pub fn page_addresses(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + use<> {
        let base = self.base;
        (0..self.pages).map(move |page| base + u64::from(page) * PAGE_SIZE)
    }
}

/// The bytes behind the addresses of one mapping.
struct Mapped<M: Memory> {
    generation: u32,
    /// The offsets of the first byte and of the one after the last.
    first: u64,
    end: u64,
    pinned: Arc<Pinned<M>>,
}

//= NDKPI 7.5.4
/// All mappings of an adapter.
pub struct Mappings<O: Os> {
    slots: SlotTable<O, Mapped<O::Memory>>,
}

impl<O: Os> Mappings<O> {
    pub fn try_new(os: &O, capacity: u32) -> Result<Self, NtStatus> {
        Ok(Self { slots: SlotTable::try_new(os, capacity, REST)? })
    }

    /// Gives `memory` addresses. It is no longer than [`MAX_LENGTH`], which the limits of the table see to.
    pub fn map(&self, memory: O::Memory, client: impl Released) -> Result<Mapping, NtStatus> {
        let length = memory.len() as u64;
        let first = memory.base() % PAGE_SIZE;
        let pinned = Pinned::try_new(memory, client)?;
        let mut generation = 0;
        let number = self.slots.insert(|_, stamp| {
            generation = stamp.wrapping_add(1) & GENERATION_MASK;
            *stamp = generation;
            pinned.arm();
            Mapped { generation, first, end: first + length, pinned }
        });
        let base = Parts { number: number?, generation, offset: 0 }.address();
        #[expect(clippy::cast_possible_truncation, reason = "both are below the largest offset of a mapping")]
        let (first_byte, pages) = (first as u32, pages_touched(first as u32, length) as u32);
        Ok(Mapping { base, pages, first_byte })
    }

    //= NDKPI 7.5.3
    pub fn unmap(&self, key: u64) -> Result<Release, NtStatus> {
        let Parts { number, generation, offset } = Parts::of(key);
        let mapped = self.slots.remove_if(number, |mapped| offset == 0 && mapped.generation == generation);
        mapped.map_or(Err(NtStatus::INVALID_DEVICE_REQUEST), |mapped| Ok(Pinned::let_go(mapped.pinned)))
    }

    /// Gives `work` the bytes at `address` and where they begin, if all `length` of them are in one mapping.
    #[inline]
    fn with<U>(&self, address: u64, length: u64, work: impl FnOnce(&Arc<Pinned<O::Memory>>, u64) -> U) -> Option<U> {
        let Parts { number, generation, offset } = Parts::of(address);
        self.slots.with(number, |_, mapped| {
            // Neither sum wraps: offsets are far below the largest number, and so is what is left of the mapping.
            let inside = offset >= mapped.first && offset <= mapped.end && length <= mapped.end - offset;
            (inside && mapped.generation == generation).then(|| work(&mapped.pinned, offset - mapped.first))
        })?
    }

    /// The bytes at `address` and where they begin, if all `length` of them are in one mapping.
    #[inline]
    pub fn find(&self, address: u64, length: u64) -> Option<(Arc<Pinned<O::Memory>>, usize)> {
        let (pinned, start) = self.with(address, length, |pinned, start| (pinned.clone(), start))?;
        Some((pinned, usize::try_from(start).ok()?))
    }

    /// Returns true if all `length` bytes at `address` are in one mapping.
    pub fn cover(&self, address: u64, length: u64) -> bool {
        self.with(address, length, |_, _| ()).is_some()
    }

    pub fn count(&self) -> u32 {
        self.slots.taken()
    }

    pub fn bytes(&self) -> usize {
        self.slots.bytes()
    }
}
