//! Device interfaces of drivers of plain WDM: registered in `AddDevice`, enabled at the start, found, and opened by programs.

use std::{
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst},
    },
};

use simulated_kernel::{DuringRun, Kernel, PlainDevice, Rule, caught};
use wdk_sys::{
    DEVICE_OBJECT, DO_DEVICE_INITIALIZING, FILE_DEVICE_UNKNOWN, GUID, HANDLE, IRP_MJ_CLEANUP, IRP_MJ_CLOSE,
    IRP_MJ_CREATE, IRP_MJ_DEVICE_CONTROL, IRP_MJ_PNP, IRP_MN_REMOVE_DEVICE, IRP_MN_START_DEVICE, NTSTATUS,
    PCUNICODE_STRING, PDEVICE_OBJECT, PDRIVER_OBJECT, PIRP, PULONG, PUNICODE_STRING, PVOID, STATUS_BUFFER_TOO_SMALL,
    STATUS_DEVICE_BUSY, STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_PARAMETER, STATUS_OBJECT_NAME_NOT_FOUND,
    STATUS_SUCCESS, UNICODE_STRING,
    ntddk::{
        ExFreePool, IoAttachDeviceToDeviceStack, IoCreateDevice, IoDeleteDevice, IoDetachDevice,
        IoSetDeviceInterfaceState, IofCallDriver, ZwClose, ZwQueryValueKey, ZwSetValueKey,
    },
};

use super::stacks::{pass_and_wait, skip};
use crate::driver::{self, complete};

const STATUS_OBJECT_NAME_EXISTS: NTSTATUS = 0x4000_0000;
const CODE: u32 = 0x22_2000;
const REG_DWORD: u32 = 4;
const NOT_ACTIVE_TOO: u32 = 1;
static CLASS: GUID = GUID { Data1: 0x5E17_0004, Data2: 1, Data3: 2, Data4: [3; 8] };

unsafe extern "C" {
    // The bindings leave these out.
    fn IoRegisterDeviceInterface(
        device: PDEVICE_OBJECT,
        class: *const GUID,
        reference: PUNICODE_STRING,
        place: PUNICODE_STRING,
    ) -> NTSTATUS;
    fn IoGetDeviceInterfaces(class: *const GUID, device: PDEVICE_OBJECT, flags: u32, place: *mut *mut u16) -> NTSTATUS;
    fn IoGetDeviceProperty(
        device: PDEVICE_OBJECT,
        property: i32,
        length: u32,
        buffer: PVOID,
        result: PULONG,
    ) -> NTSTATUS;
    fn IoOpenDeviceRegistryKey(device: PDEVICE_OBJECT, kind: u32, access: u32, place: *mut HANDLE) -> NTSTATUS;
}

/// A call of the kernel that needs nothing but live arguments.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments live until the call returns, and longer where the routine keeps them; or as wrong as the test wants it.
        unsafe { $name($($argument),*) }
    }};
}

/// What the driver does when it has its device, when that is started, and when it goes.
#[derive(Clone, Copy)]
struct Parts {
    add: fn(PDEVICE_OBJECT),
    start: fn(),
    remove: fn(),
}

const RIGHT: Parts = Parts {
    add: |physical| assert_eq!(register(physical, None), STATUS_SUCCESS),
    start: || assert_eq!(enable(true), STATUS_SUCCESS),
    remove: || {
        assert_eq!(enable(false), STATUS_SUCCESS);
        forget();
    },
};

static PARTS: DuringRun<Mutex<Parts>> = DuringRun::new(Mutex::new(RIGHT));
static LOWER: DuringRun<AtomicPtr<DEVICE_OBJECT>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
/// The interface's name: where it is, and how many bytes it has.
static LINK: DuringRun<AtomicPtr<u16>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static BYTES: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

/// How many bytes the name of the file that was opened last has.
static NAMED: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

fn parts() -> Parts {
    *PARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn string(units: &[u16]) -> UNICODE_STRING {
    let bytes = u16::try_from(size_of_val(units)).expect("a short string");
    UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: units.as_ptr().cast_mut() }
}

/// Registers an interface, whose name the driver keeps.
fn register(physical: PDEVICE_OBJECT, reference: Option<&[u16]>) -> NTSTATUS {
    let mut link = UNICODE_STRING::default();
    let mut reference = reference.map(string);
    let of_reference: PUNICODE_STRING = reference.as_mut().map_or(ptr::null_mut(), |string| &raw mut *string);
    let status = call!(IoRegisterDeviceInterface(physical, &raw const CLASS, of_reference, &raw mut link));
    if status >= 0 {
        LINK.store(link.Buffer, SeqCst);
        BYTES.store(link.Length.into(), SeqCst);
    }
    status
}

