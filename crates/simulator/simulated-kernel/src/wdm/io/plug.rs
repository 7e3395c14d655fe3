//! Plug and play for drivers of plain WDM: `AddDevice`, the requests that a device gets in its life, and the device at the bottom of the
//! stack, which is the bus driver's: here the system's.

use std::sync::{
    Arc,
    atomic::{
        AtomicBool,
        Ordering::{Acquire, Relaxed},
    },
};

use host::machine::{self, Irql};
use wdk_bindings::{
    DO_DEVICE_INITIALIZING, DRIVER_ADD_DEVICE, DRIVER_OBJECT, IRP_MJ_MAXIMUM_FUNCTION, IRP_MJ_PNP, IRP_MJ_POWER,
    IRP_MN_CANCEL_REMOVE_DEVICE, IRP_MN_QUERY_REMOVE_DEVICE, IRP_MN_REMOVE_DEVICE, IRP_MN_START_DEVICE,
    IRP_MN_STOP_DEVICE, IRP_MN_SURPRISE_REMOVAL, NTSTATUS, PDEVICE_OBJECT, PDRIVER_OBJECT, PIRP, SL_PENDING_RETURNED,
    STATUS_DEVICE_BUSY, STATUS_PENDING, STATUS_SUCCESS, UCHAR,
};

use super::{
    ask,
    device::{Device, Devices, Functions},
    irp::IofCompleteRequest,
    request::{Maker, current, set_status, status_of},
};
use crate::{
    context::{self, DriverId, NOBODY},
    drivers::Driver,
    report::bug_check,
    rule::Rule,
    state::{self, Part, State},
    waiting,
    wdm::system_thread,
};

/// `IRP_MN_QUERY_STOP_DEVICE` and its answer, and what is asked after the first start. The facts do not have them.
const QUERY_STOP_DEVICE: u32 = 5;
const CANCEL_STOP_DEVICE: u32 = 6;
const QUERY_PNP_DEVICE_STATE: u32 = 0x14;

/// A device of plug and play, whose driver is one of plain WDM.
pub struct PlainDevice {
    state: Arc<State>,
    owner: DriverId,
    physical: Arc<Device>,
}

/// The next request that the bus driver of a plain WDM driver gets is completed later.
#[derive(Default)]
pub struct BusIsLate(AtomicBool);

impl Part for BusIsLate {}

/// What a driver has put into its extension.
pub fn add_device_of(object: usize) -> DRIVER_ADD_DEVICE {
    let object: PDRIVER_OBJECT = std::ptr::with_exposed_provenance_mut(object);
    // SAFETY: driver objects are never freed. Nor are their extensions.
    unsafe { (*(*object).DriverExtension).AddDevice }
}

impl Driver {
    /// Plug and play finds a device for a driver that has an `AddDevice`, and starts it.
    ///
    /// # Errors
    ///
    /// What the driver says. Then nothing of the device may be left.
    pub fn add_plain_device(&self) -> Result<PlainDevice, NTSTATUS> {
        let (state, owner) = (self.state.clone(), self.id);
        let object = state.drivers()[&owner].object;
        let Some(add) = add_device_of(object) else {
            bug_check(Rule::BadArgument, format_args!("a driver without AddDevice"));
        };
        let mut functions: Functions = [None; IRP_MJ_MAXIMUM_FUNCTION as usize + 1];
        for major in [IRP_MJ_PNP, IRP_MJ_POWER] {
            functions[major as usize] = Some(bus);
        }
        let of_bus: &'static mut DRIVER_OBJECT = Box::leak(Box::new(DRIVER_OBJECT::default()));
        let physical = state.create_physical_device(of_bus, functions);
        let status = context::call(owner, "AddDevice", || {
            // SAFETY: the driver's own routine and object, and a device that lives until it is removed.
            unsafe { add(std::ptr::with_exposed_provenance_mut(object), physical.pointer()) }
        });
        let device = PlainDevice { state, owner, physical };
        if status < 0 {
            device.gone("an AddDevice that failed");
            return Err(status);
        }
        let top = device.top();
        if top.address == device.physical.address {
            bug_check(Rule::DeviceAttached, format_args!("AddDevice succeeded and attached no device"));
        }
        if top.flags() & DO_DEVICE_INITIALIZING != 0 {
            bug_check(Rule::DeviceInitializing, format_args!("AddDevice left DO_DEVICE_INITIALIZING set"));
        }
        if let Err(status) = device.start() {
            device.remove_device();
            return Err(status);
        }
        device.state.device_started(&device.physical);
        // Nothing has to come of it, and it is asked once.
        let _ = device.ask(QUERY_PNP_DEVICE_STATE, "IRP_MN_QUERY_PNP_DEVICE_STATE");
        Ok(device)
    }
}

impl PlainDevice {
    fn top(&self) -> Arc<Device> {
        self.state.top_of(&self.physical)
    }

