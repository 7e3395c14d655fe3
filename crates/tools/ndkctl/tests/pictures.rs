//! The pictures of the documents are those that the command makes.

use std::{fs, path::Path, process::Command};

#[test]
fn pictures_are_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/pictures");
    for name in ["completion", "merge"] {
        let made = std::env::temp_dir().join(format!("ndkctl-picture-{name}-{}.svg", std::process::id()));
        let status = Command::new(env!("CARGO_BIN_EXE_ndkctl"))
            .args(["timeline", "--example", name, "--svg"])
            .arg(&made)
            .status()
            .expect("the program runs");
        assert!(status.success());
        let made_now = fs::read_to_string(&made).expect("the picture that was made");
        fs::remove_file(&made).expect("it is there");
        let kept = fs::read_to_string(folder.join(format!("{name}.svg"))).expect("the picture of the documents");
        assert!(
            made_now == kept.replace("\r\n", "\n"),
            "docs/pictures/{name}.svg is out of date: ndkctl timeline --example {name} --svg docs/pictures/{name}.svg"
        );
    }
}
