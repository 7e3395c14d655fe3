//! Generates the bindings from `tests-host/facts/wdk-facts.json`, a table of facts about the genuine ones.
//!
//! Four files: `types.rs`, `layout.rs` (assertions on the types), `constants.rs`, `ntddk.rs` (the kernel's routines). And the macro
//! `call_unsafe_wdf_function_binding!`, because `wdk-macros` wants the place of `types.rs` as a literal.
//!
//! The test `wdk_facts` does not trust this program: it parses what is generated here and compares every item with the facts.

use std::{collections::BTreeMap, env, error::Error, fs, path::Path};

use serde_json::{Map, Value};

/// The facts, from the crate's folder.
const FACTS: &str = "../../tests-host/facts/wdk-facts.json";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={FACTS}");
    let facts = fs::read_to_string(Path::new(&env::var("CARGO_MANIFEST_DIR")?).join(FACTS))?;
    let facts = serde_json::from_str(&facts)?;
    let folder = env::var("OUT_DIR")?;
    let folder = Path::new(&folder);
    for (name, source) in [
        ("types.rs", types(&facts)),
        ("layout.rs", layout(&facts)),
        ("constants.rs", constants(&facts)),
        ("ntddk.rs", routines(&facts)),
    ] {
        let file = syn::parse_file(&source.join("\n")).map_err(|error| format!("{name}: {error}"))?;
        fs::write(folder.join(name), prettyplease::unparse(&file))?;
    }
    let types = folder.join("types.rs");
    fs::write(
        folder.join("call_unsafe_wdf_function_binding.rs"),
        format!(
            r#"
/// Calls a function of the framework's table by its name in C, without the first argument `DriverGlobals`.
#[macro_export]
macro_rules! call_unsafe_wdf_function_binding {{
    ($($tokens:tt)*) => {{
        $crate::__proc_macros::call_unsafe_wdf_function_binding!(r"{}", $($tokens)*)
    }};
}}
"#,
            types.display()
        ),
    )?;
    Ok(())
}

/// The entries of a section, by name.
fn section<'a>(facts: &'a Value, name: &str) -> &'a Map<String, Value> {
    facts[name].as_object().unwrap_or_else(|| panic!("the facts have a section {name}"))
}

/// A string of an entry.
fn text<'a>(entry: &'a Value, key: &str) -> &'a str {
    entry[key].as_str().unwrap_or_else(|| panic!("{key} is a string in {entry}"))
}

/// The fields of a structure or union.
fn fields(entry: &Value) -> &[Value] {
    entry["fields"].as_array().unwrap_or_else(|| panic!("{entry} has fields"))
}

/// The functions of one module, by name.
fn functions<'a>(facts: &'a Value, module: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    section(facts, "functions").iter().filter(move |(_, entry)| entry["module"] == module)
}

/// Bit fields are private: their storage has another name and type than the fields.
fn is_bit_field(field: &Value) -> bool {
    text(field, "name").starts_with("_bitfield")
}

/// A spelling that means the same wherever it is compiled: C's `long` has 32 bits on Windows.
fn portable(spelled: &str) -> String {
    let pieces = spelled.split_inclusive(|letter: char| !letter.is_alphanumeric() && !matches!(letter, '_' | ':'));
    let pieces = pieces.map(|piece| {
        let path = piece.trim_end_matches(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let width = match path {
            "core::ffi::c_long" => "i32",
            "core::ffi::c_ulong" => "u32",
            other => other,
        };
        [width, &piece[path.len()..]].concat()
    });
    pieces.collect()
}

fn types(facts: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, target) in section(facts, "aliases") {
        let target = target.as_str().unwrap_or_else(|| panic!("{name} is an alias"));
        lines.push(format!("pub type {name} = {};", portable(target)));
    }
    for entry in section(facts, "types").values() {
        lines.extend(structure(entry));
    }
    for (name, entry) in section(facts, "opaque") {
        let (size, align) = (entry["size"].as_u64().unwrap_or(0), entry["align"].as_u64().unwrap_or(1));
        lines.push(format!(
            "#[repr(C, align({align}))] #[derive(Clone, Copy)] pub struct {name} {{ _unused: [u8; {size}] }}"
        ));
    }
    for (name, entry) in section(facts, "enums") {
        lines.push(format!("pub mod {name} {{ pub type Type = {};", portable(text(entry, "type"))));
        for (constant, value) in section(entry, "values") {
            lines.push(format!("pub const {constant}: Type = {value};"));
        }
        lines.push("}".to_owned());
    }
    lines.push("pub mod _WDFFUNCENUM { pub type Type = core::ffi::c_int;".to_owned());
    for (name, entry) in functions(facts, "wdf-table") {
        lines.push(format!("pub const {name}TableIndex: Type = {};", entry["index_1_19"]));
    }
    let count = &facts["meta"]["kmdf_1_15_function_count"];
    lines.push(format!("pub const WdfFunctionTableNumEntries: Type = {count}; }}"));
    for (_, entry) in functions(facts, "wdf-table") {
        lines.push(format!("pub type {} = Option<{}>;", text(entry, "pfn"), portable(text(entry, "signature"))));
    }
    lines
}

