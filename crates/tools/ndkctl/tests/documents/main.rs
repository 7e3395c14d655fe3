//! The README and the documents against the code: commands that are there, tables that say the same, links that lead somewhere.

mod commands;
mod tables;

use testing::documents::{documents, read, root};

#[test]
fn links_lead_somewhere() {
    let mut count = 0;
    for (path, text) in documents() {
        let folder = root().join(&path).parent().expect("a folder").to_owned();
        for rest in text.split("](").skip(1) {
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            if target.contains("://") || target.starts_with('#') || target.is_empty() {
                continue;
            }
            let file = target.split('#').next().unwrap_or_default();
            assert!(folder.join(file).exists(), "{path}: the link to {target} leads nowhere");
            count += 1;
        }
    }
    assert!(count > 80, "{count} links");
}

#[test]
fn every_document_is_in_the_map() {
    let map = read("docs/README.md");
    for (path, _) in documents() {
        let Some(name) = path.strip_prefix("docs/") else { continue };
        assert!(name == "README.md" || map.contains(&format!("({name})")), "docs/README.md does not link {name}");
    }
}

#[test]
fn every_case_that_cites_a_rule_is_one_of_the_suite() {
    let page = read("docs/semantics.md");
    let cases = page.lines().filter_map(|line| line.strip_prefix("* cases: "));
    let names: Vec<_> = cases.flat_map(|cases| cases.split('`').skip(1).step_by(2)).collect();
    assert!(names.len() > 80, "{} cases", names.len());
    for name in names {
        assert!(conformance::cases::all().any(|case| case.name == name), "there is no case {name}");
    }
}
