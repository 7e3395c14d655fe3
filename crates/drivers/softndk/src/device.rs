//! One adapter: a root-enumerated device without hardware.
//!
//! | plug and play | the adapter |
//! |---|---|
//! | device add | made; its interface is registered; the control device is made with the first one |
//! | started | consumers can open it |
//! | sleeps | no new opens; every connection ends, and both its sides are told; everything else stays |
//! | wakes | opens and connections as before |
//! | query remove | refused while a kernel consumer has it open; programs do not hold it up |
//! | surprise removal | no new opens; every connection ends, and both its sides are told; consumers hear of the removal from plug and play, and close |
//! | removed | no new opens; waits until every `NDK_ADAPTER` is closed |
//! | device deleted | nothing is left; the control device goes with the last one |

use core::{ffi::c_void, ptr};

use driver_common::{
    consumers::Consumers,
    numbers::{Number, Numbers},
    os::Kernel,
    settings, trace,
};
use fallible::Arc;
use kernel::{
    check, context,
    wdf::{attributes, create_device},
};
use ndkpi::{GUID as NdkGuid, NtStatus};
use wdk_sys::{
    _WDF_DEVICE_FAILED_ACTION,
    _WDF_POWER_DEVICE_STATE::{self, Type as Power},
    GUID, NTSTATUS, PWDFDEVICE_INIT, STATUS_DEVICE_BUSY, STATUS_SUCCESS, WDF_PNPPOWER_EVENT_CALLBACKS, WDFDEVICE,
    WDFDRIVER, WDFOBJECT, call_unsafe_wdf_function_binding,
};

use crate::{
    control,
    driver::{self, Driver},
    interface,
    nd::{self, NdAdapter},
};

/// An adapter.
pub struct Adapter {
    driver: Arc<Driver>,
    number: Number,
    consumers: Consumers,
    /// The adapter's NetworkDirect device.
    nd: Arc<NdAdapter>,
}

context!(Adapter, c"softndk adapter");

/// Plug and play has found one more adapter.
///
/// # Safety
///
/// Only the framework calls this.
pub unsafe extern "C" fn add(driver: WDFDRIVER, init: PWDFDEVICE_INIT) -> NTSTATUS {
    // SAFETY: the framework's own arguments.
    NtStatus::from(unsafe { try_add(driver, init) }).0
}

/// # Safety
///
/// As for [`add`].
unsafe fn try_add(driver: WDFDRIVER, init: PWDFDEVICE_INIT) -> Result<(), NtStatus> {
    // SAFETY: the framework's own argument.
    let driver = unsafe { driver::of(driver) }.ok_or(NtStatus::INTERNAL_ERROR)?;
    let adapter = Adapter::try_new(driver)?;

    let callbacks = WDF_PNPPOWER_EVENT_CALLBACKS {
        EvtDeviceD0Entry: Some(wakes),
        EvtDeviceD0Exit: Some(sleeps),
        EvtDeviceSelfManagedIoInit: Some(started),
        EvtDeviceSelfManagedIoCleanup: Some(removed),
        EvtDeviceSurpriseRemoval: Some(surprise_removed),
        EvtDeviceQueryRemove: Some(query_remove),
        ..WDF_PNPPOWER_EVENT_CALLBACKS::default()
    };
    let mut attributes = attributes();
    CONTEXT.describe(&mut attributes);
    attributes.EvtCleanupCallback = Some(cleanup);
    // SAFETY: the framework's own argument.
    let device = unsafe { create_device(init, callbacks, attributes) }?;
    // From here on the framework deletes the device if this routine fails, and `cleanup` undoes the rest.
    // SAFETY: the device is live and was created with a context of this kind.
    unsafe { CONTEXT.put(device.cast(), adapter.clone()) };
    // SAFETY: the device is not deleted before `cleanup` has waited for who has the adapter open.
    unsafe { adapter.consumers.presence().is(device.cast()) };

    // SAFETY: the device is live and carries the adapter.
    unsafe { interface::register(device, &adapter) }?;
    let class: GUID = guid(::control::DEVICE_INTERFACE);
    // SAFETY: the device is live, the identifier lives until the call returns, and there is no reference string.
    check(unsafe {
        call_unsafe_wdf_function_binding!(WdfDeviceCreateDeviceInterface, device, &raw const class, ptr::null())
    })?;
    adapter.driver.add(&adapter);
    control::acquire(&adapter.driver).inspect_err(|_| {
        adapter.driver.remove(&adapter);
    })
}

/// The system's structure for an identifier.
pub(crate) const fn guid(guid: NdkGuid) -> GUID {
    GUID { Data1: guid.Data1, Data2: guid.Data2, Data3: guid.Data3, Data4: guid.Data4 }
}

/// The adapter of a device.
///
/// # Safety
///
/// `device` is a live device that [`add`] made.
unsafe fn of(device: WDFDEVICE) -> Option<Arc<Adapter>> {
    // SAFETY: `add` made the device (`# Safety`), with a context of this kind.
    unsafe { CONTEXT.get(device.cast()) }
}

