//! Files: what a device that wants to know of them is told.

use std::sync::{
    Arc, Mutex,
    atomic::{
        AtomicU32, AtomicUsize,
        Ordering::{AcqRel, Acquire, Release},
    },
};

use wdk_bindings::{
    _WDF_FILEOBJECT_CLASS, NTSTATUS, PFN_WDF_FILE_CLOSE, PUNICODE_STRING, PWDF_DRIVER_GLOBALS,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_OBJECT_NAME_INVALID, STATUS_SUCCESS, UNICODE_STRING, WDFDEVICE,
    WDFFILEOBJECT, WDFREQUEST,
};

use super::{
    device::DeviceObject,
    function::function,
    object::{Kind, Object, Part},
    request::{Asks, Output, Outside, RequestObject, owned},
};
use crate::{
    context::{self, NOBODY},
    pool,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{State, lock},
    waiting,
    wdm::system_thread,
};

/// An open file.
pub struct FileObject {
    /// Zero of a file that the driver wants no object of.
    handle: AtomicUsize,
    pub device: Arc<DeviceObject>,
    /// Requests that came by it and are not complete, and one more while it is open.
    uses: AtomicU32,
    /// Its name, while the file is being created.
    name: Mutex<Option<FileName>>,
    /// The address of its file object; zero until a driver has asked for it.
    pub wdm: AtomicUsize,
}

/// The name of a file behind that of its device, with its backslash, where a driver can look at it.
struct FileName(usize);

impl FileName {
    /// The tag of the I/O manager's names.
    const TAG: u32 = u32::from_ne_bytes(*b"IoNm");

    /// # Errors
    ///
    /// `STATUS_OBJECT_NAME_INVALID` if it is too long for a string of the kernel.
    fn new(name: &str) -> Result<Self, NTSTATUS> {
        let units: Vec<u16> = name.encode_utf16().collect();
        let bytes = u16::try_from(size_of_val(units.as_slice())).map_err(|_| STATUS_OBJECT_NAME_INVALID)?;
        let size = size_of::<UNICODE_STRING>() + usize::from(bytes);
        let block = pool::allocate(NOBODY, size, Self::TAG, true).ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        let string: PUNICODE_STRING = std::ptr::with_exposed_provenance_mut(block);
        let buffer = string.wrapping_add(1).cast::<u16>();
        // SAFETY: the block has room for the structure, and for the units behind it.
        unsafe {
            string.write(UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: buffer });
            buffer.copy_from_nonoverlapping(units.as_ptr(), units.len());
        }
        Ok(Self(block))
    }
}

impl Drop for FileName {
    fn drop(&mut self) {
        pool::free(self.0, Some(Self::TAG));
    }
}

impl FileObject {
    /// The tag of file objects.
    pub const TAG: u32 = u32::from_ne_bytes(*b"File");

    fn pointer<T>(&self) -> *mut T {
        std::ptr::without_provenance_mut(self.handle.load(Acquire))
    }

