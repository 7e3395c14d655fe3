//! Interfaces of drivers: what the drivers of a stack answer to a query, and who may change the answer.

use std::{
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicI32, AtomicUsize, Ordering::SeqCst},
    },
};

use simulated_kernel::{DuringRun, Kernel, Rule, caught};
use wdk_sys::{
    GUID, INTERFACE, LPGUID, NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT,
    PFN_WDF_DEVICE_PROCESS_QUERY_INTERFACE_REQUEST, PINTERFACE, PVOID, PWDFDEVICE_INIT, STATUS_ACCESS_DENIED,
    STATUS_INVALID_BUFFER_SIZE, STATUS_INVALID_PARAMETER, STATUS_NOT_SUPPORTED, STATUS_SUCCESS,
    WDF_QUERY_INTERFACE_CONFIG, WDFDEVICE, WDFDRIVER, WDFIOTARGET, call_unsafe_wdf_function_binding,
};

use crate::{
    sent::framework,
    small_driver::{attributes, create_device, create_driver, size},
};

static KIND: GUID = GUID { Data1: 0x1F0E_0001, Data2: 1, Data3: 2, Data4: [3; 8] };
static CLASS: GUID = GUID { Data1: 0x5E17_0003, Data2: 1, Data3: 2, Data4: [3; 8] };

/// What the drivers of the test hand out.
#[repr(C)]
struct Exposed {
    interface: INTERFACE,
    value: u64,
}

type Process = unsafe extern "C" fn(WDFDEVICE, LPGUID, PINTERFACE, PVOID) -> NTSTATUS;

/// How a driver exposes it.
#[derive(Clone, Copy)]
struct How {
    value: u64,
    imports: bool,
    process: Option<Process>,
    counts: bool,
}

const PLAIN: How = How { value: 7, imports: false, process: None, counts: true };

/// The function driver, and the filter above it.
static HOW: DuringRun<Mutex<[Option<How>; 2]>> = DuringRun::new(Mutex::new([None; 2]));
static DEVICES: DuringRun<[AtomicUsize; 2]> = DuringRun::new([const { AtomicUsize::new(0) }; 2]);
static REFERENCES: DuringRun<AtomicI32> = DuringRun::new(AtomicI32::new(0));

unsafe extern "C" fn refer(context: PVOID) {
    assert_eq!(context.addr(), 5);
    REFERENCES.fetch_add(1, SeqCst);
}

unsafe extern "C" fn give_up(_: PVOID) {
    REFERENCES.fetch_sub(1, SeqCst);
}

unsafe extern "system" fn lower_entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    create_driver(driver, path, lower_add)
}

unsafe extern "system" fn upper_entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    create_driver(driver, path, upper_add)
}

unsafe extern "C" fn lower_add(_: WDFDRIVER, init: PWDFDEVICE_INIT) -> NTSTATUS {
    let device = add(init, 0);
    // SAFETY: the device is live, and the identifier lives until the call returns.
    unsafe { call_unsafe_wdf_function_binding!(WdfDeviceCreateDeviceInterface, device, &raw const CLASS, ptr::null()) }
}

unsafe extern "C" fn upper_add(_: WDFDRIVER, init: PWDFDEVICE_INIT) -> NTSTATUS {
    framework!(WdfFdoInitSetFilter(init => PWDFDEVICE_INIT));
    add(init, 1);
    STATUS_SUCCESS
}

fn add(init: PWDFDEVICE_INIT, level: usize) -> WDFDEVICE {
    let device = create_device(init, attributes());
    DEVICES[level].store(device.addr(), SeqCst);
    let how = HOW.lock().unwrap_or_else(PoisonError::into_inner)[level];
    if let Some(how) = how {
        assert_eq!(expose(device, how), STATUS_SUCCESS);
    }
    device
}

fn interface(how: How) -> Exposed {
    Exposed {
        interface: INTERFACE {
            Size: 40,
            Version: 2,
            Context: ptr::without_provenance_mut(5),
            InterfaceReference: how.counts.then_some(refer),
            InterfaceDereference: how.counts.then_some(give_up),
        },
        value: how.value,
    }
}

