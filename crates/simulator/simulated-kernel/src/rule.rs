//! The rules that the kernel watches beyond those of the machine: a table that programs on any platform have.

pub use image_loader::Rule;
