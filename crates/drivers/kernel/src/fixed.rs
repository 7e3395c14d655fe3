//! Structures that the kernel knows by their address.

use alloc::boxed::Box;
use core::{cell::UnsafeCell, marker::PhantomPinned, pin::Pin};

use fallible::try_box;
use ndkpi::NtStatus;

/// A structure whose address the kernel keeps: it links the structure, waits on it, or finds it again by where it is. So it must not
/// move from its first use to its last.
///
/// The address is given out for a pinned value only, and no safe code moves a value that is pinned. So there is no way to give
/// the kernel a structure and then to move it.
pub struct Fixed<T> {
    structure: UnsafeCell<T>,
    _pinned: PhantomPinned,
}

impl<T> Fixed<T> {
    /// A structure that the kernel does not know yet. Until it is pinned it may be moved.
    pub const fn new(structure: T) -> Self {
        Self { structure: UnsafeCell::new(structure), _pinned: PhantomPinned }
    }

    /// A structure in memory of its own.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_boxed(structure: T) -> Result<Pin<Box<Self>>, NtStatus> {
        try_box(Self::new(structure)).map(Box::into_pin).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)
    }

    /// The address, for the kernel's routines. It stays the same as long as the value lives.
    #[must_use]
    pub const fn get(self: Pin<&Self>) -> *mut T {
        self.get_ref().structure.get()
    }
}
