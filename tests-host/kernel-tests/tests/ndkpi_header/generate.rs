//! The text of the headers.
//!
//! Which type a field or parameter has in C (`ULONG` or `UINT32`), which way a parameter goes and if it may be null: as in the
//! facts. What NDKPI 2.1 added is not among them; there it follows from the type in Rust.

#![expect(clippy::format_push_string, reason = "a short text, made once: clarity before speed")]

use serde_json::Value;
use syn::{GenericArgument, PathArguments, Type};

use crate::{
    doc::comment,
    source::{Constant, Enumeration, Function, Member, Source, Structure},
};

const LICENCE: &str = "SPDX-License-Identifier: MIT OR Apache-2.0";

/// What a name belongs to.
fn is_of_wsk(name: &str) -> bool {
    name.starts_with("WSK") || name.starts_with("PFN_WSK")
}

/// `ndkpi.h`: NDKPI itself.
pub fn ndkpi(source: &Source, facts: &Value) -> String {
    let mut text = format!(
        "/* {LICENCE} */\n{}#ifndef NDKPI_H\n#define NDKPI_H\n\n#include <wsk.h>\n\n",
        comment(
            "The Network Direct Kernel Provider Interface up to version 2.1, in the spellings of the kit's header of this name. \
             Made from the crate ndkpi by the test ndkpi_header; do not edit. Include ntddk.h (or wdm.h, \
             ntifs.h, ndis.h) first.",
            ""
        )
    );
    let (objects, rest): (Vec<_>, Vec<_>) = source.structures.iter().partition(|item| item.is_object);
    let (tables, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(|item| item.name.ends_with("_DISPATCH"));
    let own = |name: &str| !is_of_wsk(name);
    for object in &objects {
        text += &format!("typedef struct _{0} {0};\n", object.name);
    }
    for item in &source.enumerations {
        text += &enumeration(item);
    }
    for (prefix, words) in [
        ("NDK_ADAPTER_FLAG_", "What an adapter can do: AdapterFlags of NDK_ADAPTER_INFO."),
        ("NDK_CQ_NOTIFY_", "What a completion queue is armed for."),
        ("NDK_OP_FLAG_", "Flags of work requests."),
        ("NDK_MR_FLAG_", "Rights of a memory region."),
    ] {
        text += &format!("\n/* {words} */\n");
        let constants = source.constants.iter().filter(|item| item.name.starts_with(prefix));
        text.extend(constants.map(|item| constant(item, "")));
    }
    text += "\n/* An address that the adapter uses. */\ntypedef PHYSICAL_ADDRESS NDK_LOGICAL_ADDRESS;\n";
    for item in rest.iter().filter(|item| own(&item.name) && item.name != "NDK_LOGICAL_ADDRESS") {
        text += &structure(item, facts);
    }
    for item in source.functions.iter().filter(|item| own(&item.name)) {
        text += &function(item, facts);
    }
    for item in tables.iter().filter(|item| own(&item.name)).chain(&objects) {
        text += &structure(item, facts);
    }
    text + "\n#endif\n"
}

/// `wskndk.h`: how a consumer opens an adapter through Winsock Kernel.
pub fn wskndk(source: &Source, facts: &Value) -> String {
    let mut text = format!(
        "/* {LICENCE} */\n{}#ifndef WSKNDK_H\n#define WSKNDK_H\n\n",
        comment(
            "How a kernel consumer of NDKPI opens an adapter through Winsock Kernel, in the spellings of the kit's header of this \
             name. Made from the crate ndkpi by the test ndkpi_header; do not edit. Include wsk.h and ndkpi.h first.",
            ""
        )
    );
    text.extend(source.constants.iter().filter(|item| is_of_wsk(&item.name)).map(|item| constant(item, "")));
    text.extend(source.functions.iter().filter(|item| is_of_wsk(&item.name)).map(|item| function(item, facts)));
    text.extend(source.structures.iter().filter(|item| is_of_wsk(&item.name)).map(|item| structure(item, facts)));
    text + "\n#endif\n"
}

fn first(doc: &[String]) -> &str {
    doc.first().map_or("", String::as_str)
}

fn constant(item: &Constant, indent: &str) -> String {
    format!("{}{indent}#define {} 0x{:08x}\n", comment(first(&item.doc), indent), item.name, item.value)
}

fn enumeration(item: &Enumeration) -> String {
    let mut text = format!("\n{}typedef enum _{} {{\n", comment(first(&item.doc), ""), item.name);
    for value in &item.values {
        let number = if value.value > 0xFF { format!("{:#x}", value.value) } else { value.value.to_string() };
        text += &beside(&format!("    {} = {number},", value.name), first(&value.doc), "    ");
    }
    text + &format!("}} {};\n", item.name)
}

/// A line with its documentation behind it, or above it if that is too long.
fn beside(line: &str, doc: &str, indent: &str) -> String {
    let one = format!("{line} /* {doc} */");
    if doc.is_empty() {
        format!("{line}\n")
    } else if one.len() <= 110 {
        one + "\n"
    } else {
        format!("{}{line}\n", comment(doc, indent))
    }
}

fn structure(item: &Structure, facts: &Value) -> String {
    let name = &item.name;
    let mut text = format!("\n{}", comment(first(&item.doc), ""));
    text += &if item.is_object { format!("struct _{name} {{\n") } else { format!("typedef struct _{name} {{\n") };
    for field in &item.fields {
        // In C its two members are members of the entry itself.
        if name == "NDK_SGE" && field.name == "Address" {
            text += "    union {\n        PVOID VirtualAddress;\n        NDK_LOGICAL_ADDRESS LogicalAddress;\n    };\n";
            continue;
        }
        let declared = facts["types"][name]["fields"].as_array().and_then(|fields| named(fields, &field.name));
        let kind = declared.map_or_else(|| of_rust(&field.kind), |fact| text_of(&fact["type"]).to_owned());
        text += &beside(&format!("    {};", declare(&kind, &field.name)), first(&field.doc), "    ");
    }
    text + &if item.is_object { "};\n".to_owned() } else { format!("}} {name};\n") }
}

fn function(item: &Function, facts: &Value) -> String {
    let fact = &facts["functions"][&item.name];
    let parameters = item.parameters.iter().map(|parameter| {
        let declared = fact["params"].as_array().and_then(|parameters| named(parameters, &parameter.name));
        let kind = declared.map_or_else(|| of_rust(&parameter.kind), |fact| text_of(&fact["type"]).to_owned());
        format!("    {} {}", way(parameter, declared), declare(&kind, &parameter.name))
    });
    let result = match (fact["returns"].as_str(), &item.result) {
        (Some(declared), _) => declared.to_owned(),
        (None, None) => "VOID".to_owned(),
        (None, Some(kind)) => of_rust(kind),
    };
    let parameters = parameters.collect::<Vec<_>>().join(",\n");
    format!("\n{}typedef {result} (*{})(\n{parameters});\n", comment(&item.doc.join(" "), ""), item.name)
}

fn named<'facts>(list: &'facts [Value], name: &str) -> Option<&'facts Value> {
    list.iter().find(|fact| fact["name"] == name)
}

