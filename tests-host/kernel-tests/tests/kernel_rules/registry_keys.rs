//! Keys of the registry as the framework has them: of a device, by name, and what is written there.

use std::{
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst},
    },
};

use simulated_kernel::{DuringRun, Kernel, Rule, caught};
use wdk_sys::{
    DEVICE_OBJECT, NTSTATUS, PCUNICODE_STRING, PDEVICE_OBJECT, PDRIVER_OBJECT, PUNICODE_STRING, PVOID,
    PWDF_OBJECT_ATTRIBUTES, PWDFDEVICE_INIT, STATUS_BUFFER_OVERFLOW, STATUS_INVALID_PARAMETER,
    STATUS_OBJECT_NAME_NOT_FOUND, STATUS_OBJECT_TYPE_MISMATCH, STATUS_SUCCESS, UNICODE_STRING, WDFDEVICE, WDFDRIVER,
    WDFKEY, WDFSTRING, call_unsafe_wdf_function_binding,
};

use crate::{
    lower, raise,
    sent::framework,
    small_driver::{attributes, create_device, create_driver},
};

/// `KEY_READ` and `KEY_SET_VALUE`.
const READ: u32 = 0x2_0019;
const WRITE: u32 = 2;
const DELETE: u32 = 1 << 16;
/// `PLUGPLAY_REGKEY_DEVICE`.
const OF_DEVICE: u32 = 1;
const REG_BINARY: u32 = 3;
const ACCESS_DENIED: NTSTATUS = 0xC000_0022_u32.cast_signed();
const CANNOT_DELETE: NTSTATUS = 0xC000_0121_u32.cast_signed();
const SERVICE: &[u8] = br"\Registry\Machine\System\CurrentControlSet\Services\keys";

/// What the driver does when it has its device.
static ADD: DuringRun<Mutex<fn(WDFDEVICE)>> = DuringRun::new(Mutex::new(|_| ()));
/// The bus driver's device object, as the driver knows it before.
static PHYSICAL: DuringRun<AtomicPtr<DEVICE_OBJECT>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
/// What it does before.
static BEFORE: DuringRun<Mutex<fn(PWDFDEVICE_INIT)>> = DuringRun::new(Mutex::new(|_| ()));
/// How many devices there were.
static COUNT: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

/// A name in code units, without an allocation.
struct Name([u16; 64], usize);

impl Name {
    fn of(text: &[u8]) -> Self {
        let mut units = [0; 64];
        for (unit, &letter) in units.iter_mut().zip(text) {
            *unit = u16::from(letter);
        }
        Self(units, text.len())
    }

    fn string(&mut self) -> UNICODE_STRING {
        let bytes = u16::try_from(2 * self.1).expect("a short name");
        UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: self.0.as_mut_ptr() }
    }
}

fn key_of_device(device: WDFDEVICE, kind: u32, access: u32) -> Result<WDFKEY, NTSTATUS> {
    let (mut key, none) = (ptr::null_mut(), ptr::null_mut());
    let status = framework!(WdfDeviceOpenRegistryKey(
        device => WDFDEVICE, kind => u32, access => u32, none => PWDF_OBJECT_ATTRIBUTES, &raw mut key => *mut WDFKEY
    ) -> NTSTATUS);
    if status < 0 { Err(status) } else { Ok(key) }
}

fn opened(parent: WDFKEY, name: &[u8], access: u32) -> Result<WDFKEY, NTSTATUS> {
    let (mut key, none, mut name) = (ptr::null_mut(), ptr::null_mut(), Name::of(name));
    let name = name.string();
    let status = framework!(WdfRegistryOpenKey(
        parent => WDFKEY, &raw const name => PCUNICODE_STRING, access => u32, none => PWDF_OBJECT_ATTRIBUTES,
        &raw mut key => *mut WDFKEY
    ) -> NTSTATUS);
    if status < 0 { Err(status) } else { Ok(key) }
}

/// The key, and whether it is new.
fn created(parent: WDFKEY, name: &[u8]) -> (WDFKEY, bool) {
    created_for(READ | WRITE, parent, name)
}

fn created_for(access: u32, parent: WDFKEY, name: &[u8]) -> (WDFKEY, bool) {
    let (mut key, none, mut name, mut made) = (ptr::null_mut(), ptr::null_mut(), Name::of(name), 0);
    let name = name.string();
    let status = framework!(WdfRegistryCreateKey(
        parent => WDFKEY, &raw const name => PCUNICODE_STRING, access => u32, 0 => u32, &raw mut made => *mut u32,
        none => PWDF_OBJECT_ATTRIBUTES, &raw mut key => *mut WDFKEY
    ) -> NTSTATUS);
    assert_eq!(status, STATUS_SUCCESS);
    (key, made == 1)
}