unsafe extern "C" fn started(device: WDFDEVICE) -> NTSTATUS {
    // SAFETY: the framework's own argument.
    if let Some(adapter) = unsafe { of(device) } {
        adapter.consumers.set_ready(true);
    }
    STATUS_SUCCESS
}

/// The device leaves D0. When it is about to be removed, or stopped for a moment, there are other callbacks, or nothing to end.
unsafe extern "C" fn sleeps(device: WDFDEVICE, to: Power) -> NTSTATUS {
    // SAFETY: the framework's own argument.
    let adapter = unsafe { of(device) };
    if let Some(adapter) = adapter.filter(|_| to != _WDF_POWER_DEVICE_STATE::WdfPowerDeviceD3Final) {
        adapter.consumers.set_ready(false);
        trace::power(adapter.number().get(), false);
        adapter.provider().port().suspend();
    }
    STATUS_SUCCESS
}

unsafe extern "C" fn wakes(device: WDFDEVICE, from: Power) -> NTSTATUS {
    // SAFETY: the framework's own argument.
    let adapter = unsafe { of(device) };
    if let Some(adapter) = adapter.filter(|_| from != _WDF_POWER_DEVICE_STATE::WdfPowerDeviceD3Final) {
        adapter.provider().port().resume();
        trace::power(adapter.number().get(), true);
        adapter.consumers.set_ready(true);
    }
    STATUS_SUCCESS
}

unsafe extern "C" fn query_remove(device: WDFDEVICE) -> NTSTATUS {
    // SAFETY: the framework's own argument.
    let busy = unsafe { of(device) }.is_some_and(|adapter| adapter.consumers.open_count() != 0);
    // Consumers that want to let go have been asked before the driver is.
    if busy { STATUS_DEVICE_BUSY } else { STATUS_SUCCESS }
}

unsafe extern "C" fn surprise_removed(device: WDFDEVICE) {
    // SAFETY: the framework's own argument.
    if let Some(adapter) = unsafe { of(device) } {
        adapter.consumers.set_ready(false);
        adapter.nd.remove();
        trace::gone(adapter.number().get(), adapter.consumers.open_count());
        // Consumers have disconnect events and flushed queue pairs before plug and play tells them to close.
        adapter.provider().port().abort();
    }
}

/// Has the system remove the device as one that was pulled: a surprise removal follows.
///
/// # Safety
///
/// `device` is a live device that [`add`] made.
unsafe fn fail(device: *mut c_void) {
    let device: WDFDEVICE = device.cast();
    let action = _WDF_DEVICE_FAILED_ACTION::WdfDeviceFailedNoRestart;
    // SAFETY: the device is live (`# Safety`). `IRQL <= DISPATCH_LEVEL`.
    unsafe { call_unsafe_wdf_function_binding!(WdfDeviceSetFailed, device, action) };
}

/// Self-managed I/O is cleaned up, not flushed: after a surprise removal the framework flushes before the system has told
/// consumers, and a consumer that closes when it is told would be waited for in vain.
unsafe extern "C" fn removed(device: WDFDEVICE) {
    // SAFETY: the framework's own argument.
    if let Some(adapter) = unsafe { of(device) } {
        // Programs are told by their requests, and not waited for.
        adapter.nd.remove();
        adapter.consumers.shut();
    }
}

unsafe extern "C" fn cleanup(object: WDFOBJECT) {
    // SAFETY: the framework calls this for a device that was created with a context of this kind.
    let Some(adapter) = (unsafe { of(object.cast()) }) else { return };
    adapter.nd.remove();
    adapter.consumers.shut();
    if adapter.driver.remove(&adapter) {
        control::release(&adapter.driver);
    }
}

impl Adapter {
    fn try_new(driver: Arc<Driver>) -> Result<Arc<Self>, NtStatus> {
        let number = Numbers::take(driver.numbers())?;
        let mut config = driver.controls().settings().provider_config();
        config.addresses = driver.parameters().map_or_else(
            |_| provider::Config::addresses_of(number.get()),
            |key| settings::addresses(&key, number.get()),
        );
        let provider = provider::Device::try_new_on(&Kernel, driver.fabric(), config)?;
        let nd = nd::adapter(&driver, &provider, number.get())?;
        let consumers = Consumers::try_new(provider, driver.controls(), fail)?;
        Arc::try_new(Self { driver, number, consumers, nd }).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)
    }

    /// The adapter's number.
    pub const fn number(&self) -> &Number {
        &self.number
    }

    /// The consumers that have it open.
    pub const fn consumers(&self) -> &Consumers {
        &self.consumers
    }

    /// The adapter's NetworkDirect device.
    pub const fn nd(&self) -> &Arc<NdAdapter> {
        &self.nd
    }

    /// The adapter behind it.
    pub const fn provider(&self) -> &Arc<provider::Device<Kernel>> {
        self.consumers.provider()
    }
}
