//! A small driver of plain WDM that does everything right, unless a test replaces a part of it.

use std::{
    mem, ptr,
    sync::{Mutex, PoisonError},
};

use simulated_kernel::{Driver, DuringRun, IoFile, Kernel};
use wdk_sys::{
    FILE_DEVICE_UNKNOWN, IO_REMOVE_LOCK, IO_STACK_LOCATION, IRP_MJ_CLEANUP, IRP_MJ_CLOSE, IRP_MJ_CREATE,
    IRP_MJ_DEVICE_CONTROL, NTSTATUS, PCUNICODE_STRING, PDEVICE_OBJECT, PDRIVER_CANCEL, PDRIVER_OBJECT, PIRP,
    SL_PENDING_RETURNED, STATUS_PENDING, UNICODE_STRING,
    ntddk::{
        IoAcquireCancelSpinLock, IoAcquireRemoveLockEx, IoCreateDevice, IoCreateSymbolicLink, IoDeleteDevice,
        IoDeleteSymbolicLink, IoInitializeRemoveLockEx, IoReleaseCancelSpinLock, IoReleaseRemoveLockAndWaitEx,
        IoReleaseRemoveLockEx, IofCompleteRequest,
    },
};

/// A control code of the driver.
pub const CODE: u32 = 0x22_2000;
const NAME: &str = r"\Device\Plain";
pub const LINK: &str = r"\DosDevices\Plain";

/// What a test can replace.
#[derive(Clone, Copy)]
pub struct Parts {
    /// At the end of `DriverEntry`.
    pub load: fn(PDEVICE_OBJECT),
    pub control: fn(PDEVICE_OBJECT, PIRP) -> NTSTATUS,
    /// At the beginning of the unload.
    pub unload: fn(PDEVICE_OBJECT),
    pub deletes_device: bool,
    pub deletes_link: bool,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            load: |_| (),
            control: |_, irp| complete(irp, 0, 0),
            unload: |_| (),
            deletes_device: true,
            deletes_link: true,
        }
    }
}

/// What the driver keeps besides its device: the IRP that pends.
#[derive(Clone, Copy)]
struct World {
    parts: Parts,
    pending: usize,
}

static WORLD: DuringRun<Mutex<World>> = DuringRun::new(Mutex::new(World {
    parts: Parts {
        load: |_| (),
        control: |_, irp| complete(irp, 0, 0),
        unload: |_| (),
        deletes_device: true,
        deletes_link: true,
    },
    pending: 0,
}));

