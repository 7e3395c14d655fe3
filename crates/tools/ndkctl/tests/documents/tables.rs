//! Tables of the documents that the code determines.

use std::collections::{BTreeMap, BTreeSet};

use testing::documents::read;

/// The first word between backticks of each row of a table that begins with one.
fn first_names(document: &str) -> BTreeSet<String> {
    document.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).map(str::to_owned).collect()
}

#[test]
fn the_settings_are_those_of_the_code() {
    let code = read("crates/drivers/driver-common/src/settings.rs");
    let in_registry = code.split("wide(\"").skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned);
    let inf = read("crates/drivers/softndknic/softndknic.inx");
    let keywords = inf.lines().filter_map(|line| line.strip_prefix(r"HKR,Ndi\Params\")?.split([',', '\\']).next());
    let of_adapter: BTreeSet<_> = keywords.map(str::to_owned).collect();
    assert!(of_adapter.len() > 5, "{of_adapter:?}");
    let expected: BTreeSet<_> = in_registry.chain(of_adapter).collect();
    assert!(expected.contains("CompletionMode") && expected.contains("CableLoss"), "{expected:?}");
    assert_eq!(first_names(&read("docs/settings.md")), expected);
}

#[test]
fn what_can_be_changed_while_the_driver_runs_has_its_command() {
    let code = read("crates/consumer/control/src/provider_device.rs");
    let fields =
        code.split("    Settings {").nth(1).and_then(|rest| rest.split("\n    }").next()).expect("the structure");
    let changeable =
        fields.lines().filter(|line| line.trim().ends_with(": u32") || line.trim().ends_with("u32,")).count();
    let document = read("docs/settings.md");
    let commands =
        document.lines().filter(|line| line.starts_with("| `") && line.contains("ndkctl driver settings --"));
    assert_eq!(commands.count(), changeable, "{fields}");
}

/// The themes of each column of the README's table.
const COLUMNS: [(&str, &[&str]); 7] = [
    ("arm, notify, moderation", &["arm", "notify", "moderation"]),
    ("results, overrun, resize", &["results", "overrun", "resize"]),
    ("post, flush", &["post", "flush"]),
    ("access, tokens, memory", &["access", "protection", "fast", "window", "invalidate", "logical", "registration"]),
    ("connections", &["connect", "disconnect"]),
    ("objects, close, versions", &["object", "close", "version"]),
    ("shared receive queues", &["srq"]),
];

#[test]
fn the_readme_counts_the_wrong_providers() {
    let document = read("docs/broken-providers.md");
    let mut themes = BTreeMap::<&str, usize>::new();
    for row in document.lines().filter(|line| line.starts_with("| `")) {
        let cases = row.rsplit('|').nth(1).expect("a column");
        let theme = cases.split('`').nth(1).and_then(|case| case.split('.').next()).expect("a case");
        *themes.entry(theme).or_default() += 1;
    }
    let counts = COLUMNS.map(|(_, column)| {
        column.iter().map(|theme| themes.remove(*theme).unwrap_or_default()).sum::<usize>().to_string()
    });
    assert!(themes.is_empty(), "themes without a column: {themes:?}");
    let readme = read("README.md");
    let names = COLUMNS.map(|(name, _)| name).join(" | ");
    assert!(readme.contains(&format!("| {names} |")), "the README has no table with the columns {names}");
    assert!(readme.contains(&format!("| {} |", counts.join(" | "))), "the README should say {}", counts.join(" | "));
    let all: usize = counts.iter().map(|count| count.parse::<usize>().expect("a number")).sum();
    assert!(readme.contains(&format!("has all {all} ")), "the README should say that there are {all}");
}

#[test]
fn the_readme_fits_a_screen_and_names_the_two_commands() {
    let readme = read("README.md");
    assert!(readme.lines().count() <= 70, "{} lines", readme.lines().count());
    for command in ["cargo run -- selftest", "cargo test"] {
        assert!(readme.contains(&format!("\n    {command} ")), "{command}");
    }
}

#[test]
fn the_first_consumer_is_explained_as_it_is() {
    let example = read("examples/ping_pong.rs");
    let document = read("docs/ndk-in-ten-minutes.md");
    let table = document.split("## A first consumer").nth(1).expect("the section");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let mut calls = 0;
    for (row, call) in rows.flat_map(|row| row.split('.').skip(1).map(move |call| (row, call))) {
        let Some((name, _)) = call.split_once('(') else { continue };
        if !name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_') {
            continue;
        }
        assert!(example.contains(&format!(".{name}(")), "`{row}`: examples/ping_pong.rs does not call {name}");
        calls += 1;
    }
    assert!(calls > 15, "{calls} calls");
}

#[test]
fn the_paths_through_the_code_are_those_of_the_code() {
    let text = read("docs/tour.md");
    let rows = text.lines().filter(|line| line.contains("](../crates/") && line.starts_with('|'));
    let mut steps = 0;
    for row in rows {
        let part = |open: &str, close: char| row.split(open).nth(1).and_then(|rest| rest.split(close).next());
        let file = part("](../", ')').expect("a link");
        let function = row.rsplit('`').nth(1).expect("a function");
        let source = read(file);
        let there = [format!("fn {function}("), format!("fn {function}<")].iter().any(|name| source.contains(name));
        assert!(there, "{file} has no function {function}");
        steps += 1;
    }
    assert!(steps >= 23, "{steps} steps");
}

/// Of each kind of user the table says how many commands there are; below it they stand.
#[test]
fn what_users_type_is_counted() {
    let page = read("docs/users.md");
    let rows: Vec<_> = page
        .lines()
        .filter_map(|line| {
            let [_, who, _, _, pages, commands, _, _] = line.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
                return None;
            };
            Some((who, pages.parse::<usize>().ok()?, commands.parse::<usize>().ok()?))
        })
        .collect();
    assert_eq!(rows.len(), 5, "{rows:?}");
    for (who, pages, commands) in rows {
        let part = page.split(&format!("\n### {who}\n")).nth(1).unwrap_or_else(|| panic!("no lines of a {who}"));
        let part = part.split("\n#").next().unwrap_or_default();
        let typed = part.lines().filter(|line| line.starts_with("    ")).count();
        assert_eq!(commands, typed, "{who}");
        assert!(pages > 0, "{who}");
    }
}
