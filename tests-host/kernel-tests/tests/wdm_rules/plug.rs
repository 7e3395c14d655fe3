//! A driver of plain WDM with `AddDevice`: a device of plug and play, from its arrival to its removal, and its power.

use std::{
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst},
    },
};

use simulated_kernel::{DuringRun, Kernel, PlainDevice, Rule, Takes, caught};
use wdk_sys::{
    DO_DEVICE_INITIALIZING, FILE_DEVICE_UNKNOWN, IRP_MJ_PNP, IRP_MJ_POWER, IRP_MN_CANCEL_REMOVE_DEVICE,
    IRP_MN_QUERY_POWER, IRP_MN_QUERY_REMOVE_DEVICE, IRP_MN_REMOVE_DEVICE, IRP_MN_SET_POWER, IRP_MN_START_DEVICE,
    IRP_MN_SURPRISE_REMOVAL, NTSTATUS, PCUNICODE_STRING, PDEVICE_OBJECT, PDRIVER_OBJECT, PIO_STATUS_BLOCK, PIRP,
    POWER_STATE, PVOID, STATUS_DEVICE_BUSY, STATUS_NOT_SUPPORTED, STATUS_PENDING, STATUS_SUCCESS, STATUS_UNSUCCESSFUL,
    ntddk::{
        IoAttachDeviceToDeviceStack, IoCreateDevice, IoDeleteDevice, IoDetachDevice, IofCallDriver, PoSetPowerState,
    },
};

use super::stacks::{pass_and_wait, skip};
use crate::driver::{self, complete};

unsafe extern "C" {
    // The bindings leave these out.
    fn PoCallDriver(device: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS;
    fn PoStartNextPowerIrp(irp: PIRP);
    fn PoRequestPowerIrp(
        device: PDEVICE_OBJECT,
        minor: u8,
        state: POWER_STATE,
        routine: Option<unsafe extern "C" fn(PDEVICE_OBJECT, u8, POWER_STATE, PVOID, PIO_STATUS_BLOCK)>,
        context: PVOID,
        irp: *mut PIRP,
    ) -> NTSTATUS;
}

/// A call of the kernel that needs nothing but live arguments.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments live until the call returns, and longer where the routine keeps them; or as wrong as the test wants it.
        unsafe { $name($($argument),*) }
    }};
}

/// What a test can have the driver do otherwise.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is something that the driver does or leaves out")]
struct Parts {
    /// A request of plug and play that is answered with that instead.
    refuses: Option<(u32, NTSTATUS)>,
    /// One that is not passed on.
    keeps: Option<u32>,
    attaches: bool,
    is_initialised: bool,
    detaches: bool,
    /// A device control that is sent to the device.
    passes_twice: bool,
    /// The system may not sleep.
    refuses_sleep: bool,
    /// The device does not go to sleep.
    stays_awake: bool,
    /// What the driver says of a state: the type, and the state. That of the device if nothing.
    says: Option<(i32, i32)>,
}

const RIGHT: Parts = Parts {
    refuses: None,
    keeps: None,
    attaches: true,
    is_initialised: true,
    detaches: true,
    passes_twice: false,
    refuses_sleep: false,
    stays_awake: false,
    says: None,
};

static PARTS: DuringRun<Mutex<Parts>> = DuringRun::new(Mutex::new(RIGHT));
/// Requests of plug and play, one bit for each minor function; the device states that were reached.
static SEEN: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));
/// A bit of the states that is none: the system was said to work.
const REAFFIRMED: u32 = 1 << 8;
static STATES: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));
/// The device below the driver's own.
static LOWER: DuringRun<AtomicUsize> = DuringRun::new(AtomicUsize::new(0));

