//! For tests: what `--json` prints is what `docs/ndkctl.schema.json` says.

use serde_json::{Value, json};

/// The definitions, one for each command.
pub fn definitions() -> Value {
    let schema = include_str!("../../../../docs/ndkctl.schema.json");
    serde_json::from_str::<Value>(schema).expect("the schema is JSON")["$defs"].take()
}

/// Panics if `value` is not as the definition says.
pub fn check(definition: &str, value: &Value) {
    let definitions = definitions();
    assert!(definitions[definition].is_object(), "there is no definition of `{definition}`");
    let reference = format!("#/$defs/{}", definition.replace(' ', "%20"));
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": reference,
        "$defs": definitions,
    });
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let wrong: Vec<_> =
        validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(wrong.is_empty(), "{definition}: {}", wrong.join("; "));
}
