//! The bindings that the drivers are built with off Windows are those of the genuine `wdk-sys`.
//!
//! The source of `xbuild/wdk-bindings` is generated; `facts/wdk-facts.json` is what bindgen makes of the kit's headers. Here the source
//! is parsed and every item in it looked up in the facts: types with their fields, aliases, enumerations, constants, statics,
//! prototypes, the framework's function indices. What the facts do not know fails, and so does what they know and the source
//! lacks. Sizes and offsets are asserted in `layout.rs` when it is compiled, which it is for this test; that the assertions
//! are complete and say what the facts say is checked here as well.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use quote::ToTokens;
use serde_json::Value;
use syn::{ForeignItem, Item, ItemForeignMod, ItemStruct, ItemUnion};
// Compiles the assertions of `layout.rs`, too.
use wdk_bindings::__source;

/// The source of the bindings.
#[derive(Clone)]
struct Source {
    types: String,
    layout: String,
    constants: String,
    ntddk: String,
    statics: String,
}

impl Source {
    fn read() -> Self {
        Self {
            types: __source::TYPES.to_owned(),
            layout: __source::LAYOUT.to_owned(),
            constants: __source::CONSTANTS.to_owned(),
            ntddk: __source::NTDDK.to_owned(),
            statics: __source::STATICS.to_owned(),
        }
    }
}

fn facts() -> Value {
    let path = sources::root().join("tests-host/facts/wdk-facts.json");
    serde_json::from_str(&fs::read_to_string(path).expect("the facts are in the repository")).expect("they are JSON")
}

/// What is wrong with the bindings.
#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn say(&mut self, problem: String) {
        self.0.push(problem);
    }

    fn expect(&mut self, what: &str, found: &str, facts: &str) {
        if found != facts {
            self.say(format!("{what} is {found}, in the facts {facts}"));
        }
    }

    /// Everything that the facts know is in the source, and nothing else.
    fn same_names<'a>(
        &mut self,
        what: &str,
        found: impl Iterator<Item = &'a str>,
        facts: impl Iterator<Item = &'a str>,
    ) {
        let (found, facts) = (found.collect::<BTreeSet<_>>(), facts.collect::<BTreeSet<_>>());
        for name in found.difference(&facts) {
            self.say(format!("{what} {name} is not in the facts"));
        }
        for name in facts.difference(&found) {
            self.say(format!("{what} {name} is missing"));
        }
    }
}

fn object<'a>(facts: &'a Value, section: &str) -> &'a serde_json::Map<String, Value> {
    facts[section].as_object().unwrap_or_else(|| panic!("the facts have a section {section}"))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} is a string in {value}"))
}

/// A piece of source in one spelling: without differences of white space and trailing commas.
fn spelling(tokens: &impl ToTokens) -> String {
    let spaced = tokens.to_token_stream().to_string();
    let bare = spaced.split_whitespace().collect::<Vec<_>>().join(" ");
    [("( ", "("), (" )", ")"), (" (", "("), (" ,", ","), (",)", ")"), (", >", " >")]
        .iter()
        .fold(bare, |bare, (from, to)| bare.replace(from, to))
}

/// A type of the facts. C's `long` is spelled by its width, which is 32 bits on Windows.
fn type_of_facts(spelled: &str) -> String {
    let tokens = syn::parse_str::<syn::Type>(spelled).unwrap_or_else(|error| panic!("{spelled}: {error}"));
    let mut spelled = spelling(&tokens);
    for (long, width) in [("core :: ffi :: c_long", "i32"), ("core :: ffi :: c_ulong", "u32")] {
        // Not a `long long`.
        let longer = format!("{long}long");
        spelled = spelled.replace(&longer, "\0").replace(long, width).replace('\0', &longer);
    }
    spelled
}

fn check(source: &Source, facts: &Value) -> Vec<String> {
    let mut problems = Problems::default();
    check_types(&source.types, facts, &mut problems);
    check_layout(&source.layout, facts, &mut problems);
    check_constants(&source.constants, facts, &mut problems);
    check_routines(&source.ntddk, facts, &mut problems);
    check_statics(&source.statics, facts, &mut problems);
    problems.0
}

