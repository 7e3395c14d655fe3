//! What a device is made of.

use std::{
    ptr,
    sync::{Arc, Mutex},
};

use litemap::LiteMap;
use wdk_bindings::{
    _WDF_DEVICE_IO_TYPE, _WDF_FILEOBJECT_CLASS, BOOLEAN, NTSTATUS, PCUNICODE_STRING, PWDF_DRIVER_GLOBALS,
    PWDF_FILEOBJECT_CONFIG, PWDF_OBJECT_ATTRIBUTES, PWDF_PNPPOWER_EVENT_CALLBACKS, PWDFDEVICE_INIT,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_SUCCESS, UCHAR, ULONG, UNICODE_STRING, WDF_DEVICE_IO_TYPE,
    WDF_FILEOBJECT_CONFIG, WDF_OBJECT_ATTRIBUTES, WDF_PNPPOWER_EVENT_CALLBACKS, WDFDEVICE, WDFDRIVER, WDFREQUEST,
};

use super::{
    first::First,
    function::{Function, function},
    object::read_attributes,
};
use crate::{
    argument::check_size,
    context::DriverId,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State},
    text,
    wdm::io::device::Device,
};

/// A `WDFDEVICE_INIT`.
pub struct Init {
    pub owner: DriverId,
    /// The device of plug and play that the driver is asked to take; `None` for a control device.
    pub node: Option<u64>,
    pub name: String,
    pub callbacks: WDF_PNPPOWER_EVENT_CALLBACKS,
    pub with: With,
    /// The IRPs that the driver sees before the framework.
    pub first: First,
    /// Who may open it, in the security descriptor definition language; empty if that was not said.
    pub access: String,
    /// The handle of the device of a driver that the new one is attached to.
    pub below: Option<usize>,
    /// The bus driver's device object, if the driver has asked for it.
    pub physical: Option<Arc<Device>>,
}

/// What the files and requests of a device come with.
#[derive(Clone, Copy, Default)]
pub struct With {
    /// The routines for files, if the driver wants to know of them, and what each carries.
    pub files: Option<(WDF_FILEOBJECT_CONFIG, WDF_OBJECT_ATTRIBUTES)>,
    /// What each request carries.
    pub requests: Option<WDF_OBJECT_ATTRIBUTES>,
    /// One file at a time.
    pub exclusive: bool,
    /// The driver looks at each request in its caller's context (`EvtIoInCallerContext`).
    pub looks_first: Option<InCallerContext>,
    /// The driver is a filter.
    pub filter: bool,
    /// What it has said about who decides when the device sleeps.
    pub decides: Option<bool>,
    /// How reads and writes pass their buffer.
    pub transfers: Transfers,
}

/// How a read or write passes its buffer, in the numbers of a control code's method.
pub const fn method_of_transfers(with: &With, writes: bool) -> u32 {
    match with.transfers {
        Transfers::Buffered => 0,
        Transfers::Direct => {
            if writes {
                1
            } else {
                2
            }
        }
        Transfers::Neither => 3,
    }
}

/// `EvtIoInCallerContext`.
pub type InCallerContext = unsafe extern "C" fn(WDFDEVICE, WDFREQUEST);

/// How reads and writes of a device pass their buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transfers {
    /// Copied by the system, as without a word of the driver's.
    #[default]
    Buffered,
    /// With locked pages.
    Direct,
    /// As the program's address.
    Neither,
}

// SAFETY: the callbacks are functions, which any thread may call.
unsafe impl Send for Init {}

/// Those that drivers have.
#[derive(Default)]
pub struct Inits(pub LiteMap<usize, Init>);

impl Part for Mutex<Inits> {}

impl State {
    /// A driver is unloaded: it must have freed its own.
    pub fn check_inits(&self, owner: DriverId, name: &str) {
        if self.locked::<Inits>().0.values().any(|init| init.owner == owner) {
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} left a WDFDEVICE_INIT"));
        }
    }
}

impl State {
    /// A new structure for a device of plug and play, as the driver has it; with the handle of the device below it, if a driver has that.
    pub fn create_init(self: &Arc<Self>, owner: DriverId, node: u64, below: Option<usize>) -> PWDFDEVICE_INIT {
        self.create_init_for(owner, Some(node), String::new(), below)
    }

