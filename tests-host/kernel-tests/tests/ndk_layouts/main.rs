//! The crate `ndkpi` says what Microsoft's headers say.
//!
//! `facts/ndk-layouts.json` holds sizes, offsets, values and prototypes that a C compiler computed from the headers of a
//! kit of version 10.0.16299. Everything in it is compared with the crate, or is in a list of what is left out; everything
//! in the crate is compared with it, or is in a list of what these headers do not have. Neither list may have an entry
//! that is not needed, and the number of facts is fixed, so nothing can go missing without a failing test.

use std::collections::BTreeSet;
use std::fs;
use std::mem::offset_of;

use serde_json::Value;

use crate::items::Field;

mod items;
mod spelling;
mod statuses;

/// Items with the reason why they are only on one side.
type Listed = [(&'static str, &'static [&'static str])];

/// The sections of the facts and the number of facts in each.
const SECTIONS: [(&str, usize); 8] = [
    ("aliases", 1),
    ("constants", 62),
    ("enums", 4),
    ("functions", 65),
    ("guids", 3),
    ("meta", 6),
    ("size_formulas", 2),
    ("types", 69),
];

const TYPES_LEFT_OUT: &Listed = &[
    (
        "general structures of NDIS, which a driver declares where it registers with NDIS",
        &[
            "NDIS_BIND_PARAMETERS",
            "NDIS_MINIPORT_ADAPTER_ATTRIBUTES",
            "NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES",
            "NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES",
            "NDIS_MINIPORT_DRIVER_CHARACTERISTICS",
            "NDIS_MINIPORT_INIT_PARAMETERS",
            "NDIS_MINIPORT_PAUSE_PARAMETERS",
            "NDIS_MINIPORT_RESTART_PARAMETERS",
            "NDIS_OID_REQUEST",
            "NDIS_STATUS_INDICATION",
        ],
    ),
    (
        "resources of a port of a virtual switch, which no document of NDKPI mentions",
        &["NDIS_NDK_PARAMETERS", "NDIS_NDK_REQUEST_PARAMETERS", "NDIS_NDK_RESPONSE_PARAMETERS"],
    ),
    (
        "made by NDIS out of NDIS_NDK_CAPABILITIES and NDK_ADAPTER_INFO for management",
        &["NDIS_WMI_NDK_CAPABILITIES", "NDK_WMI_ADAPTER_INFO"],
    ),
    (
        "general structures of Winsock Kernel",
        &["WSK_CLIENT_DISPATCH", "WSK_CLIENT_NPI", "WSK_PROVIDER_DISPATCH", "WSK_PROVIDER_NPI", "WSK_REGISTRATION"],
    ),
];

const FIELDS_LEFT_OUT: &Listed =
    &[("another view of bytes that have a field", &["IN6_ADDR.u.Word", "SOCKADDR_IN6.sin6_scope_struct"])];

const FIELDS_ONLY_HERE: &Listed = &[
    ("the member of C has another name, under which it is compared too", &["IN6_ADDR.Byte", "NDK_SGE.Address"]),
    (
        "from NDKPI 2.1, which is newer than the headers",
        &[
            "NDK_CONNECTOR_DISPATCH.NdkAcceptEx",
            "NDK_CONNECTOR_DISPATCH.NdkCompleteConnectEx",
            "NDK_RESULT_EX.ProviderErrorCode",
        ],
    ),
];

const ENUMERATORS_LEFT_OUT: &Listed = &[(
    "a network event that is not one of NDK",
    &[
        "NET_PNP_EVENT_CODE.NetEventAllowBindsAbove",
        "NET_PNP_EVENT_CODE.NetEventAllowStart",
        "NET_PNP_EVENT_CODE.NetEventBindFailed",
        "NET_PNP_EVENT_CODE.NetEventBindList",
        "NET_PNP_EVENT_CODE.NetEventBindsComplete",
        "NET_PNP_EVENT_CODE.NetEventCancelRemoveDevice",
        "NET_PNP_EVENT_CODE.NetEventFilterPreDetach",
        "NET_PNP_EVENT_CODE.NetEventIMReEnableDevice",
        "NET_PNP_EVENT_CODE.NetEventInhibitBindsAbove",
        "NET_PNP_EVENT_CODE.NetEventMaximum",
        "NET_PNP_EVENT_CODE.NetEventPause",
        "NET_PNP_EVENT_CODE.NetEventPnPCapabilities",
        "NET_PNP_EVENT_CODE.NetEventPortActivation",
        "NET_PNP_EVENT_CODE.NetEventPortDeactivation",
        "NET_PNP_EVENT_CODE.NetEventQueryPower",
        "NET_PNP_EVENT_CODE.NetEventQueryRemoveDevice",
        "NET_PNP_EVENT_CODE.NetEventReconfigure",
        "NET_PNP_EVENT_CODE.NetEventRequirePause",
        "NET_PNP_EVENT_CODE.NetEventRestart",
        "NET_PNP_EVENT_CODE.NetEventSetPower",
        "NET_PNP_EVENT_CODE.NetEventSwitchActivate",
        "NET_PNP_EVENT_CODE.NetEventUploadGftFlowEntries",
    ],
)];

const CONSTANTS_LEFT_OUT: &Listed = &[
    ("general constants of Winsock Kernel", &["MAKE_WSK_VERSION(1,0)", "WSK_INFINITE_WAIT", "WSK_NO_WAIT"]),
    (
        "resources of a port of a virtual switch, which no document of NDKPI mentions",
        &["NDIS_NIC_SWITCH_VPORT_PARAMS_NDK_PARAMS_CHANGED"],
    ),
];

const FUNCTIONS_ONLY_HERE: &Listed = &[(
    "from NDKPI 2.1, which is newer than the headers",
    &["NDK_FN_ACCEPT_EX", "NDK_FN_COMPLETE_CONNECT_EX", "NDK_FN_DISCONNECT_EVENT_CALLBACK_EX"],
)];

/// Names in the source of the crate that begin like a name of NDKPI and that no fact has.
const NAMES_ONLY_HERE: &Listed = &[
    (
        "the short name, within NtStatus, of a constant that is compared",
        &["NDIS_ADAPTER_NOT_READY", "NDIS_BAD_VERSION"],
    ),
    (
        "a constant of NDIS that the facts do not have",
        &[
            "NDIS_BUFFER_TOO_SHORT",
            "NDIS_INVALID_LENGTH",
            "NDIS_INVALID_OID",
            "NDIS_STATUS_BUFFER_TOO_SHORT",
            "NDIS_STATUS_INVALID_LENGTH",
            "NDIS_STATUS_INVALID_OID",
            "NDIS_STATUS_NOT_SUPPORTED",
            "NDIS_STATUS_SUCCESS",
        ],
    ),
    ("a type that is only pointed to", &["NDIS_RSS_PROCESSOR_INFO", "WSK_CLIENT"]),
    ("a part of a structure that is compared", &["IN_ADDR", "NDK_SGE_ADDRESS"]),
    ("what a pointer to a SOCKADDR_IN or SOCKADDR_IN6 is declared as", &["SOCKADDR"]),
    ("an alias of a pointer, looked through wherever it is used", &["NDIS_HANDLE"]),
    ("an enumerator without its prefix", &["NDK_DISABLE", "NDK_ENABLE"]),
];

/// The facts, read anew by each test.
fn facts() -> Value {
    let path = sources::root().join("tests-host/facts/ndk-layouts.json");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of a section of the facts.
fn names(section: &Value) -> BTreeSet<String> {
    section.as_object().expect("a section has names").keys().cloned().collect()
}

fn listed(list: &Listed) -> BTreeSet<String> {
    let all: Vec<_> = list.iter().flat_map(|(_, names)| *names).map(|name| (*name).to_owned()).collect();
    let set: BTreeSet<_> = all.iter().cloned().collect();
    assert_eq!(all.len(), set.len(), "a name is listed twice");
    assert!(list.iter().all(|(reason, _)| !reason.is_empty()));
    set
}

/// Checks that the two sides have the same names, but for those that are listed, and that the lists are right.
fn match_up(facts: &BTreeSet<String>, ours: &BTreeSet<String>, left_out: &Listed, only_here: &Listed) {
    let missing: BTreeSet<_> = facts.difference(ours).cloned().collect();
    assert_eq!(missing, listed(left_out), "left: facts that the crate lacks, right: facts left out on purpose");
    let extra: BTreeSet<_> = ours.difference(facts).cloned().collect();
    assert_eq!(extra, listed(only_here), "left: items that the facts lack, right: items known to be only here");
}

fn number(value: &Value) -> usize {
    value.as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or_else(|| panic!("{value} is no number"))
}

/// The fields of a structure in the facts.
fn fields(fact: &Value) -> &[Value] {
    fact["fields"].as_array().expect("a structure has a list of fields")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

#[test]
fn no_fact_is_lost() {
    let facts = facts();
    let sections = facts.as_object().expect("the facts have sections").iter();
    let counts: Vec<_> = sections.map(|(name, section)| (name.as_str(), names(section).len())).collect();
    assert_eq!(counts, SECTIONS);
}

#[test]
fn every_structure_has_the_size_and_alignment_of_the_headers() {
    let facts = facts();
    let ours = items::types();
    match_up(&names(&facts["types"]), &ours.iter().map(|ours| ours.name.to_owned()).collect(), TYPES_LEFT_OUT, &[]);
    assert_eq!(ours.len(), 49);
    for ours in ours {
        let fact = &facts["types"][ours.name];
        // NDKPI 2.1 added two slots at the end of this table; no other structure grew.
        let grown = if ours.name == "NDK_CONNECTOR_DISPATCH" { 0x10 } else { 0 };
        assert_eq!(ours.size, number(&fact["size"]) + grown, "size of {}", ours.name);
        assert_eq!(ours.align, number(&fact["align"]), "alignment of {}", ours.name);
    }
}

#[test]
fn every_field_has_the_offset_and_type_of_the_headers() {
    let facts = facts();
    let mut theirs = BTreeSet::new();
    let mut matched = BTreeSet::new();
    let mut views = items::views();
    for ours in items::types() {
        let mut available = ours.fields;
        available.extend(views.extract_if(.., |(name, _)| *name == ours.name).map(|(_, field)| field));
        for fact in fields(&facts["types"][ours.name]) {
            theirs.insert(format!("{}.{}", ours.name, text(&fact["name"])));
        }
        for field in available {
            let place = format!("{}.{}", ours.name, field.name);
            let fact = fields(&facts["types"][ours.name]).iter().find(|fact| text(&fact["name"]) == field.name);
            if let Some(fact) = fact {
                compare_field(&place, &field, fact, &facts);
            }
            assert!(matched.insert(place), "{} is there twice", field.name);
        }
    }
    assert!(views.is_empty(), "views of no structure: {views:?}");
    match_up(&theirs, &matched, FIELDS_LEFT_OUT, FIELDS_ONLY_HERE);
}

fn compare_field(place: &str, field: &Field, fact: &Value, facts: &Value) {
    assert_eq!(field.offset, number(&fact["offset"]), "offset of {place}");
    let declared = text(&fact["type"]);
    let ours = field.spelling.replace("const ", "");
    assert_eq!(ours, spelling::of_c(declared, facts), "type of {place}, in C {declared}");
    // A pointer to a table is to a constant one on both sides.
    assert_eq!(declared.starts_with("const "), field.spelling.starts_with("const "), "constness of {place}");
}

#[test]
fn what_version_2_1_added_is_where_the_documentation_says() {
    assert_eq!(offset_of!(ndkpi::NDK_RESULT_EX, ProviderErrorCode), 0x1C);
    assert_eq!(offset_of!(ndkpi::NDK_CONNECTOR_DISPATCH, NdkCompleteConnectEx), 0x58);
    assert_eq!(offset_of!(ndkpi::NDK_CONNECTOR_DISPATCH, NdkAcceptEx), 0x60);
}

#[test]
fn an_older_ndis_sees_a_prefix_of_the_structure() {
    let facts = facts();
    let mut checked = 0;
    for ours in items::types() {
        let Some(older) = facts["types"][ours.name]["older_ndis"].as_object() else { continue };
        for (version, fact) in older {
            let without = fact["without"].as_array().expect("what is missing is a list");
            let (_, tail) = ours.fields.split_at(ours.fields.len() - without.len());
            assert!(tail.iter().map(|field| field.name).eq(without.iter().map(text)), "{} in {version}", ours.name);
            let end = tail.first().expect("something is missing").offset;
            assert_eq!(end.next_multiple_of(ours.align), number(&fact["size"]), "{} in NDIS {version}", ours.name);
            checked += 1;
        }
    }
    assert_eq!(checked, 4, "two structures of this crate grew after NDIS 6.30 and 6.40");
}

#[test]
fn every_enumerator_has_the_value_of_the_headers() {
    let facts = facts();
    let ours = items::enumerations();
    match_up(&names(&facts["enums"]), &ours.iter().map(|(name, _)| (*name).to_owned()).collect(), &[], &[]);
    let mut theirs = BTreeSet::new();
    let mut matched = BTreeSet::new();
    for (name, enumerators) in ours {
        let fact = &facts["enums"][name];
        theirs.extend(names(fact).into_iter().map(|enumerator| format!("{name}.{enumerator}")));
        for (enumerator, value) in enumerators {
            assert_eq!(fact[enumerator].as_i64(), Some(i64::from(value)), "{name}.{enumerator}");
            assert!(matched.insert(format!("{name}.{enumerator}")), "{name}.{enumerator} is there twice");
        }
    }
    match_up(&theirs, &matched, ENUMERATORS_LEFT_OUT, &[]);
}

#[test]
fn every_constant_has_the_value_of_the_headers() {
    let facts = facts();
    let ours = items::constants();
    match_up(
        &names(&facts["constants"]),
        &ours.iter().map(|(name, _)| (*name).to_owned()).collect(),
        CONSTANTS_LEFT_OUT,
        &[],
    );
    for (name, value) in ours {
        assert_eq!(facts["constants"][name]["value"], value, "{name}");
    }
}

#[test]
fn every_identifier_has_the_digits_of_the_headers() {
    let facts = facts();
    let ours = items::guids();
    match_up(&names(&facts["guids"]), &ours.iter().map(|(name, _)| (*name).to_owned()).collect(), &[], &[]);
    for (name, guid) in ours {
        assert_eq!(text(&facts["guids"][name]), guid.to_string(), "{name}");
    }
}

#[test]
fn every_length_of_a_list_follows_the_formula_of_the_headers() {
    let facts = facts();
    let ours = items::size_formulas();
    match_up(&names(&facts["size_formulas"]), &ours.iter().map(|(name, _)| (*name).to_owned()).collect(), &[], &[]);
    for (name, size_for) in ours {
        let formula = text(&facts["size_formulas"][name]);
        let (fixed, each) = formula.split_once(" + ").expect("a fixed part and one for each entry");
        let (fixed, each) = (fixed.parse::<usize>(), each.strip_suffix("*n").expect("times n").parse::<usize>());
        let (fixed, each) = (fixed.expect("a number"), each.expect("a number"));
        for count in [0, 1, 2, 1000, u32::MAX] {
            assert_eq!(size_for(count), fixed + each * count as usize, "{name} for {count}");
        }
    }
}

#[test]
fn every_function_has_the_prototype_of_the_headers() {
    let facts = facts();
    let ours = items::functions();
    match_up(
        &names(&facts["functions"]),
        &ours.iter().map(|(name, _)| (*name).to_owned()).collect(),
        &[],
        FUNCTIONS_ONLY_HERE,
    );
    let mut parameters = 0;
    for (name, ours) in ours {
        let Some(fact) = facts["functions"].get(name) else { continue };
        let theirs = spelling::prototype_of_c(fact, &facts);
        assert_eq!(ours.spelling(), theirs.spelling(), "{name}");
        for (ours, fact) in ours.parameters.iter().zip(fact["params"].as_array().expect("parameters")) {
            let place = format!("{name}, {}", text(&fact["name"]));
            let declared = text(&fact["type"]);
            let (pointer, constant) = (ours.ends_with('*'), ours.starts_with("const "));
            match text(&fact["dir"]) {
                "out" | "inout" => assert!(pointer && !constant, "{place} is written by the provider"),
                // What belongs to the other side is pointed to without `const`, as in C; plain data is not.
                "in" if pointer && !declared.starts_with("const ") && belongs_to_one_side(ours) => {}
                "in" => assert_eq!(pointer, constant, "{place} is only read"),
                direction => panic!("{place}: {direction}"),
            }
            parameters += 1;
        }
    }
    assert_eq!(parameters, 286, "parameters compared");
}

/// Returns true if the parameter points to an object, a context or a mapping: something that its owner alone may look
/// into.
fn belongs_to_one_side(parameter: &str) -> bool {
    let owned = ["MDL", "NDK_LOGICAL_ADDRESS_MAPPING", "NDK_OBJECT_HEADER", "WSK_CLIENT", "void"];
    let objects = ["ADAPTER", "CONNECTOR", "CQ", "LISTENER", "MR", "MW", "PD", "QP", "SHARED_ENDPOINT", "SRQ"];
    let pointee = parameter.strip_suffix('*').unwrap_or(parameter);
    owned.contains(&pointee) || pointee.strip_prefix("NDK_").is_some_and(|name| objects.contains(&name))
}

#[test]
fn the_functions_of_version_2_1_differ_only_in_the_disconnect_event() {
    let ours = items::functions();
    let spelling = |wanted: &str| {
        let (_, prototype) = ours.iter().find(|(name, _)| *name == wanted).expect("a function of the crate");
        prototype.spelling()
    };
    let (event, event_ex) =
        (spelling("NDK_FN_DISCONNECT_EVENT_CALLBACK"), spelling("NDK_FN_DISCONNECT_EVENT_CALLBACK_EX"));
    assert_eq!(event, "fn(void*) -> void");
    assert_eq!(event_ex, "fn(void*, u32) -> void");
    for name in ["NDK_FN_ACCEPT", "NDK_FN_COMPLETE_CONNECT"] {
        assert_eq!(spelling(&format!("{name}_EX")), spelling(name).replacen(&event, &event_ex, 1));
    }
}

#[test]
fn the_one_alias_is_an_address_of_eight_bytes() {
    let facts = facts();
    assert_eq!(text(&facts["aliases"]["NDK_LOGICAL_ADDRESS"]), "PHYSICAL_ADDRESS");
    assert_eq!((size_of::<ndkpi::NDK_LOGICAL_ADDRESS>(), align_of::<ndkpi::NDK_LOGICAL_ADDRESS>()), (8, 8));
}

#[test]
fn every_function_is_documented_with_the_irql_of_the_headers() {
    let facts = facts();
    let sources = sources();
    for (name, _) in items::functions() {
        let declaration = format!("\npub type {name} =");
        let before = sources.iter().find_map(|source| source.split_once(&declaration)).map(|(before, _)| before);
        let before = before.unwrap_or_else(|| panic!("{name} is not declared"));
        let mut documentation: Vec<_> = before.lines().rev().map_while(|line| line.strip_prefix("///")).collect();
        documentation.reverse();
        // NDKPI 2.1 is newer than the headers, and the handlers of NDIS have no level there.
        let level = match facts["functions"].get(name).map(|fact| &fact["irql"]) {
            None => "IRQL <= `DISPATCH_LEVEL`",
            Some(Value::Null) => "IRQL: `PASSIVE_LEVEL`",
            Some(level) => match text(level) {
                "<= DISPATCH_LEVEL" => "IRQL <= `DISPATCH_LEVEL`",
                "<= PASSIVE_LEVEL" => "IRQL: `PASSIVE_LEVEL`",
                level => panic!("{name}: {level}"),
            },
        };
        assert!(documentation.concat().contains(level), "{name}: {level}");
    }
}

#[test]
fn every_name_in_the_source_is_compared() {
    let code: Vec<_> = sources().iter().map(|source| code_of(source)).collect();
    let words = code.iter().flat_map(|code| code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let begins_like_ndkpi = |word: &&str| PREFIXES.iter().any(|prefix| word.starts_with(prefix));
    let used: BTreeSet<_> = words.filter(begins_like_ndkpi).map(str::to_owned).collect();

    let mut compared: BTreeSet<_> = items::types().iter().map(|item| item.name.to_owned()).collect();
    compared.extend(items::functions().iter().map(|(name, _)| (*name).to_owned()));
    compared.extend(items::constants().iter().map(|(name, _)| (*name).to_owned()));
    compared.extend(items::enumerations().iter().map(|(name, _)| (*name).to_owned()));
    compared.extend(items::guids().iter().map(|(name, _)| (*name).to_owned()));
    compared.extend(names(&facts()["aliases"]));
    compared.retain(|name| begins_like_ndkpi(&name.as_str()));
    match_up(&compared, &used, &[], NAMES_ONLY_HERE);
}

/// How the names of NDKPI and of what belongs to it begin.
const PREFIXES: [&str; 14] = [
    "CLOSE_NDK",
    "GROUP_",
    "GUID_",
    "IN6_",
    "IN_",
    "NDIS_",
    "NDK_",
    "NETWORK_DIRECT_",
    "NET_",
    "OID_",
    "OPEN_NDK",
    "PFN_",
    "SOCKADDR",
    "WSK",
];

/// The source files of the crate, and of the one with its status codes.
fn sources() -> Vec<String> {
    let mut directories =
        ["crates/abi/ndkpi/src", "crates/abi/ntstatus/src"].map(|path| sources::root().join(path)).to_vec();
    let mut sources = Vec::new();
    while let Some(directory) = directories.pop() {
        let entries = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        for entry in entries {
            let path = entry.expect("an entry of the directory").path();
            if path.is_dir() {
                directories.push(path);
            } else {
                sources.push(fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
            }
        }
    }
    sources
}

/// A source without comments and texts.
fn code_of(source: &str) -> String {
    let code = source.lines().map(|line| line.split("//").next().unwrap_or_default());
    let outside_of_texts = code.flat_map(|line| line.split('"').step_by(2));
    outside_of_texts.collect::<Vec<_>>().join(" ")
}
