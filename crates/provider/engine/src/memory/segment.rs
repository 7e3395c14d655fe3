//! Bytes that a request may use, found and checked.

use fallible::Arc;

use super::{mapping::Mappings, pages::PageList, pinned::Pinned, uses::SegmentUses};
use crate::os::{Memory, Os};

/// Bytes that a request may use. As long as the value lives they stay mapped, whatever happens to their registration.
///
/// Offsets count from the first byte of the segment. To use bytes outside is a fault of the engine, and a panic.
pub struct Segment<O: Os> {
    bytes: Bytes<O>,
    length: usize,
    /// Says that the objects through which the segment was found are in use.
    uses: SegmentUses,
}

enum Bytes<O: Os> {
    None,
    /// The bytes from an offset on.
    Range(Arc<Pinned<O::Memory>>, usize),
    /// The bytes from an offset on in pages that do not all follow each other.
    Pages(Arc<PageList<O>>, u64),
}

impl<O: Os> Clone for Bytes<O> {
    fn clone(&self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Range(pinned, start) => Self::Range(pinned.clone(), *start),
            Self::Pages(pages, start) => Self::Pages(pages.clone(), *start),
        }
    }
}

impl<O: Os> Clone for Segment<O> {
    fn clone(&self) -> Self {
        Self { bytes: self.bytes.clone(), length: self.length, uses: self.uses.clone() }
    }
}

impl<O: Os> Segment<O> {
    /// No bytes.
    #[must_use]
    pub const fn empty() -> Self {
        Self { bytes: Bytes::None, length: 0, uses: SegmentUses::NONE }
    }

    pub(super) const fn of_range(
        pinned: Arc<Pinned<O::Memory>>,
        start: usize,
        length: usize,
        uses: SegmentUses,
    ) -> Self {
        Self { bytes: Bytes::Range(pinned, start), length, uses }
    }

    pub(super) const fn of_pages(pages: Arc<PageList<O>>, start: u64, length: usize, uses: SegmentUses) -> Self {
        Self { bytes: Bytes::Pages(pages, start), length, uses }
    }

    /// The number of bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns true if there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Copies the bytes from `offset` on to `into`.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        let mut rest = into;
        let mut at = offset;
        while !rest.is_empty() {
            let run = self.run(at, rest.len());
            let (now, later) = rest.split_at_mut(run.length);
            match run.memory() {
                Some((memory, start)) => memory.read(start, now),
                None => now.fill(0),
            }
            at += run.length;
            rest = later;
        }
    }

    /// Copies `from` to the bytes from `offset` on.
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        if let Some((memory, start)) = self.range() {
            return memory.write(start + offset, from);
        }
        let mut rest = from;
        let mut at = offset;
        while !rest.is_empty() {
            let run = self.run(at, rest.len());
            let (now, later) = rest.split_at(run.length);
            if let Some((memory, start)) = run.memory() {
                memory.write(start, now);
            }
            at += run.length;
            rest = later;
        }
    }

    #[inline]
    fn check(&self, offset: usize, length: usize) {
        assert!(self.has(offset, length), "outside of the segment");
    }

    /// Returns true if `length` bytes from `offset` on are bytes of the segment.
    #[inline]
    pub(super) const fn has(&self, offset: usize, length: usize) -> bool {
        offset <= self.length && length <= self.length - offset
    }

    /// The memory that the bytes are in and where in it they begin, if they lie side by side in one range.
    #[inline]
    pub(crate) fn range(&self) -> Option<(&O::Memory, usize)> {
        match &self.bytes {
            Bytes::Range(pinned, start) => Some((pinned.memory(), *start)),
            Bytes::None | Bytes::Pages(..) => None,
        }
    }

    /// The bytes from `offset` on that are copied at once: at least one and `most` at most. Both must be inside of the segment.
    pub(super) fn run(&self, offset: usize, most: usize) -> Run<'_, O> {
        match &self.bytes {
            Bytes::None => Run { bytes: Found::Nothing, length: most },
            Bytes::Range(pinned, start) => Run { bytes: Found::Range(pinned, start + offset), length: most },
            Bytes::Pages(pages, start) => Self::run_of_pages(pages, start + offset as u64, most),
        }
    }

    fn run_of_pages(pages: &PageList<O>, at: u64, most: usize) -> Run<'_, O> {
        let run = pages.run(at, most as u64);
        let Some((run, length)) = run.and_then(|run| Some((run, usize::try_from(run.length).ok()?))) else {
            return Run { bytes: Found::Nothing, length: most };
        };
        let found: Option<_> = Mappings::find(pages.mappings(), run.address, run.length);
        match found {
            Some((pinned, start)) => Run { bytes: Found::Mapping(pinned, start), length },
            // The mapping was released under a registration that uses it, against NDKPI 7.5. Its bytes are not touched.
            None => Run { bytes: Found::Nothing, length },
        }
    }
}

/// Bytes that lie side by side in one range of memory.
pub(super) struct Run<'a, O: Os> {
    bytes: Found<'a, O>,
    pub length: usize,
}

enum Found<'a, O: Os> {
    Nothing,
    /// In the range of the segment.
    Range(&'a Pinned<O::Memory>, usize),
    /// In the mapping of one of its pages.
    Mapping(Arc<Pinned<O::Memory>>, usize),
}

impl<O: Os> Run<'_, O> {
    /// The memory, and the offset of the bytes in it. `None` if it was unmapped.
    pub(super) fn memory(&self) -> Option<(&O::Memory, usize)> {
        match &self.bytes {
            Found::Nothing => None,
            Found::Range(pinned, start) => Some((pinned.memory(), *start)),
            Found::Mapping(pinned, start) => Some((pinned.memory(), *start)),
        }
    }

    /// Leaves the first `count` bytes out.
    pub(super) const fn skip(&mut self, count: usize) {
        self.length -= count;
        match &mut self.bytes {
            Found::Nothing => {}
            Found::Range(_, start) | Found::Mapping(_, start) => *start += count,
        }
    }
}
