//! Programs: what opens devices and sends control codes, the processes that it does so in, and their sockets.

pub mod file;
mod host_socket;
pub mod process;
pub mod socket;
