//! The source of the crate `ndis`, parsed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use quote::ToTokens;
use syn::{Attribute, Expr, Fields, FnArg, ForeignItem, Item, Lit, ReturnType, Type};

/// A structure or a union.
pub struct Structure {
    /// Names and types, in order.
    pub fields: Vec<(String, String)>,
    /// What `layout!` asserts of it.
    pub layout: Option<Layout>,
}

/// What `layout!` asserts.
pub struct Layout {
    pub size: u64,
    pub align: u64,
    pub offsets: BTreeMap<String, u64>,
}

/// The names that C has for the members, and their values.
pub struct Enumeration(pub Vec<(String, i64)>);

/// A function or the type of one.
pub struct Prototype {
    /// Names and types.
    pub parameters: Vec<(String, String)>,
    pub result: String,
}

/// Everything that the crate declares.
#[derive(Default)]
pub struct Source {
    pub structures: BTreeMap<String, Structure>,
    pub enumerations: BTreeMap<String, Enumeration>,
    pub constants: BTreeMap<String, u64>,
    pub prototypes: BTreeMap<String, Prototype>,
    /// The library of each imported routine.
    pub imports: BTreeMap<String, String>,
    /// The documentation of each function and function type.
    pub documentation: BTreeMap<String, String>,
    names: BTreeSet<String>,
}

impl Source {
    /// Parses the crate.
    pub fn read() -> Self {
        let directory = sources::root().join("crates/abi/ndis/src");
        let mut source = Self::default();
        for entry in fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display())) {
            let path = entry.expect("an entry of the directory").path();
            let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            file.items.into_iter().for_each(|item| source.take(item));
        }
        source
    }

    /// Every name that is declared.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    fn take(&mut self, item: Item) {
        match item {
            Item::Struct(item) => self.structure(&item.ident.to_string(), &item.fields),
            Item::Union(item) => self.structure(&item.ident.to_string(), &Fields::Named(item.fields)),
            Item::Const(item) => {
                if let Some(value) = literal(&item.expr) {
                    self.constants.insert(item.ident.to_string(), value);
                    self.names.insert(item.ident.to_string());
                }
            }
            Item::Type(item) => {
                self.names.insert(item.ident.to_string());
                if let Type::BareFn(function) = &*item.ty {
                    let parameters = function.inputs.iter().map(|parameter| {
                        let (name, _) = parameter.name.as_ref().expect("parameters have names");
                        (name.to_string(), spelled(&parameter.ty, ""))
                    });
                    let prototype = Prototype { parameters: parameters.collect(), result: result(&function.output) };
                    self.prototypes.insert(item.ident.to_string(), prototype);
                    self.documentation.insert(item.ident.to_string(), documentation(&item.attrs));
                }
            }
            Item::Static(item) => {
                self.names.insert(item.ident.to_string());
            }
            Item::ForeignMod(block) => {
                let link = block.attrs.iter().map(|attribute| attribute.to_token_stream().to_string());
                let link =
                    link.filter(|text| text.contains("raw-dylib") && text.contains("+verbatim")).collect::<String>();
                let library = link.split('"').nth(1).expect("the block names its library").to_owned();
                for item in block.items {
                    let ForeignItem::Fn(function) = item else { panic!("only routines are imported") };
                    let name = function.sig.ident.to_string();
                    let parameters = function.sig.inputs.iter().map(|parameter| {
                        let FnArg::Typed(parameter) = parameter else { panic!("{name} has a receiver") };
                        (parameter.pat.to_token_stream().to_string(), spelled(&parameter.ty, ""))
                    });
                    let prototype =
                        Prototype { parameters: parameters.collect(), result: result(&function.sig.output) };
                    self.documentation.insert(name.clone(), documentation(&function.attrs));
                    self.imports.insert(name.clone(), library.clone());
                    self.names.insert(name.clone());
                    self.prototypes.insert(name, prototype);
                }
            }
            Item::Macro(item) => {
                let tokens = item.mac.tokens.to_string();
                match item.mac.path.to_token_stream().to_string().as_str() {
                    "layout" => self.layout(&tokens),
                    "open_enum" => self.enumeration(&tokens),
                    "opaque" => {
                        self.names.insert(tokens.rsplit(' ').next().expect("a name").to_owned());
                    }
                    // What a header says are constants, which are compared by themselves.
                    "compile_error" | "header" => {}
                    other => panic!("{other}! is not known here"),
                }
            }
            Item::Mod(_) | Item::Use(_) | Item::Impl(_) => {}
            other => panic!("not expected in the crate: {}", other.to_token_stream()),
        }
    }

    fn structure(&mut self, name: &str, fields: &Fields) {
        let field = |field: &syn::Field| {
            (field.ident.as_ref().expect("fields have names").to_string(), spelled(&field.ty, name))
        };
        let fields = fields.iter().map(field).collect();
        self.structures.insert(name.to_owned(), Structure { fields, layout: None });
        self.names.insert(name.to_owned());
    }

    /// `layout!(Name: size 0x10, align 8, { Field @ 0x00, ... })`
    fn layout(&mut self, tokens: &str) {
        let words: Vec<_> =
            tokens.split(|c: char| c.is_whitespace() || ":,{}@".contains(c)).filter(|word| !word.is_empty()).collect();
        let [name, "size", size, "align", align, fields @ ..] = &words[..] else { panic!("{tokens}") };
        let offsets = fields.chunks(2).map(|pair| (pair[0].to_owned(), parse(pair[1]))).collect();
        let structure =
            self.structures.get_mut(*name).unwrap_or_else(|| panic!("{name} is declared before its layout"));
        structure.layout = Some(Layout { size: parse(size), align: parse(align), offsets });
    }

    /// `open_enum! { Name { MEMBER = 1, "name of C"; ... } }` with documentation everywhere.
    fn enumeration(&mut self, tokens: &str) {
        let (head, body) = tokens.split_once('{').expect("a body");
        let name = head.split_whitespace().last().expect("a name").to_owned();
        // Documentation may have any text in it, members have not: the text before `=` in a member is one word.
        let members = body.split(';').filter_map(|member| {
            let (before, name) = member.trim().trim_end_matches('}').trim().rsplit_once(',')?;
            let value = before.rsplit('=').next()?.trim().parse().ok()?;
            Some((name.trim().trim_matches('"').to_owned(), value))
        });
        self.names.insert(name.clone());
        self.enumerations.insert(name, Enumeration(members.collect()));
    }
}

