//! Holds what `ndkctl --json` prints against `docs/ndkctl.schema.json`: `schemas FOLDER`.
//!
//! The tests of ndkctl keep what they were printed in the folder that `NDKCTL_VALUES` names, a file for each value. They do not look at it
//! themselves, because the validator would be built by everybody who runs `cargo test`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(folder), None) = (arguments.next(), arguments.next()) else {
        eprintln!("schemas FOLDER: the values that `NDKCTL_VALUES=FOLDER cargo test` has kept");
        return Ok(ExitCode::from(2));
    };
    let definitions = definitions()?;
    let kept = kept(Path::new(&folder))?;
    let mut wrong = Vec::new();
    for (definition, values) in &kept {
        let validator = validator(&definitions, definition)?;
        for (file, value) in values {
            wrong.extend(violations(&validator, value).map(|what| format!("{definition}: {what}\n  {file}")));
        }
    }
    for what in &wrong {
        eprintln!("{what}");
    }
    let unseen = unseen(&definitions, &kept.keys().map(String::as_str).collect());
    for name in &unseen {
        eprintln!("`{name}` is defined, and no test has had it printed");
    }
    println!("{} values of {} definitions", kept.values().map(Vec::len).sum::<usize>(), kept.len());
    Ok(if wrong.is_empty() && unseen.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The definitions, one for each command that has `--json`.
fn definitions() -> Result<Value> {
    let schema = include_str!("../../../docs/ndkctl.schema.json");
    Ok(serde_json::from_str::<Value>(schema).context("docs/ndkctl.schema.json")?["$defs"].take())
}

/// The values by definition, with their files. A file is named `definition.number.json`.
fn kept(folder: &Path) -> Result<BTreeMap<String, Vec<(String, Value)>>> {
    let mut kept: BTreeMap<String, Vec<_>> = BTreeMap::new();
    let entries = folder.read_dir().with_context(|| format!("{}: `NDKCTL_VALUES` makes it", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let file = path.display().to_string();
        let name = path.file_stem().and_then(|name| Path::new(name).file_stem()).and_then(|name| name.to_str());
        let value = serde_json::from_slice(&std::fs::read(&path)?).with_context(|| file.clone())?;
        kept.entry(name.with_context(|| file.clone())?.to_owned()).or_default().push((file, value));
    }
    ensure!(!kept.is_empty(), "{} has no values: `NDKCTL_VALUES` keeps them there", folder.display());
    Ok(kept)
}

fn validator(definitions: &Value, definition: &str) -> Result<jsonschema::Validator> {
    ensure!(definitions[definition].is_object(), "there is no definition of `{definition}`");
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": reference(definition),
        "$defs": definitions,
    });
    Ok(jsonschema::validator_for(&schema)?)
}

/// Where `value` is not as the definition says.
fn violations<'value>(
    validator: &'value jsonschema::Validator,
    value: &'value Value,
) -> impl Iterator<Item = String> + 'value {
    validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path()))
}

/// The commands whose definition nothing was held against. A definition that others refer to is a part of these.
fn unseen<'names>(definitions: &'names Value, seen: &BTreeSet<&str>) -> Vec<&'names str> {
    let text = definitions.to_string();
    let is_part = |name: &str| text.contains(&format!("\"{}\"", reference(name)));
    let all = definitions.as_object().into_iter().flat_map(|all| all.keys());
    all.map(String::as_str).filter(|name| !seen.contains(name) && !is_part(name)).collect()
}

fn reference(definition: &str) -> String {
    format!("#/$defs/{}", definition.replace(' ', "%20"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_not_as_documented_is_found() {
        let definitions = definitions().expect("the schema");
        let counters = validator(&definitions, "counters").expect("a definition");
        let right = json!([{ "name": "Connect", "adapters": [1, 2] }]);
        assert_eq!(violations(&counters, &right).next(), None);
        for wrong in [
            json!({}),
            json!([{ "name": "Connect" }]),
            json!([{ "name": "Connect", "adapters": [1, -2] }]),
            json!([{ "name": "Connect", "adapters": [1, 2], "more": 1 }]),
        ] {
            assert!(violations(&counters, &wrong).next().is_some(), "{wrong}");
        }
        let list = validator(&definitions, "selftest --list").expect("a definition");
        let case = json!([{ "name": "a.b", "section": "NDKPI 1", "does": "this", "expects": "that", "more": 1 }]);
        assert!(violations(&list, &case).next().is_some());
        assert!(validator(&definitions, "no such command").is_err());
    }

    #[test]
    fn a_definition_without_a_value_is_told() {
        let definitions = json!({ "ping": { "$ref": "#/$defs/a%20time" }, "info": {}, "a time": {} });
        assert_eq!(unseen(&definitions, &BTreeSet::from(["ping"])), ["info"]);
    }
}
