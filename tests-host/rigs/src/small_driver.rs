//! What small KMDF drivers of tests have in common.

use std::ptr;

use wdk_sys::{
    _WDF_EXECUTION_LEVEL, _WDF_IO_TARGET_OPEN_TYPE, _WDF_SYNCHRONIZATION_SCOPE, NTSTATUS, PCUNICODE_STRING,
    PDRIVER_OBJECT, PWDFDEVICE_INIT, UNICODE_STRING, WDF_DRIVER_CONFIG, WDF_IO_TARGET_OPEN_PARAMS,
    WDF_OBJECT_ATTRIBUTES, WDFDEVICE, WDFDRIVER, WDFIOTARGET, call_unsafe_wdf_function_binding,
};

pub fn size<T>() -> u32 {
    u32::try_from(size_of::<T>()).expect("a small structure")
}

pub fn attributes() -> WDF_OBJECT_ATTRIBUTES {
    WDF_OBJECT_ATTRIBUTES {
        Size: size::<WDF_OBJECT_ATTRIBUTES>(),
        ExecutionLevel: _WDF_EXECUTION_LEVEL::WdfExecutionLevelInheritFromParent,
        SynchronizationScope: _WDF_SYNCHRONIZATION_SCOPE::WdfSynchronizationScopeInheritFromParent,
        ..WDF_OBJECT_ATTRIBUTES::default()
    }
}

/// `DriverEntry` of both drivers: they differ in what they do with a device.
pub fn create_driver(
    driver: PDRIVER_OBJECT,
    path: PCUNICODE_STRING,
    add: unsafe extern "C" fn(WDFDRIVER, PWDFDEVICE_INIT) -> NTSTATUS,
) -> NTSTATUS {
    let mut config = WDF_DRIVER_CONFIG {
        Size: size::<WDF_DRIVER_CONFIG>(),
        EvtDriverDeviceAdd: Some(add),
        ..WDF_DRIVER_CONFIG::default()
    };
    // SAFETY: the arguments of `DriverEntry`, and structures that live until the call returns.
    unsafe {
        call_unsafe_wdf_function_binding!(
            WdfDriverCreate,
            driver,
            path,
            ptr::null_mut(),
            &raw mut config,
            ptr::null_mut()
        )
    }
}

pub fn create_device(mut init: PWDFDEVICE_INIT, mut attributes: WDF_OBJECT_ATTRIBUTES) -> WDFDEVICE {
    let mut device = ptr::null_mut();
    // SAFETY: the framework's structure, and structures that live until the call returns.
    let made = unsafe {
        call_unsafe_wdf_function_binding!(WdfDeviceCreate, &raw mut init, &raw mut attributes, &raw mut device)
    };
    assert_eq!(made, 0);
    device
}

/// Opens another driver's device, and hears when that is asked to go and when it is gone.
pub fn open_target(
    device: WDFDEVICE,
    link: &str,
    asked: unsafe extern "C" fn(WDFIOTARGET) -> NTSTATUS,
    gone: unsafe extern "C" fn(WDFIOTARGET),
) -> Result<WDFIOTARGET, NTSTATUS> {
    let mut attributes = attributes();
    let mut target = ptr::null_mut();
    // SAFETY: the device is live, and the structures live until the call returns.
    let made =
        unsafe { call_unsafe_wdf_function_binding!(WdfIoTargetCreate, device, &raw mut attributes, &raw mut target) };
    assert_eq!(made, 0);
    let name: Vec<u16> = link.encode_utf16().collect();
    let bytes = u16::try_from(size_of_val(&name[..])).expect("a short string");
    let mut parameters = WDF_IO_TARGET_OPEN_PARAMS {
        Size: size::<WDF_IO_TARGET_OPEN_PARAMS>(),
        Type: _WDF_IO_TARGET_OPEN_TYPE::WdfIoTargetOpenByName,
        EvtIoTargetQueryRemove: Some(asked),
        EvtIoTargetRemoveComplete: Some(gone),
        TargetDeviceName: UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: name.as_ptr().cast_mut() },
        ..WDF_IO_TARGET_OPEN_PARAMS::default()
    };
    // SAFETY: the target is live, and the parameters and the name live until the call returns.
    let opened = unsafe { call_unsafe_wdf_function_binding!(WdfIoTargetOpen, target, &raw mut parameters) };
    if opened < 0 { Err(opened) } else { Ok(target) }
}