fn check_types(source: &str, facts: &Value, problems: &mut Problems) {
    let file = syn::parse_file(source).expect("types.rs is Rust");
    let types = object(facts, "types").values().map(|entry| (text(entry, "rust"), entry)).collect::<BTreeMap<_, _>>();
    let table = framework_functions(facts);
    let defaults = file.items.iter().filter_map(default_of).collect::<BTreeSet<_>>();
    let (mut aliases, mut structures, mut opaque, mut modules) = (vec![], vec![], vec![], vec![]);
    for item in &file.items {
        match item {
            Item::Type(alias) => {
                let name = alias.ident.to_string();
                let known = if let Some((_, entry)) = table.iter().find(|(_, entry)| entry["pfn"] == name.as_str()) {
                    Some(format!("Option<{}>", text(entry, "signature")))
                } else {
                    facts["aliases"][&name].as_str().map(str::to_owned)
                };
                if let Some(known) = known {
                    problems.expect(&format!("type {name}"), &spelling(&alias.ty), &type_of_facts(&known));
                }
                aliases.push(name);
            }
            Item::Struct(ItemStruct { ident, fields, attrs, .. }) => {
                let name = ident.to_string();
                if let Some(entry) = types.get(name.as_str()) {
                    check_fields(&name, "struct", fields.iter(), attrs, entry, problems);
                    problems.expect(
                        &format!("Default of {name}"),
                        &defaults.contains(&name).to_string(),
                        &entry["default"].to_string(),
                    );
                    structures.push(name);
                } else {
                    let only = fields.iter().map(|field| spelling(&field.ty)).collect::<Vec<_>>();
                    let size = facts["opaque"][&name]["size"].as_u64().unwrap_or(0);
                    problems.expect(&format!("the opaque {name}"), &only.join(" "), &format!("[u8 ; {size}]"));
                    opaque.push(name);
                }
            }
            Item::Union(ItemUnion { ident, fields, attrs, .. }) => {
                let name = ident.to_string();
                if let Some(entry) = types.get(name.as_str()) {
                    check_fields(&name, "union", fields.named.iter(), attrs, entry, problems);
                }
                structures.push(name);
            }
            Item::Mod(module) => {
                let (_, items) = module.content.as_ref().expect("a module with contents");
                let name = module.ident.to_string();
                if name == "_WDFFUNCENUM" {
                    check_indices(items, facts, problems);
                } else {
                    check_enumeration(&name, items, &facts["enums"][&name], problems);
                    modules.push(name);
                }
            }
            Item::Macro(_) => {}
            other => problems.say(format!("types.rs has an item of another kind: {}", spelling(other))),
        }
    }
    let known = object(facts, "aliases").keys().map(String::as_str);
    let known = known.chain(table.iter().map(|(_, entry)| text(entry, "pfn")));
    problems.same_names("type", aliases.iter().map(String::as_str), known);
    problems.same_names("structure", structures.iter().map(String::as_str), types.keys().copied());
    let known = object(facts, "opaque").keys().map(String::as_str);
    problems.same_names("opaque structure", opaque.iter().map(String::as_str), known);
    let known = object(facts, "enums").keys().map(String::as_str);
    problems.same_names("enumeration", modules.iter().map(String::as_str), known);
}

/// The type in `zeroed_default!(type)`.
fn default_of(item: &Item) -> Option<String> {
    match item {
        Item::Macro(call) if call.mac.path.is_ident("zeroed_default") => Some(call.mac.tokens.to_string()),
        _ => None,
    }
}

fn check_fields<'a>(
    name: &str,
    kind: &str,
    fields: impl Iterator<Item = &'a syn::Field>,
    attributes: &[syn::Attribute],
    facts: &Value,
    problems: &mut Problems,
) {
    problems.expect(name, kind, text(facts, "kind"));
    let representation = attributes.iter().filter(|attribute| attribute.path().is_ident("repr"));
    let representation = representation.map(|attribute| spelling(&attribute.meta)).collect::<Vec<_>>().join(" ");
    let alignment = facts["align"].as_u64().expect("an alignment");
    let known = facts["fields"].as_array().expect("fields");
    let by_hand = known.iter().any(|field| text(field, "name").starts_with("__bindgen_padding"));
    let expected = match (facts["repr"].as_str(), alignment) {
        // In the facts the closing parenthesis is left out.
        (Some(repr), _) => format!("repr({})", type_like(repr)),
        // More than any field asks for.
        (None, 9..) => format!("repr(C, align({alignment}))"),
        // C aligns the fields by hand.
        (None, 8) if by_hand => "repr(C, align(8))".to_owned(),
        (None, _) => "repr(C)".to_owned(),
    };
    problems.expect(&format!("the representation of {name}"), &representation, &expected);
    let found = fields.map(|field| {
        let field_name = field.ident.as_ref().expect("a named field");
        format!("{field_name}: {}", spelling(&field.ty))
    });
    let known = facts["fields"].as_array().expect("fields").iter();
    let known = known.map(|field| format!("{}: {}", text(field, "name"), type_of_facts(text(field, "type"))));
    problems.expect(name, &found.collect::<Vec<_>>().join("; "), &known.collect::<Vec<_>>().join("; "));
}

