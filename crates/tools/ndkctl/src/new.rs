//! `ndkctl new`: a project for a consumer, which builds, runs and has a CI file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use host::say;

use crate::End;

/// Where this repository is, for who depends on it.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// A file of the sample consumer in C.
macro_rules! sample {
    ($name:literal) => {
        include_str!(concat!("../../../../samples/consumer-c/", $name))
    };
}

/// A header for consumers.
macro_rules! header {
    ($name:literal) => {
        include_str!(concat!("../../../abi/ndkpi/include/", $name))
    };
}

/// A file that only such projects have.
macro_rules! template {
    ($name:literal) => {
        include_str!(concat!("../templates/", $name))
    };
}

/// The files of a consumer in C: the sample, the headers, and what builds them.
const C: [(&str, &str); 19] = [
    ("README.md", template!("c/README.md")),
    (".gitignore", template!("c/gitignore")),
    (".github/workflows/run.yml", template!("c/ci.yml")),
    ("build.cmd", template!("c/build.cmd")),
    ("build.sh", sample!("build.sh")),
    ("consumer.c", sample!("consumer.c")),
    ("consumer.h", sample!("consumer.h")),
    ("mingw.h", sample!("mingw.h")),
    ("netio.def", sample!("netio.def")),
    ("ntoskrnl.def", sample!("ntoskrnl.def")),
    ("ping.c", sample!("ping.c")),
    ("ping.toml", sample!("ping.toml")),
    ("run.toml", sample!("run.toml")),
    ("serve.toml", sample!("serve.toml")),
    ("support.c", sample!("support.c")),
    ("two.toml", sample!("two.toml")),
    ("include/ndkpi.h", header!("ndkpi.h")),
    ("include/wsk.h", header!("wsk.h")),
    ("include/wskndk.h", header!("wskndk.h")),
];

/// Those of a consumer in Rust beside its manifest.
const RUST: [(&str, &str); 4] = [
    ("README.md", template!("rust/README.md")),
    (".gitignore", template!("rust/gitignore")),
    (".github/workflows/tests.yml", template!("rust/ci.yml")),
    ("src/main.rs", include_str!("../../../../examples/ping_pong.rs")),
];

/// What is made, and where.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  ndkctl new consumer-rust my-consumer && cd my-consumer && cargo test
  ndkctl new consumer-c my-driver && cd my-driver && ./build.sh")]
pub struct New {
    /// The kind of project
    #[arg(value_enum, value_name = "KIND")]
    kind: Kind,
    /// The folder, which is made; one that is there must be empty
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// consumer-rust: depend on a copy of SoftNDK's repository in this folder, and not on its address
    #[arg(long, value_name = "FOLDER")]
    repository: Option<PathBuf>,
}

/// The kind of project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A WDM driver in C, with the headers, a build for Linux and for a Windows kit, and the script of a run.
    ConsumerC,
    /// A program in safe Rust, with a test.
    ConsumerRust,
}

/// Makes a project.
///
/// # Errors
///
/// The folder is not empty, or cannot be written; in one line.
pub fn run(args: &New) -> Result<End, String> {
    let folder = &args.folder;
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    match fs::read_dir(folder).map(|mut entries| entries.next().is_some()) {
        Ok(true) => return Err(format!("{} is not empty: name a new folder", folder.display())),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(folder, error)),
        _ => {}
    }
    let manifest = args.kind == Kind::ConsumerRust;
    let manifest = manifest.then(|| manifest_of(folder, args.repository.as_deref())).transpose()?;
    let files: &[(&str, &str)] = if args.kind == Kind::ConsumerC { &C } else { &RUST };
    let manifest = manifest.iter().map(|text| ("Cargo.toml", text.as_str()));
    for (name, text) in files.iter().copied().chain(manifest) {
        let path = folder.join(name);
        let above = path.parent().unwrap_or(folder);
        fs::create_dir_all(above).map_err(|error| failed(above, error))?;
        // What the example says of itself is where it is in the repository.
        let text = text.replace("//! `cargo run --example ping_pong`", "//! `cargo run`");
        fs::write(&path, text).map_err(|error| failed(&path, error))?;
        make_executable(&path).map_err(|error| failed(&path, error))?;
    }
    let next = match args.kind {
        Kind::ConsumerC => "./build.sh",
        Kind::ConsumerRust => "cargo test",
    };
    say!("{} is there. Next: cd {} && {next}. README.md has the rest.", folder.display(), folder.display());
    Ok(End::Good)
}

/// The manifest of a consumer in Rust, whose package is named as its folder.
fn manifest_of(folder: &Path, repository: Option<&Path>) -> Result<String, String> {
    let name = std::path::absolute(folder).ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let name: String = name.unwrap_or_default();
    let name: String = name.chars().map(|one| if one.is_ascii_alphanumeric() { one } else { '-' }).collect();
    let name = if name.starts_with(|one: char| one.is_ascii_alphabetic()) { name } else { format!("consumer-{name}") };
    let ndk = match repository {
        None => format!("git = {REPOSITORY:?}"),
        Some(copy) => {
            let ndk = copy.join("crates/consumer/ndk");
            let ndk = std::path::absolute(&ndk).map_err(|error| format!("{}: {error}", ndk.display()))?;
            if !ndk.join("Cargo.toml").is_file() {
                return Err(format!("{} is no copy of SoftNDK's repository", copy.display()));
            }
            format!("path = {:?}", ndk.display().to_string())
        }
    };
    Ok(format!(
        "[package]\nname = {name:?}\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n\
         # With the feature `host` it has a machine and SoftNDK's adapters; without, it is for drivers.\n\
         ndk = {{ {ndk}, features = [\"host\"] }}\n\n\
         # The folder may be inside of another package's.\n[workspace]\n"
    ))
}

/// Scripts can be run.
#[cfg(unix)]
fn make_executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;

    if path.extension().is_none_or(|end| end != "sh") {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> std::io::Result<()> {
    Ok(())
}
