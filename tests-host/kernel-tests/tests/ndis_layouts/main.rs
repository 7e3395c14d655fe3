//! The crate `ndis` says what Microsoft's headers say.
//!
//! `facts/ndis-facts.json` holds sizes, offsets, values and prototypes that a C compiler computed from the headers of kit
//! 10.0.16299 for an NDIS 6.80 miniport (`tools/ndis-facts.py` copied what the crate declares). The source of the crate is
//! parsed here and each item looked up in the facts. What the facts do not know must be in a list with its reason. The
//! crate's own assertions tie the source to what the compiler lays out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

// Compiles the assertions of the crate.
use ndis as _;
use serde_json::Value;

use crate::source::{Enumeration, Layout, Prototype, Source};

mod simulated;
mod source;

/// Names that only the crate has, with the reason.
const ONLY_HERE: &[(&str, &[&str])] = &[
    ("a type that is only pointed to", &["DEVICE_OBJECT", "DRIVER_OBJECT", "IRP"]),
    ("an alias of a GUID", &["NPIID"]),
    ("a value that the kit has in a library, and not in a header", &["NPI_WSK_INTERFACE_ID"]),
    ("an alias of a number", &["NDIS_PORT_NUMBER", "NDIS_STATUS", "NET_IFINDEX"]),
    ("a part of a structure, whose size is compared with that of the structure", PARTS),
    ("WDM's", &["DRIVER_DISPATCH"]),
    (
        "a value that C writes as a macro with arguments, or in a header without facts",
        &["IPPROTO_IPV6", "IPPROTO_TCP", "WSK_VERSION_1_0"],
    ),
    ("a structure of a header without facts", &["ADDRINFOEXW"]),
    ("a table of rows as MIB_UNICASTIPADDRESS_TABLE is one, for which there are no facts", &["MIB_IF_TABLE2"]),
];

const PARTS: &[&str] = &["BINARY_DATA", "METHOD", "NDIS_CONFIGURATION_PARAMETER_DATA", "QUERY", "REQUEST_DATA", "SET"];

/// Fields that only the crate has: C leaves these bytes out.
const PADDING: &[&str] = &["NET_BUFFER.Padding", "NET_BUFFER_LIST.Padding"];

/// Fields of C that the crate writes in another way, with the reason.
const FIELDS_LEFT_OUT: &[(&str, &[&str])] = &[
    (
        "another view of bytes that have a field",
        &[
            "NDIS_CONFIGURATION_PARAMETER.ParameterData.BinaryData",
            "NDIS_CONFIGURATION_PARAMETER.ParameterData.IntegerData",
            "NDIS_CONFIGURATION_PARAMETER.ParameterData.StringData",
            "NET_BUFFER.Link",
            "NET_BUFFER.NetBufferHeader",
            "NET_BUFFER.ScatterGatherList",
            "NET_BUFFER.stDataLength",
            "NET_BUFFER_LIST.Link",
            "NET_BUFFER_LIST.NdisReserved2",
            "NET_BUFFER_LIST.NetBufferListHeader",
        ],
    ),
    (
        "a bit of a byte that has a field",
        &[
            "MIB_IF_ROW2.InterfaceAndOperStatusFlags.ConnectorPresent",
            "MIB_IF_ROW2.InterfaceAndOperStatusFlags.EndPointInterface",
            "MIB_IF_ROW2.InterfaceAndOperStatusFlags.FilterInterface",
            "MIB_IF_ROW2.InterfaceAndOperStatusFlags.HardwareInterface",
            "MIB_IF_ROW2.InterfaceAndOperStatusFlags.LowPower",
            "MIB_IF_ROW2.InterfaceAndOperStatusFlags.NotAuthenticated",
            "MIB_IF_ROW2.InterfaceAndOperStatusFlags.NotMediaConnected",
            "MIB_IF_ROW2.InterfaceAndOperStatusFlags.Paused",
        ],
    ),
    ("read by a method", &["NET_LUID.Info.IfType", "NET_LUID.Info.NetLuidIndex", "NET_LUID.Info.Reserved"]),
];

