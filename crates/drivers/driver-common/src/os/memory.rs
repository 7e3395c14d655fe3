//! Bytes that a consumer registered, through the kernel's own mapping of their pages.

use alloc::boxed::Box;
use core::{
    ptr::{self, NonNull},
    sync::atomic::{Ordering::Release, fence},
};

use engine::{os::Memory, prefetch};
use fallible::try_slice;
use kernel::KERNEL_MODE;
use ndkpi::NtStatus;
use provider::chain::{self, Link, Walk};
use wdk_sys::{
    _MEMORY_CACHING_TYPE, _MM_PAGE_PRIORITY, MDL, MDL_MAPPED_TO_SYSTEM_VA, MDL_SOURCE_IS_NONPAGED_POOL,
    MdlMappingNoExecute, ntddk::MmMapLockedPagesSpecifyCache,
};

/// A part of a range that is contiguous in the kernel's mapping.
#[derive(Clone, Copy)]
struct Segment {
    /// Where it begins, counted from the beginning of the range.
    offset: usize,
    len: usize,
    bytes: *mut u8,
}

/// A range that an MDL describes.
///
/// # Invariants
///
/// The segments cover the range without gaps, in order, and their bytes stay mapped as long as this value lives: the pages
/// are locked by the consumer, whose MDL keeps the mapping until it unlocks them.
pub struct KernelMemory {
    base: u64,
    len: usize,
    segments: Box<[Segment]>,
}

// SAFETY: the bytes are the kernel's mapping, the same on every processor; they may change at any time, which is the nature
// of registered memory, and nobody makes references to them.
#[expect(clippy::non_send_fields_in_send_ty, reason = "the addresses are the same on every processor")]
unsafe impl Send for KernelMemory {}
// SAFETY: as for `Send`.
unsafe impl Sync for KernelMemory {}

impl KernelMemory {
    /// The first `len` bytes that a chain of MDLs describes.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if `len` is zero, or the chain is shorter, not virtually contiguous or without end
    /// ([`chain::walk`]); `STATUS_INSUFFICIENT_RESOURCES` if there is no memory or no room to map the pages.
    ///
    /// # Safety
    ///
    /// `mdl` is null or a chain of MDLs whose pages are locked, and stay so as long as the result lives.
    pub unsafe fn from_mdl(mdl: *mut MDL, len: usize) -> Result<Self, NtStatus> {
        let first = NonNull::new(mdl);
        // SAFETY: the walk describes MDLs of the chain only (`# Safety`).
        let describe = |mdl| Ok(unsafe { describe(mdl) });
        let Walk { base, pieces: count } = chain::walk(first, len, describe, |_, _| Ok(()))?;
        let empty = Segment { offset: 0, len: 0, bytes: ptr::null_mut() };
        let mut segments = try_slice(count, |_| empty).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        let (mut offset, mut places) = (0, segments.iter_mut());
        chain::walk(first, len, describe, |mdl, len| {
            // SAFETY: an MDL of the chain, whose pages are locked (`# Safety`).
            let bytes = unsafe { system_address(mdl.as_ptr()) }.ok_or(NtStatus::INSUFFICIENT_RESOURCES)?;
            // There is one for each: they were counted.
            let place = places.next().ok_or(NtStatus::INVALID_PARAMETER)?;
            *place = Segment { offset, len, bytes };
            offset += len;
            Ok(())
        })?;
        Ok(Self { base, len, segments })
    }

    /// `len` bytes that somebody knows at `base`, and that are mapped here at `bytes`.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if there are none, or the addresses wrap; `STATUS_INSUFFICIENT_RESOURCES`.
    ///
    /// # Safety
    ///
    /// The bytes stay mapped, for reading at least, as long as the result lives, and for writing if it is written to.
    pub unsafe fn from_mapping(base: u64, bytes: NonNull<u8>, len: usize) -> Result<Self, NtStatus> {
        if len == 0 || base.checked_add(len as u64).is_none() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let segment = Segment { offset: 0, len, bytes: bytes.as_ptr() };
        let segments = try_slice(1, |_| segment).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        Ok(Self { base, len, segments })
    }

