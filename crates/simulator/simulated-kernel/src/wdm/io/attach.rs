//! Stacks of devices: one attached to another gets its requests first. And devices of others, by their names.

use wdk_bindings::{
    ACCESS_MASK, FILE_OBJECT, NTSTATUS, PDEVICE_OBJECT, PFILE_OBJECT, PUNICODE_STRING, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_SUCCESS,
};

use std::sync::Arc;

use super::{device::Device, file::IoFile};
use crate::{
    context::{self, DriverId},
    kernel::{State, lock},
    report::bug_check,
    rule::Rule,
    text,
    wdm::routine,
};

/// A device that a driver has opened, and how many references to its file the driver has.
pub struct Opened {
    owner: DriverId,
    references: i64,
    file: IoFile,
}

impl Opened {
    /// Returns true if that driver has opened it.
    pub fn is_of(&self, owner: DriverId) -> bool {
        self.owner == owner
    }
}

fn above(device: &Device) -> PDEVICE_OBJECT {
    // SAFETY: the device object lives as long as it is in the table that this one came from.
    unsafe { (*device.pointer()).AttachedDevice }
}

fn set_above(device: &Device, top: PDEVICE_OBJECT) {
    // SAFETY: as above.
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
        let is_above = lock(&self.wdm.io).attached.contains_key(&device.address);
        is_above.then_some("while it is attached to another one")
    }

    /// Counts references to what drivers have opened. `None` if the object is none of these.
    pub fn count_file(&self, object: usize, by: i64) -> Option<i64> {
        let mut io = lock(&self.wdm.io);
        let opened = io.opened.get_mut(&object)?;
        opened.references += by;
        let left = opened.references;
        let gone = if left == 0 { io.opened.remove(&object) } else { None };
        drop(io);
        // Its driver is told.
        drop(gone.map(|opened| opened.file));
        Some(left)
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
        unsafe { (*source.pointer()).StackSize = size };
        // SAFETY: as above.
        let alignment = unsafe { (*target.pointer()).AlignmentRequirement };
        // SAFETY: as above.
        unsafe { (*source.pointer()).AlignmentRequirement = alignment };
        lock(&state.wdm.io).attached.insert(source.address, top.address);
        top.pointer()
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
        lock(&state.wdm.io).attached.remove(&source.addr());
        set_above(&target, std::ptr::null_mut());
    });
}

#[unsafe(no_mangle)]
extern "C" fn IoGetDeviceObjectPointer(
    name: PUNICODE_STRING,
    _access: ACCESS_MASK,
    file: *mut PFILE_OBJECT,
    device: *mut PDEVICE_OBJECT,
) -> NTSTATUS {
    routine!("IoGetDeviceObjectPointer", |state| {
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let opened = match IoFile::open(state, &text::text(name)) {
            Ok(opened) => opened,
            Err(status) => return status,
        };
        let (object, of) = (opened.object(), state.top_of(opened.device()).pointer());
        let opened = Opened { owner: context::caller(), references: 1, file: opened };
        lock(&state.wdm.io).opened.insert(object, opened);
        let object: *mut FILE_OBJECT = std::ptr::with_exposed_provenance_mut(object);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { file.write(object) };
        // SAFETY: as above.
        unsafe { device.write(of) };
        STATUS_SUCCESS
    })
}