fn enable(enabled: bool) -> NTSTATUS {
    let bytes = u16::try_from(BYTES.load(SeqCst)).expect("a short string");
    let mut link = UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: LINK.load(SeqCst) };
    call!(IoSetDeviceInterfaceState(&raw mut link, enabled.into()))
}

/// Frees the interface's name.
fn forget() {
    call!(ExFreePool(LINK.load(SeqCst).cast()));
}

/// How many interfaces of the class there are, of a device if there is one.
fn count(physical: PDEVICE_OBJECT, flags: u32) -> usize {
    let mut list: *mut u16 = ptr::null_mut();
    assert_eq!(call!(IoGetDeviceInterfaces(&raw const CLASS, physical, flags, &raw mut list)), STATUS_SUCCESS);
    let (mut place, mut names) = (list, 0);
    loop {
        let mut length = 0;
        // SAFETY: each name ends with a zero, and so does the list.
        while unsafe { place.wrapping_add(length).read_unaligned() } != 0 {
            length += 1;
        }
        if length == 0 {
            break;
        }
        names += 1;
        place = place.wrapping_add(length + 1);
    }
    call!(ExFreePool(list.cast()));
    names
}

unsafe extern "system" fn entry(driver: PDRIVER_OBJECT, _: PCUNICODE_STRING) -> NTSTATUS {
    // SAFETY: the driver's own object.
    let object = unsafe { &mut *driver };
    object.DriverUnload = Some(unload);
    object.MajorFunction[IRP_MJ_PNP as usize] = Some(pnp);
    for major in [IRP_MJ_CLEANUP, IRP_MJ_CLOSE, IRP_MJ_DEVICE_CONTROL] {
        object.MajorFunction[major as usize] = Some(agree);
    }
    object.MajorFunction[IRP_MJ_CREATE as usize] = Some(create);
    // SAFETY: every driver object has one.
    let extension = unsafe { &mut *object.DriverExtension };
    extension.AddDevice = Some(add);
    STATUS_SUCCESS
}

unsafe extern "C" fn unload(_: PDRIVER_OBJECT) {}

unsafe extern "C" fn agree(_: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    complete(irp, STATUS_SUCCESS, 0)
}

unsafe extern "C" fn create(_: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    // SAFETY: the driver has the IRP, and with it the file.
    NAMED.store(unsafe { (*(*driver::location(irp)).FileObject).FileName.Length }.into(), SeqCst);
    complete(irp, STATUS_SUCCESS, 0)
}

unsafe extern "C" fn add(driver: PDRIVER_OBJECT, physical: PDEVICE_OBJECT) -> NTSTATUS {
    let mut device = ptr::null_mut();
    let status = call!(IoCreateDevice(driver, 0, ptr::null_mut(), FILE_DEVICE_UNKNOWN, 0, 0, &raw mut device));
    assert_eq!(status, STATUS_SUCCESS);
    LOWER.store(call!(IoAttachDeviceToDeviceStack(device, physical)), SeqCst);
    (parts().add)(physical);
    // SAFETY: the driver's device.
    unsafe { (*device).Flags &= !DO_DEVICE_INITIALIZING };
    STATUS_SUCCESS
}

unsafe extern "C" fn pnp(device: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    // SAFETY: the driver has the IRP.
    let minor = u32::from(unsafe { (*driver::location(irp)).MinorFunction });
    let lower = LOWER.load(SeqCst);
    if minor == IRP_MN_START_DEVICE {
        pass_and_wait(lower, irp);
        (parts().start)();
        return complete(irp, driver::status(irp), 0);
    }
    // SAFETY: the driver has the IRP.
    unsafe { (*irp).IoStatus.__bindgen_anon_1.Status = STATUS_SUCCESS };
    if minor == IRP_MN_REMOVE_DEVICE {
        (parts().remove)();
    }
    skip(irp);
    let status = call!(IofCallDriver(lower, irp));
    if minor == IRP_MN_REMOVE_DEVICE {
        call!(IoDetachDevice(lower));
        call!(IoDeleteDevice(device));
    }
    status
}

/// Loads the driver on a seeded kernel, gives it a device, has `work` use it, and unloads it.
fn run(with: Parts, work: impl FnOnce(&Kernel, PlainDevice)) {
    let kernel = Kernel::seeded(1).preemption(0).start();
    *PARTS.lock().unwrap_or_else(PoisonError::into_inner) = with;
    let driver = kernel.load("interfaces", entry).expect("the driver loads");
    work(&kernel, driver.add_plain_device().expect("the driver takes the device"));
    driver.unload();
}

