//! Ethernet segments for ordinary programs: what carries the frames of an adapter that is no hardware.
//!
//! | segment | what is on it | who may open it |
//! |---|---|---|
//! | [`Vxlan`] | frames in VXLAN, one UDP socket: what `ip link add ... type vxlan` speaks | everybody |
//! | [`Datagrams`] | one frame a datagram: QEMU's `-netdev dgram` | everybody |
//! | [`memory`] | frames between the ends of one process | everybody |
//! | [`Tap`](real::Tap), [`Packets`](real::Packets) | a real segment (Linux) | `CAP_NET_ADMIN`, `CAP_NET_RAW` |
//!
//! [`Impaired`] and [`Captured`] stand before any of them: frames are lost, late, doubled or changed as a seed says, or written to a
//! file. A [`Pump`] brings frames in on a thread of its own. Frames go as they are, without a frame check sequence; a segment may lose them, as Ethernet does.
//! [`lockstep`] is the network of machines whose time is simulated.
//!
//! ```
//! use std::time::Duration;
//!
//! use network::{Impairment, Segment, memory};
//!
//! # fn main() -> std::io::Result<()> {
//! let [near, far] = memory::pair(Impairment::default(), 1);
//! near.send(&[0xFF; 60])?;
//! let mut frames = Vec::new();
//! far.receive(Duration::from_secs(1), &mut |frame| frames.push(frame.to_vec()))?;
//! assert_eq!(frames, [[0xFF; 60]]);
//! # Ok(())
//! # }
//! ```

mod captured;
mod datagrams;
mod error;
mod impaired;
mod impairment;
pub mod lockstep;
pub mod memory;
#[cfg(target_os = "linux")]
mod offload;
mod pump;
#[cfg(target_os = "linux")]
pub mod real;
mod segment;
mod udp;
mod vxlan;

pub use captured::Captured;
pub use datagrams::Datagrams;
pub use error::OpenError;
pub use impaired::Impaired;
pub use impairment::{Impairment, Lane};
pub use pump::{Aside, Pump};
pub use segment::Segment;
pub use vxlan::{Config as VxlanConfig, Counters as VxlanCounters, Vxlan};
