//! Requests: an IRP, who made it, and which drivers have it.
//!
//! A device's driver has the stack location that the request was passed to it with.

use std::sync::{
    Arc, Mutex,
    atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
};

use litemap::LiteMap;
use wdk_bindings::{
    CCHAR, IO_STACK_LOCATION, IO_TYPE_IRP, IRP, NTSTATUS, PIRP, SL_PENDING_RETURNED, STATUS_PENDING, UCHAR, ULONG,
    USHORT,
};

use super::{block, device::Device};
use crate::{
    context::{self, DriverId, NOBODY},
    report::bug_check,
    rule::Rule,
    state::{Part, State, lock},
    tracked::{self, Kind, Object},
};

/// What is told that a request is complete, before the IRP is freed.
pub type End = Box<dyn Fn(&State, PIRP) + Send + Sync>;

/// What is told that a program's request is complete, when the IRP is freed.
pub type Done = Arc<dyn Fn() + Send + Sync>;

/// Who made a request, and so what becomes of it when every driver is done with it.
pub enum Maker {
    /// The system, for a program: it copies so many bytes of its output at most. The input is a block of its own unless the method is
    /// `METHOD_BUFFERED`.
    Program { input: usize, output: usize, room: usize, done: Option<Done> },
    /// Plug and play.
    System,
    /// The system, for a driver that wants a device in another power state.
    Power(End),
    /// A driver, which frees it.
    Driver(DriverId),
    /// The framework, for a driver that looks at one of its requests.
    Framework,
    /// The system, for a driver that sees it before the framework.
    Preprocessed(End),
    /// The system, for a driver that waits: with the room for the output, if the system knows it.
    Threaded { owner: DriverId, room: Option<usize>, end: End },
}

/// A driver that has the request, or has passed it on.
pub struct Level {
    pub device: Arc<Device>,
    /// Which stack location it has: those of a driver that passes its own on are the same.
    pub location: u8,
    pub progress: Mutex<Progress>,
}

/// How far a driver is with a request.
#[derive(Clone, Copy, Default)]
pub struct Progress {
    /// It has passed it on.
    pub passed_on: bool,
    /// What its dispatch routine has returned.
    pub returned: Option<NTSTATUS>,
    pub passed: Option<Passed>,
}

/// What a driver's stack location was when the driver was done with it.
#[derive(Clone, Copy)]
pub struct Passed {
    pub status: NTSTATUS,
    pub marked: bool,
}

/// A request that is on its way.
pub struct Request {
    pub address: usize,
    /// In whose context it was made; `None` if a driver has allocated it.
    pub process: Option<u32>,
    pub code: u32,
    pub locations: u8,
    pub maker: Maker,
    pub levels: Mutex<Vec<Arc<Level>>>,
    /// The device at the bottom of a stack, which is the system's own, has had it.
    pub reached_bottom: AtomicBool,
    /// Winsock Kernel has completed it, and its driver has not made it anew since.
    pub is_spent: AtomicBool,
    /// The framework has it, and completes it with its request.
    pub is_with_framework: AtomicBool,
    pub outcome: Mutex<Option<Outcome>>,
}

/// How a request ended.
#[derive(Clone)]
pub struct Outcome {
    pub status: NTSTATUS,
    pub bytes: Vec<u8>,
}

/// The stack location that an IRP is at (`IoGetCurrentIrpStackLocation`).
pub fn current(irp: PIRP) -> *mut IO_STACK_LOCATION {
    // SAFETY: an IRP that is not complete; the arm that the I/O manager uses.
    unsafe { (&raw mut (*irp).Tail.Overlay.__bindgen_anon_2.__bindgen_anon_1.CurrentStackLocation).read() }
}

pub fn set_current(irp: PIRP, location: *mut IO_STACK_LOCATION, number: u8) {
    // SAFETY: an IRP that is not complete; the arm that the I/O manager uses.
    unsafe {
        let place = &raw mut (*irp).Tail.Overlay.__bindgen_anon_2.__bindgen_anon_1.CurrentStackLocation;
        place.write(location);
        (*irp).CurrentLocation = CCHAR::try_from(number).unwrap_or(CCHAR::MAX);
    }
}

/// The number of the stack location that an IRP is at: the first driver has the highest.
pub fn number(irp: PIRP) -> u8 {
    // SAFETY: an IRP that is not complete.
    let number = unsafe { (*irp).CurrentLocation };
    u8::try_from(number).unwrap_or(0)
}

/// The status that an IRP has.
pub fn status_of(irp: PIRP) -> NTSTATUS {
    // SAFETY: an IRP that is not complete.
    let block = unsafe { (*irp).IoStatus };
    // SAFETY: the arm that drivers write.
    unsafe { block.__bindgen_anon_1.Status }
}

/// Gives an IRP a status.
pub fn set_status(irp: PIRP, status: NTSTATUS) {
    // SAFETY: an IRP that is not complete.
    let block = unsafe { &mut (*irp).IoStatus };
    block.__bindgen_anon_1.Status = status;
}

pub fn is_marked(location: *const IO_STACK_LOCATION) -> bool {
    // SAFETY: a location of an IRP that is not complete.
    let control = unsafe { (*location).Control };
    ULONG::from(control) & SL_PENDING_RETURNED != 0
}

pub fn mark(location: *mut IO_STACK_LOCATION) {
    // SAFETY: a location of an IRP that is not complete.
    unsafe { (*location).Control |= UCHAR::try_from(SL_PENDING_RETURNED).unwrap_or(0) };
}

