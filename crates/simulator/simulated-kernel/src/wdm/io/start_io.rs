//! `StartIo`: requests that the driver gets one at a time, at `DISPATCH_LEVEL`, and that wait in the queue of their device meanwhile.

use std::{
    mem::offset_of,
    ptr,
    sync::{Arc, Mutex},
};

use host::machine::{self, Irql};
use litemap::LiteMap;
use wdk_bindings::{
    BOOLEAN, IRP, KDEVICE_QUEUE, KDEVICE_QUEUE_ENTRY, PDEVICE_OBJECT, PDRIVER_CANCEL, PIRP, PULONG, ULONG,
};

use super::{
    device::Device,
    device_queue::{insert, remove},
};
use crate::{
    context, paged,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State},
    wdm::lock::at_dispatch,
};

/// How far behind the beginning of an IRP its entry for a device queue lies.
const ENTRY: usize = offset_of!(IRP, Tail);

/// What a driver has said of its routine, and what waits for its return.
#[derive(Clone, Copy, Default)]
struct Attributes {
    /// `DeferredStartIo`: the routine is not called while it runs.
    is_deferred: bool,
    /// `NonCancelable`: a request that leaves the queue loses its cancel routine.
    is_final: bool,
    /// It runs.
    is_inside: bool,
    /// The next request is wanted when it has returned.
    wanted: Option<Next>,
}

/// Which request is wanted: with a cancel routine, and by a key.
#[derive(Clone, Copy)]
struct Next {
    is_cancelable: bool,
    key: Option<ULONG>,
}

/// Devices whose drivers have said something of their routine, or are inside of it.
#[derive(Default)]
pub struct Starts(LiteMap<usize, Attributes>);

impl Part for Mutex<Starts> {}

/// The level is raised to `DISPATCH_LEVEL`, until this is dropped.
struct Raised(Irql);

impl Raised {
    fn new() -> Self {
        paged::trim();
        Self(machine::raise(Irql::DISPATCH_LEVEL))
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        machine::lower(self.0);
    }
}

fn queue_of(device: &Device) -> *mut KDEVICE_QUEUE {
    // SAFETY: the device object lives as long as it is in the table that this one came from. Only an address is taken.
    unsafe { &raw mut (*device.pointer()).DeviceQueue }
}

fn set_current(device: &Device, irp: PIRP) {
    // SAFETY: as above. The system writes this field.
    unsafe { (&raw mut (*device.pointer()).CurrentIrp).write(irp) };
}

fn set_cancel_routine(irp: PIRP, routine: PDRIVER_CANCEL) {
    // SAFETY: an IRP that is not complete, whose routine changes under the cancel spin lock only, or which nobody else has.
    unsafe { (&raw mut (*irp).CancelRoutine).write(routine) };
}

/// The driver's device, whose driver has the routine.
fn device_of(state: &State, device: PDEVICE_OBJECT, name: &str) -> Arc<Device> {
    let device = state.device_at(device);
    // SAFETY: driver objects outlive their devices.
    if unsafe { (*(*device.pointer()).DriverObject).DriverStartIo }.is_none() {
        bug_check(Rule::BadArgument, format_args!("{name} by a driver that has no StartIo routine"));
    }
    device
}

impl State {
    fn attributes(&self, device: &Device) -> Attributes {
        self.locked::<Starts>().0.get(&device.address).copied().unwrap_or_default()
    }

    fn change_attributes(&self, device: &Device, change: impl FnOnce(&mut Attributes)) {
        change(self.locked::<Starts>().0.entry(device.address).or_default());
    }

    /// A device is deleted.
    pub fn forget_start(&self, device: usize) {
        self.locked::<Starts>().0.remove(&device);
    }

    /// Calls the driver's routine, and again as often as it has asked for the next request meanwhile and wants that deferred.
    fn start(&self, device: &Device, irp: PIRP) {
        let mut next = irp;
        while !next.is_null() {
            set_current(device, next);
            // SAFETY: driver objects outlive their devices.
            let routine = unsafe { (*(*device.pointer()).DriverObject).DriverStartIo };
            let Some(routine) = routine else { return };
            self.change_attributes(device, |attributes| attributes.is_inside = true);
            context::call(device.owner, "a StartIo routine", || {
                // SAFETY: the driver's own routine, with its own device and an IRP that waits for it, at the level that it expects.
                unsafe { routine(device.pointer(), next) }
            });
            let mut wanted = None;
            self.change_attributes(device, |attributes| {
                wanted = attributes.wanted.take();
                attributes.is_inside = false;
            });
            next = wanted.map_or(ptr::null_mut(), |wanted| self.take_next(device, wanted));
        }
    }

