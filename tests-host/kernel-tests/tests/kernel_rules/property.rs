//! What a driver of the framework asks of its device, and says of it.

use std::ptr;

use simulated_kernel::{Kernel, Rule, caught};
use wdk_sys::{
    _POOL_TYPE, NTSTATUS, PCUNICODE_STRING, PULONG, PVOID, PWDF_OBJECT_ATTRIBUTES, PWDFDEVICE_INIT,
    STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_PARAMETER, STATUS_OBJECT_NAME_NOT_FOUND,
    STATUS_SUCCESS, UNICODE_STRING, WDFDEVICE, WDFMEMORY, WDFQUEUE, WDFSTRING, call_unsafe_wdf_function_binding,
};

use crate::{
    made::{Made, device, with_device},
    rules,
    sent::framework,
    skeleton::{Loaded, Wrong, default_queue, run},
};

const STATUS_INVALID_PARAMETER_2: NTSTATUS = 0xC000_00F0_u32.cast_signed();
/// `DevicePropertyDeviceDescription`, `-EnumeratorName`, `-Address` and `-InstallState`.
const DESCRIPTION: i32 = 0;
const ENUMERATOR_NAME: i32 = 15;
const ADDRESS: i32 = 16;
const INSTALL_STATE: i32 = 18;
/// `ROOT`, with a zero at its end.
const ROOT: [u8; 10] = *b"R\0O\0O\0T\0\0\0";

/// `WDF_DEVICE_PNP_CAPABILITIES`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Capabilities {
    size: u32,
    choices: [i32; 9],
    address: u32,
    number: u32,
}

const CAPABILITIES: Capabilities = Capabilities { size: 48, choices: [2; 9], address: u32::MAX, number: u32::MAX };

fn query(device: WDFDEVICE, property: i32, buffer: &mut [u8]) -> (NTSTATUS, u32) {
    let mut result = 77;
    let (length, place) = (u32::try_from(buffer.len()).expect("few"), buffer.as_mut_ptr().cast());
    let of_result = &raw mut result;
    let status = framework!(WdfDeviceQueryProperty(
        device => WDFDEVICE,
        property => i32,
        length => u32,
        place => PVOID,
        of_result => PULONG,
    ) -> NTSTATUS);
    (status, result)
}

fn query_memory(device: WDFDEVICE, property: i32) -> Result<Vec<u8>, NTSTATUS> {
    let mut memory: WDFMEMORY = ptr::null_mut();
    let place = &raw mut memory;
    let status = framework!(WdfDeviceAllocAndQueryProperty(
        device => WDFDEVICE,
        property => i32,
        _POOL_TYPE::NonPagedPoolNx => i32,
        ptr::null_mut() => PWDF_OBJECT_ATTRIBUTES,
        place => *mut WDFMEMORY,
    ) -> NTSTATUS);
    if status < 0 {
        return Err(status);
    }
    let mut length = 0;
    // SAFETY: the memory object was just made; the place lives until the call returns.
    let buffer = unsafe { call_unsafe_wdf_function_binding!(WdfMemoryGetBuffer, memory, &raw mut length) };
    // SAFETY: as many bytes of the object's.
    Ok(unsafe { std::slice::from_raw_parts(buffer.cast(), length) }.to_vec())
}

fn set(device: WDFDEVICE, capabilities: Capabilities) {
    let place = &raw const capabilities;
    framework!(WdfDeviceSetPnpCapabilities(device => WDFDEVICE, place => *const Capabilities));
}

fn assign(init: PWDFDEVICE_INIT, sddl: Option<&str>) -> NTSTATUS {
    let units: Vec<u16> = sddl.unwrap_or_default().encode_utf16().collect();
    let bytes = u16::try_from(size_of_val(&units[..])).expect("a short string");
    let string = UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: units.as_ptr().cast_mut() };
    let place: PCUNICODE_STRING = if sddl.is_some() { &raw const string } else { ptr::null() };
    framework!(WdfDeviceInitAssignSDDLString(init => PWDFDEVICE_INIT, place => PCUNICODE_STRING) -> NTSTATUS)
}

fn name_of(device: WDFDEVICE) -> Result<String, NTSTATUS> {
    let (nobody, mut string) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the place lives until the call returns.
    let made = unsafe { call_unsafe_wdf_function_binding!(WdfStringCreate, ptr::null(), nobody, &raw mut string) };
    assert_eq!(made, STATUS_SUCCESS);
    let status = framework!(WdfDeviceRetrieveDeviceName(device => WDFDEVICE, string => WDFSTRING) -> NTSTATUS);
    if status < 0 {
        return Err(status);
    }
    let mut name = UNICODE_STRING::default();
    // SAFETY: the string is live, and the place lives until the call returns.
    unsafe { call_unsafe_wdf_function_binding!(WdfStringGetUnicodeString, string, &raw mut name) };
    let units: Vec<u16> = (0..usize::from(name.Length / 2))
        // SAFETY: the string has as many units.
        .map(|at| unsafe { name.Buffer.wrapping_add(at).read_unaligned() })
        .collect();
    Ok(String::from_utf16_lossy(&units))
}

