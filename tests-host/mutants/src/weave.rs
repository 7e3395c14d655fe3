//! All mutants of a file in one text: each stands beside the original, and a number chooses at run time.
//!
//! An operator or a guard becomes `(if on(7) { mutant } else { original })`, a function begins with `if on(8) { return mutant; }`, an arm
//! of a match has the guard `!on(9)`. A constant is computed by the compiler, which asks for no number, so its mutants are not woven; those of a `const fn` are.

use std::{collections::HashMap, fmt::Write as _, ops::Range};

use anyhow::{Context, Result};
use syn::{
    Expr, ExprBinary, ExprMatch, ExprStruct, ExprUnary, ImplItemFn, ItemConst, ItemFn, ItemStatic, Pat, TraitItemFn,
    Type,
    spanned::Spanned,
    visit::{self, Visit},
};

use crate::mutant::{Genre, Mutant, offset};

/// Where the syntax lets a mutant stand.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Site {
    /// This expression, which is written twice.
    Expression(Range<usize>),
    /// The beginning of a function's body.
    Body(usize),
    /// The end of the pattern of an arm that has no guard.
    Pattern(usize),
    /// Nowhere: a constant; part of a let chain, which is no expression by itself; an arm without which a match is not complete.
    Nowhere,
}

/// The sites of a file by genre and by the byte at which the mutants' span begins.
#[derive(Default)]
struct Sites {
    found: HashMap<(Key, usize), Site>,
    /// How many constant contexts lie around what is visited.
    constant: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Body,
    Operator,
    Arm,
    Guard,
    Field,
}

impl Sites {
    fn add(&mut self, key: Key, start: usize, site: Site) {
        let site = if self.constant == 0 { site } else { Site::Nowhere };
        self.found.insert((key, start), site);
    }

    fn body(&mut self, block: &syn::Block) {
        if let Some(first) = block.stmts.first() {
            let brace = block.brace_token.span.open().byte_range().end;
            self.add(Key::Body, first.span().byte_range().start, Site::Body(brace));
        }
    }

    fn constant(&mut self, visit: impl FnOnce(&mut Self)) {
        self.constant += 1;
        visit(self);
        self.constant -= 1;
    }
}

/// True if `expression` is a condition with `let` in it, without being a block of its own.
fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Sites {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.body(&item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.body(&item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(block) = &item.default {
            self.body(block);
            visit::visit_trait_item_fn(self, item);
        }
    }

    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        self.constant(|sites| visit::visit_item_const(sites, item));
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.constant(|sites| visit::visit_impl_item_const(sites, item));
    }

    fn visit_trait_item_const(&mut self, item: &'ast syn::TraitItemConst) {
        self.constant(|sites| visit::visit_trait_item_const(sites, item));
    }

    fn visit_item_static(&mut self, item: &'ast ItemStatic) {
        self.constant(|sites| visit::visit_item_static(sites, item));
    }

    fn visit_expr_const(&mut self, expression: &'ast syn::ExprConst) {
        self.constant(|sites| visit::visit_expr_const(sites, expression));
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.constant(|sites| visit::visit_variant(sites, variant));
    }

    fn visit_expr_repeat(&mut self, expression: &'ast syn::ExprRepeat) {
        self.visit_expr(&expression.expr);
        self.constant(|sites| sites.visit_expr(&expression.len));
    }

    // The length of an array is the only expression in a type.
    fn visit_type(&mut self, of: &'ast Type) {
        self.constant(|sites| visit::visit_type(sites, of));
    }

    fn visit_generic_argument(&mut self, argument: &'ast syn::GenericArgument) {
        self.constant(|sites| visit::visit_generic_argument(sites, argument));
    }

    fn visit_expr_binary(&mut self, expression: &'ast ExprBinary) {
        let site = if has_let(&expression.left) || has_let(&expression.right) {
            Site::Nowhere
        } else {
            Site::Expression(expression.span().byte_range())
        };
        self.add(Key::Operator, expression.op.span().byte_range().start, site);
        visit::visit_expr_binary(self, expression);
    }

    fn visit_expr_unary(&mut self, expression: &'ast ExprUnary) {
        let site = Site::Expression(expression.span().byte_range());
        self.add(Key::Operator, expression.op.span().byte_range().start, site);
        visit::visit_expr_unary(self, expression);
    }

    fn visit_expr_match(&mut self, expression: &'ast ExprMatch) {
        // Without it the match needs all of its arms.
        let has_rest = expression.arms.iter().any(|arm| matches!(arm.pat, Pat::Wild(_)) && arm.guard.is_none());
        for arm in &expression.arms {
            if let Some((_, guard)) = &arm.guard {
                let range = guard.span().byte_range();
                let site = if has_let(guard) { Site::Nowhere } else { Site::Expression(range.clone()) };
                self.add(Key::Guard, range.start, site);
            } else {
                let site = if has_rest { Site::Pattern(arm.pat.span().byte_range().end) } else { Site::Nowhere };
                self.add(Key::Arm, arm.span().byte_range().start, site);
            }
        }
        visit::visit_expr_match(self, expression);
    }

    fn visit_expr_struct(&mut self, expression: &'ast ExprStruct) {
        if expression.rest.is_some() {
            for field in &expression.fields {
                let site = Site::Expression(expression.span().byte_range());
                self.add(Key::Field, field.span().byte_range().start, site);
            }
        }
        visit::visit_expr_struct(self, expression);
    }
}

