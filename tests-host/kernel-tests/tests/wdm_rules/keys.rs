//! Keys of the registry as such: what is in one, item by item, and its deletion; and identifiers.

use std::ptr;

use simulated_kernel::{Kernel, Rule, Value, caught, object_attributes};
use wdk_sys::{
    _KEY_VALUE_INFORMATION_CLASS, GUID, HANDLE, KEY_VALUE_INFORMATION_CLASS, NTSTATUS, OBJECT_ATTRIBUTES,
    PDEVICE_OBJECT, PULONG, PVOID, REG_OPTION_NON_VOLATILE, STATUS_BUFFER_OVERFLOW, STATUS_BUFFER_TOO_SMALL,
    STATUS_INVALID_PARAMETER, STATUS_NO_MORE_ENTRIES, STATUS_SUCCESS, ULONG, UNICODE_STRING,
    ntddk::{KfRaiseIrql, ZwClose, ZwCreateKey, ZwOpenKey},
};

use crate::{
    asked::call,
    driver::{self, Parts},
};

unsafe extern "C" {
    // The kit declares them, the bindings leave them out.
    fn ZwEnumerateKey(key: HANDLE, index: ULONG, class: i32, to: PVOID, length: ULONG, needed: PULONG) -> NTSTATUS;
    fn ZwEnumerateValueKey(
        key: HANDLE,
        index: ULONG,
        class: KEY_VALUE_INFORMATION_CLASS,
        to: PVOID,
        length: ULONG,
        needed: PULONG,
    ) -> NTSTATUS;
    fn ZwQueryKey(key: HANDLE, class: i32, to: PVOID, length: ULONG, needed: PULONG) -> NTSTATUS;
    fn ZwDeleteKey(key: HANDLE) -> NTSTATUS;
    fn ExUuidCreate(place: *mut GUID) -> NTSTATUS;
}

const SERVICE: &str = r"\Registry\Machine\System\CurrentControlSet\Services\plain";
/// `KeyBasicInformation`, `KeyNodeInformation`, `KeyFullInformation` and `KeyNameInformation`.
const BASIC: i32 = 0;
const NODE: i32 = 1;
const FULL: i32 = 2;
const NAME: i32 = 3;
/// `STATUS_CANNOT_DELETE`.
const CANNOT_DELETE: NTSTATUS = 0xC000_0121_u32.cast_signed();

/// Loads the driver, which does this in its entry.
fn does(load: fn(PDEVICE_OBJECT)) {
    let kernel = Kernel::seeded(1).start();
    driver::prepare(Parts { load, ..Parts::default() });
    let values = [("Depth", Value::Number(7)), ("Name", Value::text("ab"))];
    kernel.load_with("plain", driver::entry, &values).expect("it loads").unload();
}

/// Opens the key with that path, or creates it.
fn key(path: &str, creates: bool) -> HANDLE {
    let mut units: Vec<u16> = path.encode_utf16().collect();
    let bytes = u16::try_from(2 * units.len()).expect("a short path");
    let mut name = UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: units.as_mut_ptr() };
    let mut attributes = OBJECT_ATTRIBUTES { ObjectName: &raw mut name, ..object_attributes() };
    let (mut key, mut made, attributes, nobody) = (ptr::null_mut(), 0, &raw mut attributes, ptr::null_mut());
    let access = wdk_sys::KEY_READ;
    let status = if creates {
        call!(ZwCreateKey(&raw mut key, access, attributes, 0, nobody, REG_OPTION_NON_VOLATILE, &raw mut made))
    } else {
        call!(ZwOpenKey(&raw mut key, access, attributes))
    };
    assert_eq!(status, STATUS_SUCCESS, "{path}");
    key
}

fn create(name: &str) -> HANDLE {
    key(&format!(r"{SERVICE}\{name}"), true)
}

fn close(key: HANDLE) {
    assert_eq!(call!(ZwClose(key)), STATUS_SUCCESS);
}

/// The words that an answer begins with, and the name behind so many of them.
fn read(answer: &[u8], words: usize) -> (Vec<u32>, String) {
    let (fixed, name) = answer.split_at(4 * words);
    let numbers = fixed.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")));
    let units: Vec<u16> = name.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
    (numbers.collect(), String::from_utf16_lossy(&units))
}

/// Asks for something with room for so many bytes.
fn ask(room: usize, ask: impl FnOnce(PVOID, ULONG, PULONG) -> NTSTATUS) -> Result<Vec<u8>, (NTSTATUS, usize)> {
    let (mut place, mut needed) = (vec![0_u8; room], 0);
    let status = ask(place.as_mut_ptr().cast(), ULONG::try_from(room).expect("few bytes"), &raw mut needed);
    if status != STATUS_SUCCESS {
        return Err((status, needed as usize));
    }
    place.truncate(needed as usize);
    Ok(place)
}

fn subkey(key: HANDLE, index: u32, class: i32, room: usize) -> Result<Vec<u8>, (NTSTATUS, usize)> {
    ask(room, |place, length, needed| call!(ZwEnumerateKey(key, index, class, place, length, needed)))
}

fn query(key: HANDLE, class: i32) -> Result<Vec<u8>, (NTSTATUS, usize)> {
    ask(256, |place, length, needed| call!(ZwQueryKey(key, class, place, length, needed)))
}