fn structure(entry: &Value) -> Vec<String> {
    let (name, kind) = (text(entry, "rust"), text(entry, "kind"));
    let mut lines = Vec::new();
    // An array of unknown length cannot be copied.
    if !fields(entry).iter().any(|field| text(field, "type").contains("__Incomplete")) {
        lines.push("#[derive(Clone, Copy)]".to_owned());
    }
    let layout = entry["repr"].as_str().unwrap_or("C");
    // No field asks for more than 8 by itself, and where C aligns fields by hand, to 8, they may ask for less.
    let by_hand = fields(entry).iter().any(|field| text(field, "name").starts_with("__bindgen_padding"));
    let alignment = entry["align"].as_u64().filter(|alignment| *alignment > 8 || (by_hand && *alignment == 8));
    let alignment = alignment.map(|alignment| format!(", align({alignment})")).unwrap_or_default();
    lines.push(format!("#[repr({layout}{alignment})]"));
    lines.push(format!("pub {kind} {name} {{"));
    for field in fields(entry) {
        let visibility = if is_bit_field(field) { "" } else { "pub " };
        lines.push(format!("{visibility}{}: {},", text(field, "name"), portable(text(field, "type"))));
    }
    lines.push("}".to_owned());
    if entry["default"] == true {
        lines.push(format!("zeroed_default!({name});"));
    }
    lines
}

fn layout(facts: &Value) -> Vec<String> {
    let mut lines = vec!["use core::mem::{align_of, offset_of, size_of}; use crate::types::*;".to_owned()];
    for entry in section(facts, "types").values() {
        let name = text(entry, "rust");
        lines.push("const _: () = {".to_owned());
        lines.push(format!("assert!(size_of::<{name}>() == {});", entry["size"]));
        lines.push(format!("assert!(align_of::<{name}>() == {});", entry["align"]));
        for field in fields(entry).iter().filter(|field| !is_bit_field(field)) {
            lines.push(format!("assert!(offset_of!({name}, {}) == {});", text(field, "name"), field["offset"]));
        }
        lines.push("};".to_owned());
    }
    lines
}

fn constants(facts: &Value) -> Vec<String> {
    let mut lines = vec!["use crate::types::*;".to_owned()];
    let constants = section(facts, "constants").iter();
    let constants = constants.map(|(name, entry)| (name, text(entry, "type"), &entry["value"]));
    let pool_flags = section(facts, "pool_flags").iter().map(|(name, value)| (name, "POOL_FLAGS", value));
    let statuses = section(facts, "status").iter().map(|(name, value)| (name, "NTSTATUS", value));
    let all = constants.chain(pool_flags).chain(statuses);
    lines.extend(all.map(|(name, kind, value)| format!("pub const {name}: {kind} = {value};")));
    lines
}

fn routines(facts: &Value) -> Vec<String> {
    /// The kernel, which has the routines that no other library has, and the variables.
    const KERNEL: &str = "ntoskrnl.exe";
    let mut libraries = BTreeMap::<&str, Vec<String>>::new();
    for (_, entry) in functions(facts, "ntddk") {
        let library = entry["dll"].as_str().unwrap_or(KERNEL);
        let signature = portable(text(entry, "signature"));
        let declared = signature.strip_prefix("unsafe extern \"C\" ").unwrap_or(&signature);
        // Off Windows the simulated kernel has the routines, and it is one for x86-64.
        let condition = match entry["only"].as_str() {
            None => "",
            Some("x86_64") => r#"#[cfg(any(not(windows), target_arch = "x86_64"))] "#,
            Some("aarch64") => r#"#[cfg(all(windows, target_arch = "aarch64"))] "#,
            Some(other) => panic!("an architecture that nobody knows: {other}"),
        };
        libraries.entry(library).or_default().push(format!("{condition}pub {declared};"));
    }
    // Those of the framework's stub library are in statics.rs.
    for (name, entry) in section(facts, "statics").iter().filter(|(name, _)| !name.starts_with("Wdf")) {
        let mutability = if entry["mut"] == true { "mut " } else { "" };
        let declared = format!("pub static {mutability}{name}: {};", portable(text(entry, "type")));
        libraries.entry(KERNEL).or_default().push(declared);
    }
    let mut lines = vec!["use crate::types::*;".to_owned()];
    for (library, declarations) in libraries {
        lines.push(format!(
            r#"#[cfg_attr(windows, link(name = "{library}", kind = "raw-dylib", modifiers = "+verbatim"))]"#
        ));
        lines.push("unsafe extern \"C\" {".to_owned());
        lines.extend(declarations);
        lines.push("}".to_owned());
    }
    lines
}