fn documentation(attributes: &[Attribute]) -> String {
    attributes.iter().map(|attribute| attribute.to_token_stream().to_string()).collect::<Vec<_>>().join("\n")
}

fn result(output: &ReturnType) -> String {
    match output {
        ReturnType::Default => "()".to_owned(),
        ReturnType::Type(_, spelling) => spelled(spelling, ""),
    }
}

/// A type as text: without `const`, `mut`, `Option` and paths, with `Self` by its name.
fn spelled(declared: &Type, itself: &str) -> String {
    match declared {
        Type::Ptr(pointer) => format!("*{}", spelled(&pointer.elem, itself)),
        Type::Array(array) => format!("[{};{}]", spelled(&array.elem, itself), array.len.to_token_stream()),
        Type::Path(path) => {
            let last = path.path.segments.last().expect("a path has a name");
            match (last.ident.to_string().as_str(), &last.arguments) {
                ("Self", _) => itself.to_owned(),
                ("Option", syn::PathArguments::AngleBracketed(arguments)) => {
                    let syn::GenericArgument::Type(inner) = &arguments.args[0] else { panic!("an option of a type") };
                    spelled(inner, itself)
                }
                (name, _) => name.to_owned(),
            }
        }
        other => panic!("not expected: {}", other.to_token_stream()),
    }
}

/// A number as it is written, also where a constructor stands around it.
fn literal(value: &Expr) -> Option<u64> {
    match value {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => number.base10_parse().ok(),
            _ => None,
        },
        Expr::Call(call) => call.args.first().and_then(literal),
        _ => None,
    }
}

fn parse(number: &str) -> u64 {
    let parsed = number.strip_prefix("0x").map_or_else(|| number.parse(), |digits| u64::from_str_radix(digits, 16));
    parsed.unwrap_or_else(|error| panic!("{number}: {error}"))
}
