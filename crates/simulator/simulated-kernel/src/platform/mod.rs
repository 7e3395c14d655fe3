//! What the kernel needs of the host: addresses without bytes, pages that come into reach and go, and a thread's time on a processor.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use self::unix::{commit, commit_unreachable, end, map, map_twice, peek, processor_time, protect, reserve, unmap};
#[cfg(windows)]
pub use self::windows::{commit, commit_unreachable, end, map, peek, processor_time, protect, reserve, unmap};

/// Bytes of a page.
pub const PAGE: usize = 4096;
