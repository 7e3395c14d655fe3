//! Helpers for the examples: [`connect`] connects two queue pairs, which `ping_pong` does step by step; a [`station::Station`] is an
//! adapter on an Ethernet segment.
//!
//! ```
//! use ndk::{QpSizes, host::Loopback};
//!
//! # fn main() -> Result<(), ndk::NtStatus> {
//! let machine = Loopback::start(1)?;
//! let adapter = machine.open(0)?;
//! let (pd, cq) = (adapter.create_pd()?, adapter.create_cq(32)?);
//! let near = pd.create_qp(&cq, &cq, QpSizes::default(), 0)?;
//! let far = pd.create_qp(&cq, &cq, QpSizes::default(), 1)?;
//! let [active, passive] = examples::connect(&machine, &adapter, &near, &far)?;
//! assert_eq!(active.peer_address()?, passive.local_address()?);
//! # Ok(())
//! # }
//! ```

pub mod station;

use ndk::{Adapter, Connection, NtStatus, Offer, Qp, host::Loopback};

/// Connects two queue pairs of the first adapter. Returns the active side first.
///
/// # Errors
///
/// The provider's status.
pub fn connect(machine: &Loopback, adapter: &Adapter, near: &Qp, far: &Qp) -> Result<[Connection; 2], NtStatus> {
    let offer = Offer { inbound_reads: 16, outbound_reads: 16, private_data: b"" };
    adapter.connect_pair(machine.address(0, 0), near, far, &offer, 1_000_000)
}
