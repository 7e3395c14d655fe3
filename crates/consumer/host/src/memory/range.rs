//! The engine's view of registered bytes.

use core::sync::atomic::{Ordering, fence};

use engine::{os::Memory, prefetch};
use ndkpi::NtStatus;

use super::mdl::{HostMdl, Segment, walk};
use crate::machine::count_copied;

enum Segments {
    One(Segment),
    /// Each with the offset of its first byte in the range: sorted, without gaps, the first at zero; no segment is empty.
    Many(Box<[(usize, Segment)]>),
}

/// Registered bytes: a pinned, virtually contiguous range, perhaps of several segments.
///
/// # Invariants
///
/// The segments cover `length` bytes, which is not zero. They stay valid for reads and writes on any thread as long as this
/// value lives; that they change meanwhile is the bargain of registered memory (see [`Memory`]).
pub struct HostMemory {
    base: u64,
    length: usize,
    segments: Segments,
}

impl HostMemory {
    /// The first `length` bytes that a chain of descriptors describes. The descriptors are not used after the call.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if the chain is not virtually contiguous, is shorter than `length`, does not end or is
    /// null, or if `length` is zero; `STATUS_INSUFFICIENT_RESOURCES`.
    ///
    /// # Safety
    ///
    /// `mdl` is null or points to a chain of valid descriptors that nobody changes during the call. The bytes that they
    /// describe are valid for reads and writes as long as the value lives, by any number of threads at the same time.
    pub unsafe fn from_mdl(mdl: *const HostMdl, length: usize) -> Result<Self, NtStatus> {
        let mut last = None;
        // SAFETY: `mdl` is null or begins a chain of valid descriptors that nobody changes now (`# Safety`).
        let found = unsafe { walk(mdl, length, |segment| last = Some(segment)) }?;
        let base = found.base;
        if let Some(only) = last.filter(|_| found.pieces == 1) {
            return Ok(Self { base, length, segments: Segments::One(only) });
        }
        let mut segments = Vec::new();
        segments.try_reserve_exact(found.pieces).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        let mut begin = 0;
        let add = |segment: Segment| {
            segments.push((begin, segment));
            begin += segment.length;
        };
        // SAFETY: as for the first walk.
        unsafe { walk(mdl, length, add) }?;
        Ok(Self { base, length, segments: Segments::Many(segments.into_boxed_slice()) })
    }

