//! Adapters: what NDIS knows of each, and how their miniport is called.

use std::{
    cell::Cell,
    collections::{BTreeSet, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Acquire},
    },
};

use litemap::LiteMap;
use ndis::{NDIS_MINIPORT_DRIVER_CHARACTERISTICS, NDIS_STATUS};
use ndkpi::{NDIS_HANDLE, NDIS_NDK_PROVIDER_CHARACTERISTICS};

use super::{attributes::Attributes, status::Status, structure::pointer};
use crate::{
    context::{self, DriverId},
    report::bug_check,
    rule::Rule,
    state::{Part, State, lock},
};

/// Where an adapter is between its initialisation and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// `MiniportInitializeEx` runs.
    Initialising,
    Paused,
    /// `MiniportRestart` was called and is not complete.
    Restarting,
    Running,
    /// `MiniportPause` was called and is not complete.
    Pausing,
    /// `MiniportHaltEx` was called.
    Halted,
}

/// What changes of an adapter.
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub struct Changing {
    pub phase: Phase,
    /// The miniport has said that it failed for good, and NDIS has to remove it.
    pub failed: bool,
    /// `MiniportPause` has returned: from then on the miniport must not begin anything.
    pub pause_returned: bool,
    /// The outcome of a restart that pended.
    pub restarted: Option<NDIS_STATUS>,
    pub attributes: Attributes,
    /// True if NDK is enabled.
    pub ndk_enabled: bool,
    /// Adapters that consumers of NDK have open.
    pub ndk_open: BTreeSet<usize>,
    /// Opens that are on their way.
    pub ndk_opening: u32,
    /// Frames that the miniport has, by their net buffer list.
    pub sent: usize,
    /// Net buffer lists of the miniport that the protocols have.
    pub indicated: usize,
    /// Those that they keep, oldest first.
    pub kept: VecDeque<usize>,
    pub keeps: bool,
    /// The modules of filters below the protocols are paused, or about to be.
    pub quiet: bool,
    /// Indications that have not returned.
    pub indicating: usize,
    /// Which frames the protocols of the test want (`OID_GEN_CURRENT_PACKET_FILTER`).
    pub filter: u32,
    pub received: Vec<Vec<u8>>,
    /// What the lists of the received frames say of 802.1Q.
    pub tags: Vec<usize>,
    pub statuses: Vec<Status>,
    /// The miniport has said that the adapter is in a state of low power.
    pub sleeps: bool,
    /// NDIS has paused the adapter before it went to sleep.
    pub paused_to_sleep: bool,
}

/// An adapter.
pub struct Adapter {
    pub handle: usize,
    pub owner: DriverId,
    pub if_index: u32,
    pub luid: u64,
    /// The name of its interface.
    pub alias: String,
    pub keywords: LiteMap<String, String>,
    pub handlers: NDIS_MINIPORT_DRIVER_CHARACTERISTICS,
    pub ndk: Option<NDIS_NDK_PROVIDER_CHARACTERISTICS>,
    /// What the miniport calls the adapter.
    pub context: AtomicUsize,
    /// The addresses of its device objects: physical, functional, and the next one below. They live as long as the test.
    pub devices: [usize; 3],
    pub changing: Mutex<Changing>,
    /// NDIS has a request at the miniport: there is one at a time.
    pub asks: AtomicBool,
    /// Somebody changes the stack: pauses, restarts, binds, attaches. One at a time.
    pub turn: AtomicBool,
}

thread_local! {
    /// The adapter whose handler runs on this thread, and which handler.
    static INSIDE: Cell<(usize, &'static str)> = const { Cell::new((0, "")) };
}

/// Returns true if the current thread runs that handler of the adapter.
pub fn is_inside(adapter: &Adapter, handler: &str) -> bool {
    INSIDE.get() == (adapter.handle, handler)
}

impl Adapter {
    /// Calls the miniport with its context.
    pub fn call<R>(&self, name: &'static str, work: impl FnOnce(NDIS_HANDLE) -> R) -> R {
        let before = INSIDE.replace((self.handle, name));
        let place = std::ptr::with_exposed_provenance_mut(self.context.load(Acquire));
        let result = context::call(self.owner, name, || work(place));
        INSIDE.set(before);
        result
    }

    /// The handle as the miniport has it.
    pub const fn pointer(&self) -> NDIS_HANDLE {
        pointer(self.handle)
    }

    pub fn phase(&self) -> Phase {
        lock(&self.changing).phase
    }

    /// Checks that the adapter may be in a state of low power. Lists that the protocols have kept may be with them: a miniport must not
    /// wait for those (`OID_PNP_SET_POWER`).
    pub fn check_quiet(&self) {
        let (sent, indicating) = {
            let changing = lock(&self.changing);
            (changing.sent, changing.indicating)
        };
        if sent > 0 || indicating > 0 {
            bug_check(
                Rule::LowPowerTooEarly,
                format_args!(
                    "an adapter sleeps with {sent} sent lists that are not completed and {indicating} indications"
                ),
            );
        }
    }

    /// Checks that a pause may be complete: nothing is on its way.
    pub fn check_nothing_on_its_way(&self) {
        let (sent, indicated) = {
            let changing = lock(&self.changing);
            (changing.sent, changing.indicated)
        };
        if sent > 0 {
            bug_check(
                Rule::PauseTooEarly,
                format_args!("a pause is complete, and {sent} sent lists are not completed"),
            );
        }
        if indicated > 0 {
            bug_check(
                Rule::PauseTooEarly,
                format_args!("a pause is complete, and {indicated} received lists have not come back"),
            );
        }
    }
}

/// A handler that every miniport has: it was checked when the driver registered.
pub fn owed<T>(handler: Option<T>, name: &str) -> T {
    handler.unwrap_or_else(|| bug_check(Rule::NdisHandler, format_args!("there is no {name}")))
}

/// The adapters, by their handles.
#[derive(Default)]
pub struct Adapters {
    pub live: LiteMap<usize, Arc<Adapter>>,
    /// Handles of adapters that are halted.
    pub halted: BTreeSet<usize>,
}

impl Part for Mutex<Adapters> {}

impl State {
    /// The adapter with a handle that a miniport passes.
    pub fn adapter(&self, handle: NDIS_HANDLE) -> Arc<Adapter> {
        let found = self.locked::<Adapters>().live.get(&handle.addr()).cloned();
        found.unwrap_or_else(|| {
            if self.locked::<Adapters>().halted.contains(&handle.addr()) {
                bug_check(Rule::AdapterHalted, format_args!("the handle {handle:p} is of an adapter that was halted"));
            }
            bug_check(Rule::BadHandle, format_args!("{handle:p} is no adapter"))
        })
    }

    /// Returns true if a driver has adapters.
    pub fn has_adapters(&self, driver: DriverId) -> bool {
        self.locked::<Adapters>().live.values().any(|adapter| adapter.owner == driver)
    }
}