/// Types of C with another name in the crate.
const NAMES: &[(&str, &str)] = &[
    ("ADDRESS_FAMILY", "u16"),
    ("HANDLE", "*c_void"),
    ("KSPIN_LOCK", "usize"),
    ("LARGE_INTEGER", "i64"),
    ("LONG", "i32"),
    ("NDIS_NIC_SWITCH_ID", "u32"),
    ("NDIS_NIC_SWITCH_VPORT_ID", "u32"),
    ("NDIS_OID", "u32"),
    ("NDIS_PHYSICAL_ADDRESS", "u64"),
    ("IFTYPE", "u32"),
    ("NET_IFTYPE", "u16"),
    ("NET_IF_NETWORK_GUID", "GUID"),
    ("NTSTATUS", "NtStatus"),
    ("PVOID", "*c_void"),
    ("SCOPE_ID", "u32"),
    ("SIZE_T", "usize"),
    ("UCHAR", "u8"),
    ("UINT", "u32"),
    ("UINT8", "u8"),
    ("ULONG", "u32"),
    ("ULONG64", "u64"),
    ("ULONG_PTR", "usize"),
    ("ULONGLONG", "u64"),
    ("USHORT", "u16"),
    ("WCHAR", "u16"),
    ("CHAR", "i8"),
    ("INT", "i32"),
    ("_DRIVER_OBJECT", "DRIVER_OBJECT"),
    ("_WSK_BUF_LIST", "WSK_BUF_LIST"),
    ("_WSK_DATAGRAM_INDICATION", "WSK_DATAGRAM_INDICATION"),
    ("_WSK_DATA_INDICATION", "WSK_DATA_INDICATION"),
    ("_WSK_PROVIDER_BASIC_DISPATCH", "WSK_PROVIDER_BASIC_DISPATCH"),
    ("_REQUEST_DATA", "REQUEST_DATA"),
    ("int", "NDIS_STATUS"),
    ("long long", "i64"),
    ("long", "NtStatus"),
    ("unsigned char", "BOOLEAN"),
    ("void", "c_void"),
    // Strings of both kinds have one layout.
    ("UNICODE_STRING", "NDIS_STRING"),
    // Enumerations that are passed on unread.
    ("NET_IF_ADMIN_STATUS", "i32"),
    ("NET_IF_MEDIA_CONNECT_STATE", "i32"),
    ("NL_PREFIX_ORIGIN", "i32"),
    ("NL_ROUTE_ORIGIN", "i32"),
    ("NL_ROUTE_PROTOCOL", "i32"),
    ("NL_SUFFIX_ORIGIN", "i32"),
    ("TUNNEL_TYPE", "i32"),
    // What each kind of attributes and of optional handlers begins with.
    ("NDIS_DRIVER_OPTIONAL_HANDLERS", "NDIS_OBJECT_HEADER"),
    ("NDIS_MINIPORT_ADAPTER_ATTRIBUTES", "NDIS_OBJECT_HEADER"),
    // Handlers under the names of their types.
    ("MINIPORT_DRIVER_UNLOAD", "MINIPORT_UNLOAD"),
    ("NDIS_IO_WORKITEM_ROUTINE", "NDIS_IO_WORKITEM_FUNCTION"),
    // Only pointed to, and never looked into.
    ("CM_RESOURCE_LIST", "c_void"),
    ("NDIS_PCI_DEVICE_CUSTOM_PROPERTIES", "c_void"),
    ("NDIS_PNP_CAPABILITIES", "c_void"),
    ("NDIS_PORT_AUTHENTICATION_PARAMETERS", "c_void"),
    ("NDIS_RECEIVE_SCALE_CAPABILITIES", "c_void"),
    ("NDIS_RESOURCE_LIST", "c_void"),
    ("NDIS_RESTART_ATTRIBUTES", "c_void"),
    ("NET_BUFFER_LIST_CONTEXT", "c_void"),
    ("NET_BUFFER_SHARED_MEMORY", "c_void"),
    ("EPROCESS", "c_void"),
    ("ETHREAD", "c_void"),
    ("SECURITY_DESCRIPTOR", "c_void"),
];

/// The fields whose spelling differs from C's for a reason, with both spellings.
const FIELDS_SPELLED_ANEW: &[(&str, &str, &str)] = &[
    // C has an unnamed union of a 32-bit and a pointer-sized length here.
    ("NET_BUFFER.DataLength", "u32", "NET_BUFFER_DATA_LENGTH"),
    ("NET_BUFFER_LIST.NetBufferListInfo", "[*c_void;27]", "[*c_void;MaxNetBufferListInfo]"),
    ("NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES.PermanentMacAddress", "[u8;32]", "[u8;NDIS_MAX_PHYS_ADDRESS_LENGTH]"),
    ("NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES.CurrentMacAddress", "[u8;32]", "[u8;NDIS_MAX_PHYS_ADDRESS_LENGTH]"),
];

