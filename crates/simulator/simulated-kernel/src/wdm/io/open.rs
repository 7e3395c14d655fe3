//! Devices of others, which drivers open by their names.

use std::sync::Mutex;

use litemap::LiteMap;
use wdk_bindings::{
    ACCESS_MASK, FILE_OBJECT, NTSTATUS, PDEVICE_OBJECT, PFILE_OBJECT, PUNICODE_STRING, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_SUCCESS,
};

use super::file::IoFile;
use crate::{
    context::{self, DriverId},
    routine::routine,
    state::{Part, State},
    text,
};

/// Devices that drivers have opened by their names, by the address of the file object.
#[derive(Default)]
pub struct OpenedFiles(LiteMap<usize, Opened>);

impl Part for Mutex<OpenedFiles> {}

impl OpenedFiles {
    /// Returns true if a driver has a device open.
    pub fn are_of(&self, owner: DriverId) -> bool {
        self.0.values().any(|opened| opened.owner == owner)
    }
}

/// A device that a driver has opened, and how many references to its file the driver has.
struct Opened {
    owner: DriverId,
    references: i64,
    file: IoFile,
}

impl State {
    /// Counts references to what drivers have opened. `None` if the object is none of these.
    pub fn count_file(&self, object: usize, by: i64) -> Option<i64> {
        let mut opened_files = self.locked::<OpenedFiles>();
        let opened = opened_files.0.get_mut(&object)?;
        opened.references += by;
        let left = opened.references;
        let gone = if left == 0 { opened_files.0.remove(&object) } else { None };
        drop(opened_files);
        // Its driver is told.
        drop(gone.map(|opened| opened.file));
        Some(left)
    }
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
        state.locked::<OpenedFiles>().0.insert(object, opened);
        let object: *mut FILE_OBJECT = std::ptr::with_exposed_provenance_mut(object);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe {
            file.write(object);
            device.write(of);
        }
        STATUS_SUCCESS
    })
}
