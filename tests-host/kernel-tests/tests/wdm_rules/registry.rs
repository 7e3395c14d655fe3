//! The registry, written and read in each of its ways; and what the code that WPP generates asks for.

use std::{
    ptr,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
};

use simulated_kernel::{DuringRun, Kernel, Rule, Value, caught, object_attributes};
use wdk_sys::{
    HANDLE, NTSTATUS, OBJECT_ATTRIBUTES, PCWSTR, PVOID, PWSTR, REG_OPTION_NON_VOLATILE, RTL_QUERY_REGISTRY_DELETE,
    RTL_QUERY_REGISTRY_DIRECT, RTL_QUERY_REGISTRY_REQUIRED, RTL_QUERY_REGISTRY_SUBKEY, RTL_QUERY_REGISTRY_TABLE,
    RTL_QUERY_REGISTRY_TYPECHECK, RTL_QUERY_REGISTRY_TYPECHECK_SHIFT, RTL_REGISTRY_HANDLE, RTL_REGISTRY_OPTIONAL,
    RTL_REGISTRY_SERVICES, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_OBJECT_TYPE_MISMATCH, STATUS_SUCCESS, UNICODE_STRING,
    ntddk::{
        EtwUnregister, ExFreePool, RtlCheckRegistryKey, RtlDeleteRegistryValue, RtlQueryRegistryValues,
        RtlWriteRegistryValue, ZwClose, ZwCreateKey, ZwDeleteValueKey, ZwSetValueKey,
    },
};

use super::routines::{open_key, query};
use crate::driver::{self, Parts};

/// A call of the kernel that needs nothing but live arguments.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments live until the call returns, and longer where the routine keeps them.
        unsafe { $name($($argument),*) }
    }};
}

/// `REG_SZ` and `REG_DWORD`.
const TEXT: u32 = 1;
const NUMBER: u32 = 4;

/// Loads the driver, which does this in its entry.
fn does(load: fn(wdk_sys::PDEVICE_OBJECT)) {
    let kernel = Kernel::seeded(1).start();
    driver::prepare(Parts { load, ..Parts::default() });
    let values = [("Depth", Value::Number(7)), ("Name", Value::text("ab")), ("All", Value::list(&["c", "de"]))];
    kernel.load_with("plain", driver::entry, &values).expect("it loads").unload();
}

/// A name that ends with a zero.
fn wide(name: &str) -> Vec<u16> {
    name.encode_utf16().chain([0]).collect()
}

fn string(units: &[u16]) -> UNICODE_STRING {
    let bytes = u16::try_from(2 * (units.len() - 1)).expect("a short string");
    UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: units.as_ptr().cast_mut() }
}

/// Creates a key below another one: its handle, and 1 if it is new.
fn create(root: HANDLE, name: &str) -> Result<(HANDLE, u32), NTSTATUS> {
    let units = wide(name);
    let mut name = string(&units);
    let mut attributes = OBJECT_ATTRIBUTES { RootDirectory: root, ObjectName: &raw mut name, ..object_attributes() };
    let (mut key, mut made, attributes) = (ptr::null_mut(), 0, &raw mut attributes);
    let nobody = ptr::null_mut();
    let options = REG_OPTION_NON_VOLATILE;
    match call!(ZwCreateKey(&raw mut key, wdk_sys::KEY_READ, attributes, 0, nobody, options, &raw mut made)) {
        STATUS_SUCCESS => Ok((key, made)),
        status => Err(status),
    }
}

fn set(key: HANDLE, name: &str, number: u32) -> NTSTATUS {
    let units = wide(name);
    let (mut name, mut number) = (string(&units), number);
    call!(ZwSetValueKey(key, &raw mut name, 0, NUMBER, (&raw mut number).cast(), 4))
}

