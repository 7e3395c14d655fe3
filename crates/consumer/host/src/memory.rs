//! Bytes that a consumer on the host registers: their description, their owner, and the engine's view of them.

mod mdl;
mod pinned;
mod range;

pub use self::{mdl::HostMdl, pinned::PinnedBuffer, range::HostMemory};