fn type_like(repr: &str) -> String {
    let open = repr.matches('(').count() - repr.matches(')').count();
    format!("{repr}{}", ")".repeat(open))
}

fn check_enumeration(name: &str, items: &[Item], facts: &Value, problems: &mut Problems) {
    let Some(values) = facts["values"].as_object() else { return };
    let mut found = vec![];
    for item in items {
        match item {
            Item::Type(alias) => {
                problems.expect(&format!("{name}::Type"), &spelling(&alias.ty), &type_of_facts(text(facts, "type")));
            }
            Item::Const(constant) => {
                let constant_name = constant.ident.to_string();
                let known = values.get(&constant_name).map_or_else(String::new, Value::to_string);
                let value = spelling(&constant.expr).replace("- ", "-");
                problems.expect(&format!("{name}::{constant_name}"), &value, &known);
                found.push(constant_name);
            }
            other => problems.say(format!("{name} has an item of another kind: {}", spelling(other))),
        }
    }
    problems.same_names(name, found.iter().map(String::as_str), values.keys().map(String::as_str));
}

fn framework_functions(facts: &Value) -> Vec<(&str, &Value)> {
    let all = object(facts, "functions").iter();
    all.filter(|(_, entry)| entry["module"] == "wdf-table").map(|(name, entry)| (name.as_str(), entry)).collect()
}

fn check_indices(items: &[Item], facts: &Value, problems: &mut Problems) {
    let count = facts["meta"]["kmdf_1_15_function_count"].as_u64().expect("the number of functions of KMDF 1.15");
    let constants = items.iter().filter_map(|item| match item {
        Item::Const(constant) => Some((constant.ident.to_string(), spelling(&constant.expr))),
        _ => None,
    });
    let mut constants = constants.collect::<BTreeMap<_, _>>();
    let entries = constants.remove("WdfFunctionTableNumEntries");
    problems.expect("WdfFunctionTableNumEntries", &entries.unwrap_or_default(), &count.to_string());
    let known = framework_functions(facts);
    let known = known.iter().map(|(name, entry)| (format!("{name}TableIndex"), entry["index_1_19"].to_string()));
    let known = known.collect::<BTreeMap<_, _>>();
    for (name, index) in &constants {
        problems.expect(name, index, known.get(name).map_or("", String::as_str));
        if index.parse::<u64>().is_ok_and(|index| index >= count) {
            problems.say(format!("{name} is not a function of KMDF 1.15"));
        }
    }
    problems.same_names("index", constants.keys().map(String::as_str), known.keys().map(String::as_str));
}

fn check_layout(source: &str, facts: &Value, problems: &mut Problems) {
    let file = syn::parse_file(source).expect("layout.rs is Rust");
    let mut found = BTreeSet::new();
    for item in &file.items {
        let Item::Const(constant) = item else { continue };
        let syn::Expr::Block(block) = &*constant.expr else { continue };
        for statement in &block.block.stmts {
            if let syn::Stmt::Macro(call) = statement {
                found.insert(call.mac.tokens.to_string().replace(' ', ""));
            }
        }
    }
    let mut known = BTreeSet::new();
    for entry in object(facts, "types").values() {
        let name = text(entry, "rust");
        known.insert(format!("size_of::<{name}>()=={}", entry["size"]));
        known.insert(format!("align_of::<{name}>()=={}", entry["align"]));
        for field in entry["fields"].as_array().expect("fields") {
            let field_name = text(field, "name");
            // Bit fields are private; their storage is the only thing at its place.
            if !field_name.starts_with("_bitfield") {
                known.insert(format!("offset_of!({name},{field_name})=={}", field["offset"]));
            }
        }
    }
    let (found, known) = (found.iter().map(String::as_str), known.iter().map(String::as_str));
    problems.same_names("assertion", found, known);
}

fn check_constants(source: &str, facts: &Value, problems: &mut Problems) {
    let mut known = BTreeMap::new();
    for (name, entry) in object(facts, "constants") {
        known.insert(name.as_str(), format!("{} = {}", text(entry, "type"), entry["value"]));
    }
    for (section, kind) in [("status", "NTSTATUS"), ("pool_flags", "POOL_FLAGS")] {
        for (name, value) in object(facts, section) {
            known.insert(name.as_str(), format!("{kind} = {value}"));
        }
    }
    let mut found = vec![];
    for item in syn::parse_file(source).expect("constants.rs is Rust").items {
        match item {
            Item::Const(constant) => {
                let name = constant.ident.to_string();
                let value = spelling(&constant.expr).replace("- ", "-");
                let expected = known.get(name.as_str()).map_or("", String::as_str);
                problems.expect(&name, &format!("{} = {value}", spelling(&constant.ty)), expected);
                found.push(name);
            }
            Item::Use(_) => {}
            other => problems.say(format!("constants.rs has an item of another kind: {}", spelling(&other))),
        }
    }
    problems.same_names("constant", found.iter().map(String::as_str), known.keys().copied());
}

