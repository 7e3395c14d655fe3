//! Waits for the provider's device interfaces to come and go: one for each adapter.

use alloc::{boxed::Box, vec::Vec};
use core::ptr;

use fallible::{Arc, try_slice};
use kernel::{WaitLock, check};
use ndkpi::NtStatus;
use wdk_sys::{
    _IO_NOTIFICATION_EVENT_CATEGORY, DEVICE_INTERFACE_CHANGE_NOTIFICATION, GUID, NTSTATUS,
    PNPNOTIFY_DEVICE_INTERFACE_INCLUDE_EXISTING_INTERFACES, PVOID, STATUS_SUCCESS, WDFDRIVER,
    call_unsafe_wdf_function_binding,
    ntddk::{IoRegisterPlugPlayNotification, IoUnregisterPlugPlayNotificationEx},
};

/// `GUID_DEVICE_INTERFACE_ARRIVAL`, the event that a device interface has come.
const ARRIVAL: u32 = 0xCB3A_4004;
/// `GUID_DEVICE_INTERFACE_REMOVAL`, the event that it goes. The rest of both identifiers is the same.
const REMOVAL: u32 = 0xCB3A_4005;

/// A symbolic link to a device.
pub type Link = Box<[u16]>;

/// Where the provider's adapters are, if there are any.
pub struct Finder {
    found: Arc<Found>,
    registration: WaitLock<Registration>,
}

/// The adapters that came and have not gone, in the order in which they came.
struct Found(WaitLock<Vec<Link>>);

/// Plug and play's own structure, or null.
struct Registration(PVOID);

// SAFETY: plug and play's pointer is only handed back to it.
unsafe impl Send for Registration {}

impl Finder {
    /// Does not look yet.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new() -> Result<Self, NtStatus> {
        let registration = WaitLock::try_new(Registration(ptr::null_mut()))?;
        let found =
            Arc::try_new(Found(WaitLock::try_new(Vec::new())?)).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        Ok(Self { found, registration })
    }

    /// Begins to look, and finds what is there already before it returns.
    ///
    /// # Errors
    ///
    /// What plug and play says.
    ///
    /// # Safety
    ///
    /// `driver` is the driver's live object.
    pub unsafe fn start(&self, driver: WDFDRIVER) -> Result<(), NtStatus> {
        let class = control::DEVICE_INTERFACE;
        let mut class = GUID { Data1: class.Data1, Data2: class.Data2, Data3: class.Data3, Data4: class.Data4 };
        // SAFETY: the driver object is live (`# Safety`).
        let object = unsafe { call_unsafe_wdf_function_binding!(WdfDriverWdmGetDriverObject, driver) };
        let context: PVOID = Arc::as_ptr(&self.found).cast_mut().cast();
        self.registration.with(|registration| {
            if !registration.0.is_null() {
                return Ok(());
            }
            // SAFETY: plug and play copies the identifier; the context lives until `stop` has unregistered, because this
            // value lives so long; the place lives until the call returns.
            check(unsafe {
                IoRegisterPlugPlayNotification(
                    _IO_NOTIFICATION_EVENT_CATEGORY::EventCategoryDeviceInterfaceChange,
                    PNPNOTIFY_DEVICE_INTERFACE_INCLUDE_EXISTING_INTERFACES,
                    (&raw mut class).cast(),
                    object,
                    Some(changed),
                    context,
                    &raw mut registration.0,
                )
            })
        })
    }

    /// Looks no more. When this returns no notification is being delivered.
    pub fn stop(&self) {
        let registration = self
            .registration
            .with(|registration| Registration(core::mem::replace(&mut registration.0, ptr::null_mut())));
        if !registration.0.is_null() {
            // SAFETY: plug and play's own structure, which is not used again. It waits for notifications being delivered.
            let _ = unsafe { IoUnregisterPlugPlayNotificationEx(registration.0) };
        }
        drop(self.found.0.with(core::mem::take));
    }

    /// Copies of the symbolic links of all adapters, the one that came first in front.
    ///
    /// # Errors
    ///
    /// `STATUS_DEVICE_NOT_READY` if there is none; `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn links(&self) -> Result<Vec<Link>, NtStatus> {
        self.found.0.with(|links| {
            let mut copies = Vec::new();
            copies.try_reserve_exact(links.len()).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
            for link in links.iter() {
                copies.push(copy(link)?);
            }
            if copies.is_empty() { Err(NtStatus::DEVICE_NOT_READY) } else { Ok(copies) }
        })
    }
}

impl Found {
    /// An adapter has come. Without memory it is not found, as if it were not there.
    fn arrived(&self, name: &[u16]) {
        self.0.with(|links| {
            // One that came while the notification was registered may be told of twice.
            if links.iter().any(|link| **link == *name) || links.try_reserve(1).is_err() {
                return;
            }
            links.extend(copy(name));
        });
    }

    /// An adapter goes.
    fn gone(&self, name: &[u16]) {
        self.0.with(|links| links.retain(|link| **link != *name));
    }
}

fn copy(link: &[u16]) -> Result<Link, NtStatus> {
    try_slice(link.len(), |index| link[index]).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)
}

unsafe extern "C" fn changed(notification: PVOID, context: PVOID) -> NTSTATUS {
    // SAFETY: for this category plug and play passes this structure, which does not change during the call.
    let notification = unsafe { &*notification.cast::<DEVICE_INTERFACE_CHANGE_NOTIFICATION>() };
    // SAFETY: `start` registered this context, which lives until `stop` has unregistered.
    let found = unsafe { &*context.cast::<Found>() };
    // SAFETY: the structure has the name of the interface, which does not change during the call.
    let name = unsafe { &*notification.SymbolicLinkName };
    // SAFETY: the string has as many bytes, two for each unit.
    let name = unsafe { core::slice::from_raw_parts(name.Buffer.cast_const(), usize::from(name.Length) / 2) };
    match notification.Event.Data1 {
        ARRIVAL => found.arrived(name),
        REMOVAL => found.gone(name),
        _ => {}
    }
    STATUS_SUCCESS
}
