//! Driver images: files that Windows would load into its kernel, loaded into this one.
//!
//! An image gets memory of its own with each load, so that it begins with the variables that its file has. Its imports lead through
//! thunks, which note whose call it is and where it came from. What its code may only do in a kernel, without calling it, is done for
//! it when the processor refuses it: see [`traps`].

pub mod by_name;
pub mod code;
pub mod exports;
pub mod map;
pub mod processor_block;
pub mod scan;
pub mod shared_data;
pub mod stubs;
pub mod traps;

pub use self::map::DriverImage;
