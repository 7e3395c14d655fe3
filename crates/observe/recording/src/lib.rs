//! What a program does with a recording (`docs/recorder.md`): it reads it ([`Recording`]), shows it ([`timeline`]), and writes it as
//! packets, if it went over a wire ([`pcapng`]). The crate `replay` runs it again.

mod arguments;
mod clock;
mod connections;
mod file;
mod found;
mod frames;
mod pcapng;
mod read;
pub mod timeline;
mod traffic;

pub use arguments::{Arguments, Completion, Connect, Element, OutBytes, Private, QpSizes};
pub use connections::peers;
pub use file::{file, salvage, seal, write};
pub use found::Found;
pub use frames::{Frame, Number};
pub use pcapng::pcapng;
pub use read::{Outcome, ReadError, Record, Recording};
pub use traffic::{Seen, What, traffic};