    /// The request whose turn it is: null if none waits.
    fn take_next(&self, device: &Device, next: Next) -> PIRP {
        let _held = next.is_cancelable.then(|| self.hold_cancellation());
        set_current(device, ptr::null_mut());
        let entry = remove(self, queue_of(device), next.key);
        if entry.is_null() {
            return ptr::null_mut();
        }
        let irp: PIRP = entry.wrapping_byte_sub(ENTRY).cast();
        set_current(device, irp);
        if next.is_cancelable && self.attributes(device).is_final {
            set_cancel_routine(irp, None);
        }
        irp
    }

    fn start_next(&self, device: &Device, next: Next) {
        let Attributes { is_deferred, is_inside, .. } = self.attributes(device);
        if is_deferred && is_inside {
            self.change_attributes(device, |attributes| attributes.wanted = Some(next));
            return;
        }
        let _raised = Raised::new();
        let irp = self.take_next(device, next);
        self.start(device, irp);
    }

    /// Puts a request into the queue of its device. True if it waits there, and false if it is the driver's turn.
    fn wait_for_turn(&self, device: &Device, irp: PIRP, key: Option<ULONG>, cancel: PDRIVER_CANCEL) -> bool {
        let _held = cancel.map(|_| self.hold_cancellation());
        if cancel.is_some() {
            set_cancel_routine(irp, cancel);
        }
        let entry: *mut KDEVICE_QUEUE_ENTRY = irp.wrapping_byte_add(ENTRY).cast();
        let waits = insert(self, queue_of(device), entry, key);
        if !waits && cancel.is_some() && self.attributes(device).is_final {
            set_cancel_routine(irp, None);
        }
        waits
    }
}

#[unsafe(no_mangle)]
extern "C" fn IoStartPacket(device: PDEVICE_OBJECT, irp: PIRP, key: PULONG, cancel: PDRIVER_CANCEL) {
    routine!("IoStartPacket", DISPATCH_LEVEL, |state| {
        let device = device_of(state, device, "IoStartPacket");
        let Some(request) = state.irp(irp) else {
            bug_check(
                Rule::IrpCompletedTwice,
                format_args!("{irp:p} is to be started and is no IRP, or was completed"),
            );
        };
        // SAFETY: null or the driver's number, which lives until the call returns.
        let key = unsafe { key.as_ref() }.copied();
        let _raised = Raised::new();
        if !state.wait_for_turn(&device, irp, key, cancel) {
            state.start(&device, irp);
            return;
        }
        // SAFETY: the driver has an IRP that waits. One that has been cancelled meanwhile was not told of it, for it had no routine.
        if cancel.is_some() && unsafe { (*irp).Cancel } != 0 {
            state.cancel_irp(&request);
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn IoStartNextPacket(device: PDEVICE_OBJECT, cancelable: BOOLEAN) {
    routine!("IoStartNextPacket", DISPATCH_LEVEL, |state| {
        at_dispatch("IoStartNextPacket");
        let device = device_of(state, device, "IoStartNextPacket");
        state.start_next(&device, Next { is_cancelable: cancelable != 0, key: None });
    });
}

#[unsafe(no_mangle)]
extern "C" fn IoStartNextPacketByKey(device: PDEVICE_OBJECT, cancelable: BOOLEAN, key: ULONG) {
    routine!("IoStartNextPacketByKey", DISPATCH_LEVEL, |state| {
        let device = device_of(state, device, "IoStartNextPacketByKey");
        state.start_next(&device, Next { is_cancelable: cancelable != 0, key: Some(key) });
    });
}

#[unsafe(no_mangle)]
extern "C" fn IoSetStartIoAttributes(device: PDEVICE_OBJECT, deferred: BOOLEAN, not_cancelable: BOOLEAN) {
    routine!("IoSetStartIoAttributes", HIGH_LEVEL, |state| {
        let device = state.device_at(device);
        state.change_attributes(&device, |attributes| {
            attributes.is_deferred = deferred != 0;
            attributes.is_final = not_cancelable != 0;
        });
    });
}
