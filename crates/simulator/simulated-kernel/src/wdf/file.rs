//! Files: what a device that wants to know of them is told.

use std::sync::{
    Arc,
    atomic::{
        AtomicU32, AtomicUsize,
        Ordering::{AcqRel, Acquire, Release},
    },
};

use wdk_bindings::{
    NTSTATUS, PWDF_DRIVER_GLOBALS, STATUS_INSUFFICIENT_RESOURCES, STATUS_SUCCESS, WDFDEVICE, WDFFILEOBJECT, WDFREQUEST,
};

use super::{
    device::DeviceObject,
    function::function,
    object::{Kind, Object, Part},
    request::{Asks, RequestObject, owned},
};
use crate::{
    context,
    report::bug_check,
    rule::Rule,
    state::{State, lock},
    waiting,
};

/// An open file.
pub struct FileObject {
    handle: AtomicUsize,
    device: Arc<DeviceObject>,
    /// Requests that came by it and are not complete, and one more while it is open.
    uses: AtomicU32,
}

impl FileObject {
    fn pointer<T>(&self) -> *mut T {
        std::ptr::without_provenance_mut(self.handle.load(Acquire))
    }

    /// A request comes by it.
    pub fn request_begins(&self) {
        self.uses.fetch_add(1, AcqRel);
    }
}

impl Part for FileObject {
    const NAME: &'static str = "file";
}

impl Kind for FileObject {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn check_deletion(&self, object: &Object) {
        object.refuse_to_delete();
    }
}

impl State {
    /// A program opens a device whose driver wants to know. `None` if it does not.
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub fn create_file(self: &Arc<Self>, device: &Arc<DeviceObject>) -> Result<Option<Arc<FileObject>>, NTSTATUS> {
        let Some((config, attributes)) = device.with.files else { return Ok(None) };
        if config.EvtFileClose.is_some() {
            bug_check(Rule::NotSimulated, format_args!("EvtFileClose"));
        }
        let file =
            Arc::new(FileObject { handle: AtomicUsize::new(0), device: device.clone(), uses: AtomicU32::new(1) });
        let parent = Some(device.handle.load(Acquire));
        let object = self.create_object_of(device.owner, file.clone(), &attributes, parent);
        let object = object.ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        file.handle.store(object.handle, Release);
        let Some(create) = config.EvtDeviceFileCreate else { return Ok(Some(file)) };
        // A request without buffers, which the driver has from no queue.
        let request = Arc::new(RequestObject::new(Asks::Create, 0, &[], 0));
        self.register_request(device, &request);
        lock(&request.progress).created = true;
        let (of_device, of_request) = (device.handle.load(Acquire), request.handle.load(Acquire));
        context::call(device.owner, "EvtDeviceFileCreate", || {
            let (device, request) =
                (std::ptr::without_provenance_mut(of_device), std::ptr::without_provenance_mut(of_request));
            // SAFETY: the driver's own callback, with live handles.
            unsafe { create(device, request, file.pointer()) };
        });
        let end = self.machine.now().saturating_add(self.request_limit());
        let is_complete = || lock(&request.progress).outcome.is_some();
        if !waiting::until(self, Some(end), "a file", is_complete) {
            bug_check(Rule::RequestNeverCompleted, format_args!("the creation of a file is not completed"));
        }
        match request.collect().0 {
            STATUS_SUCCESS => Ok(Some(file)),
            status => {
                self.delete_object(object.handle);
                Err(status)
            }
        }
    }

    /// The last handle of the file is closed. It is gone when the last request that came by it is complete.
    pub fn end_file(self: &Arc<Self>, file: &Arc<FileObject>) {
        if let Some(cleanup) = file.device.with.files.and_then(|(config, _)| config.EvtFileCleanup) {
            context::call(file.device.owner, "EvtFileCleanup", || {
                // SAFETY: the driver's own callback, with a live handle.
                unsafe { cleanup(file.pointer()) };
            });
        }
        self.request_ended(file);
    }

    /// A request that came by the file is complete, or the file is closed.
    pub fn request_ended(self: &Arc<Self>, file: &Arc<FileObject>) {
        if file.uses.fetch_sub(1, AcqRel) > 1 {
            return;
        }
        self.delete_object(file.handle.load(Acquire));
        self.close_file(&file.device);
    }
}

pub extern "C" fn WdfRequestGetFileObject(_globals: PWDF_DRIVER_GLOBALS, handle: WDFREQUEST) -> WDFFILEOBJECT {
    function!("WdfRequestGetFileObject", |state| {
        let request = owned(state, handle);
        request.file.as_ref().map_or(std::ptr::null_mut(), |file| file.pointer())
    })
}

pub extern "C" fn WdfFileObjectGetDevice(_globals: PWDF_DRIVER_GLOBALS, handle: WDFFILEOBJECT) -> WDFDEVICE {
    function!("WdfFileObjectGetDevice", |state| {
        let (_, file): (_, Arc<FileObject>) = state.given_as(handle);
        std::ptr::without_provenance_mut(file.device.handle.load(Acquire))
    })
}
