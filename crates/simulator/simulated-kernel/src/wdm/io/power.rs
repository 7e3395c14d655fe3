//! Power of drivers of plain WDM: the system's states, which the driver is told of, and the device's, which it asks for.

use std::{
    ops::RangeInclusive,
    sync::{Arc, Mutex},
};

use host::machine::{self, Irql};
use litemap::LiteMap;
use wdk_bindings::{
    _DEVICE_POWER_STATE, _POWER_STATE_TYPE, _SYSTEM_POWER_STATE, IRP_MJ_POWER, IRP_MN_QUERY_POWER, IRP_MN_SET_POWER,
    NTSTATUS, PDEVICE_OBJECT, PIO_STATUS_BLOCK, PIRP, POWER_STATE, POWER_STATE_TYPE, PVOID,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER_2, STATUS_PENDING, UCHAR, ULONG,
};

use super::{
    ask,
    device::Device,
    irp::IofCallDriver,
    request::{Maker, Request},
};
use crate::{
    context::{self, DriverId},
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State},
    wdm::system_thread,
};

/// `IRP_MN_WAIT_WAKE`, which the facts do not have.
const WAIT_WAKE: UCHAR = 0;

/// `REQUEST_POWER_COMPLETE`.
type RequestPowerComplete = unsafe extern "C" fn(PDEVICE_OBJECT, UCHAR, POWER_STATE, PVOID, PIO_STATUS_BLOCK);

/// The states in which drivers have said that their devices are, by the address of the device object.
#[derive(Default)]
pub struct PowerStates(LiteMap<usize, i32>);

impl Part for Mutex<PowerStates> {}

/// A device is deleted.
pub fn forget_device(state: &State, address: usize) {
    state.locked::<PowerStates>().0.remove(&address);
}

/// A driver that wants its device in a power state, and whom it tells of that.
struct PowerRequest {
    owner: DriverId,
    device: usize,
    minor: UCHAR,
    state: i32,
    routine: Option<RequestPowerComplete>,
    context: usize,
}

impl PowerRequest {
    /// The request is complete.
    fn tell(&self, irp: PIRP) {
        let Some(routine) = self.routine else { return };
        // SAFETY: an IRP that is not freed yet.
        let mut outcome = unsafe { (*irp).IoStatus };
        context::call(self.owner, "a routine for the end of a power request", || {
            let device = std::ptr::with_exposed_provenance_mut(self.device);
            let context = std::ptr::with_exposed_provenance_mut(self.context);
            // SAFETY: the driver's own routine, device and context, and a structure that lives until the call returns.
            unsafe { routine(device, self.minor, of(self.state), context, &raw mut outcome) };
        });
    }
}

const fn of(state: i32) -> POWER_STATE {
    POWER_STATE { DeviceState: state }
}

/// Says in a request which state it is about.
fn write(request: &Request, kind: POWER_STATE_TYPE, state: i32) {
    // SAFETY: a location of the request's own block, which nobody else has yet.
    let location = unsafe { &mut *request.next_location() };
    // SAFETY: the arm of this kind of request.
    let power = unsafe { &mut location.Parameters.Power };
    (power.Type, power.State) = (kind, of(state));
}

/// Has the system work or sleep, as far as the stack of a device is concerned.
///
/// # Errors
///
/// What a driver says when it is asked.
pub fn set_system_state(state: &Arc<State>, top: &Arc<Device>, works: bool) -> Result<(), NTSTATUS> {
    const WORKS: i32 = _SYSTEM_POWER_STATE::PowerSystemWorking;
    let wanted = if works { WORKS } else { _SYSTEM_POWER_STATE::PowerSystemSleeping3 };
    let send = |minor, system, what| {
        let request = ask::request(state, top, (IRP_MJ_POWER, minor), Maker::System);
        write(&request, _POWER_STATE_TYPE::SystemPowerState, system);
        ask::send(state, top, &request, what)
    };
    if !works {
        let answer = send(IRP_MN_QUERY_POWER, wanted, "IRP_MN_QUERY_POWER");
        if answer < 0 {
            // Those that have agreed hear that the system works on.
            set(send(IRP_MN_SET_POWER, WORKS, "IRP_MN_SET_POWER"));
            return Err(answer);
        }
    }
    set(send(IRP_MN_SET_POWER, wanted, "IRP_MN_SET_POWER"));
    Ok(())
}

