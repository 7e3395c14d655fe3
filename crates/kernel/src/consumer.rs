//! What [`ndk`] needs of the kernel, for drivers that consume NDKPI.

use alloc::boxed::Box;
use core::ptr;

use fallible::try_box;
use ndk::{Os, PinnedMemory};
use ndkpi::{MDL, NDK_ADAPTER, NtStatus};
use wdk_sys::{
    PAGE_SIZE, PMDL, POOL_FLAG_NON_PAGED, PVOID, ULONG,
    ntddk::{
        ExAllocatePool2, ExFreePoolWithTag, IoAllocateMdl, IoFreeMdl, KeAreAllApcsDisabled, MmBuildMdlForNonPagedPool,
    },
};

use crate::Event;

const TAG: ULONG = u32::from_le_bytes(*b"Nmem");
const PAGE: usize = PAGE_SIZE as usize;

/// The kernel, and how an adapter is closed.
pub struct ConsumerOs<C>(C);

impl<C: Fn(*mut NDK_ADAPTER) + Send + Sync> ConsumerOs<C> {
    /// With what closes the adapters of a consumer: `WskCloseNdkAdapter`, or the close of `SOFTNDK_INTERFACE`. It returns when the
    /// close is complete.
    pub const fn new(close: C) -> Self {
        Self(close)
    }
}

impl<C: Fn(*mut NDK_ADAPTER) + Send + Sync> Os for ConsumerOs<C> {
    fn event(&self) -> Result<Box<dyn ndk::Event>, NtStatus> {
        let event: Box<dyn ndk::Event> = try_box(Event::try_new()?)?;
        Ok(event)
    }

    fn may_wait(&self) -> bool {
        // SAFETY: the routine has no conditions. It also says so of a guarded region, in which waiting is possible; but whoever
        // is in one is about to leave it.
        unsafe { KeAreAllApcsDisabled() == 0 }
    }

    fn memory(&self, length: usize) -> Result<Box<dyn PinnedMemory>, NtStatus> {
        let memory: Box<dyn PinnedMemory> = try_box(NonPaged::try_new(length)?)?;
        Ok(memory)
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        (self.0)(adapter);
    }
}

impl ndk::Event for Event {
    fn set(&self) {
        Self::set(self);
    }

    fn clear(&self) {
        Self::clear(self);
    }

    fn wait(&self) {
        Self::wait(self);
    }

    fn wait_for(&self, micros: u64) -> bool {
        self.wait_micros(micros)
    }
}

/// A buffer in non-paged pool, and the MDL that describes it.
///
/// # Invariants
///
/// `bytes` is page-aligned memory of the pool of at least `length` bytes, and `mdl` is null or describes them; both belong to this
/// value.
struct NonPaged {
    bytes: PVOID,
    length: usize,
    mdl: PMDL,
}

// SAFETY: the memory is the kernel's, the same on every processor; nobody makes references to it.
unsafe impl Send for NonPaged {}
// SAFETY: as for `Send`.
unsafe impl Sync for NonPaged {}

impl NonPaged {
    fn try_new(length: usize) -> Result<Self, NtStatus> {
        // An allocation of a page or more begins on a page. It is zeroed.
        let size = length.max(1).checked_next_multiple_of(PAGE).ok_or(NtStatus::INVALID_PARAMETER)?;
        let count = ULONG::try_from(length).map_err(|_| NtStatus::INVALID_PARAMETER)?;
        // SAFETY: `IRQL <= DISPATCH_LEVEL`, and the size is not zero.
        let bytes = unsafe { ExAllocatePool2(POOL_FLAG_NON_PAGED, size as wdk_sys::SIZE_T, TAG) };
        if bytes.is_null() {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let mut this = Self { bytes, length, mdl: ptr::null_mut() };
        // SAFETY: the range is ours (invariant); the MDL belongs to no request.
        this.mdl = unsafe { IoAllocateMdl(bytes, count, 0, 0, ptr::null_mut()) };
        if this.mdl.is_null() {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        // SAFETY: the MDL was made for this range, which is non-paged pool.
        unsafe { MmBuildMdlForNonPagedPool(this.mdl) };
        Ok(this)
    }
}

impl Drop for NonPaged {
    fn drop(&mut self) {
        if !self.mdl.is_null() {
            // SAFETY: the MDL is ours (invariant) and not used again.
            unsafe { IoFreeMdl(self.mdl) };
        }
        // SAFETY: the memory is ours (invariant) and not used again.
        unsafe { ExFreePoolWithTag(self.bytes, TAG) };
    }
}

// SAFETY: the MDL describes all of the memory and lives as long as the value; the memory is non-paged, so it stays where it is and
// can be used by anybody at any `IRQL <= DISPATCH_LEVEL`; it begins on a page, and nobody makes references to it (invariant).
unsafe impl PinnedMemory for NonPaged {
    fn mdl(&self) -> *mut MDL {
        self.mdl.cast()
    }

    fn address(&self) -> *mut u8 {
        self.bytes.cast()
    }

    fn length(&self) -> usize {
        self.length
    }
}
