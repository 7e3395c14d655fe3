//! The rows, by what they are about.

pub mod bounds;
pub mod callback;
pub mod counted;
pub mod cq;
pub mod entry;
pub mod frames;
pub mod lock;
pub mod machine;
pub mod memory;
pub mod message;
pub mod producers;
pub mod scale;
pub mod suite;
pub mod transfer;
pub mod wire;
