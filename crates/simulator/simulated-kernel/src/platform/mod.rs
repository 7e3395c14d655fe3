//! What the kernel needs of the host: addresses without bytes, pages that come into reach and go, a word when a page is touched that
//! is out of reach, and a thread's time on a processor.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use self::unix::{
    commit, commit_unreachable, end, install_fault_handler, map, map_twice, peek, processor_time, protect, reserve,
    unmap,
};
#[cfg(windows)]
pub use self::windows::{
    commit, commit_unreachable, end, install_fault_handler, map, peek, processor_time, protect, reserve, unmap,
};
