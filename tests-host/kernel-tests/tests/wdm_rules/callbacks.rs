//! Callback objects.

use std::{
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicPtr, Ordering::SeqCst},
    },
};

use simulated_kernel::{DuringRun, Kernel, Rule, caught, irql, object_attributes};
use wdk_sys::{
    NTSTATUS, OBJECT_ATTRIBUTES, PDEVICE_OBJECT, PIRP, POOL_FLAG_NON_PAGED, PVOID, STATUS_OBJECT_NAME_NOT_FOUND,
    STATUS_SUCCESS, STATUS_UNSUCCESSFUL, UNICODE_STRING,
    ntddk::{ExAllocatePool2, ExFreePoolWithTag, KeLowerIrql, KfRaiseIrql, ObfDereferenceObject, ObfReferenceObject},
};

use crate::driver::{self, CODE, Parts, complete, run};

type Routine = unsafe extern "C" fn(PVOID, PVOID, PVOID);

unsafe extern "C" {
    /// The kit declares these, the bindings leave them out.
    fn ExCreateCallback(place: *mut PVOID, attributes: *mut OBJECT_ATTRIBUTES, create: u8, multiple: u8) -> NTSTATUS;
    fn ExRegisterCallback(object: PVOID, routine: Option<Routine>, context: PVOID) -> PVOID;
    fn ExUnregisterCallback(registration: PVOID);
    fn ExNotifyCallback(object: PVOID, one: PVOID, two: PVOID);
}

const TAG: u32 = u32::from_ne_bytes(*b"Call");
const NAME: &str = r"\Callback\Test";
const ANY_CASE: u32 = 0x40;
const PERMANENT: u32 = 0x10;

/// A call of the kernel, right, or as wrong as the test wants it.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments live until the call returns, and longer where the routine keeps them; or as wrong as the test wants it.
        unsafe { $name($($argument),*) }
    }};
}

fn does(work: fn(PDEVICE_OBJECT, PIRP) -> NTSTATUS) {
    run(Parts { control: work, ..Parts::default() }, |_, _, file| {
        assert_eq!(file.control(CODE, &[], 0).status, 0);
    });
}

/// Tests that break a rule by what they do before the driver completes its request.
macro_rules! rules {
    ($($name:ident breaks $rule:ident by $work:block)+) => {
        $(
            #[test]
            fn $name() {
                #[inline(never)]
                fn control(_: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
                    $work
                    complete(irp, 0, 0)
                }
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || does(control));
            }
        )+
    };
}

/// Opens or creates a callback object; null if that fails.
fn open(name: &str, flags: u32, create: bool, multiple: bool) -> (NTSTATUS, PVOID) {
    // Not in memory of the driver's, which may not be had.
    let mut units = [0; 32];
    let mut length = 0;
    for (place, unit) in units.iter_mut().zip(name.encode_utf16()) {
        *place = unit;
        length += 1;
    }
    let bytes = 2 * length;
    let mut name = UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: units.as_mut_ptr() };
    let mut attributes = object_attributes();
    attributes.ObjectName = &raw mut name;
    attributes.Attributes = flags;
    let mut object = ptr::null_mut();
    let status = call!(ExCreateCallback(&raw mut object, &raw mut attributes, create.into(), multiple.into()));
    (status, object)
}

fn create() -> PVOID {
    let (status, object) = open(NAME, ANY_CASE, true, true);
    assert_eq!(status, STATUS_SUCCESS);
    object
}

fn close(object: PVOID) {
    call!(ObfDereferenceObject(object));
}

fn register(object: PVOID, routine: Routine, context: usize) -> PVOID {
    call!(ExRegisterCallback(object, Some(routine), ptr::without_provenance_mut(context)))
}

fn notify(object: PVOID, one: usize, two: usize) {
    call!(ExNotifyCallback(object, ptr::without_provenance_mut(one), ptr::without_provenance_mut(two)));
}

/// A call: the context, both arguments and the level.
type Call = [usize; 4];

/// What was called, and how often. Not in memory of the driver's.
static SEEN: DuringRun<Mutex<([Call; 8], usize)>> = DuringRun::new(Mutex::new(([[0; 4]; 8], 0)));

/// Whether these were the calls since the last time that this was asked.
fn saw(expected: &[Call]) -> bool {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let count = std::mem::take(&mut seen.1);
    seen.0[..count] == *expected
}

unsafe extern "C" fn note(context: PVOID, one: PVOID, two: PVOID) {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let place = seen.1;
    seen.0[place] = [context.addr(), one.addr(), two.addr(), irql().into()];
    seen.1 += 1;
}

/// The registration of [`ends_itself`].
static OWN: DuringRun<AtomicPtr<core::ffi::c_void>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));

unsafe extern "C" fn ends_itself(context: PVOID, one: PVOID, two: PVOID) {
    // SAFETY: the arguments are of no matter to it.
    unsafe { note(context, one, two) };
    call!(ExUnregisterCallback(OWN.load(SeqCst)));
}

#[test]
fn routines_are_called_in_the_order_of_their_registration_at_the_callers_level() {
    does(|_, irp| {
        saw(&[]);
        let object = create();
        let registrations = [register(object, note, 1), register(object, note, 2)];
        notify(object, 7, 8);
        let before = call!(KfRaiseIrql(2));
        notify(object, 9, 10);
        call!(KeLowerIrql(before));
        call!(ExUnregisterCallback(registrations[0]));
        notify(object, 11, 12);
        call!(ExUnregisterCallback(registrations[1]));
        notify(object, 13, 14);
        close(object);
        assert!(saw(&[[1, 7, 8, 0], [2, 7, 8, 0], [1, 9, 10, 2], [2, 9, 10, 2], [2, 11, 12, 0]]));
        complete(irp, 0, 0)
    });
}

