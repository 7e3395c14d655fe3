//! The rows, by what they are about.

pub mod cq;