fn facts() -> Value {
    let path = sources::root().join("tests-host/facts/ndis-facts.json");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

/// A type that C declares, spelled as [`source`] spells those of the crate: without `const` and `mut`, pointers as `*T`.
fn spelled(declared: &str) -> String {
    let declared = declared.strip_prefix("const ").unwrap_or(declared).trim();
    if let Some((element, length)) = declared.strip_suffix(']').and_then(|rest| rest.split_once('[')) {
        return format!("[{};{length}]", spelled(element));
    }
    if let Some(pointee) = declared.strip_suffix('*') {
        return format!("*{}", spelled(pointee));
    }
    if let Some((_, name)) = NAMES.iter().find(|(name, _)| *name == declared) {
        return (*name).to_owned();
    }
    match declared {
        "PWSTR" | "PWCH" => return "*u16".to_owned(),
        "PCUNICODE_STRING" => return "*NDIS_STRING".to_owned(),
        "PDRIVER_DISPATCH" => return "DRIVER_DISPATCH".to_owned(),
        "LPCGUID" => return "*GUID".to_owned(),
        _ => {}
    }
    if declared.starts_with("PFN_") || declared.ends_with("_CALLBACK") {
        return declared.to_owned();
    }
    if let Some(handler) = declared.strip_suffix("_HANDLER") {
        return handler.to_owned();
    }
    // The names of pointers begin with a P, and no type in use begins with one otherwise.
    declared.strip_prefix('P').map_or_else(|| declared.to_owned(), |pointee| format!("*{}", spelled(pointee)))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The name of a field. The functions that every socket has are a structure without one in C.
fn name_of(field: &Value) -> &str {
    match text(&field["name"]) {
        "" => "Basic",
        name => name,
    }
}

fn listed(lists: &[(&str, &[&'static str])]) -> BTreeSet<&'static str> {
    let all: Vec<_> = lists.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    let set: BTreeSet<_> = all.iter().copied().collect();
    assert_eq!(all.len(), set.len(), "a name is listed twice");
    set
}

#[test]
fn every_item_of_the_crate_is_in_the_facts_or_in_a_list() {
    let (source, facts) = (Source::read(), facts());
    let sections = ["types", "enums", "functions", "function_types", "constants"];
    let known: BTreeSet<&str> = sections
        .iter()
        .flat_map(|section| facts[section].as_object().expect("a section").keys())
        .map(String::as_str)
        .collect();
    let members: BTreeSet<&str> =
        facts["enums"]["NDIS_NET_BUFFER_LIST_INFO"].as_object().expect("members").keys().map(String::as_str).collect();
    let unknown: BTreeSet<&str> =
        source.names().filter(|name| !known.contains(name) && !members.contains(name)).collect();
    assert_eq!(unknown, listed(ONLY_HERE), "left: only in the crate, right: known to be");
    let declared: BTreeSet<&str> = source.names().collect();
    let forgotten: Vec<_> =
        known.iter().filter(|name| !declared.contains(*name) && **name != "NDIS_NET_BUFFER_LIST_INFO").collect();
    assert!(forgotten.is_empty(), "copied and not declared (tools/ndis-facts.py): {forgotten:?}");
}

#[test]
fn every_structure_has_the_size_and_the_fields_of_the_headers() {
    let (source, facts) = (Source::read(), facts());
    let mut seen = BTreeSet::new();
    let mut fields = 0;
    for (name, fact) in facts["types"].as_object().expect("types") {
        let structure = source.structures.get(name).unwrap_or_else(|| panic!("{name} is not declared"));
        let theirs: BTreeMap<&str, &Value> =
            fact["fields"].as_array().expect("fields").iter().map(|field| (name_of(field), field)).collect();
        seen.extend(theirs.keys().map(|field| format!("{name}.{field}")));
        let Some(Layout { size, align, offsets }) = &structure.layout else {
            assert_eq!(text(&fact["kind"]), "union", "{name} has no layout!");
            continue;
        };
        assert_eq!((*size, *align), (number(&fact["size"]), number(&fact["align"])), "{name}");
        for (field, declared) in &structure.fields {
            let place = format!("{name}.{field}");
            if PADDING.contains(&place.as_str()) {
                continue;
            }
            // A union that has a type of its own in the crate is written out in the facts.
            let Some(theirs) = theirs.get(field.as_str()) else {
                let inside = theirs.iter().find(|(theirs, _)| theirs.starts_with(&format!("{field}.")));
                let (_, inside) = inside.unwrap_or_else(|| panic!("{place} is not in the facts"));
                assert_eq!(offsets[field], number(&inside["offset"]), "{place}");
                continue;
            };
            assert!(seen.remove(&place));
            assert_eq!(offsets[field], number(&theirs["offset"]), "offset of {place}");
            let spelling = spelled(text(&theirs["type"]));
            match FIELDS_SPELLED_ANEW.iter().find(|(anew, ..)| *anew == place) {
                Some((_, c, rust)) => assert_eq!((spelling.as_str(), declared.as_str()), (*c, *rust), "{place}"),
                None => assert_eq!(*declared, spelling, "type of {place}, in C {}", theirs["type"]),
            }
            fields += 1;
        }
    }
    seen.retain(|place| !place.starts_with("NET_BUFFER_DATA_LENGTH."));
    let left: BTreeSet<&str> = seen.iter().map(String::as_str).collect();
    assert_eq!(left, listed(FIELDS_LEFT_OUT), "left: fields of C that the crate lacks, right: left out on purpose");
    assert_eq!(fields, 355, "fields compared");
}

#[test]
fn every_enumerator_has_the_value_of_the_headers() {
    let (source, facts) = (Source::read(), facts());
    let mut compared = 0;
    for (name, Enumeration(members)) in &source.enumerations {
        for (member, value) in members {
            assert_eq!(facts["enums"][name][member].as_i64(), Some(*value), "{name}, {member}");
            compared += 1;
        }
    }
    assert_eq!((source.enumerations.len(), compared), (21, 87));
    let slots = &facts["enums"]["NDIS_NET_BUFFER_LIST_INFO"];
    for (name, ours) in [
        ("Ieee8021QNetBufferListInfo", ndis::Ieee8021QNetBufferListInfo),
        ("NetBufferListCancelId", ndis::NetBufferListCancelId),
        ("NetBufferListFrameType", ndis::NetBufferListFrameType),
    ] {
        assert_eq!(slots[name].as_u64(), Some(ours as u64), "{name}");
    }
    assert_eq!(slots["MaxNetBufferListInfo"].as_u64(), Some(ndis::MaxNetBufferListInfo as u64));
}

#[test]
fn every_constant_has_the_value_of_the_headers() {
    let (source, facts) = (Source::read(), facts());
    for (name, fact) in facts["constants"].as_object().expect("constants") {
        let ours = source.constants.get(name).unwrap_or_else(|| panic!("{name} is not declared"));
        assert_eq!(*ours, number(&fact["value"]), "{name}");
    }
    assert_eq!(facts["constants"].as_object().expect("constants").len(), 157);
}

#[test]
fn every_routine_and_handler_has_the_prototype_of_the_headers() {
    let (source, facts) = (Source::read(), facts());
    let mut parameters = 0;
    for section in ["functions", "function_types"] {
        for (name, fact) in facts[section].as_object().expect("a section") {
            assert_ne!(fact["inline"], Value::Bool(true), "{name} is inline in C: there is no export");
            let Prototype { parameters: ours, result } =
                source.prototypes.get(name).unwrap_or_else(|| panic!("{name} is not declared"));
            let theirs = fact["params"].as_array().expect("parameters");
            let spelling: Vec<_> = theirs.iter().map(|parameter| spelled(text(&parameter["type"]))).collect();
            assert_eq!(ours.iter().map(|(_, spelling)| spelling.clone()).collect::<Vec<_>>(), spelling, "{name}");
            for ((ours, _), theirs) in ours.iter().zip(theirs) {
                assert_eq!(ours, text(&theirs["name"]), "{name}");
            }
            let returns = text(&fact["returns"]);
            let returns = if returns == "void" { "()".to_owned() } else { spelled(returns) };
            assert_eq!(*result, returns, "result of {name}");
            parameters += theirs.len();
        }
    }
    assert_eq!(parameters, 317, "parameters compared");
}

#[test]
fn every_routine_is_imported_from_the_driver_that_exports_it() {
    for (routine, library) in &Source::read().imports {
        // The network stack's registration, address and interface routines are in NETIO; the rest begins with its driver's name.
        let expected = if routine.starts_with("Ndis") { "ndis.sys" } else { "netio.sys" };
        assert_eq!(library, expected, "{routine}");
    }
}

#[test]
fn every_function_says_at_which_irql_it_is_called() {
    let source = Source::read();
    let silent: Vec<_> = source
        .documentation
        .iter()
        .filter(|(_, documentation)| !documentation.contains("IRQL"))
        .map(|(name, _)| name.as_str())
        .collect();
    // What WDM defines, what is called in any state, and what is documented nowhere.
    assert_eq!(
        silent,
        ["DRIVER_DISPATCH", "MINIPORT_SHUTDOWN", "PFN_WSK_CLIENT_EVENT", "PUNICAST_IPADDRESS_CHANGE_CALLBACK"]
    );
}
