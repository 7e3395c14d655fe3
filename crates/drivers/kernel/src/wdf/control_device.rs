//! A device for programs to open, beside those of plug and play.

use core::ptr;

use fallible::Arc;
use ndkpi::NtStatus;
use wdk_sys::{
    _WDF_EXECUTION_LEVEL, _WDF_FILEOBJECT_CLASS, _WDF_IO_QUEUE_DISPATCH_TYPE, _WDF_TRI_STATE,
    PFN_WDF_IO_QUEUE_IO_DEVICE_CONTROL, PWDFDEVICE_INIT, ULONG, WDF_FILEOBJECT_CONFIG, WDF_IO_QUEUE_CONFIG,
    WDF_OBJECT_ATTRIBUTES, WDFDEVICE, WDFDRIVER, call_unsafe_wdf_function_binding,
    ntddk::{IoCreateSymbolicLink, IoDeleteSymbolicLink},
};

use super::{ContextType, attributes, device::describe_device, size};
use crate::{check, unicode};

/// How a control device is called and who may open it.
#[derive(Clone, Copy)]
pub struct Names<'names> {
    /// The name in the kernel.
    pub device: &'names [u16],
    /// The name for programs, a symbolic link.
    pub link: &'static [u16],
    /// Who may open it, in the security descriptor definition language.
    pub access: &'names [u16],
}

/// What a device whose files matter is told of them.
pub struct Files {
    /// The routines. `Size` and `FileObjectClass` are filled in.
    pub config: WDF_FILEOBJECT_CONFIG,
    /// What files carry.
    pub files: WDF_OBJECT_ATTRIBUTES,
    /// What requests carry.
    pub requests: WDF_OBJECT_ATTRIBUTES,
}

/// A control device. It is deleted when dropped; as long as it exists the driver stays loaded.
///
/// Dropped, it has no name any more and nobody opens it, so that another one can take its place. Files that are open are served until
/// the last one is closed: then the framework lets the context go.
///
/// # Invariants
///
/// `device` is live, and nobody else deletes it.
pub struct ControlDevice {
    /// Deleted before the device.
    link: Option<SymbolicLink>,
    device: WDFDEVICE,
}

/// A symbolic link in the names of objects. Deleted when dropped.
///
/// The link of `WdfDeviceCreateSymbolicLink` stays until the last file on the device is closed, and no other device can have it until
/// then: a program that holds one open would keep the driver's next device away.
///
/// # Invariants
///
/// The link is there, and nobody else deletes it.
struct SymbolicLink {
    name: &'static [u16],
}

impl SymbolicLink {
    /// Makes `name` lead to the device of that name. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_OBJECT_NAME_COLLISION` if there is one of that name; `STATUS_INSUFFICIENT_RESOURCES`.
    fn try_new(name: &'static [u16], device: &[u16]) -> Result<Self, NtStatus> {
        let (mut link, mut device) = (unicode(name), unicode(device));
        // SAFETY: the names live until the call returns, which keeps copies and changes neither.
        check(unsafe { IoCreateSymbolicLink(&raw mut link, &raw mut device) })?;
        Ok(Self { name })
    }
}

impl Drop for SymbolicLink {
    fn drop(&mut self) {
        let mut link = unicode(self.name);
        // Nobody could do more about a failure.
        // SAFETY: the link is ours (invariant), and the name lives until the call returns.
        let _ = unsafe { IoDeleteSymbolicLink(&raw mut link) };
    }
}

// SAFETY: the framework's handle may be used on any thread.
unsafe impl Send for ControlDevice {}
// SAFETY: as for `Send`; a `&ControlDevice` can do nothing with it.
unsafe impl Sync for ControlDevice {}

