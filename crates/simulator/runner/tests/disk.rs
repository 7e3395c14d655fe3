//! The files that drivers find: what of a folder is read, and what is refused.

use std::{fs, path::PathBuf};

use runner::{
    disk::{DiskEntry, read},
    parse,
};

/// A folder of the test's own, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("runner-disk-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(path, bytes).expect("a file");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed stays among the temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn entry(path: &str, bytes: Option<&[u8]>) -> DiskEntry {
    DiskEntry { path: path.to_owned(), bytes: bytes.map(<[u8]>::to_vec) }
}

#[test]
fn files_and_folders_are_read_in_the_order_of_their_names() {
    let folder = Folder::new("order");
    folder.put("b.txt", b"b");
    folder.put("a/z.bin", &[0, 255]);
    fs::create_dir(folder.0.join("a/empty")).expect("a folder");
    let expected =
        [entry("a", None), entry("a\\empty", None), entry("a\\z.bin", Some(&[0, 255])), entry("b.txt", Some(b"b"))];
    assert_eq!(read(&folder.0).expect("it is read"), expected);
}

#[test]
fn what_windows_would_not_have_is_refused() {
    for (name, words) in [("a:b", "no name of Windows"), ("end.", "no name of Windows"), ("a*", "no name of Windows")] {
        let folder = Folder::new("names");
        folder.put(name, b"");
        let said = read(&folder.0).expect_err(name);
        assert!(said.contains(words) && said.contains(name) && !said.contains('\n'), "{said}");
    }
    let folder = Folder::new("case");
    folder.put("One", b"");
    folder.put("one", b"");
    // A file system without regard to case has one of them.
    if fs::read_dir(&folder.0).expect("a folder").count() == 2 {
        let said = read(&folder.0).expect_err("twice");
        assert!(said.contains("but for its case"), "{said}");
    }
    let folder = Folder::new("much");
    folder.put("big", &vec![0; (4 << 20) + 1]);
    let said = read(&folder.0).expect_err("too much");
    assert!(said.contains("bytes of files"), "{said}");
    let said = read(&folder.0.join("none")).expect_err("it is not there");
    assert!(said.contains("none"), "{said}");
}

#[cfg(unix)]
#[test]
fn a_link_that_would_lead_out_is_refused() {
    let folder = Folder::new("link");
    for target in ["/etc", "/etc/hostname", "nowhere"] {
        let link = folder.0.join("out");
        std::os::unix::fs::symlink(target, &link).expect("a link");
        let said = read(&folder.0).expect_err(target);
        assert!(said.contains("neither a file nor a folder"), "{said}");
        fs::remove_file(link).expect("it goes");
    }
}

#[test]
fn a_script_says_where_the_files_are() {
    let folder = Folder::new("script");
    folder.put("disk/x", b"1");
    folder.put("other/y", b"2");
    folder.put("run.toml", b"[kernel]\nfiles = \"disk\"\n");
    let mut script = parse::read(&folder.0.join("run.toml")).expect("a script");
    script.read_files(None).expect("its folder");
    assert_eq!(script.files, [entry("x", Some(b"1"))]);
    script.read_files(Some(&folder.0.join("other"))).expect("another folder");
    assert_eq!(script.files, [entry("y", Some(b"2"))], "instead of the script's");
    folder.put("two.toml", b"[kernel]\nfiles = \"disk\"\n[[machine]]\nname = \"a\"\n[[machine]]\nname = \"b\"\nkernel = { files = \"other\" }\n");
    let mut script = parse::read(&folder.0.join("two.toml")).expect("a script");
    script.read_files(None).expect("their folders");
    let of: Vec<_> = script.machines.iter().map(|node| node.script.files[0].path.as_str()).collect();
    assert_eq!(of, ["x", "y"]);
    let mut script = runner::parse("").expect("an empty script");
    script.read_files(None).expect("nothing");
    assert!(script.files.is_empty());
}
