//! What [`ndk`] needs of the kernel, for drivers that consume NDKPI.

use alloc::boxed::Box;
use fallible::try_box;
use ndk::{PinnedMemory, Runtime};
use ndkpi::{MDL, NDK_ADAPTER, NtStatus};
use wdk_sys::{ULONG, ntddk::KeAreAllApcsDisabled};

use crate::{Event, NonPaged};

const TAG: ULONG = u32::from_le_bytes(*b"Nmem");

/// The kernel, and how an adapter is closed.
pub struct KernelRuntime<C>(C);

impl<C: Fn(*mut NDK_ADAPTER) + Send + Sync> KernelRuntime<C> {
    /// With what closes the adapters of a consumer: `WskCloseNdkAdapter`, or the close of `SOFTNDK_INTERFACE`. It returns when the
    /// close is complete.
    pub const fn new(close: C) -> Self {
        Self(close)
    }
}

impl<C: Fn(*mut NDK_ADAPTER) + Send + Sync> Runtime for KernelRuntime<C> {
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
        let memory: Box<dyn PinnedMemory> = try_box(Described::try_new(length)?)?;
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
struct Described(NonPaged);

impl Described {
    fn try_new(length: usize) -> Result<Self, NtStatus> {
        let mut memory = NonPaged::try_new(length, TAG)?;
        memory.describe(0, length)?;
        Ok(Self(memory))
    }
}

// SAFETY: the MDL describes all of the memory and lives as long as the value; the memory is non-paged, so it stays where it is and
// can be used by anybody at any `IRQL <= DISPATCH_LEVEL`; it begins on a page, and nobody makes references to it.
unsafe impl PinnedMemory for Described {
    fn mdl(&self) -> *mut MDL {
        self.0.mdl().cast()
    }

    fn address(&self) -> *mut u8 {
        self.0.address()
    }

    fn length(&self) -> usize {
        self.0.length()
    }
}