fn parts() -> Parts {
    *PARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lower() -> PDEVICE_OBJECT {
    ptr::with_exposed_provenance_mut(LOWER.load(SeqCst))
}

unsafe extern "system" fn entry(driver: PDRIVER_OBJECT, _: PCUNICODE_STRING) -> NTSTATUS {
    // SAFETY: the driver's own object.
    let object = unsafe { &mut *driver };
    object.DriverUnload = Some(unload);
    object.MajorFunction[IRP_MJ_PNP as usize] = Some(pnp);
    object.MajorFunction[IRP_MJ_POWER as usize] = Some(power);
    // SAFETY: every driver object has one.
    let extension = unsafe { &mut *object.DriverExtension };
    extension.AddDevice = Some(add);
    STATUS_SUCCESS
}

unsafe extern "C" fn unload(_: PDRIVER_OBJECT) {}

unsafe extern "C" fn add(driver: PDRIVER_OBJECT, physical: PDEVICE_OBJECT) -> NTSTATUS {
    let mut device = ptr::null_mut();
    let status = call!(IoCreateDevice(driver, 0, ptr::null_mut(), FILE_DEVICE_UNKNOWN, 0, 0, &raw mut device));
    if status < 0 {
        return status;
    }
    if parts().attaches {
        let lower = call!(IoAttachDeviceToDeviceStack(device, physical));
        if lower.is_null() {
            call!(IoDeleteDevice(device));
            return STATUS_UNSUCCESSFUL;
        }
        LOWER.store(lower.expose_provenance(), SeqCst);
    }
    if parts().is_initialised {
        // SAFETY: the driver's device.
        unsafe { (*device).Flags &= !DO_DEVICE_INITIALIZING };
    }
    STATUS_SUCCESS
}

unsafe extern "C" fn pnp(device: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    // SAFETY: the driver has the IRP.
    let minor = u32::from(unsafe { (*driver::location(irp)).MinorFunction });
    SEEN.fetch_or(1 << minor, SeqCst);
    let parts = parts();
    if let Some((_, status)) = parts.refuses.filter(|&(refused, _)| refused == minor) {
        return complete(irp, status, 0);
    }
    if parts.keeps == Some(minor) {
        return complete(irp, STATUS_SUCCESS, 0);
    }
    if minor == IRP_MN_START_DEVICE {
        // The bus driver comes first.
        pass_and_wait(lower(), irp);
        return complete(irp, driver::status(irp), 0);
    }
    if [IRP_MN_QUERY_REMOVE_DEVICE, IRP_MN_CANCEL_REMOVE_DEVICE, IRP_MN_SURPRISE_REMOVAL, IRP_MN_REMOVE_DEVICE]
        .contains(&minor)
    {
        // SAFETY: the driver has the IRP.
        let block = unsafe { &mut (*irp).IoStatus };
        block.__bindgen_anon_1.Status = STATUS_SUCCESS;
    }
    skip(irp);
    let status = call!(IofCallDriver(lower(), irp));
    if minor == IRP_MN_REMOVE_DEVICE {
        if parts.detaches {
            call!(IoDetachDevice(lower()));
            call!(IoDeleteDevice(device));
        }
        if parts.passes_twice {
            complete(irp, STATUS_SUCCESS, 0);
        }
    }
    status
}

/// Notes that the device is in the state that it was asked to be in.
unsafe extern "C" fn is_there(_: PDEVICE_OBJECT, minor: u8, state: POWER_STATE, _: PVOID, block: PIO_STATUS_BLOCK) {
    // SAFETY: the system's structure.
    let block = unsafe { block.read() };
    // SAFETY: the arm that the system writes.
    let status = unsafe { block.__bindgen_anon_1.Status };
    if parts().stays_awake {
        return;
    }
    assert_eq!((u32::from(minor), status), (IRP_MN_SET_POWER, STATUS_SUCCESS));
    // SAFETY: both arms are numbers.
    STATES.fetch_or(1 << unsafe { state.DeviceState }, SeqCst);
}

unsafe extern "C" fn power(device: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    // SAFETY: the driver has the IRP.
    let location = unsafe { &*driver::location(irp) };
    // SAFETY: the arm of this kind of request.
    let power = unsafe { location.Parameters.Power };
    // SAFETY: both arms are numbers.
    let (kind, state) = (power.Type, unsafe { power.State.SystemState });
    let parts = parts();
    if parts.refuses_sleep && u32::from(location.MinorFunction) == IRP_MN_QUERY_POWER {
        return complete(irp, STATUS_UNSUCCESSFUL, 0);
    }
    if parts.refuses_sleep {
        // The system has never slept.
        assert_eq!((kind, state), (0, 1));
        STATES.fetch_or(REAFFIRMED, SeqCst);
    } else if parts.stays_awake && (kind, state) == (1, 4) {
        return complete(irp, STATUS_UNSUCCESSFUL, 0);
    } else if u32::from(location.MinorFunction) == IRP_MN_SET_POWER {
        if kind == 0 {
            // A system that works has its device work; else it is off.
            let wanted = POWER_STATE { DeviceState: if state == 1 { 1 } else { 4 } };
            let minor = u8::try_from(IRP_MN_SET_POWER).expect("a small number");
            let (routine, nobody) = (Some(is_there as _), ptr::null_mut());
            let status = call!(PoRequestPowerIrp(device, minor, wanted, routine, nobody, ptr::null_mut()));
            assert_eq!(status, STATUS_PENDING);
        } else {
            let (kind, state) = parts.says.unwrap_or((kind, state));
            let before = call!(PoSetPowerState(device, kind, POWER_STATE { DeviceState: state }));
            // SAFETY: both arms are numbers.
            assert_ne!(unsafe { before.DeviceState }, state);
        }
    }
    call!(PoStartNextPowerIrp(irp));
    skip(irp);
    call!(PoCallDriver(lower(), irp))
}

/// Loads the driver on a seeded kernel, gives it a device, has `work` use it, and unloads it.
fn run(with: Parts, work: impl FnOnce(&Kernel, PlainDevice)) {
    let limit = std::time::Duration::from_secs(2);
    let kernel = Kernel::seeded(1).preemption(0).hang_limit(limit).start();
    *PARTS.lock().unwrap_or_else(PoisonError::into_inner) = with;
    for note in [&SEEN, &STATES] {
        note.store(0, SeqCst);
    }
    let driver = kernel.load("plug", entry).expect("the driver loads");
    assert_eq!(driver.takes(), Takes::PlainDevices);
    match driver.add_plain_device() {
        Ok(device) => work(&kernel, device),
        Err(status) => {
            assert_eq!(Some(status), with.refuses.map(|(_, status)| status));
            assert!(has_seen(&[IRP_MN_REMOVE_DEVICE]));
        }
    }
    driver.unload();
}

fn has_seen(minors: &[u32]) -> bool {
    minors.iter().all(|minor| SEEN.load(SeqCst) & (1 << minor) != 0)
}

fn removed(device: PlainDevice) {
    assert_eq!(device.remove().map_err(|(_, status)| status), Ok(()));
}

#[test]
fn a_device_is_started_stopped_and_removed() {
    run(RIGHT, |_, device| {
        assert_eq!(device.stop_and_start(), Ok(()));
        removed(device);
        // Query stop, stop, and what is asked after a start, besides those of a removal.
        assert!(has_seen(&[IRP_MN_START_DEVICE, 5, 4, 0x14, IRP_MN_QUERY_REMOVE_DEVICE, IRP_MN_REMOVE_DEVICE]));
    });
}

#[test]
fn a_device_that_is_gone_is_removed() {
    run(RIGHT, |_, device| {
        device.surprise_remove();
        assert!(has_seen(&[IRP_MN_SURPRISE_REMOVAL, IRP_MN_REMOVE_DEVICE]));
    });
}

#[test]
fn a_driver_refuses_its_removal() {
    run(Parts { refuses: Some((IRP_MN_QUERY_REMOVE_DEVICE, STATUS_DEVICE_BUSY)), ..RIGHT }, |_, device| {
        let (device, status) = device.remove().expect_err("it is refused");
        assert_eq!(status, STATUS_DEVICE_BUSY);
        assert!(has_seen(&[IRP_MN_CANCEL_REMOVE_DEVICE]));
        device.surprise_remove();
    });
}

#[test]
fn a_driver_refuses_to_start() {
    run(Parts { refuses: Some((IRP_MN_START_DEVICE, STATUS_UNSUCCESSFUL)), ..RIGHT }, |_, _| unreachable!());
}

#[test]
fn the_system_sleeps_and_wakes_up() {
    run(RIGHT, |kernel, device| {
        for (state, seen) in [(3, 1 << 4), (0, 1 << 4 | 1 << 1)] {
            assert_eq!(device.set_power(state), Ok(()));
            kernel.wait_until(|| STATES.load(SeqCst) == seen);
        }
        removed(device);
    });
}

#[test]
fn a_driver_that_does_not_let_the_system_sleep_hears_that_it_works() {
    run(Parts { refuses_sleep: true, ..RIGHT }, |_, device| {
        assert_eq!(device.set_power(3), Err(STATUS_UNSUCCESSFUL));
        assert_eq!(STATES.load(SeqCst), REAFFIRMED);
        removed(device);
    });
}

/// A driver that is wrong while the system goes to sleep.
fn wrong_in_sleep(test: &str, rule: Rule, with: Parts) {
    caught(&format!("{}::{test}", module_path!()), rule, || {
        run(with, |kernel, device| {
            assert_eq!(device.set_power(3), Ok(()));
            kernel.wait_until(|| STATES.load(SeqCst) != 0);
            removed(device);
        });
    });
}

#[test]
fn a_state_of_the_system_told_as_the_devices() {
    let with = Parts { says: Some((0, 4)), ..RIGHT };
    wrong_in_sleep("a_state_of_the_system_told_as_the_devices", Rule::BadArgument, with);
}

#[test]
fn a_state_of_power_that_there_is_not() {
    let with = Parts { says: Some((1, 5)), ..RIGHT };
    wrong_in_sleep("a_state_of_power_that_there_is_not", Rule::BadArgument, with);
}

#[test]
fn a_device_that_refuses_to_sleep() {
    wrong_in_sleep("a_device_that_refuses_to_sleep", Rule::IrpStatus, Parts { stays_awake: true, ..RIGHT });
}

/// A driver that completes its removal although it has passed it on. Called in a process of its own.
pub fn complete_what_was_passed_on() {
    // The second request of the bus driver is completed later: the one before the removal is the second one.
    run(Parts { passes_twice: true, ..RIGHT }, |_, device| {
        removed(device);
    });
}

macro_rules! wrong {
    ($($name:ident breaks $rule:ident by { $($part:ident: $value:expr),* };)+) => {
        $(
            #[test]
            fn $name() {
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || {
                    run(Parts { $($part: $value,)* ..RIGHT }, |_, device| removed(device));
                });
            }
        )+
    };
}

wrong! {
    an_add_device_that_attaches_nothing breaks DeviceAttached by { attaches: false };
    an_add_device_that_leaves_the_device_uninitialised breaks DeviceInitializing by { is_initialised: false };
    a_start_that_does_not_reach_the_bus breaks IrpNotPassedDown by { keeps: Some(IRP_MN_START_DEVICE) };
    a_removal_that_does_not_reach_the_bus breaks IrpNotPassedDown by { keeps: Some(IRP_MN_REMOVE_DEVICE) };
    a_request_that_the_driver_does_not_know_and_ends breaks IrpNotPassedDown by
        { refuses: Some((0x14, STATUS_NOT_SUPPORTED)) };
    a_removal_that_is_refused breaks IrpStatus by { refuses: Some((IRP_MN_REMOVE_DEVICE, STATUS_UNSUCCESSFUL)) };
    a_device_that_is_left_attached breaks ReferenceLeak by { detaches: false };
}
