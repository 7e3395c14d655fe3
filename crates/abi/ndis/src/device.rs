//! Control devices of a miniport driver, and work items.

use core::ffi::c_void;

use ndkpi::{GUID, NDIS_HANDLE, NDIS_OBJECT_HEADER};

use crate::{DEVICE_OBJECT, IRP, NDIS_STATUS, NDIS_STRING, header, layout};

/// The type of [`NDIS_DEVICE_OBJECT_ATTRIBUTES`].
pub const NDIS_OBJECT_TYPE_DEVICE_OBJECT_ATTRIBUTES: u8 = 0x85;
/// The only revision of [`NDIS_DEVICE_OBJECT_ATTRIBUTES`].
pub const NDIS_DEVICE_OBJECT_ATTRIBUTES_REVISION_1: u8 = 1;
/// The bytes of [`NDIS_DEVICE_OBJECT_ATTRIBUTES`].
pub const NDIS_SIZEOF_DEVICE_OBJECT_ATTRIBUTES_REVISION_1: u16 = 0x38;

/// Answers an I/O request packet.
pub type DRIVER_DISPATCH =
    unsafe extern "system" fn(DeviceObject: *mut DEVICE_OBJECT, Irp: *mut IRP) -> ndkpi::NtStatus;

/// A control device.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_DEVICE_OBJECT_ATTRIBUTES {
    /// See [`Self::HEADER`].
    pub Header: NDIS_OBJECT_HEADER,
    /// Its name.
    pub DeviceName: *const NDIS_STRING,
    /// Its name for programs.
    pub SymbolicName: *const NDIS_STRING,
    /// The table of `IRP_MJ_MAXIMUM_FUNCTION + 1` functions; null for what the device does not answer.
    pub MajorFunctions: *mut Option<DRIVER_DISPATCH>,
    /// Bytes of the device's extension.
    pub ExtensionSize: u32,
    /// Who may open it, in the language of security descriptors.
    pub DefaultSDDLString: *const NDIS_STRING,
    /// The class of the device; may be null.
    pub DeviceClassGuid: *const GUID,
}

layout!(NDIS_DEVICE_OBJECT_ATTRIBUTES: size 0x38, align 8, {
    Header @ 0x00,
    DeviceName @ 0x08,
    SymbolicName @ 0x10,
    MajorFunctions @ 0x18,
    ExtensionSize @ 0x20,
    DefaultSDDLString @ 0x28,
    DeviceClassGuid @ 0x30,
});

header!(NDIS_DEVICE_OBJECT_ATTRIBUTES:
    NDIS_OBJECT_TYPE_DEVICE_OBJECT_ATTRIBUTES,
    NDIS_DEVICE_OBJECT_ATTRIBUTES_REVISION_1,
    NDIS_SIZEOF_DEVICE_OBJECT_ATTRIBUTES_REVISION_1);

/// Runs in a system thread. IRQL: `PASSIVE_LEVEL`.
pub type NDIS_IO_WORKITEM_FUNCTION =
    unsafe extern "system" fn(WorkItemContext: *mut c_void, NdisIoWorkItemHandle: NDIS_HANDLE);

#[cfg_attr(windows, link(name = "ndis.sys", kind = "raw-dylib", modifiers = "+verbatim"))]
unsafe extern "system" {
    /// Makes a control device. IRQL: `PASSIVE_LEVEL`.
    pub fn NdisRegisterDeviceEx(
        NdisHandle: NDIS_HANDLE,
        DeviceObjectAttributes: *const NDIS_DEVICE_OBJECT_ATTRIBUTES,
        pDeviceObject: *mut *mut DEVICE_OBJECT,
        NdisDeviceHandle: *mut NDIS_HANDLE,
    ) -> NDIS_STATUS;

    /// Deletes it. IRQL: `PASSIVE_LEVEL`.
    pub fn NdisDeregisterDeviceEx(NdisDeviceHandle: NDIS_HANDLE);

    /// Makes a work item; null if there is no memory. IRQL <= `DISPATCH_LEVEL`.
    pub fn NdisAllocateIoWorkItem(NdisObjectHandle: NDIS_HANDLE) -> NDIS_HANDLE;

    /// Queues a work item that is not queued. IRQL <= `DISPATCH_LEVEL`.
    pub fn NdisQueueIoWorkItem(
        NdisIoWorkItemHandle: NDIS_HANDLE,
        Routine: Option<NDIS_IO_WORKITEM_FUNCTION>,
        WorkItemContext: *mut c_void,
    );

    /// Frees a work item that is not queued. IRQL <= `DISPATCH_LEVEL`.
    pub fn NdisFreeIoWorkItem(NdisIoWorkItemHandle: NDIS_HANDLE);
}