    fn ask(&self, minor: u32, what: &str) -> Result<(), NTSTATUS> {
        let top = self.top();
        let request = ask::request(&self.state, &top, (IRP_MJ_PNP, minor), Maker::System);
        let status = ask::send(&self.state, &top, &request, what);
        if status < 0 { Err(status) } else { Ok(()) }
    }

    /// Sends a request that a driver may not refuse.
    fn tell(&self, minor: u32, what: &str) {
        if let Err(status) = self.ask(minor, what) {
            bug_check(Rule::IrpStatus, format_args!("{what} was refused with {status:#x}"));
        }
    }

    fn start(&self) -> Result<(), NTSTATUS> {
        self.ask(IRP_MN_START_DEVICE, "IRP_MN_START_DEVICE")
    }

    /// The driver must have let go of the device.
    fn gone(self, after: &str) {
        if self.top().address != self.physical.address {
            let words = format_args!("a device is attached to the bus driver's after {after}");
            bug_check(Rule::ReferenceLeak, words);
        }
        self.state.device_gone(&self.physical);
        self.state.delete_physical_device(&self.physical);
    }

    fn remove_device(self) {
        self.tell(IRP_MN_REMOVE_DEVICE, "IRP_MN_REMOVE_DEVICE");
        self.gone("IRP_MN_REMOVE_DEVICE");
    }

    /// How many files and requests the driver's devices have.
    fn users(&self) -> u32 {
        self.state.locked::<Devices>().users_of(self.owner) + self.physical.users.load(Acquire)
    }

    /// The symbolic links of its device interfaces that are enabled.
    #[must_use]
    pub fn links(&self) -> Vec<String> {
        self.state.interfaces_of(&self.physical)
    }

    /// Removes the device, as the device manager does: asks, and gives it back if the driver says no.
    ///
    /// # Errors
    ///
    /// The device again, and what the driver has said, or `STATUS_DEVICE_BUSY` if somebody has it open.
    pub fn remove(self) -> Result<(), (Self, NTSTATUS)> {
        if self.users() > 0 {
            return Err((self, STATUS_DEVICE_BUSY));
        }
        if let Err(status) = self.ask(IRP_MN_QUERY_REMOVE_DEVICE, "IRP_MN_QUERY_REMOVE_DEVICE") {
            self.tell(IRP_MN_CANCEL_REMOVE_DEVICE, "IRP_MN_CANCEL_REMOVE_DEVICE");
            return Err((self, status));
        }
        self.remove_device();
        Ok(())
    }

    /// The device is gone, and nobody was asked. It is removed when those who have it open have closed it.
    pub fn surprise_remove(self) {
        self.tell(IRP_MN_SURPRISE_REMOVAL, "IRP_MN_SURPRISE_REMOVAL");
        let idle = || self.users() == 0;
        waiting::until(&self.state, None, "a removal, for those who have the device open", idle);
        self.remove_device();
    }

    /// Stops the device and starts it again, as a change of resources does.
    ///
    /// # Errors
    ///
    /// What the driver says: to the question, or at the start.
    pub fn stop_and_start(&self) -> Result<(), NTSTATUS> {
        if let Err(status) = self.ask(QUERY_STOP_DEVICE, "IRP_MN_QUERY_STOP_DEVICE") {
            self.tell(CANCEL_STOP_DEVICE, "IRP_MN_CANCEL_STOP_DEVICE");
            return Err(status);
        }
        self.tell(IRP_MN_STOP_DEVICE, "IRP_MN_STOP_DEVICE");
        self.start()
    }

    /// Has the system sleep, if that is not `0`, or wake up.
    ///
    /// # Errors
    ///
    /// What the driver says when it is asked.
    pub fn set_power(&self, state: u8) -> Result<(), NTSTATUS> {
        super::power::set_system_state(&self.state, &self.top(), state == 0)
    }
}

/// What the bus driver does with each request for its device: what it knows succeeds, at once or, every second time, later and at
/// `DISPATCH_LEVEL`, as a driver above has to expect. Others it leaves as they are.
unsafe extern "C" fn bus(_: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    let state = state::current();
    // SAFETY: the location of a request that is not complete.
    let location = unsafe { &mut *current(irp) };
    let known = if u32::from(location.MajorFunction) == IRP_MJ_PNP {
        u32::from(location.MinorFunction) <= CANCEL_STOP_DEVICE
            || u32::from(location.MinorFunction) == IRP_MN_SURPRISE_REMOVAL
    } else {
        true
    };
    if known {
        set_status(irp, STATUS_SUCCESS);
    }
    if !state.part::<BusIsLate>().0.fetch_xor(true, Relaxed) {
        let status = status_of(irp);
        IofCompleteRequest(irp, 0);
        return status;
    }
    location.Control |= UCHAR::try_from(SL_PENDING_RETURNED).unwrap_or(0);
    let irp = irp.expose_provenance();
    system_thread::spawn_for_work_item(&state, NOBODY, move || {
        let before = machine::raise(Irql::DISPATCH_LEVEL);
        IofCompleteRequest(std::ptr::with_exposed_provenance_mut(irp), 0);
        machine::lower(before);
    });
    STATUS_PENDING
}
