//! Programs that use the driver's NetworkDirect device by control codes, each in a process of its own.

pub mod actor;
pub mod program;
pub mod reader;
pub mod world;
