//! The workspace is one that the kit's build support accepts.

use std::{fs, process::Command};

use serde_json::Value;
use sources::root;

/// The names of all packages as `wdk_build::cargo_make` finds them: by `cargo metadata` without any choice of platform or
/// features. Where packages for Windows cannot be downloaded, those of the lock file, which has every package of that list.
fn packages() -> Vec<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--locked", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo runs the tests, so it is there");
    if output.status.success() {
        let metadata = serde_json::from_slice::<Value>(&output.stdout).expect("cargo speaks JSON");
        let packages = metadata["packages"].as_array().expect("a list of packages");
        return packages.iter().map(|package| package["name"].as_str().expect("a name").to_owned()).collect();
    }
    println!("from Cargo.lock, because of: {}", String::from_utf8_lossy(&output.stderr));
    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("the lock file is in the repository");
    lock.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')).map(str::to_owned).collect()
}

/// `load_rust_driver_makefile` ends with "multiple versions of the wdk-build package are detected" otherwise.
#[test]
fn the_workspace_has_one_wdk_build_and_one_wdk_sys() {
    let packages = packages();
    for name in ["wdk-build", "wdk-sys"] {
        assert_eq!(packages.iter().filter(|package| *package == name).count(), 1, "packages named {name}");
    }
}

/// Each driver is built in its own directory, and all alike.
#[test]
fn all_drivers_have_the_same_build_settings() {
    let settings = |driver: &str| {
        let path = root().join("crates/drivers").join(driver).join(".cargo/config.toml");
        fs::read_to_string(path).expect("the driver has settings of its own")
    };
    assert_eq!(settings("softndk"), settings("ndktest"));
    assert_eq!(settings("softndk"), settings("softndknic"));
}
