//! What the crate `ndkpi` declares, read from its source.

use syn::{
    Attribute, Expr, Field, Fields, Item, Type,
    parse::{Parse, ParseStream},
    parse_quote,
    punctuated::Punctuated,
};

use crate::doc;

/// The files whose items are in the headers, in the order of the headers.
const FILES: [&str; 25] = [
    "version",
    "base",
    "lam",
    "object",
    "info",
    "adapter_flags",
    "notify",
    "op_flags",
    "mr_flags",
    "sge",
    "result",
    "extension",
    "callbacks",
    "dispatch/mod",
    "dispatch/adapter",
    "dispatch/connector",
    "dispatch/cq",
    "dispatch/listener",
    "dispatch/mr",
    "dispatch/mw",
    "dispatch/pd",
    "dispatch/qp",
    "dispatch/shared_endpoint",
    "dispatch/srq",
    "wsk",
];

/// Everything.
#[derive(Default)]
pub struct Source {
    pub structures: Vec<Structure>,
    pub enumerations: Vec<Enumeration>,
    pub constants: Vec<Constant>,
    pub functions: Vec<Function>,
}

pub struct Structure {
    pub name: String,
    pub doc: Vec<String>,
    pub fields: Vec<Member>,
    /// One of the ten objects.
    pub is_object: bool,
}

/// A field or a parameter.
pub struct Member {
    pub name: String,
    pub doc: Vec<String>,
    pub kind: Type,
}

pub struct Enumeration {
    pub name: String,
    pub doc: Vec<String>,
    pub values: Vec<Constant>,
}

pub struct Constant {
    pub name: String,
    pub doc: Vec<String>,
    pub value: u64,
}

pub struct Function {
    pub name: String,
    pub doc: Vec<String>,
    pub parameters: Vec<Member>,
    pub result: Option<Type>,
}

/// Names of other headers than these two, or of the private part of the crate.
fn is_ours(name: &str) -> bool {
    let others = ["NDK_EXTENSION_ID_ADAPTER_RSS_DISPATCH", "NDK_EXTENSION_ADAPTER_RSS_DISPATCH", "NDK_SGE_ADDRESS"];
    let others = others.contains(&name) || name == "NDK_FN_GET_RSS_PROCESSOR_INFO";
    !others && ["NDK_", "WSK", "PFN_WSK_NDK"].iter().any(|prefix| name.starts_with(prefix))
}

pub fn read() -> Source {
    let mut source = Source::default();
    for file in FILES {
        let text = crate::read(&format!("crates/abi/ndkpi/src/{file}.rs"));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{file}.rs: {error}"));
        parsed.items.into_iter().for_each(|item| source.take(item));
    }
    source
}

impl Source {
    fn take(&mut self, item: Item) {
        match item {
            Item::Struct(item) if is_ours(&item.ident.to_string()) => {
                let Fields::Named(fields) = item.fields else { panic!("{} has names for its fields", item.ident) };
                let fields = fields.named.into_iter().map(member).collect();
                let (name, doc) = (item.ident.to_string(), doc::paragraphs(&item.attrs));
                self.structures.push(Structure { name, doc, fields, is_object: false });
            }
            Item::Const(item) if is_ours(&item.ident.to_string()) => {
                let (name, doc) = (item.ident.to_string(), doc::paragraphs(&item.attrs));
                self.constants.push(Constant { value: value(&name, &item.expr), name, doc });
            }
            Item::Type(item) if is_ours(&item.ident.to_string()) => {
                let Type::BareFn(function) = *item.ty else { panic!("{} is a function", item.ident) };
                let parameters = function.inputs.into_iter().map(|input| Member {
                    name: input.name.expect("parameters have names").0.to_string(),
                    doc: Vec::new(),
                    kind: input.ty,
                });
                let result = match function.output {
                    syn::ReturnType::Default => None,
                    syn::ReturnType::Type(_, kind) => Some(*kind),
                };
                let (name, doc) = (item.ident.to_string(), doc::paragraphs(&item.attrs));
                self.functions.push(Function { name, doc, parameters: parameters.collect(), result });
            }
            Item::Macro(item) if item.mac.path.is_ident("open_enum") => {
                let parsed: OpenEnum = item.mac.parse_body().expect("an open_enum");
                self.enumerations.push(parsed.0);
            }
            Item::Macro(item) if item.mac.path.is_ident("object") => {
                let parsed: Object = item.mac.parse_body().expect("an object");
                self.structures.push(parsed.0);
            }
            _ => {}
        }
    }
}

fn member(field: Field) -> Member {
    let name = field.ident.expect("fields have names").to_string();
    Member { name, doc: doc::paragraphs(&field.attrs), kind: field.ty }
}

/// A literal, or the letters of a control code.
fn value(name: &str, expression: &Expr) -> u64 {
    match expression {
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(number), .. }) => number.base10_parse().expect("a number"),
        Expr::Call(call) if call.args.len() == 1 => {
            let Expr::Unary(unary) = &call.args[0] else { panic!("{name}: letters") };
            let Expr::Lit(syn::ExprLit { lit: syn::Lit::ByteStr(letters), .. }) = &*unary.expr else {
                panic!("{name}: letters")
            };
            letters.value().iter().fold(0, |code, &letter| code << 8 | u64::from(letter))
        }
        _ => panic!("{name} is neither a number nor letters"),
    }
}

/// `open_enum! { /// doc NAME { /// doc ITEM = 1, "Name"; ... } }`
struct OpenEnum(Enumeration);

impl Parse for OpenEnum {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let doc = doc::paragraphs(&input.call(Attribute::parse_outer)?);
        let name: syn::Ident = input.parse()?;
        let body;
        syn::braced!(body in input);
        let mut values = Vec::new();
        while !body.is_empty() {
            let doc = doc::paragraphs(&body.call(Attribute::parse_outer)?);
            let _: syn::Ident = body.parse()?;
            let _: syn::Token![=] = body.parse()?;
            let value: syn::LitInt = body.parse()?;
            let _: syn::Token![,] = body.parse()?;
            let name: syn::LitStr = body.parse()?;
            let _: syn::Token![;] = body.parse()?;
            values.push(Constant { name: name.value(), doc, value: value.base10_parse()? });
        }
        Ok(Self(Enumeration { name: name.to_string(), doc, values }))
    }
}

/// `object! { /// doc NAME, DISPATCH, KIND }`
struct Object(Structure);

impl Parse for Object {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let doc = doc::paragraphs(&input.call(Attribute::parse_outer)?);
        let names: Punctuated<syn::Ident, syn::Token![,]> = Punctuated::parse_terminated(input)?;
        let dispatch = &names[1];
        let field =
            |name: &str, kind: Type, doc: &str| Member { name: name.to_owned(), doc: vec![doc.to_owned()], kind };
        let fields = vec![
            field("Header", parse_quote!(NDK_OBJECT_HEADER), ""),
            field("Dispatch", parse_quote!(*const #dispatch), "Set by the provider; its functions."),
        ];
        Ok(Self(Structure { name: names[0].to_string(), doc, fields, is_object: true }))
    }
}
