//! The rows, by what they are about.

pub mod cq;
pub mod message;