    fn create_init_for(
        self: &Arc<Self>,
        owner: DriverId,
        node: Option<u64>,
        access: String,
        below: Option<usize>,
    ) -> PWDFDEVICE_INIT {
        let place = 0xFE00_0000_0000 + usize::try_from(self.next()).unwrap_or(0) * 16;
        let init = Init {
            owner,
            node,
            name: String::new(),
            callbacks: WDF_PNPPOWER_EVENT_CALLBACKS::default(),
            with: With::default(),
            first: First::default(),
            access,
            below,
            physical: None,
        };
        self.locked::<Inits>().0.insert(place, init);
        ptr::without_provenance_mut(place)
    }

    /// What a driver has said of a device so far, which is not made yet.
    pub fn with_init<R>(&self, init: PWDFDEVICE_INIT, work: impl FnOnce(&mut Init) -> R) -> R {
        let mut inits = self.locked::<Inits>();
        let Some(init) = inits.0.get_mut(&init.addr()) else {
            drop(inits);
            bug_check(Rule::BadHandle, format_args!("{init:p} is no WDFDEVICE_INIT, or was one"));
        };
        work(init)
    }
}

/// Ends the test if that is no security descriptor, by its form.
pub fn check_access(sddl: &str) {
    let is_descriptor = sddl.starts_with("D:") && sddl.contains('(') && sddl.ends_with(')');
    if !is_descriptor {
        bug_check(Rule::BadArgument, format_args!("`{sddl}` is no security descriptor"));
    }
}

pub extern "C" fn WdfControlDeviceInitAllocate(
    _globals: PWDF_DRIVER_GLOBALS,
    driver: WDFDRIVER,
    sddl: *const UNICODE_STRING,
) -> PWDFDEVICE_INIT {
    function!("WdfControlDeviceInitAllocate", |state| {
        let owner = state.given(driver).owner;
        let sddl = text::text(sddl);
        check_access(&sddl);
        if state.strikes() {
            return ptr::null_mut();
        }
        state.create_init_for(owner, None, sddl, None)
    })
}

pub extern "C" fn WdfDeviceInitFree(_globals: PWDF_DRIVER_GLOBALS, init: PWDFDEVICE_INIT) {
    function!("WdfDeviceInitFree", |state| {
        let node = state.with_init(init, |init| init.node);
        if node.is_some() {
            bug_check(Rule::BadHandle, format_args!("the framework's WDFDEVICE_INIT is freed by the driver"));
        }
        state.locked::<Inits>().0.remove(&init.addr());
    });
}

pub extern "C" fn WdfDeviceInitAssignName(
    _globals: PWDF_DRIVER_GLOBALS,
    init: PWDFDEVICE_INIT,
    name: PCUNICODE_STRING,
) -> NTSTATUS {
    function!("WdfDeviceInitAssignName", |state| {
        let name = text::text(name);
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        state.with_init(init, |init| init.name = name);
        STATUS_SUCCESS
    })
}

pub extern "C" fn WdfDeviceInitSetDeviceType(_globals: PWDF_DRIVER_GLOBALS, init: PWDFDEVICE_INIT, _kind: ULONG) {
    function!("WdfDeviceInitSetDeviceType", |state| state.with_init(init, |_| ()));
}

/// Requests for control codes say themselves how they pass their buffers: this is for reads and writes.
pub extern "C" fn WdfDeviceInitSetIoType(
    _globals: PWDF_DRIVER_GLOBALS,
    init: PWDFDEVICE_INIT,
    kind: WDF_DEVICE_IO_TYPE,
) {
    function!("WdfDeviceInitSetIoType", |state| {
        state.with_init(init, |init| {
            init.with.transfers = match kind {
                _WDF_DEVICE_IO_TYPE::WdfDeviceIoNeither => Transfers::Neither,
                _WDF_DEVICE_IO_TYPE::WdfDeviceIoDirect => Transfers::Direct,
                _ => Transfers::Buffered,
            };
        });
    });
}

pub extern "C" fn WdfDeviceInitSetCharacteristics(
    _globals: PWDF_DRIVER_GLOBALS,
    init: PWDFDEVICE_INIT,
    _characteristics: ULONG,
    _or_in: BOOLEAN,
) {
    function!("WdfDeviceInitSetCharacteristics", |state| state.with_init(init, |_| ()));
}

