//! The formats of the wire. A header is a `zerocopy` type or a value made from one; nothing here keeps state.

pub mod bth;
pub mod cm;
pub mod ethernet;
pub mod extended;
pub mod frame;
pub mod icrc;
pub mod ip;
mod opcode;
pub mod packet;
mod syndrome;
mod u24;
pub mod udp;

pub use bth::Bth;
pub use ethernet::{Ethernet, Mac};
pub use extended::{Aeth, Deth, Extended, Reth};
pub use frame::{Envelope, Unreadable};
pub use ip::Ip;
pub use opcode::{Kind, Opcode, Position};
pub use packet::Packet;
pub use syndrome::{Nak, Syndrome};
pub use u24::U24;
pub use udp::Udp;
