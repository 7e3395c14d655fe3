//! Files of a plain device: their names, and what their end waits for.

use std::{
    mem,
    sync::{Mutex, PoisonError},
};

use simulated_kernel::{Driver, DuringRun, IoFile, Kernel, Rule, caught, irql};
use wdk_sys::{
    DO_DEVICE_INITIALIZING, IRP_MJ_CLEANUP, IRP_MJ_CLOSE, IRP_MJ_CREATE, IRP_MJ_READ, NTSTATUS, PDEVICE_OBJECT, PIRP,
    STATUS_CANCELLED, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS,
    ntddk::{KeLowerIrql, KfRaiseIrql},
};

use crate::driver::{self, LINK, Parts, complete, location, run};

/// The file that the device has besides the one without a name.
const NAME: &str = r"\folder\a.txt";

/// What has happened, a letter each: opened, cleaned up, closed, read.
static STEPS: DuringRun<Mutex<([u8; 32], usize)>> = DuringRun::new(Mutex::new(([0; 32], 0)));

fn note(step: u8) {
    let mut steps = STEPS.lock().unwrap_or_else(PoisonError::into_inner);
    let place = steps.1;
    (steps.0[place], steps.1) = (step, place + 1);
}

fn steps() -> String {
    let mut steps = STEPS.lock().unwrap_or_else(PoisonError::into_inner);
    let count = mem::take(&mut steps.1);
    String::from_utf8_lossy(&steps.0[..count]).into_owned()
}

/// Whether the file of a request has that name.
fn is_named(irp: PIRP, text: &str) -> bool {
    // SAFETY: the driver has the IRP, whose file is there as long.
    let name = unsafe { (*(*location(irp)).FileObject).FileName };
    // SAFETY: the string has that many units.
    let at = |index| unsafe { name.Buffer.add(index).read() };
    usize::from(name.Length) == 2 * text.len()
        && text.bytes().enumerate().all(|(index, letter)| at(index) == u16::from(letter))
}

unsafe extern "C" fn create(_: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    if !is_named(irp, "") && !is_named(irp, NAME) {
        return complete(irp, STATUS_OBJECT_NAME_NOT_FOUND, 0);
    }
    note(b'o');
    complete(irp, STATUS_SUCCESS, 0)
}

unsafe extern "C" fn cleanup(_: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    note(b'l');
    complete(irp, STATUS_SUCCESS, 0)
}

unsafe extern "C" fn close(_: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    assert_eq!(irql(), 0, "whatever has completed the last request");
    note(b'g');
    complete(irp, STATUS_SUCCESS, 0)
}

unsafe extern "C" fn read(device: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    note(b'r');
    driver::pend(device, irp)
}

/// Has the driver's device take these.
fn takes(device: PDEVICE_OBJECT) {
    // SAFETY: the driver's own device and object.
    unsafe {
        (*device).Flags &= !DO_DEVICE_INITIALIZING;
        let functions = &mut (*(*device).DriverObject).MajorFunction;
        functions[IRP_MJ_CREATE as usize] = Some(create);
        functions[IRP_MJ_CLEANUP as usize] = Some(cleanup);
        functions[IRP_MJ_CLOSE as usize] = Some(close);
        functions[IRP_MJ_READ as usize] = Some(read);
    }
}

fn with(work: impl FnOnce(&Kernel, &Driver, &IoFile)) {
    run(Parts { load: takes, ..Parts::default() }, |kernel, driver, file| {
        steps();
        work(kernel, driver, file);
    });
}

fn path(below: &str) -> String {
    format!("{LINK}{below}")
}

#[test]
fn a_file_has_the_whole_name_behind_the_link() {
    with(|kernel, _, _| {
        drop(kernel.open_device(&path(NAME)).expect("the file"));
        assert_eq!(steps(), "olg");
        for name in [r"\folder", r"\a.txt", r"\", r"\folder\a.txt\b"] {
            let refused = kernel.open_device(&path(name)).err();
            assert_eq!((refused, steps().as_str()), (Some(STATUS_OBJECT_NAME_NOT_FOUND), ""), "{name}");
        }
    });
}

#[test]
fn a_file_is_closed_when_its_last_request_is_complete() {
    with(|kernel, driver, _| {
        let file = kernel.open_device(LINK).expect("the device");
        let pending = file.begin_read(4);
        drop(file);
        assert_eq!(steps(), "orl", "the driver has the request, and the file is not gone");
        driver.run(|| {
            // SAFETY: the level is put back.
            let before = unsafe { KfRaiseIrql(2) };
            driver::complete_pending();
            // SAFETY: the level is put back.
            unsafe { KeLowerIrql(before) };
        });
        assert_eq!(pending.wait().status, STATUS_SUCCESS);
        assert!(kernel.wait_for_work_items(1_000_000));
        assert_eq!(steps(), "g");
    });
}

#[test]
fn requests_of_a_program_that_ends_are_cancelled_and_its_file_is_closed() {
    with(|kernel, _, _| {
        let file = kernel.open_device(LINK).expect("the device");
        let pending = file.begin_read(4);
        pending.cancel();
        assert_eq!(pending.wait().status, STATUS_CANCELLED);
        drop(file);
        assert_eq!(steps(), "orlg");
    });
}

/// A driver that frees what belongs to a file at its cleanup must not use it for requests that pend still: but the file is there for them.
#[test]
fn a_read_that_is_never_completed_keeps_its_file() {
    let name = concat!(module_path!(), "::a_read_that_is_never_completed_keeps_its_file");
    caught(name, Rule::IrpNeverCompleted, || {
        with(|kernel, _, _| {
            let file = kernel.open_device(LINK).expect("the device");
            let pending = file.begin_read(4);
            drop(file);
            assert_eq!(steps(), "orl");
            let _ = pending.wait();
        });
    });
}
