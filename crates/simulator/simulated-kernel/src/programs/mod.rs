//! Programs: what opens devices and sends control codes, and the processes that it does so in.

pub mod file;
pub mod process;
