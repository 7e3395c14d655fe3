//! What a program does with a recording (`docs/recorder.md`): it reads it ([`Recording`]), shows it ([`timeline`]), and writes it as
//! packets ([`pcapng`]). The crate `replay` runs it again.

mod arguments;
mod clock;
mod file;
pub mod pcapng;
mod read;
pub mod timeline;

pub use arguments::{Arguments, Connect, Element, OutBytes, Private, QpSizes, Taken};
pub use file::{file, salvage, seal, write};
pub use pcapng::peers;
pub use read::{Outcome, ReadError, Record, Recording};
