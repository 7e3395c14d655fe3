//! Documentation of Rust as a comment of C.

use syn::{Attribute, Expr, ExprLit, Lit, Meta};

/// The paragraphs of an item's documentation.
pub fn paragraphs(attributes: &[Attribute]) -> Vec<String> {
    let lines = attributes.iter().filter(|attribute| attribute.path().is_ident("doc")).filter_map(|attribute| {
        let Meta::NameValue(value) = &attribute.meta else { return None };
        let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &value.value else { return None };
        Some(text.value().trim().to_owned())
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    let words = text.split("\n\n").take_while(|paragraph| !paragraph.contains("```"));
    words.map(|paragraph| plain(&paragraph.replace('\n', " "))).filter(|text| !text.is_empty()).collect()
}

/// Without the marks of Markdown: `[text](link)`, `[text]` and backquotes.
fn plain(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('[') {
        out.push_str(before);
        let Some((inside, behind)) = after.split_once(']') else {
            rest = after;
            continue;
        };
        out.push_str(inside);
        rest = match behind.strip_prefix('(').and_then(|link| link.split_once(')')) {
            Some((_, behind)) => behind,
            None => behind,
        };
    }
    out.push_str(rest);
    let out = out.replace('`', "").replace("NtStatus::", "STATUS_").replace("Self::", "");
    // Where Rust has a function that looks at the version first, C has to look itself.
    let (before, after) = out.split_once(", see NDK_").unwrap_or((&out, ""));
    let after = after.split_once('.').map_or("", |_| ".");
    format!("{before}{after}").trim().to_owned()
}

/// The text as a comment, indented, in lines of at most 110 characters.
pub fn comment(text: &str, indent: &str) -> String {
    let one = format!("{indent}/* {text} */\n");
    if one.len() <= 111 {
        return one;
    }
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one");
        if !line.is_empty() && indent.len() + 3 + line.len() + 1 + word.len() > 110 {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    let body = lines.iter().map(|line| format!("{indent} * {line}\n")).collect::<Vec<_>>().concat();
    format!("{indent}/*\n{body}{indent} */\n")
}