    /// Calls `each` with the address and length of every stretch of `len` bytes from `offset` on.
    fn stretches(&self, offset: usize, len: usize, mut each: impl FnMut(*mut u8, usize)) {
        assert!(offset <= self.len && len <= self.len - offset, "an access outside of registered memory");
        if let [segment] = &*self.segments {
            // SAFETY: the offset is not beyond the end of the range, which is one segment, and mapped (invariant).
            return each(unsafe { segment.bytes.add(offset) }, len);
        }
        let (mut at, end) = (offset, offset + len);
        // The first segment that does not end before the access begins.
        let first = self.segments.partition_point(|segment| segment.offset + segment.len <= at);
        for segment in &self.segments[first..] {
            if at == end {
                break;
            }
            let skipped = at - segment.offset;
            let count = (segment.len - skipped).min(end - at);
            // SAFETY: `skipped` is less than the segment's length, and the segment is mapped (invariant).
            each(unsafe { segment.bytes.add(skipped) }, count);
            at += count;
        }
    }
}

impl Memory for KernelMemory {
    fn base(&self) -> u64 {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        let mut place = into.as_mut_ptr();
        self.stretches(offset, into.len(), |bytes, count| {
            // SAFETY: the stretch is mapped (invariant) and `into` has room for all stretches together; registered memory is
            // not Rust's, so they do not overlap.
            unsafe { ptr::copy_nonoverlapping(bytes, place, count) };
            // SAFETY: `into` has room for all stretches together.
            place = unsafe { place.add(count) };
        });
    }

    fn write(&self, offset: usize, from: &[u8]) {
        let mut source = from.as_ptr();
        self.stretches(offset, from.len(), |bytes, count| {
            // SAFETY: as in `read`, the other way round.
            unsafe { copy_in_order(source, bytes, count) };
            // SAFETY: `from` has as many bytes as all stretches together.
            source = unsafe { source.add(count) };
        });
    }

    fn copy_from(&self, offset: usize, from: &Self, from_offset: usize, len: usize) {
        let mut at = offset;
        from.stretches(from_offset, len, |source, count| {
            let mut source = source.cast_const();
            self.stretches(at, count, |place, part| {
                // SAFETY: both stretches are mapped (invariant of each), and may overlap.
                unsafe { copy_in_order(source, place, part) };
                // SAFETY: the parts are together as long as the source's stretch.
                source = unsafe { source.add(part) };
            });
            at += count;
        });
    }

    fn prefetch(&self, offset: usize) {
        // Others are found only by a search.
        if let [segment] = &*self.segments {
            prefetch::to_write(segment.bytes.wrapping_add(offset));
        }
    }
}

//= NDKPI 2.6
/// Copies bytes, which may overlap, to registered memory: the last one changes last. A string instruction stores in whatever order.
///
/// # Safety
///
/// Both are valid for `length` bytes, one for reads and one for writes.
unsafe fn copy_in_order(from: *const u8, to: *mut u8, length: usize) {
    let Some(before) = length.checked_sub(1) else { return };
    // SAFETY: the last byte of the source, read before anything is written.
    let last = unsafe { from.add(before).read() };
    // SAFETY: both are valid for `length` bytes (`# Safety`), and these are fewer.
    unsafe { ptr::copy(from, to, before) };
    fence(Release);
    // SAFETY: the last byte of the sink. Volatile, so that it is a store of its own.
    unsafe { to.add(before).write_volatile(last) };
}

