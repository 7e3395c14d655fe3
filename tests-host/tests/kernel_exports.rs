//! What images can import is what the simulated kernel defines.

use std::collections::BTreeSet;

use image_loader::routines::{LIBRARY, SIMULATED, VARIABLES};
use sources::{code_of, files, words};

mod sources;

/// The functions that the crate defines as symbols of their own names.
fn defined() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in files("crates/simulator/simulated-kernel/src", &["rs"]) {
        let code = code_of(&source.text);
        let mut lines = code.lines();
        while lines.any(|line| line.trim() == "#[unsafe(no_mangle)]") {
            let definition = lines.next().unwrap_or_default();
            if words(definition).any(|word| word == "static") {
                continue;
            }
            let mut words = words(definition).skip_while(|&word| word != "fn").skip(1);
            let Some(name) = words.next() else { continue };
            assert!(names.insert(name.to_owned()), "{name} is defined twice, also in {}", source.path);
        }
    }
    names
}

#[test]
fn every_routine_that_is_defined_can_be_imported() {
    let listed: BTreeSet<String> =
        SIMULATED.iter().flat_map(|(_, names)| names.iter().map(|&name| name.to_owned())).collect();
    assert!(listed.len() > 100, "{} routines", listed.len());
    assert_eq!(defined(), listed, "crates/simulator/image-loader/src/routines.rs has a line for each");
}

#[test]
fn a_name_is_listed_once_and_in_order() {
    for (module, names) in SIMULATED {
        assert!(names.is_sorted() && *module == module.to_lowercase(), "{module}");
    }
    let plain: BTreeSet<&str> = LIBRARY.iter().map(|(name, _)| *name).chain(VARIABLES.iter().copied()).collect();
    assert_eq!(plain.len(), LIBRARY.len() + VARIABLES.len());
    let simulated = SIMULATED.iter().flat_map(|(_, names)| names.iter());
    assert_eq!(simulated.filter(|&&name| plain.contains(name)).count(), 0, "a routine is one or the other");
}