/// The library that a block is linked with, from its attribute.
fn library(block: &ItemForeignMod) -> String {
    let attributes = block.attrs.iter().map(|attribute| attribute.meta.to_token_stream().to_string());
    let all = attributes.collect::<String>();
    all.split('"').nth(1).unwrap_or_default().to_owned()
}

/// When a routine is declared that the kit's headers declare on one architecture only. Off Windows the routines are the simulated
/// kernel's, which has those of x86-64.
fn condition_of(only: &str) -> &'static str {
    match only {
        "" => "",
        "x86_64" => "# [cfg(any(not(windows), target_arch = \"x86_64\"))]",
        "aarch64" => "# [cfg(all(windows, target_arch = \"aarch64\"))]",
        other => panic!("{other}: which architecture?"),
    }
}

/// What the kit's headers make of each routine on each architecture, and what the bindings have there, agree.
#[test]
fn a_routine_is_bound_where_the_kit_declares_it() {
    let path = sources::root().join("tests-host/facts/declared.json");
    let declared = fs::read_to_string(path).expect("the facts are in the repository");
    let declared = serde_json::from_str::<Value>(&declared).expect("they are JSON");
    let facts = facts();
    let routines = object(&facts, "functions").iter().filter(|(_, entry)| entry["module"] == "ntddk");
    let mut of_one = Vec::new();
    for (name, entry) in routines.filter(|(_, entry)| entry["not_in_kit"] != true) {
        for arch in ["x86_64", "aarch64"] {
            let is_bound = entry["only"].as_str().is_none_or(|only| only == arch);
            assert_eq!(declared[name][arch] == "function", is_bound, "{name} on {arch}");
        }
        of_one.extend(entry["only"].as_str().map(|only| (name.as_str(), only)));
    }
    assert_eq!(of_one, [("KeLowerIrql", "x86_64"), ("KfLowerIrql", "aarch64")]);
}

fn check_routines(source: &str, facts: &Value, problems: &mut Problems) {
    let all = object(facts, "functions").iter().filter(|(_, entry)| entry["module"] == "ntddk");
    let known = all.collect::<BTreeMap<_, _>>();
    let (mut found, mut found_statics) = (vec![], vec![]);
    for item in syn::parse_file(source).expect("ntddk.rs is Rust").items {
        let Item::ForeignMod(block) = item else { continue };
        problems.expect("the calling convention", &spelling(&block.abi), "extern \"C\"");
        let library = library(&block);
        for item in &block.items {
            match item {
                ForeignItem::Fn(function) => {
                    let name = function.sig.ident.to_string();
                    if let Some(entry) = known.get(&name) {
                        let expected = text(entry, "signature").replacen(&format!("fn {name}"), "fn", 1);
                        let signature = spelling(&function.sig).replacen(&format!("fn {name}"), "fn", 1);
                        let signature = format!("unsafe extern \"C\" {signature}");
                        problems.expect(&name, &type_of_facts(&signature), &type_of_facts(&expected));
                        problems.expect(&name, &library, entry["dll"].as_str().unwrap_or("ntoskrnl.exe"));
                        let only = entry["only"].as_str().unwrap_or_default();
                        let conditions = function.attrs.iter().map(spelling).collect::<String>();
                        problems.expect(&format!("the condition of {name}"), &conditions, condition_of(only));
                    }
                    found.push(name);
                }
                ForeignItem::Static(variable) => found_statics.push(static_spelling(variable)),
                other => problems.say(format!("ntddk.rs has an item of another kind: {}", spelling(other))),
            }
        }
    }
    problems.same_names("routine", found.iter().map(String::as_str), known.keys().map(|name| name.as_str()));
    let known = statics_of_facts(facts, |name| !name.starts_with("Wdf"));
    problems.same_names("static", found_statics.iter().map(String::as_str), known.iter().map(String::as_str));
}

fn static_spelling(variable: &syn::ForeignItemStatic) -> String {
    format!("{}{}: {}", mutability(&variable.mutability), variable.ident, spelling(&variable.ty))
}