fn removed(device: PlainDevice) {
    assert_eq!(device.remove().map_err(|(_, status)| status), Ok(()));
}

#[test]
fn a_program_opens_a_device_by_its_interface_while_that_is_enabled() {
    run(RIGHT, |kernel, device| {
        let link = device.links().pop().expect("an interface");
        let file = kernel.open_device(&link).expect("the interface is enabled");
        assert!(file.control(CODE, &[], 0).is_success());
        let (device, status) = device.remove().expect_err("a file is open");
        assert_eq!(status, STATUS_DEVICE_BUSY);
        drop(file);
        removed(device);
        assert_eq!(kernel.open_device(&link).err(), Some(STATUS_OBJECT_NAME_NOT_FOUND));
    });
}

#[test]
fn an_interface_that_is_not_enabled_is_not_opened_and_says_what_it_is() {
    let start = || {
        assert_eq!(enable(false), STATUS_OBJECT_NAME_NOT_FOUND);
        assert_eq!((enable(true), enable(true)), (STATUS_SUCCESS, STATUS_OBJECT_NAME_EXISTS));
        assert_eq!(enable(false), STATUS_SUCCESS);
    };
    run(Parts { start, remove: forget, ..RIGHT }, |kernel, device| {
        assert!(device.links().is_empty());
        let link = r"\??\ROOT#PLAIN#0001#{5e170004}";
        assert_eq!(kernel.open_device(link).err(), Some(STATUS_OBJECT_NAME_NOT_FOUND));
        removed(device);
    });
}

#[test]
fn interfaces_are_listed_when_the_device_is_started() {
    fn add(physical: PDEVICE_OBJECT) {
        assert_eq!(register(physical, None), STATUS_SUCCESS);
        assert_eq!((count(physical, 0), count(physical, NOT_ACTIVE_TOO)), (0, 1));
        // Early, which the system waits with telling of.
        assert_eq!(enable(true), STATUS_SUCCESS);
        assert_eq!((count(physical, 0), count(ptr::null_mut(), 0)), (1, 0));
    }
    run(Parts { add, start: || (), ..RIGHT }, |_, device| {
        assert_eq!(device.links().len(), 1);
        removed(device);
    });
}

#[test]
fn an_interface_is_registered_once_and_goes_with_its_device() {
    fn add(physical: PDEVICE_OBJECT) {
        assert_eq!(register(physical, None), STATUS_SUCCESS);
        forget();
        assert_eq!(register(physical, None), STATUS_OBJECT_NAME_EXISTS);
        forget();
        assert_eq!(register(physical, Some(&[u16::from(b'a')])), STATUS_SUCCESS);
        assert_eq!(register(physical, Some(&[u16::from(b'\\')])), STATUS_INVALID_DEVICE_REQUEST);
        let nothing: PUNICODE_STRING = ptr::null_mut();
        // SAFETY: the bus driver's device, above which the driver's is.
        let own = unsafe { (*physical).AttachedDevice };
        let status = call!(IoRegisterDeviceInterface(own, &raw const CLASS, nothing, nothing));
        assert_eq!(status, STATUS_INVALID_DEVICE_REQUEST);
    }
    // The system disables what the driver has not.
    run(Parts { add, remove: forget, ..RIGHT }, |kernel, device| {
        let link = device.links().pop().expect("an interface");
        assert!(link.ends_with(r"\a"), "{link}");
        drop(kernel.open_device(&link).expect("the interface is enabled"));
        assert_eq!(NAMED.load(SeqCst), 4, "the reference string with a backslash in front");
        drop(kernel.open_device(&format!(r"{link}\b")).expect("the interface is enabled"));
        assert_eq!(NAMED.load(SeqCst), 8);
        removed(device);
        assert_eq!(kernel.open_device(&link).err(), Some(STATUS_OBJECT_NAME_NOT_FOUND));
    });
}

#[test]
fn the_bus_drivers_device_has_properties() {
    fn add(physical: PDEVICE_OBJECT) {
        let (mut result, mut name) = (0, [0_u8; 10]);
        let status = call!(IoGetDeviceProperty(physical, 15, 4, name.as_mut_ptr().cast(), &raw mut result));
        assert_eq!((status, result), (STATUS_BUFFER_TOO_SMALL, 10));
        let status = call!(IoGetDeviceProperty(physical, 15, 10, name.as_mut_ptr().cast(), &raw mut result));
        assert_eq!((status, name), (STATUS_SUCCESS, *b"R\0O\0O\0T\0\0\0"));
    }
    run(Parts { add, start: || (), remove: || () }, |_, device| removed(device));
}

