//! The files that drivers find on their disk: what a folder of this machine holds when it is read.
//!
//! Only copies of them go into a run, so a driver changes none of them, each run begins with the same, and no path of a driver leads to
//! this machine.

use std::{collections::BTreeSet, fs, path::Path};

use image_loader::file_name;
use serde::{Deserialize, Serialize};

/// Bytes of all files at most: they go to each worker.
const MOST: u64 = 4 << 20;
/// Files and folders at most, and folders in each other.
const ENTRIES: usize = 10_000;
const DEPTH: usize = 32;

/// A file or folder of the drivers' disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskEntry {
    /// The path from the root of `C:`, with backslashes.
    pub path: String,
    /// The bytes; `None` for a folder.
    pub bytes: Option<Vec<u8>>,
}

/// Reads what a folder holds.
///
/// # Errors
///
/// One line that begins with the path: what cannot be read, is neither file nor folder (a symbolic link would lead out of the folder), has a name
/// that no file of Windows can have or that another one has but for its case, or is too much.
pub fn read(folder: &Path) -> Result<Vec<DiskEntry>, String> {
    let mut entries = Vec::new();
    let mut room = MOST;
    read_into(folder, "", DEPTH, &mut room, &mut entries)?;
    Ok(entries)
}

fn read_into(
    folder: &Path,
    above: &str,
    depth: usize,
    room: &mut u64,
    entries: &mut Vec<DiskEntry>,
) -> Result<(), String> {
    let of = |path: &Path, words: &dyn std::fmt::Display| format!("{}: {words}", path.display());
    if depth == 0 {
        return Err(of(folder, &format!("more than {DEPTH} folders in each other")));
    }
    let listed = fs::read_dir(folder).map_err(|error| of(folder, &error))?;
    let mut found = listed.collect::<Result<Vec<_>, _>>().map_err(|error| of(folder, &error))?;
    // The order of a folder is the file system's, and a run must not depend on it.
    found.sort_by_key(fs::DirEntry::file_name);
    let mut names = BTreeSet::new();
    for entry in found {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_str().filter(|name| is_name(name)).ok_or_else(|| of(&path, &"no name of Windows"))?;
        if !names.insert(file_name::folded(name)) {
            return Err(of(&path, &"another name is the same but for its case"));
        }
        if entries.len() == ENTRIES {
            return Err(of(&path, &format!("more than {ENTRIES} files and folders")));
        }
        let below = format!("{above}{name}");
        let kind = entry.file_type().map_err(|error| of(&path, &error))?;
        if kind.is_dir() {
            entries.push(DiskEntry { path: below.clone(), bytes: None });
            read_into(&path, &format!("{below}\\"), depth - 1, room, entries)?;
        } else if kind.is_file() {
            let bytes = fs::read(&path).map_err(|error| of(&path, &error))?;
            let left = room.checked_sub(bytes.len() as u64);
            *room = left.ok_or_else(|| of(&path, &format!("more than {MOST} bytes of files")))?;
            entries.push(DiskEntry { path: below, bytes: Some(bytes) });
        } else {
            return Err(of(&path, &"neither a file nor a folder"));
        }
    }
    Ok(())
}

/// Whether a program of Windows can give a file that name.
fn is_name(name: &str) -> bool {
    !name.ends_with(['.', ' ']) && file_name::is_name(name)
}
