//! Versions of the provider's interface: what a consumer asks for, and what it gets.

use std::{
    ffi::c_void,
    sync::atomic::{AtomicI32, Ordering::SeqCst},
};

use control::{
    DEVICE_INTERFACE, GUID_SOFTNDK, SOFTNDK_INTERFACE, SOFTNDK_INTERFACE_VERSION, interface::SOFTNDK_INTERFACE_SIZE,
    test_device::Kind,
};
use ndkpi::{NDIS_HANDLE, NDIS_OPEN_NDK_ADAPTER_PARAMETERS, NDK_ADAPTER, NtStatus};
use simulated_kernel::{DuringRun, Kernel};
use wdk_sys::{
    GUID, NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT, PWDFDEVICE_INIT, STATUS_INVALID_BUFFER_SIZE,
    STATUS_NOT_SUPPORTED, WDF_QUERY_INTERFACE_CONFIG, WDFDRIVER, call_unsafe_wdf_function_binding,
};

use crate::{
    small_driver::{attributes, create_device, create_driver, size},
    world::{Consumer, Provider, consumer_control, start},
};

fn guid(guid: ndkpi::GUID) -> GUID {
    GUID { Data1: guid.Data1, Data2: guid.Data2, Data3: guid.Data3, Data4: guid.Data4 }
}

#[test]
fn who_asks_for_a_later_version_gets_this_one_and_can_see_it() {
    let kernel = Kernel::threads().start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    let query = |size, version| {
        let mut interface = SOFTNDK_INTERFACE { Version: 77, ..SOFTNDK_INTERFACE::EMPTY };
        let place = (&raw mut interface).cast();
        // SAFETY: the place has the size that is said, or more.
        let answer = unsafe { provider.device.query_interface(&guid(GUID_SOFTNDK), place, size, version) };
        if let Some(dereference) = interface.InterfaceDereference {
            // SAFETY: the interface's own routine and context, for the user that the query has counted.
            unsafe { dereference(interface.Context) };
        }
        (answer, interface.Version)
    };
    for asked in [SOFTNDK_INTERFACE_VERSION, SOFTNDK_INTERFACE_VERSION + 1, u16::MAX] {
        assert_eq!(query(SOFTNDK_INTERFACE_SIZE, asked), (Ok(()), SOFTNDK_INTERFACE_VERSION), "version {asked}");
    }
    let refused = (Err(STATUS_INVALID_BUFFER_SIZE), 77);
    assert_eq!(query(SOFTNDK_INTERFACE_SIZE, SOFTNDK_INTERFACE_VERSION - 1), refused, "an earlier version");
    assert_eq!(query(SOFTNDK_INTERFACE_SIZE - 1, SOFTNDK_INTERFACE_VERSION), refused, "too little room");
    provider.unload();
}

/// Users of the interface of an earlier version.
static USERS: DuringRun<AtomicI32> = DuringRun::new(AtomicI32::new(0));

unsafe extern "C" fn come(_: *mut c_void) {
    USERS.fetch_add(1, SeqCst);
}

unsafe extern "C" fn leave(_: *mut c_void) {
    USERS.fetch_sub(1, SeqCst);
}

unsafe extern "system" fn open(
    _: NDIS_HANDLE,
    _: *const NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
    _: *mut *mut NDK_ADAPTER,
) -> NtStatus {
    panic!("a function of an interface whose version the consumer does not know");
}

unsafe extern "system" fn close(_: NDIS_HANDLE, _: *mut NDK_ADAPTER) {
    panic!("a function of an interface whose version the consumer does not know");
}

unsafe extern "system" fn entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    create_driver(driver, path, add)
}

/// A device as the provider's, with the version before the first.
unsafe extern "C" fn add(_: WDFDRIVER, init: PWDFDEVICE_INIT) -> NTSTATUS {
    let device = create_device(init, attributes());
    let mut interface = SOFTNDK_INTERFACE {
        Version: SOFTNDK_INTERFACE_VERSION - 1,
        InterfaceReference: Some(come),
        InterfaceDereference: Some(leave),
        OpenNdkAdapter: Some(open),
        CloseNdkAdapter: Some(close),
        ..SOFTNDK_INTERFACE::EMPTY
    };
    let kind = guid(GUID_SOFTNDK);
    let mut config = WDF_QUERY_INTERFACE_CONFIG {
        Size: size::<WDF_QUERY_INTERFACE_CONFIG>(),
        Interface: (&raw mut interface).cast(),
        InterfaceType: &raw const kind,
        ..WDF_QUERY_INTERFACE_CONFIG::default()
    };
    // SAFETY: the device is live; the framework copies the interface and the identifier.
    let status = unsafe { call_unsafe_wdf_function_binding!(WdfDeviceAddQueryInterface, device, &raw mut config) };
    assert_eq!(status, 0);
    let class = guid(DEVICE_INTERFACE);
    // SAFETY: the device is live, the identifier lives until the call returns, and there is no reference string.
    unsafe {
        call_unsafe_wdf_function_binding!(WdfDeviceCreateDeviceInterface, device, &raw const class, std::ptr::null())
    }
}

#[test]
fn the_consumer_refuses_an_earlier_version_than_it_has_asked_for() {
    let kernel = Kernel::threads().start();
    let driver = kernel.load("earlier", entry).expect("it loads");
    let device = driver.add_device().expect("it has a device");
    let consumer = Consumer::load(&kernel).expect("the consumer loads");
    let file = consumer_control(&kernel);
    assert_eq!(start(&file, Kind::Conformance, 1).status, STATUS_NOT_SUPPORTED);
    assert_eq!(USERS.load(SeqCst), 0, "the interface was given back");
    drop(file);
    consumer.unload();
    assert!(device.remove().is_ok());
    driver.unload();
}
