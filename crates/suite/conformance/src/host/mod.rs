//! The conformance suite's platform on a host: SoftNDK's provider on a [machine](host::machine) of threads, or on a seeded
//! one that replays.
//!
//! ```
//! use conformance::client::{Options, Session};
//! use conformance::host::{HostPlatform, Setup};
//! use ndkpi::NDK_VERSION;
//!
//! let platform = HostPlatform::start(Setup::default()).expect("memory");
//! let options = Options { name: "example", version: NDK_VERSION::V2_0, seed: 1, hostile: true };
//! let verdict = Session::with(&platform, &options, |session| {
//!     let cq = session.adapter()?.create_cq(16, None)?;
//!     assert!(cq.poll(16)?.is_empty());
//!     conformance::HELD
//! });
//! assert_eq!(verdict, conformance::HELD);
//! platform.finish().expect("nothing is left");
//! ```

mod cable;
mod harness;
mod interposed;
mod memory;
mod platform;
mod tasks;

pub use cable::{Impairments, Line};
pub use harness::{Finished, Harness, Layer};
pub use interposed::{Interposed, MakeHooks, run_behind};
pub use memory::HostPinned;
pub use platform::{HostPlatform, Scheduler, Setup};