const fn mutability(mutability: &syn::StaticMutability) -> &'static str {
    if matches!(mutability, syn::StaticMutability::Mut(_)) { "mut " } else { "" }
}

fn statics_of_facts(facts: &Value, wanted: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let all = object(facts, "statics").iter().filter(|(name, _)| wanted(name));
    let spelled = all.map(|(name, entry)| {
        let mutability = if entry["mut"] == true { "mut " } else { "" };
        format!("{mutability}{name}: {}", type_of_facts(text(entry, "type")))
    });
    spelled.collect()
}

fn check_statics(source: &str, facts: &Value, problems: &mut Problems) {
    let known = statics_of_facts(facts, |name| name.starts_with("Wdf"));
    let (mut defined, mut declared) = (vec![], vec![]);
    for item in syn::parse_file(source).expect("statics.rs is Rust").items {
        match item {
            Item::Static(variable) => {
                let mutability = mutability(&variable.mutability);
                defined.push(format!("{mutability}{}: {}", variable.ident, spelling(&variable.ty)));
            }
            Item::ForeignMod(block) => {
                let statics = block.items.iter().filter_map(|item| match item {
                    ForeignItem::Static(variable) => Some(static_spelling(variable)),
                    _ => None,
                });
                declared.extend(statics);
            }
            _ => {}
        }
    }
    for found in [defined, declared] {
        problems.same_names("static", found.iter().map(String::as_str), known.iter().map(String::as_str));
    }
}

#[test]
fn the_bindings_are_those_of_the_facts() {
    let facts = facts();
    let problems = check(&Source::read(), &facts);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    // That something was compared.
    assert!(object(&facts, "functions").len() > 200 && object(&facts, "types").len() > 90);
}

#[test]
fn every_function_of_the_framework_is_in_kmdf_1_15() {
    let facts = facts();
    for (name, entry) in framework_functions(&facts) {
        assert!(entry["index_1_19"].as_u64().is_some_and(|index| index < 444), "{name}");
    }
}

#[test]
fn every_routine_is_documented() {
    let path = sources::root().join("tests-host/facts/ddi.json");
    let documented = serde_json::from_str::<Value>(&fs::read_to_string(path).expect("the facts")).expect("JSON");
    let facts = facts();
    let (names, pages) = (object(&facts, "functions").keys(), documented.as_object().expect("an object").keys());
    assert!(names.eq(pages), "run tools/wdk-facts.py document again");
}

/// A file of the bindings.
type File = fn(&mut Source) -> &mut String;

/// Each of these changes must be noticed: in a file, this text replaced by that.
const WRONG: [(File, &str, &str); 12] = [
    (|source| &mut source.types, "pub mod _MODE ", "pub type BOGUS = u32; pub mod _MODE "),
    (|source| &mut source.types, "pub mod _MODE ", "#[repr(C)] pub struct _BOGUS { pub field: u32 } pub mod _MODE "),
    (|source| &mut source.types, "pub MdlFlags: CSHORT", "pub MdlFlags: USHORT"),
    (|source| &mut source.types, "pub ByteCount: ULONG,", "pub ByteOffset: ULONG,"),
    (|source| &mut source.types, "pub type PVOID = *mut", "pub type PVOID = *const"),
    (|source| &mut source.types, "WdfDriverCreateTableIndex: Type = 116", "WdfDriverCreateTableIndex: Type = 117"),
    (|source| &mut source.types, "HighImportance: Type = 2", "HighImportance: Type = 3"),
    (|source| &mut source.layout, "offset_of!(_MDL, ByteCount) == 40", "offset_of!(_MDL, ByteCount) == 44"),
    (|source| &mut source.layout, "assert!(size_of::< _KDPC > () == 64);", ""),
    (|source| &mut source.constants, "DISPATCH_LEVEL: u32 = 2", "DISPATCH_LEVEL: u32 = 1"),
    (|source| &mut source.ntddk, "KeClearEvent(Event: PRKEVENT)", "KeClearEvent()"),
    (|source| &mut source.statics, "WdfFunctions: *const WDFFUNC;", "WdfFunctions: *mut WDFFUNC;"),
];

#[test]
fn a_wrong_binding_is_found() {
    let (facts, right) = (facts(), Source::read());
    for (file, from, to) in WRONG {
        let mut wrong = right.clone();
        let text = file(&mut wrong);
        assert!(text.contains(from), "nothing to replace: {from}");
        *text = text.replacen(from, to, 1);
        assert!(!check(&wrong, &facts).is_empty(), "{to:?} instead of {from:?} is not noticed");
    }
}