#[test]
fn a_driver_writes_values_and_creates_keys() {
    does(|_| {
        let parameters = open_key(r"plain\Parameters").expect("its values");
        assert_eq!(set(parameters, "depth", 8), STATUS_SUCCESS);
        assert_eq!(query(parameters, "Depth", 64).2[12..], [8, 0, 0, 0]);
        let (first, made) = create(parameters, "Ports").expect("a key of its own");
        assert_eq!(made, 1);
        let (second, made) = create(parameters, "PORTS").expect("the same");
        assert_eq!(made, 2);
        assert_eq!(set(first, "One", 1), STATUS_SUCCESS);
        assert_eq!(query(second, "one", 64).2[12..], [1, 0, 0, 0]);
        assert_eq!(create(parameters, r"No\Such").err(), Some(STATUS_OBJECT_NAME_NOT_FOUND));
        let units = wide("One");
        let mut name = string(&units);
        let gone = [0, 1].map(|_| call!(ZwDeleteValueKey(first, &raw mut name)));
        assert_eq!(gone, [STATUS_SUCCESS, STATUS_OBJECT_NAME_NOT_FOUND]);
        for key in [first, second, parameters] {
            assert_eq!(call!(ZwClose(key)), STATUS_SUCCESS);
        }
    });
}

#[test]
fn a_driver_writes_a_value_by_its_path() {
    does(|_| {
        let (mut path, name, mut number) = (wide(r"plain\Parameters"), wide("Depth"), 9_u32);
        let (place, name) = (path.as_mut_ptr(), name.as_ptr());
        let data = (&raw mut number).cast();
        assert_eq!(call!(RtlCheckRegistryKey(RTL_REGISTRY_SERVICES, place)), STATUS_SUCCESS);
        let written = call!(RtlWriteRegistryValue(RTL_REGISTRY_SERVICES, place, name, NUMBER, data, 4));
        assert_eq!(written, STATUS_SUCCESS);
        let key = open_key(r"plain\Parameters").expect("its values");
        assert_eq!(query(key, "Depth", 64).2[12..], [9, 0, 0, 0]);
        let gone = [0, 1].map(|_| call!(RtlDeleteRegistryValue(RTL_REGISTRY_SERVICES, place, name)));
        assert_eq!(gone, [STATUS_SUCCESS, STATUS_OBJECT_NAME_NOT_FOUND]);
        assert_eq!(query(key, "Depth", 64).0, STATUS_OBJECT_NAME_NOT_FOUND);
        assert_eq!(call!(ZwClose(key)), STATUS_SUCCESS);
        let (below, deeper) = (wide(r"plain\Parameters\New"), wide(r"plain\Parameters\No\Key"));
        let mut write = |path: &[u16]| {
            let data = (&raw mut number).cast();
            call!(RtlWriteRegistryValue(RTL_REGISTRY_SERVICES, path.as_ptr(), name, NUMBER, data, 4))
        };
        assert_eq!(write(&below), STATUS_SUCCESS, "a key is made");
        assert_eq!(write(&deeper), STATUS_OBJECT_NAME_NOT_FOUND, "and one only");
        let key = open_key(r"plain\Parameters\New").expect("the key that was made");
        assert_eq!(query(key, "Depth", 64).2[12..], [9, 0, 0, 0]);
        assert_eq!(call!(ZwClose(key)), STATUS_SUCCESS);
        let mut other = wide("other");
        let found = call!(RtlCheckRegistryKey(RTL_REGISTRY_SERVICES, other.as_mut_ptr()));
        assert_eq!(found, STATUS_OBJECT_NAME_NOT_FOUND);
    });
}

/// Asks for values by a table.
fn ask(relative: u32, path: &str, rows: &[RTL_QUERY_REGISTRY_TABLE], argument: PVOID) -> NTSTATUS {
    let path = wide(path);
    let mut table = rows.to_vec();
    table.push(RTL_QUERY_REGISTRY_TABLE::default());
    call!(RtlQueryRegistryValues(relative, path.as_ptr(), table.as_mut_ptr(), argument, ptr::null_mut()))
}

