//! NDIS: miniport drivers and their adapters, with the protocols above them.
//!
//! The routines are the symbols that the crate `ndis` declares. A test has a [`Nic`] for each adapter, which does what NDIS
//! and the protocols above it do: initialise, restart, send, ask, pause, halt.

#![allow(non_snake_case, reason = "names of the C headers")]

mod adapter;
mod attributes;
mod configuration;
mod device;
mod event;
mod frame;
mod lifecycle;
mod ndk;
mod nic;
mod oid;
mod pool;
mod receive;
mod registration;
mod routines;
mod send;
mod work_item;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use ndkpi::{NDIS_HANDLE, NDIS_OBJECT_HEADER};

use self::{
    adapter::Adapter, configuration::Configuration, device::ControlDevice, ndk::Listener, oid::Request, pool::Pools,
    registration::Miniport, send::Sends, work_item::WorkItem,
};
pub use self::{
    event::Status,
    ndk::NdkEvent,
    nic::Nic,
    oid::{OidAnswer, PendingOid},
    routines::ROUTINES,
    send::Sent,
};
use crate::{
    context::{self, DriverId},
    kernel::{State, lock},
    report::bug_check,
    rule::Rule,
};

/// Carries out a routine of NDIS, at most at that IRQL.
macro_rules! ndis_routine {
    ($name:literal, $level:ident, $work:expr) => {
        $crate::kernel::routine($name, || host::machine::Irql::$level, $work)
    };
}
pub(crate) use ndis_routine;

/// What NDIS keeps.
#[derive(Default)]
pub struct Ndis {
    /// The drivers that are registered as miniport drivers.
    drivers: Mutex<BTreeMap<DriverId, Arc<Miniport>>>,
    adapters: Mutex<BTreeMap<usize, Arc<Adapter>>>,
    /// Handles of adapters that are halted.
    halted: Mutex<BTreeSet<usize>>,
    configurations: Mutex<BTreeMap<usize, Configuration>>,
    pools: Mutex<Pools>,
    requests: Mutex<BTreeMap<usize, Arc<Request>>>,
    sends: Sends,
    work_items: Mutex<BTreeMap<usize, Arc<WorkItem>>>,
    devices: Mutex<BTreeMap<usize, ControlDevice>>,
    /// Who wants to hear what happens to NDK.
    listeners: Mutex<Vec<Listener>>,
}

/// Whom a handle belongs to that a driver passes to allocate something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub driver: DriverId,
    /// The adapter's handle; the driver's own if the thing outlives adapters.
    pub handle: usize,
}

impl State {
    /// The adapter with a handle that a miniport passes.
    fn adapter(&self, handle: NDIS_HANDLE) -> Arc<Adapter> {
        let found = lock(&self.ndis.adapters).get(&handle.addr()).cloned();
        found.unwrap_or_else(|| {
            if lock(&self.ndis.halted).contains(&handle.addr()) {
                bug_check(Rule::AdapterHalted, format_args!("the handle {handle:p} is of an adapter that was halted"));
            }
            bug_check(Rule::BadHandle, format_args!("{handle:p} is no adapter"))
        })
    }

    /// Whom a handle belongs to, that of an adapter or of a driver.
    fn owner_of(&self, handle: NDIS_HANDLE) -> Owner {
        let of_driver = lock(&self.ndis.drivers).values().any(|driver| driver.handle == handle.addr());
        if of_driver {
            return Owner { driver: context::caller(), handle: handle.addr() };
        }
        let adapter = self.adapter(handle);
        Owner { driver: adapter.owner, handle: adapter.handle }
    }

    /// A new handle of NDIS.
    fn new_handle(&self) -> usize {
        0xFB00_0000_0000 + usize::try_from(self.next()).unwrap_or(0) * 16
    }

    /// A driver is unloaded: nothing of it may be left in NDIS.
    pub fn check_ndis(&self, driver: DriverId, name: &str) {
        if lock(&self.ndis.drivers).contains_key(&driver) {
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} left itself registered as a miniport driver"));
        }
        if lock(&self.ndis.devices).values().any(|device| device.owner == driver) {
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} left a control device"));
        }
        self.check_nothing_left(|owner| owner.driver == driver, name);
    }

    /// Nothing may be left of those that `of` recognises.
    fn check_nothing_left(&self, of: impl Fn(Owner) -> bool, name: &str) {
        if lock(&self.ndis.configurations).values().any(|configuration| of(configuration.owner)) {
            bug_check(Rule::ReferenceLeak, format_args!("{name} left its configuration open"));
        }
        if lock(&self.ndis.work_items).values().any(|item| of(item.owner)) {
            bug_check(Rule::ReferenceLeak, format_args!("{name} left a work item"));
        }
        lock(&self.ndis.pools).check_nothing_left(of, name);
    }
}

/// Checks what a structure says of itself.
fn check_header(header: NDIS_OBJECT_HEADER, expected: NDIS_OBJECT_HEADER, name: &str) {
    if header != expected {
        bug_check(Rule::NdisHeader, format_args!("{name} begins with {header:?} and not with {expected:?}"));
    }
}

/// Reads a structure of a driver whose header must be `expected`.
///
/// # Safety
///
/// `place` is null or a structure of at least as many bytes as its header says.
unsafe fn read<T: Copy>(place: *const T, expected: NDIS_OBJECT_HEADER, name: &str) -> T {
    if place.is_null() {
        bug_check(Rule::BadArgument, format_args!("{name} is not there"));
    }
    // SAFETY: every structure begins with a header (the caller's promise).
    let header = unsafe { place.cast::<NDIS_OBJECT_HEADER>().read() };
    check_header(header, expected, name);
    // SAFETY: the header is the expected one, so the structure is all there.
    unsafe { place.read() }
}

/// A handle as a driver has it.
const fn pointer<T>(handle: usize) -> *mut T {
    std::ptr::without_provenance_mut(handle)
}
