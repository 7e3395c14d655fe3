//! The rules, from the documents that state them.

use std::sync::LazyLock;

use anyhow::{Result, ensure};
use regex::Regex;

/// Rules that stand together.
pub struct Section {
    pub title: String,
    pub rules: Vec<Rule>,
}

/// Something that code can follow.
pub struct Rule {
    /// How it is cited: `NDKPI 7.1.5`.
    pub cite: String,
    /// Its first paragraph; empty if it is a whole section.
    pub text: String,
    /// It must have a test. What a sheet says outside of its numbered rules need not.
    pub is_duty: bool,
}

static HEADING: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^### (\d+\.\d+) ([^\[]+?)\s*(\[.*)?$").expect("an expression"));
static RULE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^(?:- )?(\*\*(\d+\.\d+\.\d+) .+)$").expect("an expression"));
static ITEM: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^(\d+)\. (.+)$").expect("an expression"));

/// The sections of a sheet: `### 7.1 Title`, and in it `**7.1.1 Title.** Text`, perhaps as an item of a list.
///
/// A section without such rules can be cited itself.
pub fn of_sheet(sheet: &str, name: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut numbers = Vec::new();
    let mut is_open = false;
    for line in sheet.lines() {
        if let Some(heading) = HEADING.captures(line) {
            sections.push(Section { title: format!("{name} {} {}", &heading[1], &heading[2]), rules: Vec::new() });
            numbers.push(heading[1].to_owned());
        } else if let (Some(rule), Some(section)) = (RULE.captures(line), sections.last_mut()) {
            let (cite, text) = (format!("{name} {}", &rule[2]), rule[1].to_owned());
            section.rules.push(Rule { cite, text, is_duty: true });
            // An item of a list is one line, a paragraph ends with an empty one.
            is_open = !line.starts_with('-');
            continue;
        } else if let (true, Some(rule)) = (is_open && !line.is_empty(), last_rule(&mut sections)) {
            rule.text.push('\n');
            rule.text.push_str(line);
            continue;
        }
        is_open = false;
    }
    for (section, number) in sections.iter_mut().zip(numbers) {
        if section.rules.is_empty() {
            section.rules.push(Rule { cite: format!("{name} {number}"), text: String::new(), is_duty: false });
        }
    }
    sections
}

fn last_rule(sections: &mut [Section]) -> Option<&mut Rule> {
    sections.last_mut()?.rules.last_mut()
}

/// A numbered list below a heading: `1. Text`, continued on lines that are indented.
pub fn of_list(document: &str, heading: &str, name: &str) -> Result<Section> {
    let mut lines = document.lines();
    ensure!(lines.any(|line| line == heading), "there is no '{heading}'");
    let mut rules: Vec<Rule> = Vec::new();
    for line in lines.take_while(|line| !line.starts_with('#')) {
        if let Some(item) = ITEM.captures(line) {
            let text = format!("**{}.** {}", &item[1], &item[2]);
            rules.push(Rule { cite: format!("{name} {}", &item[1]), text, is_duty: true });
        } else if let (true, Some(rule)) = (line.starts_with("  "), rules.last_mut()) {
            rule.text.push(' ');
            rule.text.push_str(line.trim_start());
        }
    }
    ensure!(!rules.is_empty(), "nothing is listed below '{heading}'");
    Ok(Section { title: heading.trim_start_matches(['#', ' ']).to_owned(), rules })
}

#[test]
fn rules_are_found_in_sheets_and_lists() {
    let sheet = "### 2.6 Flags (`ULONG`) [doc]\n**not a rule**\n### 7.2 Queues\n- **7.2.1 Two.** Here.\nmore\n**7.2.10 Ten**: x\n- y\n\nz\n";
    let found: Vec<_> = of_sheet(sheet, "NDKPI")
        .into_iter()
        .flat_map(|section| section.rules)
        .map(|rule| (rule.cite, rule.text, rule.is_duty))
        .collect();
    let expected = [
        ("NDKPI 2.6", "", false),
        ("NDKPI 7.2.1", "**7.2.1 Two.** Here.", true),
        ("NDKPI 7.2.10", "**7.2.10 Ten**: x\n- y", true),
    ];
    assert_eq!(found, expected.map(|(cite, text, is_duty)| (cite.to_owned(), text.to_owned(), is_duty)));

    let list = of_list(
        "1. no\n## Here\n\n1. One,\n   continued.\n2. Two.\n\nText.\n## There\n3. no\n",
        "## Here",
        "invariant",
    );
    let list = list.expect("a list");
    assert_eq!(list.title, "Here");
    let texts: Vec<_> = list.rules.iter().map(|rule| (&*rule.cite, &*rule.text)).collect();
    assert_eq!(texts, [("invariant 1", "**1.** One, continued."), ("invariant 2", "**2.** Two.")]);
    assert!(of_list("text", "## Here", "invariant").is_err());
    assert!(of_list("## Here\ntext", "## Here", "invariant").is_err());
}