/// A file with its mutants.
pub struct Woven {
    /// The text.
    pub text: String,
    /// What the mutants have written into it, by their numbers, in bytes: an error of the compiler in it is theirs.
    pub written: Vec<(usize, Range<usize>)>,
    /// The numbers of those that cannot stand in it.
    pub constant: Vec<usize>,
}

/// Something to write: at the site of an expression in its place, elsewhere before what follows.
struct Edit<'a> {
    range: Range<usize>,
    mutants: Vec<(usize, &'a Mutant)>,
}

/// Writes `mutants`, each with its number, into `text`, which is the file that they are of. `on` is the path of the function that a
/// number is asked of.
///
/// # Errors
///
/// The text is not Rust, or a mutant is not of this text.
pub fn weave(text: &str, mutants: &[(usize, &Mutant)], on: &str) -> Result<Woven> {
    let mut sites = Sites::default();
    sites.visit_file(&syn::parse_file(text)?);

    let mut constant = Vec::new();
    let mut expressions: HashMap<(usize, usize), Vec<(usize, &Mutant)>> = HashMap::new();
    let mut insertions: HashMap<usize, Vec<(usize, &Mutant)>> = HashMap::new();
    for &(number, mutant) in mutants {
        let start = offset(text, mutant.span.start).with_context(|| format!("{} is not in its file", mutant.name))?;
        let key = match mutant.genre {
            Genre::FnValue => Key::Body,
            Genre::BinaryOperator | Genre::UnaryOperator => Key::Operator,
            Genre::MatchArm => Key::Arm,
            Genre::MatchArmGuard => Key::Guard,
            Genre::StructField => Key::Field,
        };
        match sites.found.get(&(key, start)).with_context(|| format!("{}: no such place", mutant.name))? {
            Site::Expression(range) => {
                expressions.entry((range.start, range.end)).or_default().push((number, mutant));
            }
            Site::Body(at) | Site::Pattern(at) => insertions.entry(*at).or_default().push((number, mutant)),
            Site::Nowhere => constant.push(number),
        }
    }
    let mut edits: Vec<Edit<'_>> = (expressions.into_iter())
        .map(|((start, end), mutants)| Edit { range: start..end, mutants })
        .chain(insertions.into_iter().map(|(at, mutants)| Edit { range: at..at, mutants }))
        .collect();
    // What is around something comes before it.
    edits.sort_by_key(|edit| (edit.range.start, usize::MAX - edit.range.end));

    let mut writer = Writer { text, on, out: String::with_capacity(2 * text.len()), written: Vec::new() };
    writer.range(0..text.len(), &edits)?;
    Ok(Woven { text: writer.out, written: writer.written, constant })
}

struct Writer<'a> {
    text: &'a str,
    on: &'a str,
    out: String,
    written: Vec<(usize, Range<usize>)>,
}

