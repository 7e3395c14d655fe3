//! Devices whose drivers are to hear that the system shuts down, which it does not here.

use wdk_bindings::{NTSTATUS, PDEVICE_OBJECT, STATUS_SUCCESS, ULONG};

use crate::routine::routine;

/// `DO_SHUTDOWN_REGISTERED`.
const REGISTERED: ULONG = 0x800;

#[unsafe(no_mangle)]
extern "C" fn IoRegisterShutdownNotification(device: PDEVICE_OBJECT) -> NTSTATUS {
    routine!("IoRegisterShutdownNotification", PASSIVE_LEVEL, |state| {
        // SAFETY: a device object that lives.
        unsafe { (*state.device_at(device).pointer()).Flags |= REGISTERED };
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn IoUnregisterShutdownNotification(device: PDEVICE_OBJECT) {
    routine!("IoUnregisterShutdownNotification", PASSIVE_LEVEL, |state| {
        // SAFETY: a device object that lives.
        unsafe { (*state.device_at(device).pointer()).Flags &= !REGISTERED };
    });
}
