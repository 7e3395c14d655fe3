//! What can be read without a compiler.

use std::mem::offset_of;

use control::{DEVICE_INTERFACE, GUID_SOFTNDK, SOFTNDK_INTERFACE, SOFTNDK_INTERFACE_VERSION};
use ndkpi::GUID;

use crate::{between, header};

/// The identifier that the header defines by that name.
fn guid(header: &str, name: &str) -> GUID {
    let numbers = between(header, &format!("DEFINE_GUID({name},"), ")");
    let numbers = numbers.split(',').map(|number| {
        let digits = number.trim().strip_prefix("0x").expect("hexadecimal");
        u32::from_str_radix(digits, 16).expect("a number")
    });
    let numbers = numbers.collect::<Vec<_>>();
    let short = |index: usize| u16::try_from(numbers[index]).expect("sixteen bits");
    let byte = |index: usize| u8::try_from(numbers[3 + index]).expect("eight bits");
    assert_eq!(numbers.len(), 11);
    GUID { Data1: numbers[0], Data2: short(1), Data3: short(2), Data4: core::array::from_fn(byte) }
}

#[test]
fn identifiers_and_version_are_the_same() {
    let header = header();
    assert_eq!(guid(&header, "GUID_DEVINTERFACE_SOFTNDK"), DEVICE_INTERFACE);
    assert_eq!(guid(&header, "GUID_SOFTNDK_INTERFACE"), GUID_SOFTNDK);
    let version = between(&header, "#define SOFTNDK_INTERFACE_VERSION ", "\n");
    assert_eq!(version.parse(), Ok(SOFTNDK_INTERFACE_VERSION));
}

#[test]
fn size_and_offsets_are_the_same() {
    let header = header();
    let size = between(&header, "C_ASSERT(sizeof(SOFTNDK_INTERFACE) == ", ")");
    assert_eq!(size.parse(), Ok(size_of::<SOFTNDK_INTERFACE>()));
    for (field, offset) in [
        ("AdapterContext", offset_of!(SOFTNDK_INTERFACE, AdapterContext)),
        ("OpenNdkAdapter", offset_of!(SOFTNDK_INTERFACE, OpenNdkAdapter)),
        ("CloseNdkAdapter", offset_of!(SOFTNDK_INTERFACE, CloseNdkAdapter)),
        ("QueryNdkAddresses", offset_of!(SOFTNDK_INTERFACE, QueryNdkAddresses)),
    ] {
        let said = between(&header, &format!("C_ASSERT(FIELD_OFFSET(SOFTNDK_INTERFACE, {field}) == "), ")");
        assert_eq!(said.parse(), Ok(offset), "{field}");
    }
    // The fields come in this order, after the system's structure.
    let fields = between(&header, "typedef struct _SOFTNDK_INTERFACE {", "}");
    let names = fields.split(';').filter_map(|field| field.split_whitespace().last()).collect::<Vec<_>>();
    let names = names.iter().filter(|name| !name.ends_with("*/")).collect::<Vec<_>>();
    assert_eq!(
        names,
        [&"InterfaceHeader", &"AdapterContext", &"OpenNdkAdapter", &"CloseNdkAdapter", &"QueryNdkAddresses"]
    );
}