    fn close_routine(&self) -> PFN_WDF_FILE_CLOSE {
        self.device.with.files.and_then(|(config, _)| config.EvtFileClose)
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
    /// A program opens a device, or the file on it with that name. The driver is told if it wants to know.
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub fn create_file(self: &Arc<Self>, device: &Arc<DeviceObject>, name: &str) -> Result<Arc<FileObject>, NTSTATUS> {
        if device.first.sees(Asks::Create.major()) {
            bug_check(Rule::NotSimulated, format_args!("a file whose IRP a driver is to see before the framework"));
        }
        let file = Arc::new(FileObject {
            handle: AtomicUsize::new(0),
            device: device.clone(),
            uses: AtomicU32::new(1),
            name: Mutex::new(Some(FileName::new(name)?)),
            wdm: AtomicUsize::new(0),
        });
        let created = self.tell_of_file(device, &file);
        // A driver that has kept it finds out that it is gone.
        drop(lock(&file.name).take());
        if created.is_err() {
            self.delete_file_object(&file);
        }
        created.map(|()| file)
    }

    fn delete_file_object(self: &Arc<Self>, file: &FileObject) {
        let block = file.wdm.swap(0, AcqRel);
        if block != 0 {
            pool::free(block, Some(FileObject::TAG));
        }
        let handle = file.handle.load(Acquire);
        if handle != 0 {
            self.delete_object(handle);
        }
    }

    /// Makes the driver's object of a file, if it wants one.
    fn make_file_object(self: &Arc<Self>, device: &DeviceObject, file: &Arc<FileObject>) -> Result<(), NTSTATUS> {
        let Some((config, attributes)) = device.with.files else { return Ok(()) };
        // As it may be set with the flag that an object can be optional.
        let class = config.FileObjectClass & !_WDF_FILEOBJECT_CLASS::WdfFileObjectCanBeOptional;
        if class != _WDF_FILEOBJECT_CLASS::WdfFileObjectNotRequired {
            let parent = Some(device.handle.load(Acquire));
            let object = self.create_object_of(device.owner, file.clone(), &attributes, parent);
            let object = object.ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
            file.handle.store(object.handle, Release);
        }
        Ok(())
    }

    fn tell_of_file(self: &Arc<Self>, device: &Arc<DeviceObject>, file: &Arc<FileObject>) -> Result<(), NTSTATUS> {
        self.make_file_object(device, file)?;
        if let Some(queue) = self.queue_for_files(device) {
            // Then no callback for it is called.
            let request = self.request_of_file(device, file);
            self.enqueue(&queue, &request);
            return self.created(device, &request);
        }
        let create = device.with.files.and_then(|(config, _)| config.EvtDeviceFileCreate);
        let Some(create) = create else { return Ok(()) };
        // The driver has the request from no queue.
        let request = self.request_of_file(device, file);
        lock(&request.progress).outside = Outside::Kept;
        let (of_device, of_request) = (device.handle.load(Acquire), request.handle.load(Acquire));
        context::call(device.owner, "EvtDeviceFileCreate", || {
            let (device, request) =
                (std::ptr::without_provenance_mut(of_device), std::ptr::without_provenance_mut(of_request));
            // SAFETY: the driver's own callback, with live handles.
            unsafe { create(device, request, file.pointer()) };
        });
        self.created(device, &request)
    }

    /// A request without buffers that is to create a file.
    fn request_of_file(self: &Arc<Self>, device: &Arc<DeviceObject>, file: &Arc<FileObject>) -> Arc<RequestObject> {
        file.request_begins();
        let request = RequestObject::of(Asks::Create, 0, &[], Output::Copied(0), Some(file.clone()));
        let request = Arc::new(request);
        self.register_request(device, &request);
        request
    }

    /// Waits for the end of a request that creates a file.
    ///
    /// # Errors
    ///
    /// What the driver says.
    fn created(self: &Arc<Self>, device: &DeviceObject, request: &RequestObject) -> Result<(), NTSTATUS> {
        let end = self.machine.now().saturating_add(self.request_limit());
        let is_complete = || lock(&request.progress).outcome.is_some();
        if !waiting::until(self, Some(end), "a file", is_complete) {
            if !request.was_delivered() && !device.powered.load(Acquire) && !device.control {
                bug_check(Rule::NotSimulated, format_args!("a file is created in a queue while its device sleeps"));
            }
            bug_check(Rule::RequestNeverCompleted, format_args!("the creation of a file is not completed"));
        }
        match request.collect().0 {
            STATUS_SUCCESS => Ok(()),
            status => Err(status),
        }
    }

    /// The last handle of the file is closed: the driver is told, and what came by the file and waits in a queue is cancelled. The file is
    /// gone when the last request that came by it is complete.
    pub fn end_file(self: &Arc<Self>, file: &Arc<FileObject>) {
        if let Some(cleanup) = file.device.with.files.and_then(|(config, _)| config.EvtFileCleanup) {
            context::call(file.device.owner, "EvtFileCleanup", || {
                // SAFETY: the driver's own callback, with a live handle.
                unsafe { cleanup(file.pointer()) };
            });
        }
        let mut of_stack = Some(file.device.top());
        while let Some(device) = of_stack {
            let queues = lock(&device.queues).clone();
            for queue in queues {
                if let Some(queue) = self.object(queue).part() {
                    self.cancel_waiting(&queue, |request| request.is_by(file));
                }
            }
            of_stack = device.lower.get().cloned();
        }
        if file.uses.fetch_sub(1, AcqRel) == 1 {
            self.finish_file(file);
        }
    }

    /// A request that came by the file is complete.
    pub fn request_ended(self: &Arc<Self>, file: &Arc<FileObject>) {
        if file.uses.fetch_sub(1, AcqRel) > 1 {
            return;
        }
        if file.close_routine().is_none() {
            return self.finish_file(file);
        }
        // The driver is in the middle of what has completed the request, perhaps at `DISPATCH_LEVEL` or with a mutex.
        let (state, of_thread) = (self.clone(), file.clone());
        system_thread::spawn_for_work_item(self, file.device.owner, move || state.finish_file(&of_thread));
    }

    /// Nobody has the file any more.
    fn finish_file(self: &Arc<Self>, file: &FileObject) {
        if let Some(close) = file.close_routine() {
            context::call(file.device.owner, "EvtFileClose", || {
                // SAFETY: the driver's own callback, with a live handle.
                unsafe { close(file.pointer()) };
            });
        }
        self.delete_file_object(file);
        self.close_file(&file.device);
    }
}

pub extern "C" fn WdfRequestGetFileObject(_globals: PWDF_DRIVER_GLOBALS, handle: WDFREQUEST) -> WDFFILEOBJECT {
    function!("WdfRequestGetFileObject", |state| {
        let request = owned(state, handle);
        // A filter that wants no file objects has none, whatever the driver below it has.
        let of_queue = lock(&request.progress).queue.as_ref().map(|queue| queue.device.clone());
        let file =
            request.file.as_ref().filter(|file| of_queue.is_none_or(|device| Arc::ptr_eq(&device, &file.device)));
        file.map_or(std::ptr::null_mut(), |file| file.pointer())
    })
}

pub extern "C" fn WdfFileObjectGetDevice(_globals: PWDF_DRIVER_GLOBALS, handle: WDFFILEOBJECT) -> WDFDEVICE {
    function!("WdfFileObjectGetDevice", |state| {
        let (_, file): (_, Arc<FileObject>) = state.given_as(handle);
        std::ptr::without_provenance_mut(file.device.handle.load(Acquire))
    })
}

/// The name of a file, which is the driver's to look at while the file is being created.
pub extern "C" fn WdfFileObjectGetFileName(_globals: PWDF_DRIVER_GLOBALS, handle: WDFFILEOBJECT) -> PUNICODE_STRING {
    routine!("WdfFileObjectGetFileName", PASSIVE_LEVEL, |state| {
        let (_, file): (_, Arc<FileObject>) = state.given_as(handle);
        let name = lock(&file.name).as_ref().map(|name| name.0);
        let Some(name) = name else {
            let words = format_args!("WdfFileObjectGetFileName of a file that is not being created any more");
            bug_check(Rule::BadArgument, words);
        };
        std::ptr::with_exposed_provenance_mut(name)
    })
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 1] {
    [(
        "WdfFileObjectGetFileName",
        WdfFileObjectGetFileName as extern "C" fn(PWDF_DRIVER_GLOBALS, WDFFILEOBJECT) -> PUNICODE_STRING as *const (),
    )]
}
