//! The sample consumer in C, `samples/consumer-c`, linked with the simulated kernel.
//!
//! Without a C compiler and mingw-w64's headers there is nothing to run and the tests say so; with `SOFTNDK_REQUIRE_HEADER=1` that is a
//! failure (`cargo xtask header` installs them).

use std::collections::BTreeMap;

use crate::{path, run};

/// Returns true if the sample was compiled.
pub fn is_there() -> bool {
    let Some(missing) = consumer_c::MISSING else { return true };
    let required = std::env::var_os("SOFTNDK_REQUIRE_HEADER").is_some_and(|value| value == "1");
    assert!(!required, "{missing}");
    println!("not run: {missing}");
    false
}

/// The rule that the README says for each patch.
fn rules() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(path("samples/consumer-c/README.md")).expect("a file");
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, patch, _, rule, _] = cells[..] else { return None };
        let patch = patch.strip_prefix('`')?.strip_suffix(".patch`")?;
        Some((patch.to_owned(), rule.trim_matches('`').to_owned()))
    });
    rows.collect()
}

#[test]
fn the_sample_runs() {
    if is_there() {
        let results = run(&path("samples/consumer-c/run.toml"), "1..8", "right");
        assert_eq!(results.exit_code(), 0, "{results}\n{:?}", results.findings().next());
    }
}

#[test]
fn the_sample_bears_whatever_way_requests_complete() {
    if !is_there() {
        return;
    }
    let script = std::fs::read_to_string(path("samples/consumer-c/run.toml")).expect("a file");
    for mode in 0..3 {
        let script = script.replace("CompletionMode = 3", &format!("CompletionMode = {mode}"));
        let results = run(&crate::file(&format!("mode-{mode}.toml"), &script), "1..2", "right");
        assert_eq!(results.exit_code(), 0, "{results}\n{:?}", results.findings().next());
    }
}

#[test]
fn every_patch_has_a_rule_and_every_rule_a_patch() {
    let rules = rules();
    assert!(rules.len() >= 12, "{} rows", rules.len());
    let folder = std::fs::read_dir(path("samples/consumer-c/wrong")).expect("the patches");
    let patches: std::collections::BTreeSet<_> = folder
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().trim_end_matches(".patch").to_owned())
        .collect();
    assert_eq!(rules.into_keys().collect::<std::collections::BTreeSet<_>>(), patches);
}

/// Runs a variant with one seed after the other, until something is found. What, if it is not that rule.
fn other_than(patch: &str, rule: &str) -> Option<String> {
    let found = (1..=8).find_map(|seed: u32| {
        let results = run(&path("samples/consumer-c/run.toml"), &seed.to_string(), patch);
        results.findings().next().map(|(seed, finding)| (finding.rule.clone(), format!("{finding:?}, seed {seed}")))
    });
    match found {
        Some((found, _)) if found == rule => None,
        Some((_, words)) => Some(format!("{patch} has to break {rule}: {words}")),
        None => Some(format!("{patch} has to break {rule}: nothing was found")),
    }
}

#[test]
fn each_mistake_is_caught_by_its_rule() {
    if !is_there() {
        return;
    }
    let rules: Vec<_> = rules().into_iter().collect();
    let (first, second) = rules.split_at(rules.len() / 2);
    let check = |rules: &[(String, String)]| -> Vec<String> {
        rules.iter().filter_map(|(patch, rule)| other_than(patch, rule)).collect()
    };
    let wrong = std::thread::scope(|scope| {
        let other = scope.spawn(|| check(second));
        [check(first), other.join().expect("it does not panic")].concat()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The words of what is found in that variant, which breaks that rule.
fn words_of(patch: &str, rule: &str) -> String {
    let results = run(&path("samples/consumer-c/run.toml"), "1..4", patch);
    let found = results.findings().map(|(_, finding)| finding).find(|finding| finding.rule == rule);
    found.unwrap_or_else(|| panic!("{patch} breaks {rule}: {results}")).words.clone()
}

/// Its title, the function and who created the object are in an event, which only images write: `cargo xtask sample` looks for those.
#[test]
fn what_the_adviser_has_found_names_its_object_its_call_and_the_rule() {
    if !is_there() {
        return;
    }
    for (patch, rule, section) in
        [("stale-token", "SN0025", "(NDKPI 7.4)"), ("invalidated-token", "SN0026", "(NDKPI 7.6)")]
    {
        let token = words_of(patch, rule);
        for said in [section, ": Qp ", "in NdkWrite"] {
            assert!(token.contains(said), "{said}: {token}");
        }
    }
}