fn close(key: WDFKEY) {
    // SAFETY: a key that is open.
    unsafe { call_unsafe_wdf_function_binding!(WdfRegistryClose, key) };
}

fn assign_number(key: WDFKEY, name: &[u8], number: u32) -> NTSTATUS {
    let mut name = Name::of(name);
    let name = name.string();
    framework!(WdfRegistryAssignULong(
        key => WDFKEY, &raw const name => PCUNICODE_STRING, number => u32
    ) -> NTSTATUS)
}

fn number(key: WDFKEY, name: &[u8]) -> Result<u32, NTSTATUS> {
    let (mut name, mut number) = (Name::of(name), 0);
    let name = name.string();
    // SAFETY: a key that is open, and places that live until the call returns.
    let status =
        unsafe { call_unsafe_wdf_function_binding!(WdfRegistryQueryULong, key, &raw const name, &raw mut number) };
    if status < 0 { Err(status) } else { Ok(number) }
}

fn assign_text(key: WDFKEY, name: &[u8], text: &[u8]) -> NTSTATUS {
    let (mut name, mut text) = (Name::of(name), Name::of(text));
    let (name, text) = (name.string(), text.string());
    framework!(WdfRegistryAssignUnicodeString(
        key => WDFKEY, &raw const name => PCUNICODE_STRING, &raw const text => PCUNICODE_STRING
    ) -> NTSTATUS)
}

fn assign_bytes(key: WDFKEY, name: &[u8], bytes: *mut u8, length: u32) -> NTSTATUS {
    let mut name = Name::of(name);
    let name = name.string();
    framework!(WdfRegistryAssignValue(
        key => WDFKEY, &raw const name => PCUNICODE_STRING, REG_BINARY => u32, length => u32, bytes.cast() => PVOID
    ) -> NTSTATUS)
}

/// The text of a value in a buffer of so many bytes: the status, the units, and how many bytes are needed.
fn text(key: WDFKEY, name: &[u8], room: u16) -> (NTSTATUS, [u16; 2], u16) {
    let (mut name, mut units, mut needed) = (Name::of(name), [0; 2], 0_u16);
    let mut string = UNICODE_STRING { Length: 0, MaximumLength: room, Buffer: units.as_mut_ptr() };
    let name = name.string();
    let status = framework!(WdfRegistryQueryUnicodeString(
        key => WDFKEY, &raw const name => PCUNICODE_STRING, &raw mut needed => *mut u16, &raw mut string => PUNICODE_STRING
    ) -> NTSTATUS);
    (status, units, needed)
}

fn remove(key: WDFKEY, name: &[u8]) -> NTSTATUS {
    let mut name = Name::of(name);
    let name = name.string();
    framework!(WdfRegistryRemoveValue(key => WDFKEY, &raw const name => PCUNICODE_STRING) -> NTSTATUS)
}

fn remove_key(key: WDFKEY) -> NTSTATUS {
    framework!(WdfRegistryRemoveKey(key => WDFKEY) -> NTSTATUS)
}

/// A key of the device that the driver is asked to take.
fn key_of_init(init: PWDFDEVICE_INIT, access: u32) -> WDFKEY {
    let (mut key, none) = (ptr::null_mut(), ptr::null_mut());
    let status = framework!(WdfFdoInitOpenRegistryKey(
        init => PWDFDEVICE_INIT, OF_DEVICE => u32, access => u32, none => PWDF_OBJECT_ATTRIBUTES,
        &raw mut key => *mut WDFKEY
    ) -> NTSTATUS);
    assert_eq!(status, STATUS_SUCCESS);
    key
}

unsafe extern "C" fn add(_: WDFDRIVER, init: PWDFDEVICE_INIT) -> NTSTATUS {
    (*BEFORE.lock().unwrap_or_else(PoisonError::into_inner))(init);
    let device = create_device(init, attributes());
    let add = *ADD.lock().unwrap_or_else(PoisonError::into_inner);
    add(device);
    STATUS_SUCCESS
}

unsafe extern "system" fn entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    create_driver(driver, path, add)
}

