//! Allocation that can fail.
//!
//! In a Windows kernel an allocation failure that aborts is a bugcheck, so nothing in SoftNDK may use the aborting
//! constructors of `alloc`. The standard `Arc` has no fallible constructor on stable Rust; [`Shared`] is the small part
//! of it that SoftNDK needs, with one addition: [`Shared::release`] tells the caller whether it gave back the last
//! reference, which is what an NDKPI close has to know (`NDKPI 7.9`).
//!
//! ```
//! use fallible::{Shared, try_box, try_slice};
//!
//! # fn main() -> Result<(), fallible::AllocError> {
//! let first = Shared::try_new(7)?;
//! let second = first.clone();
//! assert!(first.release().is_none(), "`second` still refers to the value");
//! assert_eq!(*second.release().expect("the last reference"), 7);
//!
//! assert_eq!(*try_box(5)?, 5);
//! assert_eq!(*try_slice(3, |index| index * 2)?, [0, 2, 4]);
//! # Ok(())
//! # }
//! ```

#![no_std]

extern crate alloc;

mod boxed;
mod shared;

pub use boxed::{try_box, try_slice};
pub use shared::{Shared, Unique};

/// Memory could not be had. Everything that the failed call had begun is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocError;

impl core::fmt::Display for AllocError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("out of memory")
    }
}

impl core::error::Error for AllocError {}

impl From<alloc::collections::TryReserveError> for AllocError {
    fn from(_: alloc::collections::TryReserveError) -> Self {
        Self
    }
}
