//! What the wrapper needs from its surroundings, a kernel or a program on a host.

use alloc::boxed::Box;

use ndkpi::{MDL, NDK_ADAPTER, NtStatus};

/// An event to wait for.
pub trait Event: Send + Sync {
    /// Sets the event: current and later waits return. `IRQL <= DISPATCH_LEVEL`.
    fn set(&self);

    /// Clears the event: waits block until it is set again. `IRQL <= DISPATCH_LEVEL`.
    fn clear(&self);

    /// Waits until it is set. Called only where [`Runtime::may_wait`] returns true.
    fn wait(&self);

    /// Like [`Event::wait`], for at most this many microseconds. Returns false if the time ran out.
    fn wait_for(&self, micros: u64) -> bool;
}

/// The operating system.
///
/// Nothing here is used on the data path, and no unsafe code relies on it: if a wait returns too early, it is repeated.
pub trait Runtime: Send + Sync {
    /// Creates an event that is not set. `PASSIVE_LEVEL`, or `IRQL <= DISPATCH_LEVEL` for requests issued there.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    fn event(&self) -> Result<Box<dyn Event>, NtStatus>;

    /// Returns true if the caller may wait: it is below `DISPATCH_LEVEL` and holds no spin lock.
    fn may_wait(&self) -> bool;

    /// Allocates zeroed memory that can be registered. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    fn memory(&self, length: usize) -> Result<Box<dyn PinnedMemory>, NtStatus>;

    /// Closes an adapter and returns when that has completed. With Winsock Kernel: `WskCloseNdkAdapter`. `PASSIVE_LEVEL`.
    ///
    /// # Safety
    ///
    /// `adapter` is open, was given to [`Adapter::from_raw`](crate::Adapter::from_raw) with this value, and is not used after
    /// the call.
    unsafe fn close(&self, adapter: *mut NDK_ADAPTER);
}

/// Pinned memory that can be registered. It does not move, and stays pinned until it is dropped, which may happen at any
/// `IRQL <= DISPATCH_LEVEL`.
///
/// # Safety
///
/// `mdl` is a chain that describes the memory, and is valid as long as the value is. Unless the implementation says
/// otherwise it describes all of it, as one virtually contiguous range (`NDKPI 7.4`). `address` is valid for reading and
/// writing `length` bytes at any `IRQL <= DISPATCH_LEVEL` as long as the value is, page-aligned, and never the address of
/// anything that Rust has a reference to.
pub unsafe trait PinnedMemory: Send + Sync {
    /// The memory descriptor list.
    fn mdl(&self) -> *mut MDL;
    /// The first byte.
    fn address(&self) -> *mut u8;
    /// The number of bytes.
    fn length(&self) -> usize;
}