impl ControlDevice {
    /// Makes a device that carries `context` and whose control codes go to `serve`, at `PASSIVE_LEVEL`, any number of them at
    /// a time. When this returns it can be opened.
    ///
    /// # Errors
    ///
    /// `STATUS_OBJECT_NAME_COLLISION` if there is one of that name, `STATUS_INSUFFICIENT_RESOURCES`, and what else the
    /// framework says.
    ///
    /// # Safety
    ///
    /// `driver` is the driver's live object. `serve` completes each request that it is given. The routines of `files` do as
    /// the framework asks.
    pub unsafe fn try_new<T: Send + Sync + 'static>(
        driver: WDFDRIVER,
        names: &Names<'_>,
        kind: &'static ContextType<T>,
        context: Arc<T>,
        serve: PFN_WDF_IO_QUEUE_IO_DEVICE_CONTROL,
        files: Option<Files>,
    ) -> Result<Self, NtStatus> {
        let access = unicode(names.access);
        // SAFETY: the driver object is live (`# Safety`), and the string lives until the call returns.
        let init =
            unsafe { call_unsafe_wdf_function_binding!(WdfControlDeviceInitAllocate, driver, &raw const access) };
        if init.is_null() {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let mut init = Init(init);
        init.prepare(names)?;
        if let Some(files) = files {
            init.prepare_files(files);
        }

        let mut attributes = attributes();
        kind.describe(&mut attributes);
        // Requests are served by code that may wait.
        attributes.ExecutionLevel = _WDF_EXECUTION_LEVEL::WdfExecutionLevelPassive;
        let mut device = ptr::null_mut();
        // SAFETY: the structure was just allocated; if it becomes the device the framework clears the pointer. The others live
        // until the call returns.
        check(unsafe {
            call_unsafe_wdf_function_binding!(WdfDeviceCreate, &raw mut init.0, &raw mut attributes, &raw mut device)
        })?;
        let mut this = Self { link: None, device };
        // SAFETY: the device is live and was created with a context of this kind.
        unsafe { kind.put(device.cast(), context) };

        this.link = Some(SymbolicLink::try_new(names.link, names.device)?);
        this.create_queue(serve)?;
        // SAFETY: the device is live and complete.
        unsafe { call_unsafe_wdf_function_binding!(WdfControlFinishInitializing, device) };
        Ok(this)
    }

    fn create_queue(&self, serve: PFN_WDF_IO_QUEUE_IO_DEVICE_CONTROL) -> Result<(), NtStatus> {
        let mut config = WDF_IO_QUEUE_CONFIG {
            Size: size::<WDF_IO_QUEUE_CONFIG>(),
            DispatchType: _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchParallel,
            DefaultQueue: 1,
            EvtIoDeviceControl: serve,
            ..WDF_IO_QUEUE_CONFIG::default()
        };
        // `WDF_IO_QUEUE_CONFIG_INIT`: as many requests at a time as there are.
        config.Settings.Parallel.NumberOfPresentedRequests = ULONG::MAX;
        let (queue_attributes, queue) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the device is live (invariant), and the configuration lives until the call returns; the framework's default
        // attributes are right, and nobody wants the handle.
        check(unsafe {
            call_unsafe_wdf_function_binding!(WdfIoQueueCreate, self.device, &raw mut config, queue_attributes, queue)
        })
    }
}

impl Drop for ControlDevice {
    fn drop(&mut self) {
        drop(self.link.take());
        // SAFETY: the device is live and ours (invariant), and not used again.
        unsafe { call_unsafe_wdf_function_binding!(WdfObjectDelete, self.device.cast()) };
    }
}

/// The framework's structure for a device that is to be made. Freed when dropped, unless the device was made.
struct Init(PWDFDEVICE_INIT);

impl Init {
    fn prepare(&mut self, names: &Names<'_>) -> Result<(), NtStatus> {
        let name = unicode(names.device);
        // SAFETY: the structure was just allocated, and the name lives until the call returns.
        check(unsafe { call_unsafe_wdf_function_binding!(WdfDeviceInitAssignName, self.0, &raw const name) })?;
        // SAFETY: the structure was just allocated.
        unsafe { describe_device(self.0) };
        Ok(())
    }
}

impl Init {
    fn prepare_files(&mut self, mut files: Files) {
        files.config.Size = size::<WDF_FILEOBJECT_CONFIG>();
        files.config.FileObjectClass = _WDF_FILEOBJECT_CLASS::WdfFileObjectWdfCannotUseFsContexts;
        files.config.AutoForwardCleanupClose = _WDF_TRI_STATE::WdfUseDefault;
        let (config, attributes) = (&raw mut files.config, &raw mut files.files);
        // SAFETY: the structure was just allocated, and the others live until the call returns.
        unsafe { call_unsafe_wdf_function_binding!(WdfDeviceInitSetFileObjectConfig, self.0, config, attributes) };
        let attributes = &raw mut files.requests;
        // SAFETY: no device is made of the structure yet, and the attributes live until the call returns.
        unsafe { call_unsafe_wdf_function_binding!(WdfDeviceInitSetRequestAttributes, self.0, attributes) };
    }
}

impl Drop for Init {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: no device was made of the structure, and it is not used again.
            unsafe { call_unsafe_wdf_function_binding!(WdfDeviceInitFree, self.0) };
        }
    }
}