impl Writer<'_> {
    /// Writes a range of the text with the edits in it.
    fn range(&mut self, range: Range<usize>, mut edits: &[Edit<'_>]) -> Result<()> {
        let mut at = range.start;
        while let [edit, rest @ ..] = edits {
            self.out.push_str(&self.text[at..edit.range.start]);
            at = edit.range.end;
            let inside = rest.partition_point(|inner| inner.range.start < edit.range.end);
            edits = &rest[inside..];
            if edit.range.is_empty() {
                self.insertion(edit);
            } else {
                self.expression(edit, &rest[..inside])?;
            }
        }
        self.out.push_str(&self.text[at..range.end]);
        Ok(())
    }

    /// Writes `text`, which is the mutant's of that number.
    fn mutant(&mut self, number: usize, text: &str) {
        let start = self.out.len();
        self.out.push_str(text);
        self.written.push((number, start..self.out.len()));
    }

    /// Writes an expression with its mutants beside it. Only one of all is on: there are none inside the others.
    fn expression(&mut self, edit: &Edit<'_>, inside: &[Edit<'_>]) -> Result<()> {
        let original = &self.text[edit.range.clone()];
        self.out.push('(');
        for &(number, mutant) in &edit.mutants {
            let place = |at| offset(self.text, at).with_context(|| format!("{} is not in its file", mutant.name));
            let (start, end) =
                (place(mutant.span.start)? - edit.range.start, place(mutant.span.end)? - edit.range.start);
            let text = format!("{}{}{}", &original[..start], mutant.replacement, &original[end..]);
            let condition = format!("if {}({number}) {{ ", self.on);
            self.mutant(number, &format!("{condition}{text} }}"));
            self.out.push_str(" else ");
        }
        self.out.push_str("{ ");
        self.range(edit.range.clone(), inside)?;
        self.out.push_str(" })");
        Ok(())
    }

    fn insertion(&mut self, edit: &Edit<'_>) {
        for &(number, mutant) in &edit.mutants {
            let mut text = String::new();
            let written = match mutant.genre {
                Genre::MatchArm => write!(text, " if !{}({number})", self.on),
                _ => write!(text, " if {}({number}) {{ return {}; }}", self.on, mutant.replacement),
            };
            written.expect("a string takes what is written to it");
            self.mutant(number, &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Genre, Mutant, weave};
    use crate::mutant::{LineColumn, Span};

    fn mutant(genre: Genre, line: usize, columns: (usize, usize), replacement: &str) -> Mutant {
        let [start, end] = [columns.0, columns.1].map(|column| LineColumn { line, column });
        let (name, file) = (format!("{genre:?}"), "lib.rs".to_owned());
        Mutant { name, file, span: Span { start, end }, replacement: replacement.to_owned(), genre }
    }

    #[test]
    fn an_operator_stands_beside_the_original_and_inner_ones_only_in_that() {
        let text = "fn f(a: u8) -> bool {\n    a + 1 < 3\n}\n";
        let outer = mutant(Genre::BinaryOperator, 2, (11, 12), "<=");
        let inner = mutant(Genre::BinaryOperator, 2, (7, 8), "-");
        let woven = weave(text, &[(1, &outer), (2, &inner)], "on").unwrap();
        let expected = "fn f(a: u8) -> bool {\n    \
                        (if on(1) { a + 1 <= 3 } else { (if on(2) { a - 1 } else { a + 1 }) < 3 })\n}\n";
        assert_eq!(woven.text, expected);
        let written: Vec<_> =
            woven.written.iter().map(|(number, range)| (*number, &woven.text[range.clone()])).collect();
        assert_eq!(written, [(1, "if on(1) { a + 1 <= 3 }"), (2, "if on(2) { a - 1 }")]);
    }

    #[test]
    fn a_function_returns_a_mutants_value_before_anything_else() {
        let text = "fn f() -> u8 {\n    3\n}\n";
        let [zero, one] = ["0", "1"].map(|value| mutant(Genre::FnValue, 2, (5, 6), value));
        let woven = weave(text, &[(5, &zero), (6, &one)], "on").unwrap();
        assert_eq!(woven.text, "fn f() -> u8 { if on(5) { return 0; } if on(6) { return 1; }\n    3\n}\n");
    }

    #[test]
    fn an_arm_gets_a_guard_and_a_guard_is_an_expression() {
        let text = "fn f(a: u8) -> u8 {\n    match a {\n        1 => 2,\n        b if b > 3 => 4,\n        _ => 5,\n    }\n}\n";
        let arm = mutant(Genre::MatchArm, 3, (9, 16), "");
        let guard = mutant(Genre::MatchArmGuard, 4, (14, 19), "true");
        let woven = weave(text, &[(1, &arm), (2, &guard)], "on").unwrap();
        assert!(woven.text.contains("1 if !on(1) => 2,"), "{}", woven.text);
        assert!(woven.text.contains("b if (if on(2) { true } else { b > 3 }) => 4,"), "{}", woven.text);
    }

    #[test]
    fn constants_are_left_as_they_are() {
        let text = "const A: u8 = 1 + 2;\nconst fn f() -> u8 {\n    3 - 1\n}\nfn g() -> [u8; 2 * 2] { [0; 2 * 2] }\n";
        let places = [(1, 17), (3, 7), (5, 18), (5, 31)];
        let mutants: Vec<_> = places
            .iter()
            .map(|&(line, column)| mutant(Genre::BinaryOperator, line, (column, column + 1), "/"))
            .collect();
        let numbered: Vec<_> = mutants.iter().enumerate().collect();
        let woven = weave(text, &numbered, "on").unwrap();
        assert_eq!(woven.constant, [0, 2, 3]);
        assert_eq!(woven.text, text.replace("3 - 1", "(if on(1) { 3 / 1 } else { 3 - 1 })"));
    }

    #[test]
    fn a_let_chain_is_no_expression_but_what_is_in_it_may_be() {
        let text = "fn f(a: Option<u8>) -> bool {\n    if let Some(b) = a && b == 1 { true } else { false }\n}\n";
        let and = mutant(Genre::BinaryOperator, 2, (24, 26), "||");
        let equal = mutant(Genre::BinaryOperator, 2, (29, 31), "!=");
        let woven = weave(text, &[(1, &and), (2, &equal)], "on").unwrap();
        assert_eq!(woven.constant, [1]);
        assert!(woven.text.contains("a && (if on(2) { b != 1 } else { b == 1 })"), "{}", woven.text);
    }

    #[test]
    fn a_mutant_of_another_text_is_refused() {
        let stale = mutant(Genre::BinaryOperator, 1, (3, 4), "-");
        assert!(weave("fn f() {}\n", &[(1, &stale)], "on").is_err());
    }
}
