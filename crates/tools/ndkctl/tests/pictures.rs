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

/// The text beside the picture names whose each queue is, and the contexts of the requests: as the picture has them.
#[test]
fn the_text_beside_the_picture_has_its_numbers() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs");
    let text = fs::read_to_string(docs.join("ndk-in-ten-minutes.md")).expect("the document");
    let picture = fs::read_to_string(docs.join("pictures/completion.svg")).expect("the picture");
    for words in
        ["QP 1 and CQ 1 are consumer A's", "QP 2 and CQ 2 are consumer B's", "0x1 and 0x2, are the contexts 1 and 2"]
    {
        assert!(text.contains(words), "{words}");
    }
    // A sends with context 2, B receives with context 1.
    for words in [
        "NdkSend on QP 1. context 0x2",
        "NdkReceive on QP 2. context 0x1",
        "a send of QP 1, context 0x2",
        "a receive of QP 2, context 0x1",
    ] {
        assert!(picture.contains(words), "{words}");
    }
    for (request, queue) in [("NdkSend: context 0x2", "CQ 1"), ("NdkReceive: context 0x1", "CQ 2")] {
        let title = picture.lines().flat_map(|line| line.split("<title>")).find(|title| title.starts_with(request));
        assert!(title.is_some_and(|title| title.contains(&format!("is taken from {queue} "))), "{request}: {queue}");
    }
}