fn configure(exposed: &mut Exposed, imports: bool, process: Option<Process>) -> WDF_QUERY_INTERFACE_CONFIG {
    let process: PFN_WDF_DEVICE_PROCESS_QUERY_INTERFACE_REQUEST = process.map(|process| process as _);
    WDF_QUERY_INTERFACE_CONFIG {
        Size: size::<WDF_QUERY_INTERFACE_CONFIG>(),
        Interface: &raw mut exposed.interface,
        InterfaceType: &raw const KIND,
        EvtDeviceProcessQueryInterfaceRequest: process,
        ImportInterface: imports.into(),
        ..WDF_QUERY_INTERFACE_CONFIG::default()
    }
}

fn expose(device: WDFDEVICE, how: How) -> NTSTATUS {
    let mut exposed = interface(how);
    add_query(device, configure(&mut exposed, how.imports, how.process))
}

fn add_query(device: WDFDEVICE, mut config: WDF_QUERY_INTERFACE_CONFIG) -> NTSTATUS {
    // SAFETY: the device is live, and the structures live until the call returns.
    unsafe { call_unsafe_wdf_function_binding!(WdfDeviceAddQueryInterface, device, &raw mut config) }
}

fn device(level: usize) -> WDFDEVICE {
    ptr::without_provenance_mut(DEVICES[level].load(SeqCst))
}

/// What a query leaves in the caller's structure, which had 90 in it.
fn ask(query: impl FnOnce(PINTERFACE) -> NTSTATUS) -> Result<u64, NTSTATUS> {
    let mut place = Exposed { interface: INTERFACE::default(), value: 90 };
    let status = query((&raw mut place).cast());
    if let Some(give_up) = place.interface.InterfaceDereference.filter(|_| status >= 0) {
        // SAFETY: the interface's own routine and context.
        unsafe { give_up(place.interface.Context) };
    }
    if status < 0 { Err(status) } else { Ok(place.value) }
}

fn ask_stack(of: usize, version: u16, specific: PVOID) -> Result<u64, NTSTATUS> {
    let (device, kind) = (device(of), &raw const KIND);
    ask(|place| {
        framework!(WdfFdoQueryForInterface(
            device => WDFDEVICE, kind => *const GUID, place => PINTERFACE, 40 => u16, version => u16, specific => PVOID
        ) -> NTSTATUS)
    })
}

fn ask_target(of: usize) -> Result<u64, NTSTATUS> {
    let target = framework!(WdfDeviceGetIoTarget(device(of) => WDFDEVICE) -> WDFIOTARGET);
    let none = ptr::null_mut();
    ask(|place| {
        // SAFETY: the target is live, and the places live until the call returns.
        unsafe {
            call_unsafe_wdf_function_binding!(WdfIoTargetQueryForInterface, target, &raw const KIND, place, 40, 2, none)
        }
    })
}

/// A stack of both drivers, of which `work` is done as the filter.
fn with_stack(lower: Option<How>, upper: Option<How>, work: impl Fn()) {
    let kernel = Kernel::seeded(1).start();
    *HOW.lock().unwrap_or_else(PoisonError::into_inner) = [lower, upper];
    REFERENCES.store(0, SeqCst);
    let below = kernel.load("below", lower_entry).expect("the driver loads");
    let above = kernel.load("above", upper_entry).expect("the driver loads");
    let device = below.add_device_under(&[&above]).expect("the device starts");
    above.run(&work);
    assert_eq!(REFERENCES.load(SeqCst), 0);
    assert!(device.remove().is_ok());
    above.unload();
    below.unload();
}

fn value_of(place: PINTERFACE) -> *mut u64 {
    // SAFETY: only the address is taken, of a structure of this test.
    unsafe { &raw mut (*place.cast::<Exposed>()).value }
}

/// Adds to what is there, and to what the caller has said besides.
unsafe extern "C" fn adds(of: WDFDEVICE, kind: LPGUID, place: PINTERFACE, specific: PVOID) -> NTSTATUS {
    assert!(DEVICES.iter().any(|device| device.load(SeqCst) == of.addr()));
    // SAFETY: the places of the query.
    unsafe {
        assert_eq!((*kind).Data1, KIND.Data1);
        *value_of(place) += 1;
        if !specific.is_null() {
            *specific.cast::<u64>() += 1;
        }
    }
    STATUS_SUCCESS
}

