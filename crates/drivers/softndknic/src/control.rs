//! The control device: what `ndkctl` asks and sets (`control::provider_device`), as of `softndk`.
//!
//! The framework's control devices are not for miniports, so it is one of NDIS. It is there from the first adapter to the last, and
//! as long as a program has it open: a driver with a device is not unloaded, and NDIS does not say what becomes of files on a device
//! that is deregistered.

use core::ptr;

use control::provider_device::{NIC_DEVICE_NAME, NIC_LINK_NAME, SDDL};
use kernel::{
    Buffered,
    irp::{Asked, dispatch},
    terminated, unicode, wide, wide_terminated,
};
use ndis::{
    DEVICE_OBJECT, DRIVER_DISPATCH, IRP, NDIS_DEVICE_OBJECT_ATTRIBUTES, NDIS_STATUS, NdisDeregisterDeviceEx,
    NdisRegisterDeviceEx,
};
use ndkpi::{NDIS_HANDLE, NtStatus};
use wdk_sys::{IRP_MJ_CLEANUP, IRP_MJ_CLOSE, IRP_MJ_CREATE, IRP_MJ_DEVICE_CONTROL, IRP_MJ_MAXIMUM_FUNCTION};

use crate::driver::{self, Driver};

/// The control device, and how many adapters and files want it.
#[derive(Default)]
pub struct Control {
    device: Option<Device>,
    users: u32,
}

impl Control {
    /// One more adapter wants the device. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// What NDIS says when it makes the device.
    ///
    /// # Safety
    ///
    /// `driver` is the handle of the driver's registration.
    pub unsafe fn acquire(&mut self, driver: NDIS_HANDLE) -> Result<(), NtStatus> {
        if self.device.is_none() {
            // SAFETY: `driver` is the handle of the driver's registration (`# Safety`).
            self.device = Some(unsafe { Device::try_new(driver) }?);
        }
        self.users += 1;
        Ok(())
    }

    /// A file is opened.
    fn open(&mut self) -> Result<(), NtStatus> {
        if self.device.is_none() {
            // The last adapter has gone meanwhile.
            return Err(NtStatus::DEVICE_REMOVED);
        }
        self.users += 1;
        Ok(())
    }

    /// One adapter or file less wants it. `PASSIVE_LEVEL`.
    pub fn release(&mut self) {
        self.users = self.users.saturating_sub(1);
        if self.users == 0 {
            self.device = None;
        }
    }
}

/// A device of NDIS. Deregistered when dropped.
///
/// # Invariants
///
/// `handle` is that of a device that nobody else deregisters.
struct Device {
    handle: NDIS_HANDLE,
}

// SAFETY: NDIS's handle may be used on any thread.
unsafe impl Send for Device {}

impl Device {
    /// # Safety
    ///
    /// `driver` is the handle of the driver's registration.
    unsafe fn try_new(driver: NDIS_HANDLE) -> Result<Self, NtStatus> {
        const DEVICE: [u16; NIC_DEVICE_NAME.len() + 1] = wide_terminated(NIC_DEVICE_NAME);
        const LINK: [u16; NIC_LINK_NAME.len() + 1] = wide_terminated(NIC_LINK_NAME);
        const ACCESS: [u16; SDDL.len()] = wide(SDDL);
        let mut functions = [None::<DRIVER_DISPATCH>; IRP_MJ_MAXIMUM_FUNCTION as usize + 1];
        for major in [IRP_MJ_CREATE, IRP_MJ_CLEANUP, IRP_MJ_CLOSE, IRP_MJ_DEVICE_CONTROL] {
            functions[major as usize] = Some(serve);
        }
        let (name, link, access) = (terminated(&DEVICE), terminated(&LINK), unicode(&ACCESS));
        let attributes = NDIS_DEVICE_OBJECT_ATTRIBUTES {
            Header: NDIS_DEVICE_OBJECT_ATTRIBUTES::HEADER,
            DeviceName: (&raw const name).cast(),
            SymbolicName: (&raw const link).cast(),
            MajorFunctions: functions.as_mut_ptr(),
            ExtensionSize: 0,
            DefaultSDDLString: (&raw const access).cast(),
            DeviceClassGuid: ptr::null(),
        };
        let (mut object, mut handle) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the handle is that of the registration (`# Safety`). The strings and the table live until the call
        // returns, and NDIS keeps copies.
        let status = unsafe { NdisRegisterDeviceEx(driver, &raw const attributes, &raw mut object, &raw mut handle) };
        if status == NDIS_STATUS::SUCCESS { Ok(Self { handle }) } else { Err(status) }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: the device is ours (invariant), and the handle is not used again.
        unsafe { NdisDeregisterDeviceEx(self.handle) };
    }
}

/// The dispatch routine of the device. `PASSIVE_LEVEL`: programs call it.
unsafe extern "system" fn serve(_device: *mut DEVICE_OBJECT, irp: *mut IRP) -> NtStatus {
    // SAFETY: the driver is not unloaded while it has a device.
    let driver = unsafe { driver::current() };
    // SAFETY: the I/O manager's own IRP, which is completed here.
    NtStatus(unsafe { dispatch(irp.cast(), |asked| answer(driver.as_deref(), asked)) })
}

fn answer(driver: Option<&Driver>, asked: Asked<'_>) {
    match (asked, driver) {
        (Asked::Open(irp), Some(driver)) => {
            let opened = driver.control().with(Control::open);
            irp.complete(opened.err().unwrap_or(NtStatus::SUCCESS), 0);
        }
        (Asked::Close(irp), Some(driver)) => {
            // First, because the device may go with it.
            irp.complete(NtStatus::SUCCESS, 0);
            driver.control().with(Control::release);
        }
        (Asked::Control(code, request), Some(driver)) => {
            let adapters = driver.adapters();
            let wired = adapters.iter().flatten().filter_map(|adapter| Some((adapter.tunnel()?, adapter)));
            let wires = wired.map(|(tunnel, adapter)| move || tunnel.shown(adapter));
            let consumers = adapters.iter().flatten().map(|adapter| adapter.consumers());
            driver.controls().serve(consumers, wires, request, code);
        }
        (Asked::Cleanup(irp), _) => irp.complete(NtStatus::SUCCESS, 0),
        (Asked::Control(_, request), None) => request.finish(Err(NtStatus::DEVICE_NOT_READY)),
        (Asked::Open(irp) | Asked::Close(irp), None) => irp.complete(NtStatus::DEVICE_NOT_READY, 0),
        (Asked::Other(irp), _) => irp.complete(NtStatus::INVALID_DEVICE_REQUEST, 0),
    }
}
