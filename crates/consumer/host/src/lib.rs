//! A machine made of threads, on which SoftNDK runs without Windows.
//!
//! Two layers:
//!
//! - [`machine`]: processors with an IRQL and a queue of DPCs, timers, spin locks and events that keep the contracts
//!   of the Windows kernel and panic where a caller breaks one. It knows nothing of SoftNDK.
//! - [`HostOs`]: the engine's operating-system trait on such a machine, with [`HostMemory`] for the bytes that a consumer
//!   registers and [`PinnedBuffer`] for consumers that need such bytes.
//!
//! Beside them, [`console`] is how the programs on this crate print.
//!
//! The machine has two schedulers. With threads, each processor is a thread, and time is real. Seeded, there are no threads:
//! a random number decides which processor or timer is next, time is a counter, and the same seed gives the same run.
//!
//! ```
//! use engine::os::{Dpc, Event, Os, Routine};
//! use fallible::Arc;
//! use host::{HostOs, machine::Machine};
//!
//! struct Signal;
//! struct Bell {
//!     event: <HostOs as Os>::Event,
//! }
//! impl Routine for Signal {
//!     type Target = Bell;
//!     fn run(bell: &Arc<Bell>) {
//!         bell.event.set();
//!     }
//! }
//!
//! # fn main() -> Result<(), ndkpi::NtStatus> {
//! for machine in [Machine::threads().start(), Machine::seeded(42).start()] {
//!     let os = HostOs::new(&machine);
//!     let dpc = os.dpc::<Signal>(1)?;
//!     let bell = Arc::try_new(Bell { event: os.event()? }).expect("memory");
//!     dpc.queue(&bell);
//!     bell.event.wait();
//!     machine.shutdown();
//! }
//! # Ok(())
//! # }
//! ```

pub mod console;
pub mod device;
pub mod machine;
mod memory;
mod os;

pub use memory::{HostMdl, HostMemory, PinnedBuffer};
pub use os::{HostDpc, HostEvent, HostLock, HostOs, HostTimer, names};