/// Does something as the driver of a device.
fn with(work: fn(WDFDEVICE)) {
    with_device(Made::default(), |_: &Kernel, driver, _| driver.run(|| work(device())));
}

fn control_device() -> WDFDEVICE {
    let queue: WDFQUEUE = default_queue();
    // SAFETY: the queue is live.
    unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueGetDevice, queue) }
}

#[test]
fn a_device_has_the_properties_that_its_bus_knows() {
    with(|device| {
        let mut buffer = [0; 16];
        assert_eq!(query(device, ENUMERATOR_NAME, &mut buffer), (STATUS_SUCCESS, 10));
        assert_eq!(buffer[..10], ROOT);
        assert_eq!(query(device, ENUMERATOR_NAME, &mut [0; 9]), (STATUS_BUFFER_TOO_SMALL, 10));
        assert_eq!(query(device, ADDRESS, &mut []), (STATUS_BUFFER_TOO_SMALL, 4));
        assert_eq!((query(device, ADDRESS, &mut buffer), buffer[3]), ((STATUS_SUCCESS, 4), 0xFF));
        assert_eq!(
            (query(device, INSTALL_STATE, &mut buffer), buffer[..4].to_vec()),
            ((STATUS_SUCCESS, 4), vec![0; 4])
        );
        assert_eq!(query(device, DESCRIPTION, &mut buffer), (STATUS_OBJECT_NAME_NOT_FOUND, 0));
        assert_eq!(query(device, 23, &mut buffer), (STATUS_INVALID_PARAMETER_2, 0));

        assert_eq!(query_memory(device, ENUMERATOR_NAME), Ok(ROOT.to_vec()));
        assert_eq!(query_memory(device, DESCRIPTION), Err(STATUS_OBJECT_NAME_NOT_FOUND));
        assert_eq!(query_memory(device, -1), Err(STATUS_INVALID_PARAMETER_2));
        set(device, CAPABILITIES);
        assert_eq!(name_of(device), Err(STATUS_INVALID_PARAMETER), "it has none");
    });
}

#[test]
fn a_control_device_has_a_name_and_no_properties() {
    fn load(_: &Loaded) {
        let device = control_device();
        assert_eq!(name_of(device).as_deref(), Ok(r"\Device\Wrong"));
        assert_eq!(query(device, ENUMERATOR_NAME, &mut []).0, STATUS_INVALID_DEVICE_REQUEST);
        assert_eq!(query_memory(device, ENUMERATOR_NAME), Err(STATUS_INVALID_DEVICE_REQUEST));
    }
    run(Wrong { load, ..Wrong::default() });
}

#[test]
fn who_may_open_a_device_is_said_before_it_is_made() {
    fn init(init: PWDFDEVICE_INIT) {
        assert_eq!(assign(init, Some("D:P(A;;GA;;;SY)")), STATUS_SUCCESS);
        assert_eq!(assign(init, None), STATUS_SUCCESS);
    }
    with_device(Made { init, ..Made::default() }, |_, _, _| ());
}

#[test]
fn a_control_device_is_not_without_a_word_about_who_may_open_it() {
    fn load(loaded: &Loaded) {
        let access: Vec<u16> = "D:P(A;;GA;;;SY)".encode_utf16().collect();
        let bytes = u16::try_from(size_of_val(&access[..])).expect("a short string");
        let access = UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: access.as_ptr().cast_mut() };
        // SAFETY: the driver is live, and the string lives until the call returns.
        let init = unsafe {
            call_unsafe_wdf_function_binding!(WdfControlDeviceInitAllocate, loaded.driver, &raw const access)
        };
        assert_eq!(assign(init, None), STATUS_INVALID_DEVICE_REQUEST);
        // SAFETY: the structure is the driver's, and not used again.
        unsafe { call_unsafe_wdf_function_binding!(WdfDeviceInitFree, init) };
    }
    run(Wrong { load, ..Wrong::default() });
}

rules! {
    capabilities_of_a_control_device breaks BadArgument by |_| set(control_device(), CAPABILITIES);
    a_name_of_something_else breaks BadHandle by |_| { name_of(default_queue().cast()).ok(); };
}

/// Drivers that are wrong with a device of plug and play.
macro_rules! wrong {
    ($($name:ident breaks $rule:ident by $work:expr;)+) => {
        $(
            #[test]
            fn $name() {
                let test = concat!(module_path!(), "::", stringify!($name));
                caught(test, Rule::$rule, || with($work));
            }
        )+
    };
}

wrong! {
    capabilities_of_no_version breaks BadArgument by |device| set(device, Capabilities { size: 44, ..CAPABILITIES });
    a_capability_that_is_nothing breaks BadArgument by |device| {
        set(device, Capabilities { choices: [3; 9], ..CAPABILITIES });
    };
    a_property_at_dispatch_level breaks IrqlTooHigh by |device| {
        crate::raise(2);
        query(device, ADDRESS, &mut [0; 4]);
    };
}

#[test]
fn something_that_says_nothing_about_who_may_open_a_device() {
    let test = concat!(module_path!(), "::something_that_says_nothing_about_who_may_open_a_device");
    let init = |init| {
        assign(init, Some("everybody"));
    };
    caught(test, Rule::BadArgument, || with_device(Made { init, ..Made::default() }, |_, _, _| ()));
}
