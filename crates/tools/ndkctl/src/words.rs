//! Files and filters on the command line. A refusal says what is allowed.

use std::{
    fs::OpenOptions,
    path::{Path, PathBuf},
};

/// A file to write: no folder, and in one that is there and can be written to. So that nobody learns of it after hours of work.
///
/// # Errors
///
/// In words, what is wrong with it.
pub fn out_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if text.is_empty() {
        return Err("name a file".to_owned());
    }
    if path.is_dir() {
        return Err("this is a folder: name a file in it".to_owned());
    }
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(format!("there is no folder {}: make it first", folder.display()));
    }
    let was_there = path.exists();
    OpenOptions::new().create(true).append(true).open(&path).map_err(|error| error.to_string())?;
    if !was_there {
        // It is made anew when there is something to write. Whoever cannot remove it has an empty file.
        let _ = std::fs::remove_file(&path);
    }
    Ok(path)
}

/// Parts of names, separated by commas. An empty one would be part of every name.
///
/// # Errors
///
/// In words, what is wrong with it.
pub fn filter(text: &str) -> Result<String, String> {
    if text.split(',').any(|part| part.trim().is_empty()) {
        return Err("name parts of names, separated by commas; without the argument nothing is left out".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{filter, out_file};

    #[test]
    fn an_empty_part_of_a_filter_is_refused() {
        for wrong in ["", " ", ",", "arm,", ",arm", "arm,,cq"] {
            assert!(filter(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(filter("arm, cq.depth").as_deref(), Ok("arm, cq.depth"));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_refused_and_none_is_left() {
        let folder = std::env::temp_dir().join(format!("ndkctl-out-file-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        let name = |file: &str| folder.join(file).to_str().expect("UTF-8").to_owned();
        for (wrong, part) in [("", "folder"), ("no/such", "no folder"), ("no/such/file", "no folder")] {
            let why = out_file(&name(wrong)).expect_err(wrong);
            assert!(why.contains(part) && !why.contains('\n'), "{why}");
        }
        assert!(out_file("").is_err());
        let good = name("good");
        assert_eq!(out_file(&good).as_deref(), Ok(std::path::Path::new(&good)));
        assert!(!std::path::Path::new(&good).exists(), "nothing is left of the look");
        std::fs::write(&good, "kept").expect("room");
        assert!(out_file(&good).is_ok_and(|path| std::fs::read(path).is_ok_and(|text| text == b"kept")));
        std::fs::remove_dir_all(&folder).expect("it goes");
    }
}
