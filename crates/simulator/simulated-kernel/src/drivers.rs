//! The drivers that are loaded, and what everybody may know of each.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{
            AtomicU32,
            Ordering::{AcqRel, Acquire},
        },
    },
};

use litemap::LiteMap;
use wdk_bindings::{NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT, PFN_WDF_DRIVER_DEVICE_ADD, PFN_WDF_DRIVER_UNLOAD};

use crate::{
    context::{self, DriverId},
    pool,
    state::{Part, State, lock},
    value::Value,
};

/// `DriverEntry`.
pub type Entry = unsafe extern "system" fn(PDRIVER_OBJECT, PCUNICODE_STRING) -> NTSTATUS;

/// A driver that was brought into memory.
pub struct Brought {
    pub entry: Entry,
    /// The addresses of its image. None if it is linked in: then its code lies in the program, among that of everybody else.
    pub image: Range<usize>,
}

/// A driver that is loaded.
pub struct Loaded {
    pub name: String,
    pub handle: Option<usize>,
    pub add: PFN_WDF_DRIVER_DEVICE_ADD,
    pub unload: PFN_WDF_DRIVER_UNLOAD,
    /// The framework leaves the dispatch table to NDIS.
    pub miniport_mode: bool,
    /// The framework driver has said that it has no devices of plug and play.
    pub non_pnp: bool,
    /// The address of its `DRIVER_OBJECT`.
    pub object: usize,
    /// The address of its globals, if it is an image that is bound to the framework.
    #[cfg(windows)]
    pub bound: Option<usize>,
    pub parameters: LiteMap<String, Value>,
}

/// How many drivers the kernels had that were left as they were, because their test has failed. What those have is not the next one's: the pool
/// is that of the process.
static LEFT: AtomicU32 = AtomicU32::new(0);

/// The drivers that are loaded.
#[derive(Default)]
pub struct Drivers {
    loaded: Mutex<LiteMap<DriverId, Loaded>>,
    /// How many there ever were.
    count: AtomicU32,
}

impl Part for Drivers {}

impl Drivers {
    /// An identifier that no other driver has had.
    pub fn new_id(&self) -> DriverId {
        DriverId(LEFT.load(Acquire) + self.count.fetch_add(1, AcqRel) + 1)
    }

    /// The kernel is left as it is: no later driver is taken for one of its.
    pub fn leave(&self) {
        LEFT.fetch_add(self.count.load(Acquire), AcqRel);
    }

    /// The name of a driver, for a message: nobody may wait for it there.
    pub fn name_for_message(&self, driver: DriverId) -> Option<String> {
        self.loaded.try_lock().ok()?.get(&driver).map(|loaded| loaded.name.clone())
    }
}

impl State {
    /// The drivers that are loaded.
    pub fn drivers(&self) -> MutexGuard<'_, LiteMap<DriverId, Loaded>> {
        lock(&self.part::<Drivers>().loaded)
    }
}

/// A driver that is loaded. It has to be unloaded by [`Driver::unload`].
pub struct Driver {
    pub(crate) state: Arc<State>,
    pub(crate) id: DriverId,
    pub(crate) name: String,
}

/// Who a driver is, for a test that calls it.
#[derive(Clone, Copy, Debug)]
pub struct Identity(DriverId);

impl Identity {
    /// Runs `work` as code of the driver: its allocations come from the pool, and are the driver's.
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        context::call(self.0, "the test, as the driver", work)
    }
}

impl Driver {
    /// The number of blocks and bytes of the pool that the driver has now.
    #[must_use]
    pub fn pool_usage(&self) -> (usize, usize) {
        pool::usage(self.id)
    }

    /// Who the driver is.
    #[must_use]
    pub const fn identity(&self) -> Identity {
        Identity(self.id)
    }

    /// Runs `work` as code of the driver: its allocations come from the pool, and are the driver's.
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        self.identity().run(work)
    }
}
