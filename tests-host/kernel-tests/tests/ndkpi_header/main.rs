//! The open C headers of NDKPI, `crates/abi/ndkpi/include`, are what the crate `ndkpi` says, and have the layouts of the kit's headers.
//!
//! `ndkpi.h` and `wskndk.h` are generated from the source of the crate. After a change of it:
//!
//!     UPDATE_HEADERS=1 cargo test -p kernel-tests --test ndkpi_header
//!
//! The compilers are Debian's (`cargo xtask header` installs them). Without one there is nothing to compile, and the tests say so.

mod compile;
mod doc;
mod generate;
mod source;

use std::{fs, path::PathBuf};

use serde_json::Value;

/// A path in the repository.
fn path(relative: &str) -> PathBuf {
    sources::root().join(relative)
}

fn read(relative: &str) -> String {
    let path = path(relative);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn facts() -> Value {
    serde_json::from_str(&read("tests-host/facts/ndk-layouts.json")).expect("the facts are JSON")
}

/// The generated headers: path and text.
fn generated() -> [(&'static str, String); 2] {
    let (source, facts) = (source::read(), facts());
    [
        ("crates/abi/ndkpi/include/ndkpi.h", generate::ndkpi(&source, &facts)),
        ("crates/abi/ndkpi/include/wskndk.h", generate::wskndk(&source, &facts)),
    ]
}

#[test]
fn the_headers_are_what_the_generator_makes() {
    for (file, text) in generated() {
        if std::env::var_os("UPDATE_HEADERS").is_some() {
            fs::write(path(file), &text).expect("the header can be written");
        }
        assert!(read(file) == text, "{file} is not what the generator makes; see the top of tests/ndkpi_header.rs");
    }
}

#[test]
fn nothing_of_the_crate_is_lost() {
    let source = source::read();
    let text = generated().map(|(_, text)| text).concat();
    let words: std::collections::BTreeSet<&str> =
        text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
    let names = source.structures.iter().map(|item| &item.name).chain(source.functions.iter().map(|item| &item.name));
    let enumerators = source.enumerations.iter().flat_map(|item| item.values.iter().map(|value| &value.name));
    let constants = source.constants.iter().map(|item| &item.name);
    let missing: Vec<_> =
        names.chain(enumerators).chain(constants).filter(|name| !words.contains(name.as_str())).collect();
    assert_eq!(missing, [""; 0]);
}
