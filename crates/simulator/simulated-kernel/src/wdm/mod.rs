//! The routines of the kernel, as the symbols that `wdk-bindings` declares.

#![allow(non_snake_case, reason = "names of the C headers")]

mod callback;
mod clock;
mod dpc;
mod event;
mod ex_timer;
mod fast_mutex;
mod io;
mod list;
pub mod lock;
mod lookaside;
mod mdl;
mod memory;
mod misc;
mod mutex;
mod notification;
pub mod processor;
mod push_lock;
mod registry;
mod registry_values;
mod resource;
mod rundown;
mod shared_lock;
#[cfg(unix)]
mod stack;
pub mod thread;
mod timer;
mod trace;
mod version;
mod wpp;

#[cfg(unix)]
pub use self::dpc::anchor;
#[cfg(windows)]
pub use self::{
    clock::{interrupt_time, system_time},
    version::BUILD,
};
pub use self::{
    dpc::{initialise as initialise_dpc, is_below},
    event::end as end_of_wait,
    io::{
        Device, Functions, Io, IoFile, IoPending, IoReleaseCancelSpinLock, PlainDevice, Queued, RemoveLock, Request,
        add_device_of,
    },
    lock::forget_range as forget_locks,
    mdl::{
        Mdls, allocate as allocate_mdl, build as build_mdl, free as free_mdl, make_built as make_built_mdl,
        memory_of as memory_of_mdl,
    },
    mutex::Mutex,
    notification::Notifications,
    push_lock::PushLock,
    registry::SERVICES,
    resource::Resource,
    rundown::CacheAware,
    shared_lock::forget as forget_shared_locks,
    thread::{Threads, spawn_for_work_item},
    timer::{initialise as initialise_timer, set as set_timer},
};
use crate::context::DriverId;
use host::machine::RawSpinLock;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex as Lock,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Duration,
};

/// Carries out a routine, at most at the IRQL of the DDI reference, or at one that is named: for what the reference documents under the
/// name of a macro, or not there.
macro_rules! routine {
    ($name:literal, $level:ident, $work:expr) => {
        $crate::kernel::routine($name, || host::machine::Irql::$level, $work)
    };
    ($name:literal, $work:expr) => {{
        static LIMIT: std::sync::OnceLock<host::machine::Irql> = std::sync::OnceLock::new();
        $crate::kernel::routine($name, || *LIMIT.get_or_init(|| $crate::limits::of($name)), $work)
    }};
}
pub(crate) use routine;

/// What the routines keep.
#[derive(Default)]
pub struct Wdm {
    pub threads: Lock<Threads>,
    pub mdls: Lock<Mdls>,
    pub keys: Lock<registry::Keys>,
    pub hive: Lock<registry::Hive>,
    pub spin_locks: Lock<lock::SpinLocks>,
    /// How often a queued spin lock was held by another thread when somebody wanted it.
    pub lock_waits: AtomicU64,
    pub shared_locks: Lock<shared_lock::Locks>,
    pub ex_timers: Lock<ex_timer::ExTimers>,
    pub notifications: Lock<Notifications>,
    pub callbacks: Lock<callback::Callbacks>,
    pub rundowns: Lock<rundown::Rundowns>,
    pub io: Lock<Io>,
    /// The lock of the system under which IRPs are cancelled.
    pub cancel: RawSpinLock,
    /// Drivers that have asked for a faster clock.
    pub resolution: Lock<BTreeMap<DriverId, u32>>,
    /// Registered providers of events.
    pub etw: Lock<BTreeMap<u64, DriverId>>,
    /// How often each event was written, by the name that it says of itself.
    pub events: Lock<BTreeMap<String, u32>>,
    /// How often somebody has asked for the time, with a seed.
    pub asked: AtomicU64,
    /// DPCs that are running, of all drivers together by driver.
    pub running: Lock<BTreeMap<DriverId, u32>>,
    /// The next request that the bus driver of a plain WDM driver gets is completed later.
    pub bus_is_late: AtomicBool,
    /// How long DPCs have kept each processor at `DISPATCH_LEVEL`.
    pub at_dispatch: Lock<BTreeMap<u32, Duration>>,
}
