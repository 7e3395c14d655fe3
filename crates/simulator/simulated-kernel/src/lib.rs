//! A simulated Windows kernel: what the drivers import, for running the drivers' own code in a test.
//!
//! It supplies the routines of the kernel that `wdk-bindings` declares and the functions of KMDF's table, with the documented
//! contracts, on the processors, DPCs, timers and spin locks of [`host::machine`]. A driver that breaks a rule
//! ends the test with a bug check that names the [`Rule`]. `docs/simulated-kernel.md` says what is simulated and what is not.
//!
//! Elsewhere drivers are linked into the program, and a crate that links this one gets its global allocator: what a driver allocates
//! comes out of the simulated pool.
//!
//! There is one kernel at a time in a process, because drivers that are linked into it have static variables.
//!
//! On Windows it loads driver images: files, as `tools/build-drivers.sh` or a kit makes them. There the calling convention is that of
//! the images, and each load has variables of its own.

#![cfg(any(unix, all(windows, target_arch = "x86_64")))]
#![allow(
    clippy::significant_drop_tightening,
    reason = "locks of a simulation: short sections, and clarity before speed"
)]

mod argument;
mod baton;
mod calls;
mod check;
mod context;
mod faults;
#[cfg(unix)]
mod heap;
#[cfg(windows)]
mod image;
mod kernel;
mod limits;
mod ndis;
mod netio;
mod paged;
mod platform;
mod pnp;
mod pool;
mod process;
mod report;
mod rule;
mod sites;
mod stack;
mod text;
mod tracked;
mod user;
#[cfg(unix)]
mod violation;
mod waiting;
mod wdf;
mod wdm;
mod wsk;

pub use crate::{
    check::{assert_consumer_callback, caught, irql, locks_held},
    faults::FaultPlan,
    kernel::{Builder, Kernel},
    ndis::{NdkEvent, Nic, OidAnswer, PendingOid, ROUTINES as NDIS_ROUTINES, Sent, Status},
    netio::{Network, NewInterface},
    pnp::{Device, Driver, Entry, Identity, Takes, Value},
    process::{LockedPages, Process},
    report::{CHILD, EXIT_CODE},
    rule::Rule,
    user::{Answer, File, Pending},
    wdm::{IoFile, IoPending, PlainDevice, thread::object_attributes},
    wsk::{Impairment, Medium, NdkProvider},
};

#[cfg(windows)]
pub use crate::image::DriverImage;
pub use wdk_bindings as wdk;

#[cfg(unix)]
#[global_allocator]
static ALLOCATOR: heap::Heap = heap::Heap;
