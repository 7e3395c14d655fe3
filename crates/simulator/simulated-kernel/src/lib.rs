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
//! The files lie in layers: the core, which are those in no folder; the subsystems in their folders, each of which keeps its own state
//! (`state.rs` says how); and on top `pnp`, `programs` and `builder.rs`, which puts a kernel together. "Where things are" in the
//! document has more, and how to add a routine.
//!
//! On Windows it loads driver images: files, as `cargo xtask drivers` or a kit makes them. There the calling convention is that of
//! the images, and each load has variables of its own.

#![cfg(any(unix, all(windows, target_arch = "x86_64")))]
#![allow(
    clippy::significant_drop_tightening,
    reason = "locks of a simulation: short sections, and clarity before speed"
)]

mod answer;
mod argument;
mod baton;
mod builder;
mod callers;
mod calls;
mod check;
mod context;
mod dispatcher;
mod drivers;
mod during_run;
mod ending;
mod faults;
mod findings;
#[cfg(unix)]
mod heap;
#[cfg(windows)]
mod image;
mod kernel;
mod limits;
mod ndis;
mod ndk_memory;
mod ndk_provider;
mod ndk_steps;
mod netio;
mod paged;
mod pages;
mod pins;
mod platform;
mod pnp;
mod pool;
mod processors;
mod programs;
mod recordings;
mod report;
mod routine;
mod rule;
mod running;
mod sites;
mod stack;
mod state;
mod sync;
mod text;
mod tracked;
mod value;
#[cfg(unix)]
mod violation;
mod waiting;
mod wdf;
mod wdm;
mod wsk;

pub use crate::{
    answer::Answer,
    builder::Builder,
    check::{assert_consumer_callback, caught, caught_saying, irql, locks_held},
    drivers::{Driver, Entry, Identity},
    during_run::DuringRun,
    faults::Injection,
    kernel::Kernel,
    ndis::{NdkEvent, Nic, NicInterface, OidAnswer, PendingOid, ROUTINES as NDIS_ROUTINES, Sent, Status},
    ndk_provider::NdkProvider,
    netio::{network::Network, stack::NewInterface},
    pages::LockedPages,
    pnp::{Device, Takes},
    programs::{
        file::{File, Pending},
        process::Process,
        socket::Socket,
    },
    report::{CHILD, EXIT_CODE},
    rule::Rule,
    value::Value,
    wdf::resources::Resources,
    wdm::{
        io::{
            file::{IoFile, IoPending},
            plug::PlainDevice,
        },
        thread::object_attributes,
    },
    wsk::{Impairment, Medium, lockstep},
};

#[cfg(windows)]
pub use crate::image::{DriverImage, exports::missing_functions};
pub use wdk_bindings as wdk;

#[cfg(unix)]
#[global_allocator]
static ALLOCATOR: heap::Heap = heap::Heap;
