//! The citations: `//= NDKPI 7.1.5` above an item, a test or a case of the suite.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use anyhow::{Context as _, Result, bail};
use regex::Regex;

use crate::context::root;

const MARK: &str = "//= ";

/// What a citation stands above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An item of the product.
    Code,
    /// A test.
    Test,
    /// A case of the conformance suite.
    Case,
}

/// One citation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    pub cite: String,
    pub kind: Kind,
    /// Of the item; `target::module::name` of a test.
    pub name: String,
    /// The file, from the root.
    pub path: String,
    pub line: usize,
}

impl Annotation {
    /// How the page names it.
    pub fn link(&self) -> String {
        match self.kind {
            Kind::Code => format!("[`{}`](../{})", self.name, self.path),
            Kind::Test | Kind::Case => format!("`{}`", self.name),
        }
    }
}

static ITEM: LazyLock<Regex> = LazyLock::new(|| {
    let item = r#"^(?:pub(?:\([^)]*\))? )?(?:(?:const|unsafe|async|extern "\w+") )*(?:fn|struct|enum|union|trait|type|mod|static) (\w+)"#;
    Regex::new(item).expect("an expression")
});
static CASE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"^Case::new\(\s*"([^"]+)""#).expect("an expression"));
/// A test that a macro makes of a line: `name: "case";`.
static MADE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"^(\w+): "[^"]*";$"#).expect("an expression"));

/// All citations of the repository, by file.
pub fn all() -> Result<Vec<Annotation>> {
    let (root, mut files, mut found) = (root(), Vec::new(), Vec::new());
    for folder in ["crates", "tests-host/tests", "tests-host/kernel-tests/tests"] {
        sources(&root.join(folder), &mut files)?;
    }
    files.sort();
    for file in files {
        let path = file.strip_prefix(&root)?.to_string_lossy().replace('\\', "/");
        let text = fs::read_to_string(&file).with_context(|| path.clone())?;
        found.extend(of_file(&path, &text)?);
    }
    Ok(found)
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                sources(&path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The citations of one file.
fn of_file(path: &str, text: &str) -> Result<Vec<Annotation>> {
    let lines: Vec<_> = text.lines().map(str::trim_start).collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if let Some(cite) = line.strip_prefix(MARK) {
            let (kind, name) = below(path, &lines[index + 1..]).with_context(|| format!("{path}:{}", index + 1))?;
            found.push(Annotation { cite: cite.trim_end().into(), kind, name, path: path.into(), line: index + 1 });
        }
    }
    Ok(found)
}

/// What the lines begin with, after comments and attributes.
fn below(path: &str, lines: &[&str]) -> Result<(Kind, String)> {
    let (mut is_test, mut in_attribute) = (false, false);
    for (index, line) in lines.iter().enumerate() {
        if in_attribute || line.starts_with("#[") {
            is_test |= *line == "#[test]";
            in_attribute = !line.ends_with(']');
        } else if let Some(case) = CASE.captures(&lines[index..lines.len().min(index + 2)].join(" ")) {
            return Ok((Kind::Case, case[1].to_owned()));
        } else if !line.starts_with("//") {
            let module = module_of_test(path);
            let made = MADE.captures(line).filter(|_| module.is_some());
            let item = ITEM.captures(line).or_else(|| made.inspect(|_| is_test = true));
            let Some(name) = item.map(|item| item[1].to_owned()) else { break };
            return Ok(match module {
                _ if !is_test && module_of_test(path).is_none() => (Kind::Code, name),
                Some(module) if is_test => (Kind::Test, format!("{module}::{name}")),
                None => (Kind::Test, format!("{}::{name}", module_of_source(path))),
                Some(_) => bail!("`{name}` is among the tests, but is none"),
            });
        }
    }
    bail!("the citation stands above no item, test or case")
}

/// `target::module` of a file with tests, model checks included.
fn module_of_test(path: &str) -> Option<String> {
    let (_, module) = path.split_once("/tests/")?;
    let mut names: Vec<_> = module.trim_end_matches(".rs").split('/').collect();
    names.pop_if(|last| ["main", "mod"].contains(last));
    Some(names.join("::"))
}

/// `crate::module` of a source.
fn module_of_source(path: &str) -> String {
    let mut names: Vec<_> = path.trim_end_matches(".rs").split('/').skip(2).filter(|name| *name != "src").collect();
    names.pop_if(|last| ["lib", "mod"].contains(last));
    names.join("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str, text: &str) -> Result<Vec<(String, Kind, String)>> {
        let found = of_file(path, text)?;
        Ok(found.into_iter().map(|one| (one.cite, one.kind, one.name)).collect())
    }

    const SOURCE: &str = "crates/provider/engine/src/cq/mod.rs";
    const TESTS: &str = "crates/provider/engine/tests/cq_rules/main.rs";

    #[test]
    fn a_citation_belongs_to_the_item_below_it() {
        let item = "    //= NDKPI 7.1.1\n    //= invariant 2\n    /// Doc\n    #[expect(\n        unused\n    )]\n    pub(crate) const unsafe fn f(\n";
        let cites = |kind, name: &str| ["NDKPI 7.1.1", "invariant 2"].map(|cite| (cite.into(), kind, name.into()));
        assert_eq!(of(SOURCE, item).expect("two"), cites(Kind::Code, "f"));
        let test = item.replace("///", "#[test]\n///");
        assert_eq!(of(TESTS, &test).expect("two"), cites(Kind::Test, "cq_rules::f"));
        assert_eq!(of(SOURCE, &test).expect("two"), cites(Kind::Test, "engine::cq::f"));
        for case in ["//= bug 1\nCase::new(\n  \"a.b-c\",\n", "//= bug 1\nCase::new(\"a.b-c\", \"x\"),\n"] {
            assert_eq!(
                of("crates/suite/a/src/b.rs", case).expect("one"),
                [("bug 1".into(), Kind::Case, "a.b-c".into())]
            );
        }
        let made = of("tests-host/tests/a/b.rs", "//= bug 1\nwhile_it_runs: \"a.b\";\n").expect("one");
        assert_eq!(made, [("bug 1".into(), Kind::Test, "a::b::while_it_runs".into())]);
    }

    #[test]
    fn a_citation_above_nothing_is_an_error() {
        for text in ["//= bug 1\n", "//= bug 1\n\nfn f() {}\n", "//= bug 1\nlet x = 1;\n", "//= bug 1\n}\nfn f() {}\n"]
        {
            assert!(of(SOURCE, text).is_err(), "{text}");
        }
        let error = of(TESTS, "//= bug 1\nfn helper() {}\n").expect_err("no test");
        assert!(format!("{error:#}").contains("main.rs:1: `helper` is among the tests"), "{error:#}");
    }
}