fn text_of(fact: &Value) -> &str {
    fact.as_str().expect("a text")
}

/// The annotation of a parameter.
fn way(parameter: &Member, declared: Option<&Value>) -> String {
    let optional = |fact: &Value| fact["optional"].as_bool().unwrap_or(false);
    match declared {
        Some(fact) => {
            let way = match text_of(&fact["dir"]) {
                "in" => "_In",
                "out" => "_Out",
                "inout" => "_Inout",
                other => panic!("{}: {other}", parameter.name),
            };
            format!("{way}{}", if optional(fact) { "_opt_" } else { "_" })
        }
        // Only in functions of NDKPI 2.1, which have nothing to write to.
        None if parameter.name.ends_with("Context") || parameter.name == "pPrivateData" => "_In_opt_".to_owned(),
        None if parameter.name == "DisconnectEvent" => "_In_opt_".to_owned(),
        None => "_In_".to_owned(),
    }
}

/// A declaration: arrays go behind the name, stars to it.
fn declare(kind: &str, name: &str) -> String {
    if let Some((element, length)) = kind.split_once('[') {
        return format!("{element} {name}[{length}");
    }
    let (kind, stars) = kind.split_at(kind.find('*').unwrap_or(kind.len()));
    format!("{} {}{name}", kind.trim_end(), stars.replace(' ', ""))
}

/// The C type for a type of Rust.
fn of_rust(kind: &Type) -> String {
    match kind {
        Type::Ptr(pointer) => {
            let pointee = of_rust(&pointer.elem);
            match (pointee.as_str(), pointer.const_token.is_some()) {
                ("VOID", false) => "PVOID".to_owned(),
                ("VOID", true) => "const PVOID".to_owned(),
                (_, true) => format!("const {pointee} *"),
                (_, false) => format!("{pointee} *"),
            }
        }
        Type::Path(path) => {
            let last = path.path.segments.last().expect("a path has a name");
            if let PathArguments::AngleBracketed(arguments) = &last.arguments
                && let Some(GenericArgument::Type(inner)) = arguments.args.first()
            {
                return of_rust(inner);
            }
            let name = last.ident.to_string();
            match name.as_str() {
                "u16" => "USHORT",
                "u32" => "ULONG",
                "u64" => "UINT64",
                "usize" => "SIZE_T",
                "c_void" => "VOID",
                "NtStatus" => "NTSTATUS",
                _ => return name,
            }
            .to_owned()
        }
        _ => panic!("a type that the headers do not have"),
    }
}
