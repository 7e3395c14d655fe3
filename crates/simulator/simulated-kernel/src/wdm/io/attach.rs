//! Stacks of devices: one attached to another gets its requests first.

use std::sync::{Arc, Mutex};

use litemap::LiteMap;
use wdk_bindings::{FILE_OBJECT, PDEVICE_OBJECT};

use super::device::Device;
use crate::{
    context,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State},
};

/// The stacks of devices: by the address of each that is attached, that of the one below.
#[derive(Default)]
pub struct Stacks(LiteMap<usize, usize>);

impl Part for Mutex<Stacks> {}

fn above(device: &Device) -> PDEVICE_OBJECT {
    // SAFETY: the device object lives as long as it is in the table that this one came from.
    unsafe { (*device.pointer()).AttachedDevice }
}

fn set_above(device: &Device, top: PDEVICE_OBJECT) {
    // SAFETY: the device object lives as long as it is in the table that this one came from.
    unsafe { (*device.pointer()).AttachedDevice = top };
}

impl State {
    /// The device that gets the requests for a device: the highest of its stack.
    pub fn top_of(&self, device: &Arc<Device>) -> Arc<Device> {
        let mut top = device.clone();
        while !above(&top).is_null() {
            top = self.device_at(above(&top));
        }
        top
    }

    /// How a device is attached, for a message. `None` if it is not.
    pub fn is_attached(&self, device: &Device) -> Option<&'static str> {
        if !above(device).is_null() {
            return Some("while another one is attached to it");
        }
        let is_above = self.locked::<Stacks>().0.contains_key(&device.address);
        is_above.then_some("while it is attached to another one")
    }
}

#[unsafe(no_mangle)]
extern "C" fn IoAttachDeviceToDeviceStack(source: PDEVICE_OBJECT, target: PDEVICE_OBJECT) -> PDEVICE_OBJECT {
    routine!("IoAttachDeviceToDeviceStack", |state| {
        let (source, target) = (state.device_at(source), state.device_at(target));
        if source.owner != context::caller() || state.is_attached(&source).is_some() {
            bug_check(
                Rule::DeviceAttached,
                format_args!("a device is attached that is another driver's, or is attached"),
            );
        }
        if state.strikes() {
            return std::ptr::null_mut();
        }
        let top = state.top_of(&target);
        set_above(&top, source.pointer());
        let size = i8::try_from(top.locations() + 1).unwrap_or(i8::MAX);
        // SAFETY: the driver's device, which lives.
        unsafe {
            (*source.pointer()).StackSize = size;
            let alignment = (*target.pointer()).AlignmentRequirement;
            (*source.pointer()).AlignmentRequirement = alignment;
        }
        state.locked::<Stacks>().0.insert(source.address, top.address);
        top.pointer()
    })
}

/// The highest device of a stack, to which the driver refers from then on.
#[unsafe(no_mangle)]
extern "C" fn IoGetAttachedDeviceReference(device: PDEVICE_OBJECT) -> PDEVICE_OBJECT {
    routine!("IoGetAttachedDeviceReference", |state| {
        let top = state.top_of(&state.device_at(device));
        state.count_object(top.address, 1);
        top.pointer()
    })
}

/// Without a reference: the caller knows that the device stays.
#[unsafe(no_mangle)]
extern "C" fn IoGetAttachedDevice(device: PDEVICE_OBJECT) -> PDEVICE_OBJECT {
    routine!("IoGetAttachedDevice", DISPATCH_LEVEL, |state| state.top_of(&state.device_at(device)).pointer())
}

/// The device that requests for a file are sent to.
#[unsafe(no_mangle)]
extern "C" fn IoGetRelatedDeviceObject(file: *mut FILE_OBJECT) -> PDEVICE_OBJECT {
    routine!("IoGetRelatedDeviceObject", DISPATCH_LEVEL, |state| {
        if file.is_null() {
            bug_check(Rule::BadArgument, format_args!("the device of a file that is a null pointer"));
        }
        // SAFETY: the driver's file object, which is open.
        let device = unsafe { (*file).DeviceObject };
        state.top_of(&state.device_at(device)).pointer()
    })
}

#[unsafe(no_mangle)]
extern "C" fn IoDetachDevice(target: PDEVICE_OBJECT) {
    routine!("IoDetachDevice", |state| {
        let target = state.device_at(target);
        let source = above(&target);
        if source.is_null() {
            bug_check(Rule::DeviceAttached, format_args!("nothing is attached to the device that is detached from"));
        }
        state.locked::<Stacks>().0.remove(&source.addr());
        set_above(&target, std::ptr::null_mut());
    });
}