unsafe extern "C" fn refuses(_: WDFDEVICE, _: LPGUID, _: PINTERFACE, _: PVOID) -> NTSTATUS {
    STATUS_ACCESS_DENIED
}

unsafe extern "C" fn passes_on(_: WDFDEVICE, _: LPGUID, _: PINTERFACE, _: PVOID) -> NTSTATUS {
    STATUS_NOT_SUPPORTED
}

#[test]
fn a_query_goes_through_the_whole_stack_whoever_asks() {
    with_stack(Some(PLAIN), None, || {
        let none = ptr::null_mut();
        assert_eq!([ask_stack(0, 2, none), ask_stack(1, 3, none), ask_target(0), ask_target(1)], [Ok(7); 4]);
        assert_eq!(ask_stack(0, 1, none), Err(STATUS_INVALID_BUFFER_SIZE), "an earlier version than there is");
    });
    with_stack(None, None, || assert_eq!(ask_target(1), Err(STATUS_NOT_SUPPORTED)));
}

#[test]
fn a_driver_looks_at_its_interface_before_it_is_handed_out() {
    with_stack(Some(How { process: Some(adds), ..PLAIN }), None, || {
        let mut specific = 3_u64;
        assert_eq!(ask_stack(1, 2, (&raw mut specific).cast()), Ok(8));
        assert_eq!(specific, 4);
        assert_eq!(ask_stack(1, 2, ptr::null_mut()), Ok(8), "each caller gets a new copy");
    });
    with_stack(Some(How { process: Some(refuses), ..PLAIN }), None, || {
        assert_eq!(ask_target(1), Err(STATUS_ACCESS_DENIED));
    });
}

#[test]
fn a_driver_that_imports_sees_what_the_caller_has() {
    with_stack(Some(How { imports: true, process: Some(adds), counts: false, ..PLAIN }), None, || {
        assert_eq!(ask_target(1), Ok(91));
    });
}

#[test]
fn a_driver_below_may_change_what_one_above_has_answered() {
    let lower = How { imports: true, process: Some(adds), ..PLAIN };
    with_stack(Some(lower), Some(How { value: 20, counts: false, ..PLAIN }), || assert_eq!(ask_target(1), Ok(21)));
    // The filter knows the interface, and leaves the answer to the driver below.
    let upper = How { value: 20, counts: false, process: Some(passes_on), ..PLAIN };
    with_stack(Some(How { counts: false, ..PLAIN }), Some(upper), || assert_eq!(ask_target(1), Ok(7)));
    with_stack(None, Some(upper), || assert_eq!(ask_target(1), Err(STATUS_NOT_SUPPORTED)));
}

#[test]
fn an_interface_is_exposed_only_as_it_can_be() {
    with_stack(None, None, || {
        let mut exposed = interface(PLAIN);
        let parents = WDF_QUERY_INTERFACE_CONFIG { SendQueryToParentStack: 1, ..configure(&mut exposed, false, None) };
        let nothing = WDF_QUERY_INTERFACE_CONFIG { Interface: ptr::null_mut(), ..configure(&mut exposed, false, None) };
        for config in [parents, nothing, configure(&mut exposed, true, None)] {
            assert_eq!(add_query(device(1), config), STATUS_INVALID_PARAMETER);
        }
        // One that only the callback knows.
        let config =
            WDF_QUERY_INTERFACE_CONFIG { Interface: ptr::null_mut(), ..configure(&mut exposed, true, Some(adds)) };
        assert_eq!(add_query(device(1), config), STATUS_SUCCESS);
        assert_eq!(ask_target(1), Ok(91));
    });
}

#[test]
fn a_query_without_a_place() {
    caught(concat!(module_path!(), "::a_query_without_a_place"), Rule::BadArgument, || {
        with_stack(Some(PLAIN), None, || {
            let (kind, none) = (&raw const KIND, ptr::null_mut());
            framework!(WdfFdoQueryForInterface(
                device(1) => WDFDEVICE, kind => *const GUID, ptr::null_mut() => PINTERFACE, 40 => u16, 2 => u16, none => PVOID
            ) -> NTSTATUS);
        });
    });
}
