//! Memory of requests, which is the system's own.

use crate::{context::NOBODY, pool, report::bug_check, rule::Rule};

const TAG: u32 = u32::from_ne_bytes(*b"Irp ");

/// A block of the system's own.
pub fn allocate(size: usize, zeroed: bool) -> usize {
    pool::allocate(NOBODY, size.max(1), TAG, zeroed)
        .unwrap_or_else(|| bug_check(Rule::NotSimulated, format_args!("no memory for a request")))
}

/// Frees it.
pub fn free(address: usize) {
    pool::free(address, Some(TAG));
}
