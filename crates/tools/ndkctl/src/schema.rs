//! For tests: what `--json` prints is what `docs/ndkctl.schema.json` says.

use std::{
    path::Path,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use serde_json::Value;

/// The definitions, one for each command.
pub fn definitions() -> Value {
    let schema = include_str!("../../../../docs/ndkctl.schema.json");
    serde_json::from_str::<Value>(schema).expect("the schema is JSON")["$defs"].take()
}

/// Keeps a value in the folder that `NDKCTL_VALUES` names, for tests-host/schemas, which holds it against its definition. There has to be one.
pub fn check(definition: &str, value: &Value) {
    static KEPT: AtomicU32 = AtomicU32::new(0);
    assert!(definitions()[definition].is_object(), "there is no definition of `{definition}`");
    if let Some(folder) = std::env::var_os("NDKCTL_VALUES") {
        let number = KEPT.fetch_add(1, Relaxed);
        let file = Path::new(&folder).join(format!("{definition}.{}-{number}.json", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for values");
        std::fs::write(file, value.to_string()).expect("room for a value");
    }
}
