//! The README and the documents against the code: commands that are there, tables that say the same, links that lead somewhere.

mod commands;
mod tables;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// A file of the repository, by its path there.
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The documents: those at the root, and those in `docs`.
fn documents() -> Vec<(String, String)> {
    let mut paths = Vec::new();
    for folder in ["", "docs", "docs/performance"] {
        for entry in fs::read_dir(root().join(folder)).expect("a folder") {
            let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
            if Path::new(&name).extension().is_some_and(|extension| extension == "md") {
                paths.push(Path::new(folder).join(name).to_str().expect("UTF-8").replace('\\', "/"));
            }
        }
    }
    paths.sort();
    assert!(paths.len() > 20, "{paths:?}");
    paths.into_iter().map(|path| (path.clone(), read(&path))).collect()
}

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