/// Drivers that are wrong with their interface.
macro_rules! wrong {
    ($($name:ident breaks $rule:ident by { $($part:ident: $value:expr),+ };)+) => {
        $(
            #[test]
            fn $name() {
                let test = concat!(module_path!(), "::", stringify!($name));
                caught(test, Rule::$rule, || run(Parts { $($part: $value,)+ ..RIGHT }, |_, device| removed(device)));
            }
        )+
    };
}

wrong! {
    the_name_of_an_interface_left breaks PoolLeak by { remove: || () };
    the_name_of_an_interface_used_after_it_is_freed breaks UseAfterFree by { start: || {
        forget();
        enable(true);
    }, remove: || () };
    an_interface_of_no_device breaks BadHandle by { add: |_| { register(ptr::dangling_mut(), None); } };
    flags_that_there_are_not breaks BadArgument by { start: || { count(ptr::null_mut(), 2); } };
}

/// Opens a key of the device, adds one to its only value, and closes the key. What the value was.
fn count_in_key(physical: PDEVICE_OBJECT, kind: u32) -> u32 {
    let mut key = ptr::null_mut();
    let access = wdk_sys::KEY_READ;
    assert_eq!(call!(IoOpenDeviceRegistryKey(physical, kind, access, &raw mut key)), STATUS_SUCCESS);
    let mut units = [u16::from(b'n')];
    let mut name = string(&units);
    name.Buffer = units.as_mut_ptr();
    let (mut answer, mut length) = ([0_u32; 4], 0);
    let room = u32::try_from(size_of_val(&answer)).expect("few");
    let class = wdk_sys::_KEY_VALUE_INFORMATION_CLASS::KeyValuePartialInformation;
    let _ = call!(ZwQueryValueKey(key, &raw mut name, class, answer.as_mut_ptr().cast(), room, &raw mut length));
    let mut next = answer[3] + 1;
    let status = call!(ZwSetValueKey(key, &raw mut name, 0, REG_DWORD, (&raw mut next).cast(), 4));
    assert_eq!((status, call!(ZwClose(key))), (STATUS_SUCCESS, STATUS_SUCCESS));
    answer[3]
}

#[test]
fn the_keys_of_a_device_outlive_it() {
    /// Of the device before, and of the last one.
    static FOUND: DuringRun<Mutex<[(u32, u32); 2]>> = DuringRun::new(Mutex::new([(0, 0); 2]));
    fn add(physical: PDEVICE_OBJECT) {
        assert_eq!(register(physical, None), STATUS_SUCCESS);
        let (of_device, of_driver) = (count_in_key(physical, 1), count_in_key(physical, 2));
        let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        *found = [found[1], (of_device, of_driver + count_in_key(physical, 2))];
    }
    let kernel = Kernel::seeded(1).preemption(0).start();
    *PARTS.lock().unwrap_or_else(PoisonError::into_inner) = Parts { add, ..RIGHT };
    let driver = kernel.load("interfaces", entry).expect("the driver loads");
    for _ in 0..2 {
        removed(driver.add_plain_device().expect("the driver takes the device"));
    }
    driver.unload();
    let found = *FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(found, [(0, 1), (1, 5)], "the driver's key counts twice");
}

#[test]
fn a_key_is_of_the_bus_driver_s_device_and_of_one_kind() {
    fn add(physical: PDEVICE_OBJECT) {
        let mut key = ptr::null_mut();
        for kind in [0, 3, 8] {
            let status = call!(IoOpenDeviceRegistryKey(physical, kind, wdk_sys::KEY_READ, &raw mut key));
            assert_eq!(status, STATUS_INVALID_PARAMETER);
        }
        // SAFETY: the bus driver's device, to which the driver's is attached.
        let own = unsafe { (*physical).AttachedDevice };
        let status = call!(IoOpenDeviceRegistryKey(own, 1, wdk_sys::KEY_READ, &raw mut key));
        assert_eq!(status, STATUS_INVALID_PARAMETER);
    }
    run(Parts { add, start: || (), remove: || () }, |_, device| removed(device));
}

#[test]
fn a_key_of_a_device_is_closed() {
    caught(concat!(module_path!(), "::a_key_of_a_device_is_closed"), Rule::ReferenceLeak, || {
        fn add(physical: PDEVICE_OBJECT) {
            let mut key = ptr::null_mut();
            call!(IoOpenDeviceRegistryKey(physical, 1, wdk_sys::KEY_READ, &raw mut key));
        }
        run(Parts { add, start: || (), remove: || () }, |_, device| removed(device));
    });
}