/// Loads the driver, and gives it so many devices one after the other, with each of which it does this.
fn with_devices(count: usize, add: fn(WDFDEVICE)) {
    with_devices_seen_before(count, |_| (), add);
}

/// The same, and before it makes its own device this.
fn with_devices_seen_before(count: usize, before: fn(PWDFDEVICE_INIT), add: fn(WDFDEVICE)) {
    let kernel = Kernel::seeded(1).start();
    *ADD.lock().unwrap_or_else(PoisonError::into_inner) = add;
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = before;
    COUNT.store(0, SeqCst);
    let driver = kernel.load("keys", entry).expect("the driver loads");
    for _ in 0..count {
        assert!(driver.add_device().expect("the device starts").remove().is_ok());
    }
    driver.unload();
}

#[test]
fn the_key_of_a_device_outlives_it() {
    with_devices(3, |device| {
        let key = key_of_device(device, OF_DEVICE, READ | WRITE).expect("a key");
        let count = number(key, b"Count").unwrap_or(0);
        assert_eq!(count, COUNT.fetch_add(1, SeqCst), "so many devices were there before");
        assert_eq!(assign_number(key, b"Count", count + 1), STATUS_SUCCESS);
        close(key);
        assert_eq!(key_of_device(device, 3, READ), Err(STATUS_INVALID_PARAMETER));
    });
}

#[test]
fn the_key_of_a_device_is_there_before_the_driver_has_made_its_own() {
    let before = |init| {
        let key = key_of_init(init, READ | WRITE);
        assert_eq!(assign_number(key, b"Before", 5), STATUS_SUCCESS);
        close(key);
        let physical = framework!(WdfFdoInitWdmGetPhysicalDevice(init => PWDFDEVICE_INIT) -> PDEVICE_OBJECT);
        PHYSICAL.store(physical, SeqCst);
    };
    with_devices_seen_before(2, before, |device| {
        let key = key_of_device(device, OF_DEVICE, READ).expect("a key");
        assert_eq!(number(key, b"Before"), Ok(5));
        close(key);
        let physical = framework!(WdfDeviceWdmGetPhysicalDevice(device => WDFDEVICE) -> PDEVICE_OBJECT);
        assert_eq!(physical, PHYSICAL.load(SeqCst));
    });
}

#[test]
fn drivers_above_each_other_have_one_device_of_the_bus() {
    let kernel = Kernel::seeded(1).start();
    PHYSICAL.store(ptr::null_mut(), SeqCst);
    *ADD.lock().unwrap_or_else(PoisonError::into_inner) = |_| ();
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = |init| {
        let physical = framework!(WdfFdoInitWdmGetPhysicalDevice(init => PWDFDEVICE_INIT) -> PDEVICE_OBJECT);
        let known = PHYSICAL.swap(physical, SeqCst);
        assert!(known.is_null() || known == physical);
    };
    let (lower, upper) = (kernel.load("keys", entry), kernel.load("above", entry));
    let (lower, upper) = (lower.expect("the driver loads"), upper.expect("and the one above"));
    assert!(lower.add_device_under(&[&upper]).expect("the device starts").remove().is_ok());
    upper.unload();
    lower.unload();
}

#[test]
fn values_of_each_kind_are_written_and_read() {
    with_devices(1, |device| {
        let key = key_of_device(device, OF_DEVICE, READ | WRITE).expect("a key");
        assert_eq!(assign_text(key, b"Text", b"a"), STATUS_SUCCESS);
        assert_eq!(text(key, b"text", 4), (STATUS_SUCCESS, [u16::from(b'a'), 0], 4));
        assert_eq!(text(key, b"Text", 2), (STATUS_BUFFER_OVERFLOW, [0, 0], 4));
        assert_eq!(text(key, b"None", 4).0, STATUS_OBJECT_NAME_NOT_FOUND);
        let mut bytes = [1, 2, 3, 4];
        assert_eq!(assign_bytes(key, b"Bytes", bytes.as_mut_ptr(), 4), STATUS_SUCCESS);
        assert_eq!(number(key, b"Bytes"), Err(STATUS_OBJECT_TYPE_MISMATCH));
        assert_eq!(text(key, b"Bytes", 4).0, STATUS_OBJECT_TYPE_MISMATCH);
        let mut string: WDFSTRING = ptr::null_mut();
        let (nothing, mut like_device) = (ptr::null(), attributes());
        like_device.ParentObject = device.cast();
        // SAFETY: the places live until the call returns.
        let made = unsafe {
            call_unsafe_wdf_function_binding!(WdfStringCreate, nothing, &raw mut like_device, &raw mut string)
        };
        assert_eq!(made, STATUS_SUCCESS);
        let mut name = Name::of(b"Text");
        let name = name.string();
        let status = framework!(WdfRegistryQueryString(
            key => WDFKEY, &raw const name => PCUNICODE_STRING, string => WDFSTRING
        ) -> NTSTATUS);
        let mut said = UNICODE_STRING::default();
        // SAFETY: the string is live, and the place lives until the call returns.
        unsafe { call_unsafe_wdf_function_binding!(WdfStringGetUnicodeString, string, &raw mut said) };
        // SAFETY: the string has one unit.
        assert_eq!((status, said.Length, unsafe { said.Buffer.read() }), (STATUS_SUCCESS, 2, u16::from(b'a')));
        assert_eq!([remove(key, b"Text"), remove(key, b"Text")], [STATUS_SUCCESS, STATUS_OBJECT_NAME_NOT_FOUND]);
        close(key);
    });
}