#[test]
fn subkeys_are_told_one_by_one() {
    does(|_| {
        let (service, other, below) = (key(SERVICE, false), create("Other"), create(r"Other\Below"));
        let names: Vec<String> = (0..2)
            .map(|index| {
                let (numbers, name) = read(&subkey(service, index, BASIC, 64).expect("a subkey"), 4);
                assert_eq!(numbers[3] as usize, 2 * name.len());
                name
            })
            .collect();
        assert_eq!(names, ["Other", "Parameters"], "as they are spelled, and not what is below them");
        assert_eq!(subkey(service, 2, BASIC, 64), Err((STATUS_NO_MORE_ENTRIES, 0)));
        assert_eq!(read(&subkey(other, 0, NODE, 64).expect("a subkey"), 6).1, "Below");
        assert_eq!(subkey(other, 0, BASIC, 15), Err((STATUS_BUFFER_TOO_SMALL, 26)));
        assert_eq!(subkey(other, 0, BASIC, 20), Err((STATUS_BUFFER_OVERFLOW, 26)));
        assert_eq!(subkey(other, 0, 99, 64), Err((STATUS_INVALID_PARAMETER, 0)));
        [service, other, below].into_iter().for_each(close);
    });
}

#[test]
fn a_key_says_what_is_in_it() {
    does(|_| {
        let (service, parameters) = (key(SERVICE, false), key(&format!(r"{SERVICE}\Parameters"), false));
        let (of_service, _) = read(&query(service, FULL).expect("the key"), 11);
        assert_eq!(of_service[5..9], [1, 20, 0, 0], "one subkey, of twenty bytes");
        let (of_parameters, _) = read(&query(parameters, FULL).expect("the key"), 11);
        // Depth is the longest name, "ab" with its zero the longest value.
        assert_eq!(of_parameters[5..], [0, 0, 0, 2, 10, 6]);
        assert_eq!(read(&query(parameters, BASIC).expect("the key"), 4).1, "Parameters");
        assert_eq!(read(&query(parameters, NAME).expect("the key"), 1).1, format!(r"{SERVICE}\Parameters"));
        assert_eq!(query(parameters, 99), Err((STATUS_INVALID_PARAMETER, 0)));
        [service, parameters].into_iter().for_each(close);
    });
}

#[test]
fn values_are_told_one_by_one() {
    does(|_| {
        let parameters = key(&format!(r"{SERVICE}\Parameters"), false);
        let class = _KEY_VALUE_INFORMATION_CLASS::KeyValuePartialInformation;
        let value = |index| {
            ask(64, |place, length, needed| call!(ZwEnumerateValueKey(parameters, index, class, place, length, needed)))
        };
        // Title, type, length, and the data.
        assert_eq!(read(&value(0).expect("Depth"), 4).0[1..], [4, 4, 7]);
        assert_eq!(read(&value(1).expect("Name"), 3).1, "ab\0");
        assert_eq!(value(2), Err((STATUS_NO_MORE_ENTRIES, 0)));
        close(parameters);
    });
}

#[test]
fn a_key_is_deleted_from_its_leaves_up() {
    does(|_| {
        let (service, other, below) = (key(SERVICE, false), create("Other"), create(r"Other\Below"));
        assert_eq!(call!(ZwDeleteKey(other)), CANNOT_DELETE, "it has a subkey");
        assert_eq!([call!(ZwDeleteKey(below)), call!(ZwDeleteKey(other))], [STATUS_SUCCESS; 2]);
        assert_eq!(subkey(service, 1, BASIC, 64), Err((STATUS_NO_MORE_ENTRIES, 0)));
        [service, other, below].into_iter().for_each(close);
    });
}

#[test]
fn identifiers_differ() {
    does(|_| {
        let made = [(); 3].map(|()| {
            let mut guid = GUID::default();
            assert_eq!(call!(ExUuidCreate(&raw mut guid)), STATUS_SUCCESS);
            assert_eq!((guid.Data3 >> 12, guid.Data4[0] >> 6), (4, 2), "random numbers, by the standard");
            (guid.Data1, guid.Data2, guid.Data3, guid.Data4)
        });
        assert!(made[0] != made[1] && made[1] != made[2] && made[0] != made[2], "{made:?}");
    });
}

macro_rules! wrong {
    ($($name:ident breaks $rule:ident by $work:block)+) => {
        $(
            #[test]
            fn $name() {
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || does(|_| $work));
            }
        )+
    };
}

wrong! {
    a_key_used_that_is_deleted breaks BadHandle by {
        let other = create("Other");
        let _ = call!(ZwDeleteKey(other));
        let _ = query(other, BASIC);
    }
    a_deleted_key_that_is_not_closed breaks ReferenceLeak by {
        let other = create("Other");
        let _ = call!(ZwDeleteKey(other));
    }
    a_key_deleted_that_is_none breaks BadHandle by { let _ = call!(ZwDeleteKey(ptr::without_provenance_mut(64))); }
    a_key_asked_at_dispatch_level breaks IrqlTooHigh by {
        let service = key(SERVICE, false);
        call!(KfRaiseIrql(2));
        let _ = query(service, BASIC);
    }
}
