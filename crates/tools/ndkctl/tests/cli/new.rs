//! Projects that `ndkctl new` makes. That they build and run is what `cargo xtask projects` shows.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{good, ndkctl, text};

/// A folder of this test alone, which is gone afterwards.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ndkctl-new-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        Self(folder)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a name")
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The repository.
fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).expect("three folders above")
}

#[test]
fn a_consumer_in_rust_depends_on_one_crate() {
    let scratch = Scratch::new("rust");
    let said = good(&["new", "consumer-rust", scratch.path()]);
    assert!(said.contains("cargo test"), "{said}");
    let manifest: toml::Table = toml::from_str(&scratch.read("Cargo.toml")).expect("a manifest");
    let dependencies = manifest["dependencies"].as_table().expect("dependencies");
    assert_eq!(dependencies.keys().collect::<Vec<_>>(), ["ndk"]);
    assert_eq!(dependencies["ndk"]["git"].as_str(), Some(env!("CARGO_PKG_REPOSITORY")));
    let name = scratch.0.file_name().expect("a name").to_str();
    assert_eq!(manifest["package"]["name"].as_str(), name);
    let main = scratch.read("src/main.rs");
    assert!(main.contains("//! `cargo run`\n") && !main.contains("--example"), "{main}");
    assert!(scratch.read(".github/workflows/tests.yml").contains("cargo test"));
}

#[test]
fn a_consumer_in_rust_can_depend_on_a_copy_of_the_repository() {
    let scratch = Scratch::new("copy");
    let copy = repository().to_str().expect("a name");
    good(&["new", "consumer-rust", scratch.path(), "--repository", copy]);
    let manifest: toml::Table = toml::from_str(&scratch.read("Cargo.toml")).expect("a manifest");
    let ndk = Path::new(manifest["dependencies"]["ndk"]["path"].as_str().expect("a path"));
    assert!(ndk.join("Cargo.toml").is_file(), "{}", ndk.display());

    let other = Scratch::new("no-copy");
    let output = ndkctl(&["new", "consumer-rust", other.path(), "--repository", scratch.path()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("is no copy of SoftNDK's repository"));
    assert!(!other.0.exists(), "something was made");
}

/// What the sample has, and what makes it independent of the repository.
#[test]
fn a_consumer_in_c_has_all_that_its_sources_include() {
    let scratch = Scratch::new("c");
    good(&["new", "consumer-c", scratch.path()]);
    let sample = repository().join("samples/consumer-c");
    for name in ["consumer.c", "consumer.h", "support.c", "build.sh", "run.toml"] {
        assert_eq!(scratch.read(name), fs::read_to_string(sample.join(name)).expect("a file of the sample"), "{name}");
    }
    for header in ["ndkpi.h", "wskndk.h", "wsk.h"] {
        let own = fs::read_to_string(repository().join("crates/abi/ndkpi/include").join(header)).expect("a header");
        assert_eq!(scratch.read(&format!("include/{header}")), own);
    }
    assert!(scratch.read(".github/workflows/run.yml").contains("./build.sh"));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;

        let mode = fs::metadata(scratch.0.join("build.sh")).expect("a script").permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "it can be run");
    }
}

#[test]
fn a_folder_that_is_not_empty_is_left_alone() {
    let scratch = Scratch::new("full");
    fs::create_dir_all(&scratch.0).expect("a folder");
    fs::write(scratch.0.join("notes"), "mine").expect("a file");
    for kind in ["consumer-c", "consumer-rust"] {
        let output = ndkctl(&["new", kind, scratch.path()]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("is not empty: name a new folder"), "{}", text(&output.stderr));
    }
    assert_eq!(fs::read_dir(&scratch.0).expect("the folder").count(), 1);
}
