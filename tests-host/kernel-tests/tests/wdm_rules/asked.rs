//! What tests have in common of which each has the driver do something when it is asked.

use std::ptr;

use simulated_kernel::object_attributes;
use wdk_sys::{
    HANDLE, LARGE_INTEGER, NTSTATUS, PDEVICE_OBJECT, PIRP, PVOID, STATUS_SUCCESS,
    ntddk::{KeDelayExecutionThread, PsCreateSystemThread, ZwClose, ZwWaitForSingleObject},
};

use crate::driver::{CODE, Parts, run};

/// A call of the kernel that needs nothing but live arguments.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments live until the call returns, and longer where the routine keeps them; or as wrong as the test wants it.
        unsafe { $name($($argument),*) }
    }};
}

/// Does something when the driver answers a control code.
pub fn does(control: fn(PDEVICE_OBJECT, PIRP) -> NTSTATUS) {
    run(Parts { control, ..Parts::default() }, |_, _, file| {
        assert_eq!(file.control(CODE, &[], 0).status, STATUS_SUCCESS);
    });
}

/// A thread of the driver's.
pub fn thread(work: unsafe extern "C" fn(PVOID), argument: PVOID) -> HANDLE {
    let mut attributes = object_attributes();
    let (mut handle, nobody) = (ptr::null_mut(), ptr::null_mut());
    let routine = Some(work);
    let status =
        call!(PsCreateSystemThread(&raw mut handle, 0, &raw mut attributes, nobody, nobody.cast(), routine, argument));
    assert_eq!(status, STATUS_SUCCESS);
    handle
}

/// Waits for the end of a thread.
pub fn join(handle: HANDLE) {
    assert_eq!(call!(ZwWaitForSingleObject(handle, 0, ptr::null_mut())), STATUS_SUCCESS);
    assert_eq!(call!(ZwClose(handle)), STATUS_SUCCESS);
}

/// Lets others run for a millisecond.
pub fn sleep() {
    let mut interval = LARGE_INTEGER { QuadPart: -10_000 };
    assert_eq!(call!(KeDelayExecutionThread(0, 0, &raw mut interval)), STATUS_SUCCESS);
}

/// Tests of what a driver does before it completes its request: right, or one that breaks a rule.
macro_rules! tests {
    ($($name:ident $(breaks $rule:ident)? by $work:block)+) => {
        $(tests!(@ $name [$($rule)?] $work);)+
    };
    (@ $name:ident [$($rule:ident)?] $work:block) => {
        #[test]
        fn $name() {
            fn control(_: wdk_sys::PDEVICE_OBJECT, irp: wdk_sys::PIRP) -> wdk_sys::NTSTATUS {
                $work
                $crate::driver::complete(irp, 0, 0)
            }
            tests!(? $name [$($rule)?]);
        }
    };
    (? $name:ident []) => { $crate::asked::does(control) };
    (? $name:ident [$rule:ident]) => {
        simulated_kernel::caught(
            concat!(module_path!(), "::", stringify!($name)),
            simulated_kernel::Rule::$rule,
            || $crate::asked::does(control),
        )
    };
}
pub(crate) use {call, tests};