impl Level {
    /// The driver is done with the request.
    pub fn pass(&self, passed: Passed) {
        let returned = {
            let mut progress = lock(&self.progress);
            progress.passed = Some(passed);
            progress.returned
        };
        if returned == Some(STATUS_PENDING) && !passed.marked {
            let words = format_args!("a dispatch routine returned STATUS_PENDING, and the IRP was never marked so");
            bug_check(Rule::IrpStatus, words);
        }
    }
}

impl Request {
    /// The structure as the drivers have it.
    pub const fn pointer(&self) -> PIRP {
        std::ptr::with_exposed_provenance_mut(self.address)
    }

    pub fn location(&self, number: u8) -> *mut IO_STACK_LOCATION {
        self.pointer().wrapping_add(1).cast::<IO_STACK_LOCATION>().wrapping_add(usize::from(number) - 1)
    }

    /// The location of the next driver (`IoGetNextIrpStackLocation`).
    pub fn next_location(&self) -> *mut IO_STACK_LOCATION {
        current(self.pointer()).wrapping_sub(1)
    }

    /// Returns true if drivers have it: it was sent, and is not complete.
    pub fn is_on_its_way(&self) -> bool {
        !lock(&self.levels).is_empty()
    }

    /// Returns true if a device of that driver has it, or has passed it on.
    pub fn is_at(&self, owner: DriverId) -> bool {
        lock(&self.levels).iter().any(|level| level.device.owner == owner)
    }

    /// Whoever has it has passed it on.
    pub fn passed_on(&self) {
        if let Some(level) = lock(&self.levels).last() {
            lock(&level.progress).passed_on = true;
        }
    }

    /// Returns true if a driver has it that sees it before the framework.
    pub fn is_seen(&self) -> bool {
        matches!(self.maker, Maker::Preprocessed(_)) && !self.is_with_framework.load(Acquire)
    }

    /// Who has it now.
    pub fn holder(&self) -> Option<Arc<Device>> {
        lock(&self.levels).last().map(|level| level.device.clone())
    }

    pub fn owner_at(&self, location: u8) -> DriverId {
        let found = lock(&self.levels).iter().rfind(|level| level.location == location).map(|level| level.device.owner);
        found.unwrap_or(match &self.maker {
            Maker::Driver(owner) | Maker::Threaded { owner, .. } => *owner,
            _ => NOBODY,
        })
    }
}

/// The structure, at its first location: that of whoever made it.
fn write(request: &Request) {
    let mut irp = std::mem::MaybeUninit::<IRP>::zeroed();
    // SAFETY: zeroes are a value of every field: numbers and pointers.
    let irp = unsafe { irp.assume_init_mut() };
    irp.Type = i16::try_from(IO_TYPE_IRP).unwrap_or(0);
    irp.Size = USHORT::try_from(size_of_irp(request.locations)).unwrap_or(0);
    irp.StackCount = CCHAR::try_from(request.locations).unwrap_or(CCHAR::MAX);
    // SAFETY: the request's own block, which has room for it.
    unsafe { request.pointer().write(*irp) };
    for number in 1..=request.locations {
        // SAFETY: as above; zeroes are a value of every field.
        unsafe { request.location(number).write_bytes(0, 1) };
    }
    set_current(request.pointer(), request.location(1).wrapping_add(request.locations.into()), request.locations + 1);
}

const fn size_of_irp(locations: u8) -> usize {
    size_of::<IRP>() + locations as usize * size_of::<IO_STACK_LOCATION>()
}

/// Requests that are not complete, by the address of the IRP.
#[derive(Default)]
pub struct Requests(LiteMap<usize, Arc<Request>>);

impl Part for Mutex<Requests> {}

impl Requests {
    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Request>> {
        self.0.values()
    }

    /// Returns true if the request is not complete.
    pub fn has(&self, request: &Request) -> bool {
        self.0.contains_key(&request.address)
    }
}

impl State {
    /// Makes a request with so many stack locations.
    pub fn make_irp(&self, locations: u8, code: u32, maker: Maker) -> Arc<Request> {
        let request = Arc::new(Request {
            address: block::allocate(size_of_irp(locations), true),
            process: (!matches!(maker, Maker::Driver(_))).then(context::process),
            code,
            locations,
            levels: Mutex::default(),
            reached_bottom: AtomicBool::new(false),
            is_spent: AtomicBool::new(false),
            is_with_framework: AtomicBool::new(matches!(maker, Maker::Framework)),
            outcome: Mutex::default(),
            maker,
        });
        write(&request);
        self.track(request.address, NOBODY, Object::plain(Kind::Irp));
        self.locked::<Requests>().0.insert(request.address, request.clone());
        request
    }

    /// The request that an IRP is. `None` if it is none, or was complete.
    pub fn irp(&self, irp: PIRP) -> Option<Arc<Request>> {
        let found = self.locked::<Requests>().0.get(&irp.addr()).cloned();
        if found.is_none() {
            self.check_moved(irp.addr(), Kind::Irp);
        }
        found
    }

    /// Begins anew with a request that nobody has.
    pub fn reset_irp(request: &Request) {
        write(request);
        request.is_spent.store(false, Release);
        tracked::seal(request.address, Kind::Irp);
    }

    /// The memory of a request that has come to its end.
    pub fn free_irp(&self, request: &Request) {
        self.locked::<Requests>().0.remove(&request.address);
        self.untrack_and_remember(request.address, Kind::Irp, ", and completed or freed since");
        block::free(request.address);
    }
}