/// The range that one MDL describes, and its successor in the chain.
///
/// # Safety
///
/// `mdl` points to an MDL whose pages are locked.
unsafe fn describe(mdl: NonNull<MDL>) -> Link<NonNull<MDL>> {
    // SAFETY: an MDL whose pages are locked (`# Safety`): the fields that are read do not change meanwhile.
    let mdl = unsafe { mdl.as_ref() };
    Link {
        address: mdl.StartVa.addr() as u64 + u64::from(mdl.ByteOffset),
        length: mdl.ByteCount as usize,
        next: NonNull::new(mdl.Next),
    }
}

/// `MmGetMdlVirtualAddress`: by which address the consumer names the first byte of the chain.
///
/// # Safety
///
/// `mdl` is null or points to an MDL whose pages are locked.
pub unsafe fn virtual_address(mdl: *mut MDL) -> Option<u64> {
    // SAFETY: `mdl` is not null, so it points to an MDL whose pages are locked (`# Safety`).
    NonNull::new(mdl).map(|mdl| unsafe { describe(mdl) }.address)
}

/// `MmGetSystemAddressForMdlSafe`: the kernel's mapping of the pages, made if there is none; `None` if it cannot be.
///
/// # Safety
///
/// `mdl` points to an MDL whose pages are locked.
pub unsafe fn system_address(mdl: *mut MDL) -> Option<*mut u8> {
    const MAPPED: u32 = MDL_MAPPED_TO_SYSTEM_VA | MDL_SOURCE_IS_NONPAGED_POOL;
    const PRIORITY: u32 = _MM_PAGE_PRIORITY::NormalPagePriority as u32 | MdlMappingNoExecute;
    // SAFETY: `mdl` points to an MDL (`# Safety`).
    let flags = unsafe { (*mdl).MdlFlags };
    let address = if u32::from(flags.cast_unsigned()) & MAPPED == 0 {
        let cached = _MEMORY_CACHING_TYPE::MmCached;
        // SAFETY: the pages are locked (`# Safety`); the MDL's owner unmaps them when it unlocks them.
        unsafe { MmMapLockedPagesSpecifyCache(mdl, KERNEL_MODE, cached, ptr::null_mut(), 0, PRIORITY) }
    } else {
        // SAFETY: `mdl` is an MDL (`# Safety`); its flags say that the field holds the mapping.
        unsafe { (*mdl).MappedSystemVa }
    };
    (!address.is_null()).then_some(address.cast())
}

#[cfg(test)]
mod tests {
    use core::ptr;
    use std::{vec, vec::Vec};

    use engine::os::Memory;
    use ndkpi::NtStatus;
    use wdk_sys::{MDL, MDL_MAPPED_TO_SYSTEM_VA, MEMORY_CACHING_TYPE, PMDL, PVOID, ULONG};

    use super::KernelMemory;

    /// Stands in for the kernel's routine: there is no room to map anything.
    #[unsafe(no_mangle)]
    extern "C" fn MmMapLockedPagesSpecifyCache(
        _: PMDL,
        _: wdk_sys::KPROCESSOR_MODE,
        _: MEMORY_CACHING_TYPE,
        _: PVOID,
        _: ULONG,
        _: ULONG,
    ) -> PVOID {
        ptr::null_mut()
    }

    /// A chain of MDLs for ranges of `bytes` that the consumer knows at `base`; mapped pages are not next to each other.
    #[expect(clippy::cast_possible_truncation, reason = "small numbers, and addresses of 64 bits")]
    fn chain(base: u64, bytes: &mut [Vec<u8>], begins: &[u64], mapped: bool) -> Vec<MDL> {
        let describe = |(piece, begin): (&mut Vec<u8>, &u64)| MDL {
            MdlFlags: if mapped { MDL_MAPPED_TO_SYSTEM_VA as i16 } else { 0 },
            MappedSystemVa: piece.as_mut_ptr().cast(),
            StartVa: ptr::without_provenance_mut((base + begin) as usize & !0xFFF),
            ByteOffset: (base + begin) as u32 & 0xFFF,
            ByteCount: piece.len() as u32,
            ..MDL::default()
        };
        let mut mdls = bytes.iter_mut().zip(begins).map(describe).collect::<Vec<_>>();
        for index in 1..mdls.len() {
            mdls[index - 1].Next = &raw mut mdls[index];
        }
        mdls
    }

