//! The sources of a package of the product with the mistakes in them: for the build scripts in `copies`.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use crate::{Mistake, all, weave};

/// The folder of the engine and the provider.
#[must_use]
pub fn provider() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/provider")
}

/// The text of a source, by its name in [`Edit::file`](crate::Edit::file).
///
/// # Panics
///
/// If it cannot be read.
#[must_use]
pub fn source(file: &str) -> String {
    let path = provider().join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Copies the sources of `package` to `OUT_DIR` with the mistakes in them. `on` is the function that says whether one is made.
///
/// A mistake that has lost its place is left out, so that a change of the product breaks the test that says so, and not every build.
///
/// # Errors
///
/// A file cannot be read or written.
///
/// # Panics
///
/// If this is no build script.
pub fn package(package: &str, on: &str) -> io::Result<()> {
    let (from, to) = (provider().join(package).join("src"), env::var_os("OUT_DIR").expect("a build script"));
    println!("cargo::rerun-if-changed={}", from.display());
    let fits = |(_, mistake): &(usize, &Mistake)| weave::misfits(mistake, source).is_empty();
    let mistakes: Vec<_> = all().filter(fits).collect();
    folder(&from, &Path::new(&to).join(package), &format!("{package}/src"), &mistakes, on)
}

fn folder(from: &Path, to: &Path, name: &str, mistakes: &[(usize, &Mistake)], on: &str) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (from, file) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        let (to, name) = (to.join(&file), format!("{name}/{}", file.display()));
        if from.is_dir() {
            folder(&from, &to, &name, mistakes, on)?;
            continue;
        }
        let woven = weave::weave(&name, &fs::read_to_string(&from)?, mistakes, on);
        // The root becomes a part of the copy's own, which has these.
        let woven = if file == "lib.rs" { without_inner_attributes(&woven) } else { &woven };
        fs::write(&to, woven)?;
    }
    Ok(())
}

/// The source of a crate from its first item on.
fn without_inner_attributes(source: &str) -> &str {
    source.find("\nextern crate alloc;").map_or(source, |at| &source[at..])
}