#[test]
fn keys_are_opened_and_created_by_name() {
    with_devices(1, |_| {
        let service = opened(ptr::null_mut(), SERVICE, READ).expect("the driver's service");
        assert_eq!(opened(service, b"Sub", READ), Err(STATUS_OBJECT_NAME_NOT_FOUND));
        let (key, is_new) = created(service, b"Sub");
        assert!(is_new);
        assert_eq!(assign_number(key, b"Depth", 7), STATUS_SUCCESS);
        close(key);
        let (again, is_new) = created(service, b"sub");
        assert!(!is_new);
        close(again);
        let key = opened(service, b"Sub", READ).expect("it is there");
        assert_eq!(number(key, b"Depth"), Ok(7));
        assert_eq!(assign_number(key, b"Depth", 8), ACCESS_DENIED, "it was opened to be read");
        assert_eq!(remove(key, b"Depth"), ACCESS_DENIED);
        close(key);
        close(service);
    });
}

#[test]
fn a_key_is_deleted_when_nothing_is_below() {
    with_devices(1, |_| {
        let service = opened(ptr::null_mut(), SERVICE, READ).expect("the driver's service");
        let (above, _) = created_for(DELETE, service, b"Above");
        let (below, _) = created(above, b"Below");
        assert_eq!(remove_key(above), CANNOT_DELETE);
        assert_eq!(remove_key(below), ACCESS_DENIED, "it was opened to be written");
        close(below);
        let below = opened(above, b"Below", DELETE).expect("it is there");
        assert_eq!(remove_key(below), STATUS_SUCCESS);
        assert_eq!(opened(above, b"Below", READ), Err(STATUS_OBJECT_NAME_NOT_FOUND));
        assert_eq!(remove_key(above), STATUS_SUCCESS, "the object was still there");
        close(service);
    });
}

macro_rules! wrong {
    ($($name:ident breaks $rule:ident by $work:expr;)+) => {
        $(
            #[test]
            fn $name() {
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || with_devices(1, $work));
            }
        )+
    };
}

wrong! {
    a_value_without_its_bytes breaks BadArgument by |device| {
        let key = key_of_device(device, OF_DEVICE, WRITE).expect("a key");
        assign_bytes(key, b"Bytes", ptr::null_mut(), 4);
    };
    a_key_of_a_device_at_dispatch_level breaks IrqlTooHigh by |device| {
        let before = raise(2);
        let _ = key_of_device(device, OF_DEVICE, READ);
        lower(before);
    };
    a_key_that_is_deleted_and_closed breaks BadHandle by |_| {
        let service = opened(ptr::null_mut(), SERVICE, READ).expect("the driver's service");
        let (key, _) = created_for(DELETE, service, b"Sub");
        assert_eq!(remove_key(key), STATUS_SUCCESS);
        close(key);
    };
    a_key_that_is_deleted_at_dispatch_level breaks IrqlTooHigh by |_| {
        let service = opened(ptr::null_mut(), SERVICE, READ).expect("the driver's service");
        let (key, _) = created_for(DELETE, service, b"Sub");
        let before = raise(2);
        remove_key(key);
        lower(before);
    };
    a_key_that_is_closed_and_written breaks BadHandle by |device| {
        let key = key_of_device(device, OF_DEVICE, WRITE).expect("a key");
        close(key);
        assign_number(key, b"Count", 1);
    };
}
