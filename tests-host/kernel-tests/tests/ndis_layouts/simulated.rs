//! The structures of NDIS that the simulated kernel lays out itself, because the crate `ndis` does without them.
//!
//! Each says in its documentation which structure of C it is. `facts/ndis-structures.json` has what clang makes of those with the kit's
//! headers (`tools/ndis-facts.py structures`). The fields are compared by where they lie: each of C begins and ends with one of Rust.

use std::{collections::BTreeMap, ops::Range};

use quote::ToTokens;
use serde_json::Value;
use syn::{Attribute, Expr, Item, ItemStruct, Lit, Type};

use sources::{files, root};

/// Structures of which only the beginning is here, with what is left out.
const BEGINNINGS: [(&str, &str); 4] = [
    ("NDIS_FILTER_DRIVER_CHARACTERISTICS", "the third revision's handlers for synchronous requests"),
    ("NDIS_PROTOCOL_DRIVER_CHARACTERISTICS", "the second revision's handlers for direct requests"),
    ("NDIS_RESTART_ATTRIBUTES", "the data, which are as long as they are"),
    ("NDIS_RESTART_GENERAL_ATTRIBUTES", "what later revisions have behind it"),
];

/// Bytes and alignment of types that are declared elsewhere.
const OTHERS: [(&str, usize, usize); 10] = [
    ("u8", 1, 1),
    ("u16", 2, 2),
    ("u32", 4, 4),
    ("u64", 8, 8),
    ("usize", 8, 8),
    ("NDIS_OBJECT_HEADER", 4, 2),
    ("NET_IFINDEX", 4, 4),
    ("NET_LUID", 8, 8),
    ("PDRIVER_OBJECT", 8, 8),
    ("PVOID", 8, 8),
];

/// The structures of a file that have the layout of C, by their names.
type Structures = BTreeMap<String, ItemStruct>;

/// Where the parts of a structure lie: numbers, pointers, and what is declared elsewhere.
#[derive(Default)]
struct Layout {
    parts: Vec<(String, Range<usize>)>,
    end: usize,
    alignment: usize,
}

impl Layout {
    fn of(structure: &ItemStruct, beside: &Structures) -> Self {
        let mut layout = Self { alignment: 1, ..Self::default() };
        for field in &structure.fields {
            let name = field.ident.as_ref().expect("a field with a name").to_string();
            layout.add(&name, &field.ty, beside);
        }
        layout.end = layout.end.next_multiple_of(layout.alignment);
        layout
    }

    fn add(&mut self, name: &str, of_type: &Type, beside: &Structures) {
        let spelled = of_type.to_token_stream().to_string().replace(' ', "");
        if let Type::Array(array) = of_type {
            let Expr::Lit(count) = &array.len else { panic!("{name} has a length that is no number") };
            let Lit::Int(count) = &count.lit else { panic!("{name} has a length that is no number") };
            for _ in 0..count.base10_parse::<usize>().expect("a number") {
                self.add(name, &array.elem, beside);
            }
        } else if let Some(inner) = beside.get(&spelled) {
            let inner = Self::of(inner, beside);
            let start = self.begin(inner.alignment);
            self.parts.extend(
                inner
                    .parts
                    .into_iter()
                    .map(|(part, range)| (format!("{name}.{part}"), start + range.start..start + range.end)),
            );
            self.end = start + inner.end;
        } else {
            let other =
                OTHERS.iter().find(|(other, ..)| *other == spelled).map(|&(_, size, alignment)| (size, alignment));
            let is_pointer = matches!(of_type, Type::Ptr(_) | Type::BareFn(_)) || spelled.starts_with("Option<");
            let known = other.or_else(|| is_pointer.then_some((8, 8)));
            let (size, alignment) = known.unwrap_or_else(|| panic!("{name}: how long is {spelled}?"));
            let start = self.begin(alignment);
            self.parts.push((name.to_owned(), start..start + size));
            self.end = start + size;
        }
    }

    /// Where the next part begins that has this alignment.
    fn begin(&mut self, alignment: usize) -> usize {
        self.alignment = self.alignment.max(alignment);
        self.end.next_multiple_of(alignment)
    }
}

fn has_layout_of_c(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.to_token_stream().to_string().replace(' ', "") == "#[repr(C)]")
}

/// The name of C that the documentation of a structure begins with.
fn name_in_c(structure: &ItemStruct) -> Option<String> {
    let documentation = structure.attrs.iter().find(|attribute| attribute.path().is_ident("doc"))?;
    let text = documentation.to_token_stream().to_string();
    let name = text.split('`').nth(1)?;
    (name.starts_with("NDIS_") || name.starts_with("MIB_")).then(|| name.to_owned())
}