#[test]
fn a_routine_may_end_its_own_registration() {
    does(|_, irp| {
        saw(&[]);
        let object = create();
        OWN.store(register(object, ends_itself, 1), SeqCst);
        notify(object, 0, 0);
        notify(object, 0, 0);
        close(object);
        assert!(saw(&[[1, 0, 0, 0]]));
        complete(irp, 0, 0)
    });
}

#[test]
fn an_object_is_opened_by_its_name_and_goes_with_the_last_reference() {
    does(|_, irp| {
        assert_eq!(open(NAME, ANY_CASE, false, true).0, STATUS_OBJECT_NAME_NOT_FOUND);
        assert_eq!(open("", 0, true, true).0, STATUS_UNSUCCESSFUL);
        let (status, object) = open(NAME, ANY_CASE, true, false);
        assert_eq!(status, STATUS_SUCCESS);
        let (status, again) = open(r"\CALLBACK\TEST", ANY_CASE, false, true);
        assert_eq!((status, again), (STATUS_SUCCESS, object));
        assert_eq!(open(r"\CALLBACK\TEST", 0, false, true).0, STATUS_OBJECT_NAME_NOT_FOUND);
        let first = register(object, note, 1);
        assert!(!first.is_null());
        assert!(register(object, note, 2).is_null(), "the object takes one routine, whoever opens it");
        call!(ObfReferenceObject(object));
        for _ in 0..3 {
            close(object);
        }
        // The registration keeps it.
        notify(object, 0, 0);
        call!(ExUnregisterCallback(first));
        assert_eq!(open(NAME, ANY_CASE, false, true).0, STATUS_OBJECT_NAME_NOT_FOUND);
        let (_, object) = open(NAME, ANY_CASE | PERMANENT, true, true);
        close(object);
        let (status, object) = open(NAME, ANY_CASE, false, true);
        assert_eq!(status, STATUS_SUCCESS, "a permanent one stays");
        close(object);
        let (status, power) = open(r"\Callback\PowerState", ANY_CASE, false, true);
        assert_eq!(status, STATUS_SUCCESS, "one of the system's");
        let registration = register(power, note, 1);
        call!(ExUnregisterCallback(registration));
        close(power);
        complete(irp, 0, 0)
    });
}

#[test]
fn objects_and_registrations_may_not_be_had() {
    let kernel = Kernel::seeded(1).preemption(0).start();
    driver::prepare(Parts::default());
    let driver = kernel.load("plain", driver::entry).expect("the driver loads");
    let failures = kernel.fail_each(1.., || {
        driver.run(|| {
            let (status, object) = open(NAME, ANY_CASE, true, true);
            if status == STATUS_SUCCESS {
                let registration = register(object, note, 1);
                if !registration.is_null() {
                    call!(ExUnregisterCallback(registration));
                }
                close(object);
            }
        });
    });
    assert!(failures >= 2, "{failures} failures: the object and the registration can fail");
    driver.unload();
}

rules! {
    a_registration_with_a_callback_object_left breaks ReferenceLeak by {
        let object = create();
        register(object, note, 1);
        close(object);
    }
    a_callback_object_left breaks ReferenceLeak by { create(); }
    a_callback_object_given_up_twice breaks ReferenceUnderflow by {
        let object = create();
        register(object, note, 1);
        close(object);
        close(object);
    }
    a_callback_object_notified_when_it_is_gone breaks BadHandle by {
        let object = create();
        close(object);
        notify(object, 0, 0);
    }
    a_registration_with_nothing breaks BadHandle by { register(ptr::without_provenance_mut(64), note, 1); }
    a_registration_without_a_routine breaks BadArgument by {
        call!(ExRegisterCallback(create(), None, ptr::null_mut()));
    }
    a_registration_ended_twice breaks BadHandle by {
        let registration = register(create(), note, 1);
        call!(ExUnregisterCallback(registration));
        call!(ExUnregisterCallback(registration));
    }
    a_callback_object_of_the_system_notified breaks BadArgument by {
        let (_, object) = open(r"\Callback\SetSystemTime", ANY_CASE, false, true);
        notify(object, 0, 0);
    }
    a_registration_with_a_callback_object_at_dispatch_level breaks IrqlTooHigh by {
        let object = create();
        call!(KfRaiseIrql(2));
        register(object, note, 1);
    }
    a_routine_that_ends_its_registration_at_dispatch_level breaks IrqlTooHigh by {
        let object = create();
        OWN.store(register(object, ends_itself, 1), SeqCst);
        call!(KfRaiseIrql(2));
        notify(object, 0, 0);
    }
    a_context_freed_before_the_registration_ends breaks UseAfterFree by {
        let object = create();
        let context = call!(ExAllocatePool2(POOL_FLAG_NON_PAGED, 16, TAG));
        call!(ExRegisterCallback(object, Some(note), context));
        call!(ExFreePoolWithTag(context, TAG));
        notify(object, 0, 0);
    }
    a_routine_that_returns_at_another_level breaks IrqlNotRestored by {
        unsafe extern "C" fn raise(_: PVOID, _: PVOID, _: PVOID) {
            call!(KfRaiseIrql(1));
        }
        let object = create();
        register(object, raise, 1);
        notify(object, 0, 0);
    }
}
