//! For tests: what `--json` prints is what `docs/ndkctl.schema.json` says.

use serde_json::Value;

/// The definitions, one for each command.
pub fn definitions() -> Value {
    let schema = include_str!("../../../../docs/ndkctl.schema.json");
    serde_json::from_str::<Value>(schema).expect("the schema is JSON")["$defs"].take()
}

/// Panics if `value` is not as the definition says. Without the feature `schemas`, only if there is no such definition.
pub fn check(definition: &str, value: &Value) {
    let definitions = definitions();
    assert!(definitions[definition].is_object(), "there is no definition of `{definition}`");
    let wrong = violations(definition, definitions, value);
    assert!(wrong.is_empty(), "{definition}: {}", wrong.join("; "));
}

/// Where `value` is not as the definition says.
#[cfg(feature = "schemas")]
fn violations(definition: &str, definitions: Value, value: &Value) -> Vec<String> {
    let reference = format!("#/$defs/{}", definition.replace(' ', "%20"));
    let schema = serde_json::json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": reference,
        "$defs": definitions,
    });
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// Nobody looks.
#[cfg(not(feature = "schemas"))]
fn violations(_definition: &str, _definitions: Value, _value: &Value) -> Vec<String> {
    Vec::new()
}
