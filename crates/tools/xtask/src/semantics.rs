//! `docs/semantics.md`, written from the rules of the reference and from the annotations that cite them.
//!
//! `//= NDKPI 7.1.5` above an item says: this is where the rule is carried out; above a test or a case of the suite: this is what checks it.
//! The same goes for `//= invariant 3` (architecture) and `//= bug 4` (bugs that others have shipped).

mod annotations;
mod rules;

use std::{collections::BTreeMap, fmt::Write as _, fs};

use annotations::{Annotation, Kind};
use anyhow::{Context as _, Result, ensure};
use rules::{Rule, Section};
use serde::Deserialize;

use crate::context::{Context, root};

const PAGE: &str = "docs/semantics.md";
const UNTESTED: &str = "tests-host/untested.toml";

const BEGINNING: &str = "\
# Semantics: every rule, its code and its tests

Generated: `cargo xtask semantics`. A test fails when it is out of date, and when a rule has no test.

The rules are those of [NDKPI 7](reference/ndkpi.md), by their first paragraphs, the [invariants](architecture.md#invariants), and
[bugs that others have shipped](reference/shipped-bugs.md). Code and tests name the rule they belong to in a comment above:
`//= NDKPI 7.1.5`. Tests are `target::module::name` in the `tests` of a crate or of `tests-host`; cases are those of the conformance suite
(`ndkctl selftest --list`).
";

/// Writes docs/semantics.md: each rule, its code, and what tests it
///
/// The rules are in docs/reference/ndkpi.md and docs/architecture.md. Code and tests cite them by comments: `//= NDKPI 7.1.5`. Fails if a
/// citation names no rule or stands above nothing, and if a rule has no test and no reason in tests-host/untested.toml. Seconds.
#[derive(clap::Args)]
pub struct Semantics {
    /// Write nothing; fail if the page would change
    #[arg(long)]
    check: bool,
}

impl Semantics {
    pub fn run(&self, _: &Context) -> Result<()> {
        let (page, path) = (semantics_page()?, root().join(PAGE));
        if self.check {
            ensure!(fs::read_to_string(path)? == page, "{PAGE} is out of date: cargo xtask semantics");
        } else {
            fs::write(path, page)?;
        }
        Ok(())
    }
}

/// The list of rules that no test can check.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Untested {
    rule: Vec<Reason>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reason {
    cite: String,
    reason: String,
}

/// What `docs/semantics.md` has to say.
///
/// # Errors
///
/// A citation names no rule or stands above no item; or a rule has neither a test nor a reason why not, or both.
pub fn semantics_page() -> Result<String> {
    let read = |path: &str| fs::read_to_string(root().join(path)).with_context(|| path.to_owned());
    let mut sections = rules::of_sheet(&read("docs/reference/ndkpi.md")?, "NDKPI");
    sections.push(rules::of_list(&read("docs/architecture.md")?, "## Invariants", "invariant")?);
    sections.push(rules::of_list(&read("docs/reference/shipped-bugs.md")?, "# Bugs that others have shipped", "bug")?);
    let untested: Untested = toml::from_str(&read(UNTESTED)?)?;
    written(&sections, &annotations::all()?, &untested.rule)
}

fn written(sections: &[Section], annotations: &[Annotation], untested: &[Reason]) -> Result<String> {
    let mut cited: BTreeMap<&str, Vec<&Annotation>> = BTreeMap::new();
    for annotation in annotations {
        let is_known = sections.iter().flat_map(|section| &section.rules).any(|rule| rule.cite == annotation.cite);
        ensure!(is_known, "{}:{}: there is no {}", annotation.path, annotation.line, annotation.cite);
        cited.entry(&annotation.cite).or_default().push(annotation);
    }
    let mut reasons: BTreeMap<_, _> = untested.iter().map(|entry| (&*entry.cite, &*entry.reason)).collect();
    let mut page = BEGINNING.to_owned();
    for section in sections {
        let mut rules = section.rules.iter().filter(|rule| rule.is_duty || cited.contains_key(&*rule.cite)).peekable();
        if rules.peek().is_some() {
            write!(page, "\n## {}\n", section.title)?;
        }
        for rule in rules {
            let of_rule = cited.get(&*rule.cite).map_or(&[][..], Vec::as_slice);
            write_rule(&mut page, rule, of_rule, reasons.remove(&*rule.cite))?;
        }
    }
    ensure!(reasons.is_empty(), "{UNTESTED} names what is no rule: {:?}", reasons.keys());
    Ok(page)
}

fn write_rule(page: &mut String, rule: &Rule, annotations: &[&Annotation], reason: Option<&str>) -> Result<()> {
    if !rule.text.is_empty() {
        write!(page, "\n{}\n", rule.text)?;
    }
    page.push('\n');
    let mut are_tested = false;
    for (kind, name) in [(Kind::Code, "code"), (Kind::Test, "tests"), (Kind::Case, "cases")] {
        let items: Vec<_> = annotations.iter().filter(|one| one.kind == kind).map(|one| one.link()).collect();
        if !items.is_empty() {
            are_tested |= kind != Kind::Code;
            writeln!(page, "* {name}: {}", items.join(", "))?;
        }
    }
    match reason {
        Some(reason) => {
            ensure!(!are_tested, "{} has tests: take it out of {UNTESTED}", rule.cite);
            ensure!(!reason.trim().is_empty(), "{} stands in {UNTESTED} without a reason", rule.cite);
            writeln!(page, "* no test: {reason}")?;
        }
        None => ensure!(are_tested, "{} has no test. Cite it above one, or say why not in {UNTESTED}", rule.cite),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotation(cite: &str, kind: Kind) -> Annotation {
        Annotation { cite: cite.into(), kind, name: "name".into(), path: "crates/a/b/src/c.rs".into(), line: 7 }
    }

    fn page_of(annotations: &[Annotation], untested: &[(&str, &str)]) -> Result<String> {
        let sections = rules::of_sheet("### 7.1 Queues [doc]\n**7.1.1 First.** It is.\n", "NDKPI");
        let untested: Vec<_> =
            untested.iter().map(|(cite, reason)| Reason { cite: (*cite).into(), reason: (*reason).into() }).collect();
        written(&sections, annotations, &untested)
    }

    #[test]
    fn a_rule_needs_a_test_or_a_reason_and_not_both() {
        let code = || annotation("NDKPI 7.1.1", Kind::Code);
        let tested = [code(), annotation("NDKPI 7.1.1", Kind::Test)];
        let page = page_of(&tested, &[]).expect("a page");
        let end = "\n## NDKPI 7.1 Queues\n\n**7.1.1 First.** It is.\n\n* code: [`name`](../crates/a/b/src/c.rs)\n* tests: `name`\n";
        assert!(page.ends_with(end), "{page}");
        assert!(page_of(&[annotation("NDKPI 7.1.1", Kind::Case)], &[]).is_ok());

        let said = |result: Result<String>| result.expect_err("an error").to_string();
        assert!(said(page_of(&[code()], &[])).contains("has no test"));
        assert!(page_of(&[code()], &[("NDKPI 7.1.1", "because")]).is_ok());
        assert!(said(page_of(&[code()], &[("NDKPI 7.1.1", " ")])).contains("without a reason"));
        assert!(said(page_of(&tested, &[("NDKPI 7.1.1", "because")])).contains("has tests"));
        assert!(said(page_of(&tested, &[("NDKPI 7.1.2", "because")])).contains("is no rule"));
        assert!(
            said(page_of(&[annotation("NDKPI 7.1.9", Kind::Test)], &[])).contains("c.rs:7: there is no NDKPI 7.1.9")
        );
    }
}
