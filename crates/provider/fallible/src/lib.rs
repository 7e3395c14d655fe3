//! Allocation that can fail.
//!
//! In a Windows kernel an allocation failure that aborts is a bugcheck, so SoftNDK uses none of the aborting constructors
//! of `alloc`. The standard `Arc` has no fallible constructor on stable Rust. [`Arc`] is the part of it that SoftNDK needs,
//! with the names that Rust for Linux gives its own. It adds [`Arc::release`], which tells the caller that it gave back the
//! last reference: an NDKPI close has to know that (`NDKPI 7.9`).
//!
//! ```
//! use fallible::{Arc, UniqueArc, try_box, try_slice};
//!
//! # fn main() -> Result<(), fallible::AllocError> {
//! let first = Arc::try_new(7)?;
//! let second = first.clone();
//! assert!(first.release().is_none(), "`second` still refers to the value");
//!
//! let mut last: UniqueArc<i32> = second.release().expect("the last reference");
//! *last += 1; // Nobody else can see the value any more.
//! assert_eq!(*last, 8);
//!
//! assert_eq!(*try_box(5)?, 5);
//! assert_eq!(*try_slice(3, |index| index * 2)?, [0, 2, 4]);
//! # Ok(())
//! # }
//! ```

#![no_std]

extern crate alloc;

mod arc;
mod boxed;

pub use arc::{Arc, UniqueArc};
pub use boxed::{try_box, try_slice};

use ntstatus::NtStatus;

/// There is no memory. Everything that the failed call had begun is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocError;

impl core::fmt::Display for AllocError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("out of memory")
    }
}

impl core::error::Error for AllocError {}

/// `STATUS_INSUFFICIENT_RESOURCES`.
impl From<AllocError> for NtStatus {
    fn from(_: AllocError) -> Self {
        Self::INSUFFICIENT_RESOURCES
    }
}

impl From<alloc::collections::TryReserveError> for AllocError {
    fn from(_: alloc::collections::TryReserveError) -> Self {
        Self
    }
}