/// A row that stores a value of a type.
fn row(name: &mut [u16], kind: u32, place: PVOID) -> RTL_QUERY_REGISTRY_TABLE {
    RTL_QUERY_REGISTRY_TABLE {
        Flags: RTL_QUERY_REGISTRY_DIRECT | RTL_QUERY_REGISTRY_TYPECHECK | RTL_QUERY_REGISTRY_REQUIRED,
        Name: name.as_mut_ptr(),
        EntryContext: place,
        DefaultType: kind << RTL_QUERY_REGISTRY_TYPECHECK_SHIFT,
        ..RTL_QUERY_REGISTRY_TABLE::default()
    }
}

#[test]
fn a_table_stores_numbers_and_strings() {
    does(|_| {
        let (mut number, mut text, mut other) = (0_u32, UNICODE_STRING::default(), 0_u32);
        let (mut below, mut depth, mut name, mut missing) =
            (wide("Parameters"), wide("Depth"), wide("Name"), wide("Width"));
        let mut eleven = 11_u32;
        let by_default = RTL_QUERY_REGISTRY_TABLE {
            Flags: RTL_QUERY_REGISTRY_DIRECT | RTL_QUERY_REGISTRY_TYPECHECK,
            DefaultType: NUMBER << RTL_QUERY_REGISTRY_TYPECHECK_SHIFT | NUMBER,
            DefaultData: (&raw mut eleven).cast(),
            DefaultLength: 4,
            ..row(&mut missing, NUMBER, (&raw mut other).cast())
        };
        let subkey = RTL_QUERY_REGISTRY_TABLE {
            Flags: RTL_QUERY_REGISTRY_SUBKEY,
            Name: below.as_mut_ptr(),
            ..RTL_QUERY_REGISTRY_TABLE::default()
        };
        let rows = [
            subkey,
            row(&mut depth, NUMBER, (&raw mut number).cast()),
            row(&mut name, TEXT, (&raw mut text).cast()),
            by_default,
        ];
        assert_eq!(ask(RTL_REGISTRY_SERVICES, "plain", &rows, ptr::null_mut()), STATUS_SUCCESS);
        assert_eq!((number, other, text.Length, text.MaximumLength), (7, 11, 4, 6));
        // SAFETY: the string has as many.
        assert_eq!(unsafe { std::slice::from_raw_parts(text.Buffer, 3) }, [u16::from(b'a'), u16::from(b'b'), 0]);
        call!(ExFreePool(text.Buffer.cast()));
        let wrong = [subkey, row(&mut depth, TEXT, (&raw mut text).cast())];
        assert_eq!(ask(RTL_REGISTRY_SERVICES, "plain", &wrong, ptr::null_mut()), STATUS_OBJECT_TYPE_MISMATCH);
        let required = [subkey, row(&mut missing, NUMBER, (&raw mut other).cast())];
        assert_eq!(ask(RTL_REGISTRY_SERVICES, "plain", &required, ptr::null_mut()), STATUS_OBJECT_NAME_NOT_FOUND);
        assert_eq!(ask(RTL_REGISTRY_SERVICES, "other", &rows, ptr::null_mut()), STATUS_OBJECT_NAME_NOT_FOUND);
        let optional = RTL_REGISTRY_SERVICES | RTL_REGISTRY_OPTIONAL;
        assert_eq!(ask(optional, "other", &rows, ptr::null_mut()), STATUS_SUCCESS);
    });
}

#[test]
fn a_table_without_a_place_to_free_leaks_its_string() {
    let test = concat!(module_path!(), "::a_table_without_a_place_to_free_leaks_its_string");
    caught(test, Rule::PoolLeak, || {
        does(|_| {
            let (mut text, mut name) = (UNICODE_STRING::default(), wide("Name"));
            let rows = [row(&mut name, TEXT, (&raw mut text).cast())];
            assert_eq!(ask(RTL_REGISTRY_SERVICES, r"plain\Parameters", &rows, ptr::null_mut()), STATUS_SUCCESS);
        });
    });
}

/// How often the routine was called, and the bytes that it got.
static CALLS: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));
static BYTES: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