/// The structures of the simulated kernel that are some of C, with those beside them.
fn simulated() -> Vec<(String, Layout)> {
    let mut found = Vec::new();
    for source in files("crates/simulator/simulated-kernel/src", &["rs"]) {
        let file = syn::parse_file(&source.text).unwrap_or_else(|error| panic!("{}: {error}", source.path));
        let mut beside = Structures::new();
        for item in file.items {
            if let Item::Struct(structure) = item
                && has_layout_of_c(&structure.attrs)
            {
                beside.insert(structure.ident.to_string(), structure);
            }
        }
        let named = beside.values().filter_map(|one| Some((name_in_c(one)?, Layout::of(one, &beside))));
        found.extend(named);
    }
    found
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().expect("a number")).expect("a small number")
}

/// What a structure has otherwise than C, in words.
fn differences(name: &str, layout: &Layout, fact: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let is_beginning = BEGINNINGS.iter().any(|(beginning, _)| *beginning == name);
    let size = number(&fact["size"]);
    let last = layout.parts.last().map_or(0, |(_, range)| range.end);
    if is_beginning && layout.end > size || !is_beginning && layout.end != size {
        wrong.push(format!("{name} has {} bytes, and in C {size}", layout.end));
    }
    let mut fields: Vec<Range<usize>> = Vec::new();
    for field in fact["fields"].as_array().expect("a list") {
        let start = number(&field["offset"]);
        let range = start..start + number(&field["size"]);
        if is_beginning && start >= last {
            continue;
        }
        let begins = layout.parts.iter().any(|(_, of)| of.start == range.start);
        let ends = layout.parts.iter().any(|(_, of)| of.end == range.end);
        if !begins || !ends {
            wrong.push(format!("{name} has no field for {} from {} to {}", field["name"], range.start, range.end));
        }
        fields.push(range);
    }
    for (part, range) in &layout.parts {
        let is_inside = fields.iter().any(|field| field.start <= range.start && range.end <= field.end);
        if !is_inside {
            wrong.push(format!("{name}.{part} is no field of C, or more than one"));
        }
    }
    wrong
}

fn facts() -> Value {
    let path = root().join("tests-host/facts/ndis-structures.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("the facts are JSON")
}

#[test]
fn every_structure_of_the_simulated_kernel_lies_as_in_the_headers() {
    let (facts, simulated) = (facts(), simulated());
    let facts = facts.as_object().expect("an object");
    let names: Vec<&String> = simulated.iter().map(|(name, _)| name).collect();
    let unknown: Vec<_> = names.iter().filter(|name| !facts.contains_key(**name)).collect();
    let unused: Vec<_> = facts.keys().filter(|name| !names.contains(name)).collect();
    assert!(unknown.is_empty() && unused.is_empty(), "without facts {unknown:?}, and not here {unused:?}");
    let wrong: Vec<_> = simulated.iter().flat_map(|(name, layout)| differences(name, layout, &facts[name])).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let missing: Vec<_> = BEGINNINGS.iter().filter(|(name, _)| !facts.contains_key(*name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_field_that_lies_elsewhere_is_found() {
    let fact = serde_json::json!({"size": 16, "fields": [
        {"name": "Header", "offset": 0, "size": 4}, {"name": "Flags", "offset": 4, "size": 4},
        {"name": "Handle", "offset": 8, "size": 8},
    ]});
    let of = |text: &str| {
        let structure: ItemStruct = syn::parse_str(text).expect("a structure");
        differences("NDIS_ONE", &Layout::of(&structure, &Structures::new()), &fact).len()
    };
    let header = "header: NDIS_OBJECT_HEADER";
    assert_eq!(of(&format!("struct One {{ {header}, flags: u32, handle: *mut c_void }}")), 0);
    assert_eq!(of(&format!("struct One {{ {header}, flags: [u16; 2], handle: Option<fn()> }}")), 0, "two for one of C");
    assert_ne!(of(&format!("struct One {{ {header}, handle: *mut c_void, flags: u32 }}")), 0, "another order");
    assert_ne!(of(&format!("struct One {{ {header}, flags: u16, handle: *mut c_void }}")), 0, "a shorter field");
    assert_ne!(
        of(&format!("struct One {{ {header}, flags: u32, low: u32, high: u16 }}")),
        0,
        "a field that ends early"
    );
    assert_ne!(of(&format!("struct One {{ {header}, flags: u32 }}")), 0, "a field less");
}
