//! Driver images: files in the format PE32+ for x86-64, as Windows loads them into its kernel.
//!
//! [`Image::parse`] checks an image and lays it out as it is in memory; [`Image::relocate`] moves it to its place. What a loader
//! has to fill in is listed: imports, the security cookie, the pointers of Control Flow Guard. Nothing here maps or runs anything,
//! so that all of it works on any machine, and a broken image ends in an [`Error`] of one line.
//!
//! [`routines`] names what the simulated kernel has for an image to import, [`Rule`] the rules that it watches, and
//! [`file_name`] which names its files can have.

mod debug;
mod directories;
mod error;
pub mod file_name;
pub mod framework;
mod framework_calls;
mod guard;
mod image;
mod imports;
pub mod routines;
mod rules;

pub use crate::{
    debug::Pdb,
    directories::{Export, Target, Unwind},
    error::Error,
    framework_calls::Framework,
    guard::Guard,
    image::{Access, Image, Section},
    imports::{Import, Name},
    rules::Rule,
};
