//! What a consumer gets from `IRP_MN_QUERY_INTERFACE` (the crate `control` says how it is used).

use core::{ffi::c_void, net::SocketAddr};

use control::{SOFTNDK_INTERFACE, interface::SOFTNDK_INTERFACE_SIZE};
use fallible::Arc;
use kernel::{check, wdf::size};
use ndkpi::{NDIS_HANDLE, NDIS_OPEN_NDK_ADAPTER_PARAMETERS, NDK_ADAPTER, NtStatus, SOCKADDR_INET};
use wdk_sys::{GUID, INTERFACE, WDF_QUERY_INTERFACE_CONFIG, WDFDEVICE, call_unsafe_wdf_function_binding};

use crate::device::{Adapter, guid};

/// Registers the interface with the framework, which answers queries for it.
///
/// It answers a query for a later version with this one, for the consumer to see in `Version`. A callback could not refuse: the
/// framework has copied the interface over what the consumer gave before it calls one, and does not tell the version asked for.
///
/// The interface points to the adapter without counting it: the framework asks only while the device exists, and counts
/// before it hands the interface out.
///
/// # Errors
///
/// What the framework says.
///
/// # Safety
///
/// `device` is a live device, and carries a reference to `adapter` as long as it exists.
pub unsafe fn register(device: WDFDEVICE, adapter: &Arc<Adapter>) -> Result<(), NtStatus> {
    let context: *mut c_void = Arc::as_ptr(adapter).cast_mut().cast();
    let mut interface = SOFTNDK_INTERFACE {
        Size: SOFTNDK_INTERFACE_SIZE,
        Context: context,
        InterfaceReference: Some(reference),
        InterfaceDereference: Some(dereference),
        AdapterContext: context,
        OpenNdkAdapter: Some(open),
        CloseNdkAdapter: Some(close),
        QueryNdkAddresses: Some(query_addresses),
        ..SOFTNDK_INTERFACE::EMPTY
    };
    let kind: GUID = guid(control::GUID_SOFTNDK);
    let mut config = WDF_QUERY_INTERFACE_CONFIG {
        Size: size::<WDF_QUERY_INTERFACE_CONFIG>(),
        // It begins with the system's structure, and says its own size.
        Interface: (&raw mut interface).cast::<INTERFACE>(),
        InterfaceType: &raw const kind,
        ..WDF_QUERY_INTERFACE_CONFIG::default()
    };
    // SAFETY: the device is being added; the framework copies the interface and the identifier.
    check(unsafe { call_unsafe_wdf_function_binding!(WdfDeviceAddQueryInterface, device, &raw mut config) })
}

/// # Safety
///
/// `context` is the adapter of an interface that is counted, or of a device that exists.
unsafe fn adapter(context: *mut c_void) -> Arc<Adapter> {
    // SAFETY: the interface, or the device, holds a reference to this `Arc` (`# Safety`). It is not dropped here.
    let counted = core::mem::ManuallyDrop::new(unsafe { Arc::from_raw(context.cast_const().cast::<Adapter>()) });
    (*counted).clone()
}

unsafe extern "C" fn reference(context: *mut c_void) {
    // SAFETY: the caller has the interface, or is the framework just handing it out.
    core::mem::forget(unsafe { adapter(context) });
}

unsafe extern "C" fn dereference(context: *mut c_void) {
    // SAFETY: the caller gives up a count that `reference` made.
    drop(unsafe { Arc::from_raw(context.cast_const().cast::<Adapter>()) });
}

unsafe extern "system" fn open(
    context: NDIS_HANDLE,
    parameters: *const NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
    opened: *mut *mut NDK_ADAPTER,
) -> NtStatus {
    // SAFETY: the caller has the interface.
    let adapter = unsafe { adapter(context) };
    // SAFETY: the caller's own arguments.
    unsafe { adapter.consumers().serve_open(parameters, opened) }
}

unsafe extern "system" fn close(context: NDIS_HANDLE, opened: *mut NDK_ADAPTER) {
    // SAFETY: the caller has the interface.
    let adapter = unsafe { adapter(context) };
    // SAFETY: the caller got it from `open` with this context and does not use it any more.
    unsafe { adapter.consumers().close(opened) };
}

unsafe extern "system" fn query_addresses(
    context: NDIS_HANDLE,
    addresses: *mut SOCKADDR_INET,
    count: *mut u32,
) -> NtStatus {
    if count.is_null() {
        return NtStatus::INVALID_PARAMETER;
    }
    // SAFETY: the caller has the interface.
    let adapter = unsafe { adapter(context) };
    let own = || adapter.provider().config().addresses.iter().flatten();
    let there = u32::try_from(own().count()).unwrap_or(u32::MAX);
    // SAFETY: not null, so it is the caller's number.
    let room = unsafe { count.replace(there) };
    if room < there || addresses.is_null() {
        return NtStatus::BUFFER_TOO_SMALL;
    }
    let mut place = addresses;
    for one in own() {
        let address: SOCKADDR_INET = SocketAddr::new(one.address, 0).into();
        // SAFETY: the caller has room for as many addresses as it says, which is no less than there are.
        unsafe { place.write(address) };
        // SAFETY: as above: at most one past the end of the array.
        place = unsafe { place.add(1) };
    }
    NtStatus::SUCCESS
}