    fn memory(mdls: &mut [MDL], len: usize) -> Result<KernelMemory, NtStatus> {
        // SAFETY: a chain that lives as long as the test, with pieces that are mapped if it says so.
        unsafe { KernelMemory::from_mdl(mdls.as_mut_ptr(), len) }
    }

    const BASE: u64 = 0xFFFF_8000_0001_0123;

    #[test]
    fn bytes_go_across_the_mdls_of_a_chain() {
        let mut bytes = [vec![0; 10], vec![0; 3], vec![0; 20]];
        let mut mdls = chain(BASE, &mut bytes, &[0, 10, 13], true);
        let whole = memory(&mut mdls, 30).expect("a good chain");
        assert_eq!((whole.base(), whole.len()), (BASE, 30));
        let pattern = (0..25).collect::<Vec<u8>>();
        whole.write(4, &pattern);
        let mut back = [0; 25];
        whole.read(4, &mut back);
        assert_eq!(back, *pattern);

        let mut other = [vec![0; 7], vec![0; 40]];
        let mut other_mdls = chain(BASE, &mut other, &[0, 7], true);
        let copy = memory(&mut other_mdls, 47).expect("a good chain");
        copy.copy_from(2, &whole, 4, 25);
        let mut back = [0; 25];
        copy.read(2, &mut back);
        assert_eq!(back, *pattern);
        assert_eq!(bytes[1], [6, 7, 8]);
    }

    #[test]
    fn bytes_go_to_their_place_in_a_single_mdl() {
        let mut bytes = [vec![0; 10]];
        let mut mdls = chain(BASE, &mut bytes, &[0], true);
        let whole = memory(&mut mdls, 8).expect("a good chain");
        whole.write(3, &[1, 2, 3, 4]);
        let mut back = [0; 3];
        whole.read(4, &mut back);
        assert_eq!(back, [2, 3, 4]);
        // The two ranges overlap.
        whole.copy_from(4, &whole, 3, 4);
        whole.write(8, &[]);
        assert_eq!(bytes[0], [0, 0, 0, 1, 1, 2, 3, 4, 0, 0]);
    }

    #[test]
    fn a_chain_with_a_gap_or_that_is_too_short_is_refused() {
        let mut bytes = [vec![0; 10], vec![0; 10]];
        let mut gap = chain(BASE, &mut bytes, &[0, 11], true);
        assert_eq!(memory(&mut gap, 20).err(), Some(NtStatus::INVALID_PARAMETER));
        // Also if the gap is behind what is asked for, as on a host.
        assert_eq!(memory(&mut gap, 10).err(), Some(NtStatus::INVALID_PARAMETER));
        let mut short = chain(BASE, &mut bytes, &[0, 10], true);
        assert_eq!(memory(&mut short, 21).err(), Some(NtStatus::INVALID_PARAMETER));
        // SAFETY: null is no chain.
        let none = unsafe { KernelMemory::from_mdl(ptr::null_mut(), 0) };
        assert_eq!(none.err(), Some(NtStatus::INVALID_PARAMETER));
    }

    #[test]
    fn pages_that_cannot_be_mapped_are_a_status() {
        let mut bytes = [vec![0; 10]];
        let mut mdls = chain(BASE, &mut bytes, &[0], false);
        assert_eq!(memory(&mut mdls, 10).err(), Some(NtStatus::INSUFFICIENT_RESOURCES));
    }

    #[test]
    #[should_panic(expected = "outside of registered memory")]
    fn an_access_outside_is_not_made() {
        let mut bytes = [vec![0; 10]];
        let mut mdls = chain(BASE, &mut bytes, &[0], true);
        memory(&mut mdls, 8).expect("a good chain").write(5, &[1; 4]);
    }
}