pub extern "C" fn WdfDeviceInitSetPnpPowerEventCallbacks(
    _globals: PWDF_DRIVER_GLOBALS,
    init: PWDFDEVICE_INIT,
    callbacks: PWDF_PNPPOWER_EVENT_CALLBACKS,
) {
    function!("WdfDeviceInitSetPnpPowerEventCallbacks", |state| {
        // SAFETY: the driver's structure, which lives until the call returns.
        let callbacks = unsafe { callbacks.read() };
        check_size::<WDF_PNPPOWER_EVENT_CALLBACKS>(callbacks.Size, "WDF_PNPPOWER_EVENT_CALLBACKS");
        if state.with_init(init, |init| init.node.is_none()) {
            bug_check(Rule::BadArgument, format_args!("callbacks of plug and play for a control device"));
        }
        state.with_init(init, |init| init.callbacks = callbacks);
    });
}

pub extern "C" fn WdfDeviceInitSetFileObjectConfig(
    _globals: PWDF_DRIVER_GLOBALS,
    init: PWDFDEVICE_INIT,
    config: PWDF_FILEOBJECT_CONFIG,
    attributes: PWDF_OBJECT_ATTRIBUTES,
) {
    function!("WdfDeviceInitSetFileObjectConfig", |state| {
        // SAFETY: the driver's structure, which lives until the call returns.
        let config = unsafe { config.read() };
        check_size::<WDF_FILEOBJECT_CONFIG>(config.Size, "WDF_FILEOBJECT_CONFIG");
        if config.FileObjectClass == _WDF_FILEOBJECT_CLASS::WdfFileObjectInvalid {
            bug_check(Rule::BadArgument, format_args!("a configuration for files without their class"));
        }
        let attributes = read_attributes(attributes);
        state.with_init(init, |init| init.with.files = Some((config, attributes)));
    });
}

pub extern "C" fn WdfDeviceInitSetRequestAttributes(
    _globals: PWDF_DRIVER_GLOBALS,
    init: PWDFDEVICE_INIT,
    attributes: PWDF_OBJECT_ATTRIBUTES,
) {
    function!("WdfDeviceInitSetRequestAttributes", |state| {
        let attributes = read_attributes(attributes);
        state.with_init(init, |init| init.with.requests = Some(attributes));
    });
}

pub extern "C" fn WdfDeviceInitSetExclusive(_globals: PWDF_DRIVER_GLOBALS, init: PWDFDEVICE_INIT, exclusive: BOOLEAN) {
    function!("WdfDeviceInitSetExclusive", |state| {
        state.with_init(init, |init| init.with.exclusive = exclusive != 0);
    });
}

pub extern "C" fn WdfDeviceInitSetIoInCallerContextCallback(
    _globals: PWDF_DRIVER_GLOBALS,
    init: PWDFDEVICE_INIT,
    callback: Option<InCallerContext>,
) {
    routine!("WdfDeviceInitSetIoInCallerContextCallback", PASSIVE_LEVEL, |state| {
        state.with_init(init, |init| init.with.looks_first = callback);
    });
}

/// The system does not shut down here, so nobody is told.
pub extern "C" fn WdfControlDeviceInitSetShutdownNotification(
    _globals: PWDF_DRIVER_GLOBALS,
    init: PWDFDEVICE_INIT,
    notification: Option<Function>,
    flags: UCHAR,
) {
    routine!("WdfControlDeviceInitSetShutdownNotification", PASSIVE_LEVEL, |state| {
        // `WdfDeviceShutdown` and `WdfDeviceLastChanceShutdown`.
        if notification.is_none() || flags == 0 || flags & !3 != 0 {
            bug_check(
                Rule::BadArgument,
                format_args!("a notification of the shutdown without a routine, or with the flags {flags:#x}"),
            );
        }
        if state.with_init(init, |init| init.node.is_some()) {
            bug_check(Rule::BadArgument, format_args!("a notification of the shutdown for a device of plug and play"));
        }
    });
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 2] {
    [
        (
            "WdfDeviceInitSetIoInCallerContextCallback",
            WdfDeviceInitSetIoInCallerContextCallback
                as extern "C" fn(PWDF_DRIVER_GLOBALS, PWDFDEVICE_INIT, Option<InCallerContext>)
                as *const (),
        ),
        (
            "WdfControlDeviceInitSetShutdownNotification",
            WdfControlDeviceInitSetShutdownNotification
                as extern "C" fn(PWDF_DRIVER_GLOBALS, PWDFDEVICE_INIT, Option<Function>, UCHAR)
                as *const (),
        ),
    ]
}