    /// Panics if the bytes are not in the range.
    #[inline]
    #[track_caller]
    fn check(&self, offset: usize, length: usize) {
        if offset > self.length || length > self.length - offset {
            self.refuse(offset, length);
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn refuse(&self, offset: usize, length: usize) -> ! {
        panic!("bytes {offset}+{length} of a memory range of {} bytes", self.length);
    }

    /// Copies bytes to a place that is in the range (checked by the caller), which has several segments.
    #[inline(never)]
    fn write_segments(&self, mut offset: usize, from: &[u8]) {
        let mut rest = from;
        while !rest.is_empty() {
            let segment = self.forward(offset);
            let length = segment.length.min(rest.len());
            let (now, later) = rest.split_at(length);
            // SAFETY: the segment has at least `length` writable bytes (invariant), and so has `now` readable ones.
            unsafe { copy_in_order(now.as_ptr(), segment.pointer, length) };
            offset += length;
            rest = later;
        }
    }

    /// Copies bytes that are in both ranges (checked by the caller), which may have several segments.
    fn copy_segments(&self, offset: usize, from: &Self, from_offset: usize, len: usize) {
        // Where the ranges overlap, a byte must be read before it is written over: begin at the end that is ahead. Such bytes have no
        // order to keep. All others land in order (see `Memory`).
        let to_address = self.base.wrapping_add(offset as u64);
        let from_address = from.base.wrapping_add(from_offset as u64);
        let forward = to_address.wrapping_sub(from_address).wrapping_sub(1) >= (len as u64).wrapping_sub(1);
        let mut left = len;
        while left > 0 {
            let done = len - left;
            let length = if forward {
                let (source, sink) = (from.forward(from_offset + done), self.forward(offset + done));
                let length = left.min(source.length).min(sink.length);
                // SAFETY: both segments have at least `length` bytes (invariant of both).
                unsafe { copy_in_order(source.pointer, sink.pointer, length) };
                length
            } else {
                let (source, sink) = (from.backward(from_offset + left), self.backward(offset + left));
                let length = left.min(source.length).min(sink.length);
                // SAFETY: the segment has at least `length` bytes, so these are the last of it.
                let (begin, to) =
                    unsafe { (source.pointer.add(source.length - length), sink.pointer.add(sink.length - length)) };
                // SAFETY: both have `length` bytes from there on (invariant of both).
                unsafe { copy(begin, to, length) };
                length
            };
            left -= length;
        }
    }

    /// The longest segment that begins at `offset`, which is in the range.
    fn forward(&self, offset: usize) -> Segment {
        match &self.segments {
            Segments::One(segment) => {
                // SAFETY: `offset` is in the range (the caller has checked it), which is one segment (invariant).
                let pointer = unsafe { segment.pointer.add(offset) };
                Segment { pointer, length: segment.length - offset }
            }
            Segments::Many(segments) => {
                let (begin, segment) = segments[segments.partition_point(|(begin, _)| *begin <= offset) - 1];
                let inside = offset - begin;
                // SAFETY: `offset` lies in this segment: it begins at or before it, and the next one begins after it.
                let pointer = unsafe { segment.pointer.add(inside) };
                Segment { pointer, length: segment.length - inside }
            }
        }
    }

    /// The longest segment that ends at `end`, which is not zero and in the range or at its end.
    fn backward(&self, end: usize) -> Segment {
        match &self.segments {
            Segments::One(segment) => Segment { pointer: segment.pointer, length: end },
            Segments::Many(segments) => {
                let (begin, segment) = segments[segments.partition_point(|(begin, _)| *begin < end) - 1];
                Segment { pointer: segment.pointer, length: end - begin }
            }
        }
    }
}

/// Copies `length` bytes, which may overlap.
///
/// # Safety
///
/// Both are valid for that many bytes, one for reads and one for writes.
const unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: both are valid for `length` bytes (`# Safety`). Bytes need no alignment, and `copy` lets them overlap.
    unsafe { from.copy_to(to, length) }
}

//= NDKPI 2.6
/// [`copy`] to registered bytes: the last one changes last. The copy routine of the C library stores a long row in whatever order.
///
/// # Safety
///
/// As [`copy`].
#[inline]
unsafe fn copy_in_order(from: *const u8, to: *mut u8, length: usize) {
    let Some(before) = length.checked_sub(WORD) else {
        // SAFETY: `from` is valid for reading `length` bytes, `to` for writing them (`# Safety` of [`copy`]).
        return unsafe { copy_few(from, to, length) };
    };
    // Read before anything is written: the two may overlap.
    // SAFETY: `before` and a word are `length` bytes.
    let place = unsafe { from.add(before) };
    // SAFETY: the last word of the source.
    let last = unsafe { place.cast::<u64>().read_unaligned() };
    if before > 0 {
        // SAFETY: both are valid for `length` bytes (`# Safety`), and these are fewer.
        unsafe { copy(from, to, before) };
        fence(Ordering::Release);
    }
    // SAFETY: `before` and a word are `length` bytes.
    let place = unsafe { to.add(before) };
    // SAFETY: the last word of the sink.
    unsafe { place.cast::<u64>().write_unaligned(last) };
}

/// [`copy_in_order`] for less than a word.
///
/// # Safety
///
/// As [`copy`].
#[inline(never)]
unsafe fn copy_few(from: *const u8, to: *mut u8, length: usize) {
    let mut bytes = [0; WORD];
    // SAFETY: less than a word.
    unsafe { copy(from, bytes.as_mut_ptr(), length) };
    for (index, byte) in bytes[..length].iter().enumerate() {
        // SAFETY: `index` is below `length`.
        let place = unsafe { to.add(index) };
        // SAFETY: a byte of the sink. Volatile, so that they stay in this order.
        unsafe { place.write_volatile(*byte) };
    }
}

const WORD: usize = size_of::<u64>();

impl Memory for HostMemory {
    fn base(&self) -> u64 {
        self.base
    }

    fn len(&self) -> usize {
        self.length
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        count_copied(into.len());
        let mut offset = offset;
        let mut rest = into;
        while !rest.is_empty() {
            let segment = self.forward(offset);
            let length = segment.length.min(rest.len());
            let (now, later) = rest.split_at_mut(length);
            // SAFETY: the segment has at least `length` readable bytes (invariant), and so has `now` writable ones.
            unsafe { copy(segment.pointer, now.as_mut_ptr(), length) };
            offset += length;
            rest = later;
        }
    }

    #[inline]
    fn write(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        count_copied(from.len());
        if let Segments::One(segment) = &self.segments {
            // SAFETY: the offset is in the range (checked), which is one segment (invariant).
            let to = unsafe { segment.pointer.add(offset) };
            // SAFETY: so many writable bytes follow (checked), and as many readable ones in `from`.
            return unsafe { copy_in_order(from.as_ptr(), to, from.len()) };
        }
        self.write_segments(offset, from);
    }

    #[inline]
    fn copy_from(&self, offset: usize, from: &Self, from_offset: usize, len: usize) {
        self.check(offset, len);
        from.check(from_offset, len);
        count_copied(len);
        if let (Segments::One(to), Segments::One(from)) = (&self.segments, &from.segments) {
            // SAFETY: the offset is in the range (checked), which is one segment (invariant).
            let (from, to) = unsafe { (from.pointer.add(from_offset), to.pointer.add(offset)) };
            // SAFETY: both have `len` bytes from there on (checked).
            return unsafe { copy_in_order(from, to, len) };
        }
        self.copy_segments(offset, from, from_offset, len);
    }

    #[inline]
    fn prefetch(&self, offset: usize) {
        if let Segments::One(segment) = &self.segments {
            prefetch::to_write(segment.pointer.wrapping_add(offset));
        }
    }
}
