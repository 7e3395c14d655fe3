//! MDLs of a request's buffers, which the framework makes.

use std::{
    ptr,
    sync::atomic::{AtomicPtr, Ordering::SeqCst},
};

use simulated_kernel::{DuringRun, Rule, caught};
use wdk_sys::{
    MDL, NTSTATUS, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_DEVICE_REQUEST, STATUS_SUCCESS, WDFREQUEST,
    ntddk::MmMapLockedPagesSpecifyCache,
};

use crate::{
    sent::framework,
    skeleton::{CODE, Wrong, complete, run_with},
};

/// With an MDL for the output, and with the program's own buffers.
const DIRECT: u32 = CODE | 2;
const NEITHER: u32 = CODE | 3;
/// `MDL_MAPPED_TO_SYSTEM_VA` and `MDL_SOURCE_IS_NONPAGED_POOL`.
const HAS_ADDRESS: i16 = 0x1 | 0x4;

/// The MDL of the last request.
static LAST: DuringRun<AtomicPtr<MDL>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));

fn input(request: WDFREQUEST) -> Result<*mut MDL, NTSTATUS> {
    let mut mdl = ptr::null_mut();
    let status =
        framework!(WdfRequestRetrieveInputWdmMdl(request => WDFREQUEST, &raw mut mdl => *mut *mut MDL) -> NTSTATUS);
    if status < 0 { Err(status) } else { Ok(mdl) }
}

fn output(request: WDFREQUEST) -> Result<*mut MDL, NTSTATUS> {
    let mut mdl = ptr::null_mut();
    let status =
        framework!(WdfRequestRetrieveOutputWdmMdl(request => WDFREQUEST, &raw mut mdl => *mut *mut MDL) -> NTSTATUS);
    if status < 0 { Err(status) } else { Ok(mdl) }
}

/// The address of what an MDL describes (`MmGetSystemAddressForMdlSafe`).
fn address(mdl: *mut MDL) -> *mut u8 {
    // SAFETY: an MDL of a request that the driver has.
    let described = unsafe { mdl.read() };
    if described.MdlFlags & HAS_ADDRESS != 0 {
        return described.MappedSystemVa.cast();
    }
    // SAFETY: as above; its pages are locked.
    unsafe { MmMapLockedPagesSpecifyCache(mdl, 0, 1, ptr::null_mut(), 0, 16) }.cast()
}

fn length(mdl: *mut MDL) -> u32 {
    // SAFETY: an MDL of a request that the driver has.
    unsafe { (*mdl).ByteCount }
}

/// Answers with the input's first byte and one more, by the MDLs of both.
fn answer(request: WDFREQUEST, room: usize) {
    let (from, to) = (input(request).expect("an input"), output(request).expect("an output"));
    assert_eq!((length(from), length(to) as usize), (3, room));
    assert_eq!((input(request), output(request)), (Ok(from), Ok(to)), "the same each time");
    // SAFETY: the input of three bytes.
    let first = unsafe { address(from).read() };
    // SAFETY: the output of at least one byte.
    unsafe { address(to).write(first + 1) };
    complete(request, STATUS_SUCCESS, 1);
}

#[test]
fn both_buffers_have_an_mdl() {
    run_with(Wrong { control: answer, ..Wrong::default() }, |_, file| {
        for code in [CODE, DIRECT] {
            let answer = file.control(code, &[6, 2, 3], 5);
            assert_eq!((answer.status, answer.bytes), (STATUS_SUCCESS, vec![7]), "{code:#x}");
        }
    });
}

#[test]
fn what_has_no_bytes_or_is_the_program_s_has_no_mdl() {
    let control = |request, room| {
        let none = if room == 0 { STATUS_BUFFER_TOO_SMALL } else { STATUS_INVALID_DEVICE_REQUEST };
        assert_eq!((input(request), output(request)), (Err(none), Err(none)));
        complete(request, STATUS_SUCCESS, 0);
    };
    run_with(Wrong { control, ..Wrong::default() }, |_, file| {
        assert!(file.control(CODE, &[], 0).is_success());
        assert!(file.control(NEITHER, &[1, 2, 3], 5).is_success());
    });
}

#[test]
fn an_mdl_that_is_used_after_its_request() {
    let test = concat!(module_path!(), "::an_mdl_that_is_used_after_its_request");
    caught(test, Rule::BadMdl, || {
        let control = |request, _| {
            LAST.store(output(request).expect("an output"), SeqCst);
            complete(request, STATUS_SUCCESS, 0);
        };
        run_with(Wrong { control, ..Wrong::default() }, |driver, file| {
            let _ = file.control(DIRECT, &[1, 2, 3], 5);
            driver.run(|| {
                let mdl = LAST.load(SeqCst);
                // SAFETY: as wrong as the test wants it.
                let _ = unsafe { MmMapLockedPagesSpecifyCache(mdl, 0, 1, ptr::null_mut(), 0, 16) };
            });
        });
    });
}