fn with<R>(work: impl FnOnce(&mut World) -> R) -> R {
    work(&mut WORLD.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The driver begins anew, with these parts. Called while a kernel runs, of which there is one at a time.
pub fn prepare(parts: Parts) {
    with(|world| *world = World { parts, pending: 0 });
}

/// Loads the driver on a seeded kernel, opens its device, has `work` use it, and unloads it.
pub fn run(parts: Parts, work: impl FnOnce(&Kernel, &Driver, &IoFile)) {
    let limit = std::time::Duration::from_secs(2);
    let kernel = Kernel::seeded(1).preemption(0).hang_limit(limit).start();
    prepare(parts);
    let driver = kernel.load("plain", entry).expect("the driver loads");
    let file = kernel.open_device(LINK).expect("the device opens");
    work(&kernel, &driver, &file);
    drop(file);
    driver.unload();
}

/// The driver does something when it answers a control code, and is unloaded.
pub fn does(work: fn(PDEVICE_OBJECT)) {
    static WORK: DuringRun<Mutex<fn(PDEVICE_OBJECT)>> = DuringRun::new(Mutex::new(|_| ()));
    let control = |device, irp| {
        let work = *WORK.lock().unwrap_or_else(PoisonError::into_inner);
        work(device);
        complete(irp, 0, 0)
    };
    run(Parts { control, ..Parts::default() }, |_, _, file| {
        *WORK.lock().unwrap_or_else(PoisonError::into_inner) = work;
        assert!(file.control(CODE, &[], 0).is_success());
    });
}

/// A text as the kernel has it, without an allocation: the driver's own may fail.
const fn wide<const LENGTH: usize>(text: &str) -> [u16; LENGTH] {
    assert!(text.len() == LENGTH && text.is_ascii(), "an ASCII text of that length");
    let (mut units, mut index) = ([0; LENGTH], 0);
    while index < LENGTH {
        units[index] = text.as_bytes()[index] as u16;
        index += 1;
    }
    units
}

static WIDE_NAME: [u16; NAME.len()] = wide(NAME);
static WIDE_LINK: [u16; LINK.len()] = wide(LINK);

fn string(units: &'static [u16]) -> UNICODE_STRING {
    let bytes = u16::try_from(mem::size_of_val(units)).expect("a short string");
    UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: units.as_ptr().cast_mut() }
}

pub unsafe extern "system" fn entry(driver: PDRIVER_OBJECT, _: PCUNICODE_STRING) -> NTSTATUS {
    let (mut name, mut link) = (string(&WIDE_NAME), string(&WIDE_LINK));
    let mut device = ptr::null_mut();
    let size = u32::try_from(size_of::<IO_REMOVE_LOCK>()).expect("a small structure");
    // SAFETY: the driver's own object, and places that live until the call returns.
    let status = unsafe { IoCreateDevice(driver, size, &raw mut name, FILE_DEVICE_UNKNOWN, 0, 0, &raw mut device) };
    if status < 0 {
        return status;
    }
    // SAFETY: the driver's own object, and places that live until the call returns.
    let status = unsafe { IoCreateSymbolicLink(&raw mut link, &raw mut name) };
    if status < 0 {
        // SAFETY: the device was just made.
        unsafe { IoDeleteDevice(device) };
        return status;
    }
    // SAFETY: the device's extension has room for it.
    unsafe { IoInitializeRemoveLockEx(remove_lock(device), 0, 0, 0, LOCK_BYTES) };
    // SAFETY: the driver's own object.
    let object = unsafe { &mut *driver };
    object.DriverUnload = Some(unload);
    for major in [IRP_MJ_CREATE, IRP_MJ_CLEANUP, IRP_MJ_CLOSE] {
        object.MajorFunction[major as usize] = Some(succeed);
    }
    object.MajorFunction[IRP_MJ_DEVICE_CONTROL as usize] = Some(control);
    let load = with(|world| world.parts.load);
    load(device);
    0
}

unsafe extern "C" fn unload(driver: PDRIVER_OBJECT) {
    // SAFETY: the driver's own object.
    let device = unsafe { (*driver).DeviceObject };
    let parts = with(|world| world.parts);
    (parts.unload)(device);
    if parts.deletes_link {
        let mut link = string(&WIDE_LINK);
        // SAFETY: a string that lives until the call returns.
        unsafe { IoDeleteSymbolicLink(&raw mut link) };
    }
    if parts.deletes_device {
        // SAFETY: the driver's device.
        unsafe { IoDeleteDevice(device) };
    }
}

unsafe extern "C" fn succeed(_: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    complete(irp, 0, 0)
}

unsafe extern "C" fn control(device: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    let control = with(|world| world.parts.control);
    control(device, irp)
}

/// Completes an IRP. The status.
pub fn complete(irp: PIRP, status: NTSTATUS, information: u64) -> NTSTATUS {
    // SAFETY: the driver has the IRP.
    let block = unsafe { &mut (*irp).IoStatus };
    block.__bindgen_anon_1.Status = status;
    block.Information = information;
    // SAFETY: the driver has the IRP.
    unsafe { IofCompleteRequest(irp, 0) };
    status
}

/// The status that an IRP has.
pub fn status(irp: PIRP) -> NTSTATUS {
    // SAFETY: the driver has the IRP.
    let block = unsafe { (*irp).IoStatus };
    // SAFETY: the arm that drivers write.
    unsafe { block.__bindgen_anon_1.Status }
}

/// The place for input and output.
pub fn buffer(irp: PIRP) -> *mut u8 {
    // SAFETY: the driver has the IRP.
    let irp = unsafe { &*irp };
    // SAFETY: the arm of a control code whose buffers are copied.
    unsafe { irp.AssociatedIrp.SystemBuffer }.cast()
}

/// What the IRP asks of this driver (`IoGetCurrentIrpStackLocation`).
pub fn location(irp: PIRP) -> *mut IO_STACK_LOCATION {
    // SAFETY: the driver has the IRP.
    let irp = unsafe { &*irp };
    // SAFETY: the arm that the I/O manager uses.
    let overlay = unsafe { irp.Tail.Overlay };
    // SAFETY: the arm that the I/O manager uses.
    unsafe { overlay.__bindgen_anon_2.__bindgen_anon_1.CurrentStackLocation }
}

/// Marks the IRP as pending (`IoMarkIrpPending`).
pub fn mark(irp: PIRP) {
    // SAFETY: the driver has the IRP.
    let location = unsafe { &mut *location(irp) };
    location.Control |= u8::try_from(SL_PENDING_RETURNED).expect("a flag");
}

/// Writes to an IRP that the driver does not have any more.
pub fn mark_freed(irp: PIRP) {
    // SAFETY: as wrong as the test wants it: the memory is there, and nobody's.
    unsafe { (*irp).Cancel = 1 };
}

/// Sets the cancel routine (`IoSetCancelRoutine`). The one before.
pub fn set_cancel(irp: PIRP, routine: PDRIVER_CANCEL) -> PDRIVER_CANCEL {
    // SAFETY: the driver has the IRP, and one thread runs at a time.
    mem::replace(unsafe { &mut (*irp).CancelRoutine }, routine)
}

/// Keeps the IRP, which can be cancelled.
pub fn pend(_: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    mark(irp);
    with(|world| world.pending = irp.expose_provenance());
    set_cancel(irp, Some(cancel));
    STATUS_PENDING
}

/// The IRP that pends.
pub fn pending() -> PIRP {
    ptr::with_exposed_provenance_mut(with(|world| mem::take(&mut world.pending)))
}

/// Completes the IRP that pends, unless it is being cancelled.
pub fn complete_pending() {
    let irp = pending();
    let mut irql = 0;
    // SAFETY: a place that lives until the call returns.
    unsafe { IoAcquireCancelSpinLock(&raw mut irql) };
    let before = set_cancel(irp, None);
    // SAFETY: acquired above.
    unsafe { IoReleaseCancelSpinLock(irql) };
    if before.is_some() {
        complete(irp, 0, 0);
    }
}

/// A request pends and is completed, and another one is cancelled.
pub fn completes_and_cancels(driver: &Driver, file: &IoFile) {
    let pending = file.begin(CODE, &[], 0);
    assert!(!pending.is_complete());
    driver.run(complete_pending);
    assert!(pending.wait().is_success());
    let pending = file.begin(CODE, &[], 0);
    pending.cancel();
    assert_eq!(pending.wait().status, wdk_sys::STATUS_CANCELLED);
}

/// Cancels the IRP that pends.
pub unsafe extern "C" fn cancel(_: PDEVICE_OBJECT, irp: PIRP) {
    release_cancel(irp);
    assert_eq!(pending(), irp);
    complete(irp, wdk_sys::STATUS_CANCELLED, 0);
}

/// Releases the cancel spin lock, as a cancel routine has to.
pub fn release_cancel(irp: PIRP) {
    // SAFETY: the driver has the IRP.
    let irql = unsafe { (*irp).CancelIrql };
    // SAFETY: the system has acquired it.
    unsafe { IoReleaseCancelSpinLock(irql) };
}

const LOCK_BYTES: u32 = 32;
const _: () = assert!(size_of::<IO_REMOVE_LOCK>() == LOCK_BYTES as usize);

fn remove_lock(device: PDEVICE_OBJECT) -> *mut IO_REMOVE_LOCK {
    // SAFETY: the driver's device.
    unsafe { (*device).DeviceExtension }.cast()
}

/// Acquires the device's remove lock.
pub fn acquire(device: PDEVICE_OBJECT, tag: usize) -> NTSTATUS {
    // SAFETY: the lock is in the device's extension.
    unsafe { IoAcquireRemoveLockEx(remove_lock(device), ptr::without_provenance_mut(tag), ptr::null(), 0, LOCK_BYTES) }
}

/// Releases it.
pub fn release(device: PDEVICE_OBJECT, tag: usize) {
    // SAFETY: the lock is in the device's extension.
    unsafe { IoReleaseRemoveLockEx(remove_lock(device), ptr::without_provenance_mut(tag), LOCK_BYTES) };
}

/// Releases it, and waits for all others to do so.
pub fn release_and_wait(device: PDEVICE_OBJECT, tag: usize) {
    // SAFETY: the lock is in the device's extension.
    unsafe { IoReleaseRemoveLockAndWaitEx(remove_lock(device), ptr::without_provenance_mut(tag), LOCK_BYTES) };
}