unsafe extern "C" fn note(_: PWSTR, kind: u32, _: PVOID, length: u32, argument: PVOID, entry: PVOID) -> NTSTATUS {
    assert_eq!((kind, argument.addr(), entry.addr()), (TEXT, 1, 2));
    CALLS.fetch_add(1, SeqCst);
    BYTES.fetch_add(length, SeqCst);
    STATUS_SUCCESS
}

#[test]
fn a_routine_is_called_for_each_string_of_a_list_which_is_deleted_then() {
    does(|_| {
        let (key, mut all) = (open_key(r"plain\Parameters").expect("its values"), wide("All"));
        let rows = [RTL_QUERY_REGISTRY_TABLE {
            QueryRoutine: Some(note),
            Flags: RTL_QUERY_REGISTRY_DELETE,
            Name: all.as_mut_ptr(),
            EntryContext: ptr::without_provenance_mut(2),
            ..RTL_QUERY_REGISTRY_TABLE::default()
        }];
        let mut table = [rows[0], RTL_QUERY_REGISTRY_TABLE::default()];
        let (path, argument): (PCWSTR, PVOID) = (key.cast_const().cast(), ptr::without_provenance_mut(1));
        for _ in 0..2 {
            let status =
                call!(RtlQueryRegistryValues(RTL_REGISTRY_HANDLE, path, table.as_mut_ptr(), argument, ptr::null_mut()));
            assert_eq!(status, STATUS_SUCCESS);
        }
        // `c` and `de`, with their terminators; the second time nothing is there.
        assert_eq!((CALLS.load(SeqCst), BYTES.load(SeqCst)), (2, 10));
        assert_eq!(query(key, "All", 64).0, STATUS_OBJECT_NAME_NOT_FOUND);
        assert_eq!(call!(ZwClose(key)), STATUS_SUCCESS);
    });
}

unsafe extern "C" {
    // What the code imports that WPP generates; the bindings leave it out.
    fn EtwRegisterClassicProvider(
        provider: *const u64,
        kind: u32,
        routine: Option<unsafe extern "C" fn()>,
        context: PVOID,
        handle: *mut u64,
    ) -> NTSTATUS;
    fn WmiQueryTraceInformation(class: u32, place: PVOID, length: u32, needed: *mut u32, buffer: PVOID) -> NTSTATUS;
    fn WmiTraceMessage(session: u64, flags: u32, message: *const u64, number: u16, ...) -> NTSTATUS;
    fn IoWMIRegistrationControl(device: wdk_sys::PDEVICE_OBJECT, action: u32) -> NTSTATUS;
}

unsafe extern "C" fn control() {}

#[test]
fn a_driver_traces_by_wpp_and_nobody_listens() {
    does(|device| {
        let (provider, mut handle, nobody) = ([1_u64, 2], 0, ptr::null_mut());
        let place = &raw mut handle;
        let status = call!(EtwRegisterClassicProvider(provider.as_ptr(), 0, Some(control), nobody, place));
        assert_eq!((status, handle != 0), (STATUS_SUCCESS, true));
        let mut needed = 1;
        assert!(call!(WmiQueryTraceInformation(0, nobody, 0, &raw mut needed, nobody)) < 0);
        assert_eq!(needed, 0);
        let nothing: *const u64 = ptr::null();
        assert!(call!(WmiTraceMessage(0, 0, provider.as_ptr(), 10, nothing)) < 0);
        let registered = [1, 2].map(|action| call!(IoWMIRegistrationControl(device, action)));
        assert_eq!(registered, [STATUS_SUCCESS; 2]);
        assert_eq!(call!(EtwUnregister(handle)), STATUS_SUCCESS);
    });
}

#[test]
fn a_provider_of_wpp_that_is_left_registered() {
    let test = concat!(module_path!(), "::a_provider_of_wpp_that_is_left_registered");
    caught(test, Rule::ReferenceLeak, || {
        does(|_| {
            let (provider, mut handle) = ([1_u64, 2], 0);
            let (place, nobody) = (&raw mut handle, ptr::null_mut());
            call!(EtwRegisterClassicProvider(provider.as_ptr(), 0, Some(control), nobody, place));
        });
    });
}