/// Nobody may refuse such a change.
fn set(status: NTSTATUS) {
    if status < 0 {
        bug_check(Rule::IrpStatus, format_args!("IRP_MN_SET_POWER was refused with {status:#x}"));
    }
}

/// The states of devices, from the one that works.
const DEVICE_STATES: RangeInclusive<i32> = _DEVICE_POWER_STATE::PowerDeviceD0..=_DEVICE_POWER_STATE::PowerDeviceD3;

fn check_device_state(state: i32) {
    if !DEVICE_STATES.contains(&state) {
        bug_check(Rule::BadArgument, format_args!("there is no state {state} of a device's power"));
    }
}

#[unsafe(no_mangle)]
extern "C" fn PoCallDriver(device: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    IofCallDriver(device, irp)
}

/// Does nothing since Windows Vista: power requests are not one at a time any more.
#[unsafe(no_mangle)]
extern "C" fn PoStartNextPowerIrp(irp: PIRP) {
    routine!("PoStartNextPowerIrp", DISPATCH_LEVEL, |state| {
        if state.irp(irp).is_none() {
            bug_check(Rule::BadHandle, format_args!("{irp:p} is no IRP, or was completed"));
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn PoSetPowerState(device: PDEVICE_OBJECT, kind: POWER_STATE_TYPE, state: POWER_STATE) -> POWER_STATE {
    routine!("PoSetPowerState", DISPATCH_LEVEL, |kernel| {
        let device = kernel.device_at(device);
        if kind != _POWER_STATE_TYPE::DevicePowerState {
            let words = format_args!("a driver says of the type {kind} of power states, and not of its device's");
            bug_check(Rule::BadArgument, words);
        }
        // SAFETY: both arms are numbers.
        let new = unsafe { state.DeviceState };
        check_device_state(new);
        let level = machine::current_irql();
        if level > Irql::APC_LEVEL && new != _DEVICE_POWER_STATE::PowerDeviceD0 {
            bug_check(Rule::IrqlTooHigh, format_args!("PoSetPowerState of a device that sleeps, at {level}"));
        }
        let before = kernel.locked::<PowerStates>().0.insert(device.address, new);
        // Every device begins with the state that works.
        of(before.unwrap_or(_DEVICE_POWER_STATE::PowerDeviceD0))
    })
}

#[unsafe(no_mangle)]
extern "C" fn PoRequestPowerIrp(
    device: PDEVICE_OBJECT,
    minor: UCHAR,
    state: POWER_STATE,
    routine: Option<RequestPowerComplete>,
    context: PVOID,
    place: *mut PIRP,
) -> NTSTATUS {
    routine!("PoRequestPowerIrp", DISPATCH_LEVEL, |kernel| {
        let target = kernel.device_at(device);
        if minor == WAIT_WAKE {
            bug_check(Rule::NotSimulated, format_args!("IRP_MN_WAIT_WAKE"));
        }
        if ![IRP_MN_SET_POWER, IRP_MN_QUERY_POWER].contains(&ULONG::from(minor)) {
            return STATUS_INVALID_PARAMETER_2;
        }
        // SAFETY: both arms are numbers.
        let wanted = unsafe { state.DeviceState };
        check_device_state(wanted);
        if !place.is_null() {
            bug_check(Rule::BadArgument, format_args!("a driver wants a power IRP that is not its own"));
        }
        if kernel.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let top = kernel.top_of(&target);
        let owner = context::caller();
        let power = PowerRequest {
            owner,
            device: device.expose_provenance(),
            minor,
            state: wanted,
            routine,
            context: context.expose_provenance(),
        };
        let maker = Maker::Power(Box::new(move |_, irp| power.tell(irp)));
        let request = ask::request(kernel, &top, (IRP_MJ_POWER, minor.into()), maker);
        write(&request, _POWER_STATE_TYPE::DevicePowerState, wanted);
        let state = kernel.clone();
        // The driver may be at `DISPATCH_LEVEL`, where a device that can be paged may not be asked.
        system_thread::spawn_for_work_item(kernel, owner, move || {
            let status = ask::send(&state, &top, &request, "a power request of a driver");
            if ULONG::from(minor) == IRP_MN_SET_POWER && wanted > _DEVICE_POWER_STATE::PowerDeviceD0 {
                set(status);
            }
        });
        STATUS_PENDING
    })
}
