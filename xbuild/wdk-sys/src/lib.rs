//! Stand-in for `wdk-sys` on machines without the Windows Driver Kit, for the cross-build of the drivers only.
//!
//! The bindings are those of `wdk-bindings`. What is added here is the little that the kit's static libraries put into a
//! driver: its entry point and the tables of Control Flow Guard. See `docs/cross-build.md`.

#![no_std]

pub use wdk_bindings::*;

#[cfg(windows)]
mod entry;
#[cfg(windows)]
mod guard;

/// The compiler's mark that floating point is used. The genuine crate defines it too.
#[allow(missing_docs, non_upper_case_globals, reason = "the linker's name")]
#[cfg(windows)]
#[unsafe(no_mangle)]
pub static _fltused: () = ();
