//! The one volume that drivers' files live on, `C:`: folders and files in memory, by their names without regard to case.
//!
//! Nothing of it is the host's. A run begins with what the script's folder held when it was read, so what a driver writes is seen by
//! that run only, and no path leads out of it.

use std::collections::BTreeMap;

use image_loader::file_name::{folded, is_name};
use litemap::LiteMap;
use wdk_bindings::NTSTATUS;

/// `STATUS_OBJECT_NAME_INVALID`, `STATUS_OBJECT_NAME_NOT_FOUND`, `STATUS_OBJECT_PATH_NOT_FOUND`.
pub const NAME_INVALID: NTSTATUS = 0xC000_0033_u32.cast_signed();
pub const NAME_NOT_FOUND: NTSTATUS = 0xC000_0034_u32.cast_signed();
pub const PATH_NOT_FOUND: NTSTATUS = 0xC000_003A_u32.cast_signed();

/// The root folder.
pub const ROOT: u64 = 5;
/// `FILE_ATTRIBUTE_READONLY`, `_DIRECTORY`, `_ARCHIVE` and `_NORMAL`.
pub const READ_ONLY: u32 = 0x1;
pub const DIRECTORY: u32 = 0x10;
pub const ARCHIVE: u32 = 0x20;
pub const NORMAL: u32 = 0x80;
/// Attributes that whoever makes a file decides on: read-only, hidden, system, archive, temporary, not indexed.
pub const SETTABLE: u32 = 0x2127;
/// Bytes that a file may have. A driver that writes more finds the disk full.
pub const LONGEST: u64 = 64 << 20;
/// What is there before anything else: where `\SystemRoot` leads to, and what drivers expect below it.
const FOLDERS: [&str; 4] = ["Windows", r"Windows\System32", r"Windows\System32\drivers", r"Windows\Temp"];

/// A file or folder.
pub struct Node {
    pub parent: u64,
    /// The name as whoever has made it spelled it.
    pub name: String,
    pub bytes: Vec<u8>,
    pub attributes: u32,
    /// Creation, last access, last write, change.
    pub times: [u64; 4],
    /// It goes with the last handle.
    pub delete_pending: bool,
}

impl Node {
    pub const fn is_folder(&self) -> bool {
        self.attributes & DIRECTORY != 0
    }
}

/// Files and folders, by number.
pub struct Volume {
    nodes: BTreeMap<u64, Node>,
    next: u64,
}

impl Default for Volume {
    fn default() -> Self {
        let root = Node {
            parent: ROOT,
            name: String::new(),
            bytes: Vec::new(),
            attributes: DIRECTORY,
            times: [0; 4],
            delete_pending: false,
        };
        let mut volume = Self { nodes: BTreeMap::from([(ROOT, root)]), next: ROOT + 1 };
        for folder in FOLDERS {
            let _ = volume.put(folder, None, 0);
        }
        volume
    }
}

impl Volume {
    /// What has that number.
    pub fn node(&self, number: u64) -> Option<&Node> {
        self.nodes.get(&number)
    }

    pub fn node_mut(&mut self, number: u64) -> Option<&mut Node> {
        self.nodes.get_mut(&number)
    }

    /// What a folder holds under that name.
    pub fn child(&self, folder: u64, name: &str) -> Option<u64> {
        let wanted = folded(name);
        let found = |(&number, node): (&u64, &Node)| {
            (number != ROOT && node.parent == folder && folded(&node.name) == wanted).then_some(number)
        };
        self.nodes.iter().find_map(found)
    }

    /// What a folder holds, in the order of its names.
    pub fn children(&self, folder: u64) -> Vec<u64> {
        let inside = self.nodes.iter().filter(|&(&number, node)| number != ROOT && node.parent == folder);
        let named: LiteMap<String, u64> = inside.map(|(&number, node)| (folded(&node.name), number)).collect();
        named.values().copied().collect()
    }

    /// The folder that a path leads to, seen from another one, and the last name in it. The last name is empty if the path is.
    ///
    /// # Errors
    ///
    /// A name that can be none, or a folder that is not there.
    pub fn walk<'a>(&self, from: u64, path: &'a str) -> Result<(u64, &'a str), NTSTATUS> {
        let (mut folder, mut names) = (from, path.split('\\').peekable());
        while let Some(name) = names.next() {
            let is_last = names.peek().is_none();
            if is_last && path.is_empty() {
                return Ok((folder, ""));
            }
            if !is_name(name) {
                return Err(NAME_INVALID);
            }
            if is_last {
                return Ok((folder, name));
            }
            let below = self.child(folder, name).filter(|&below| self.node(below).is_some_and(Node::is_folder));
            folder = below.ok_or(PATH_NOT_FOUND)?;
        }
        Ok((folder, ""))
    }

    /// Makes a file or folder.
    pub fn make(&mut self, parent: u64, name: &str, attributes: u32, now: u64) -> u64 {
        let number = self.next;
        self.next += 1;
        let (name, bytes, times) = (name.to_owned(), Vec::new(), [now; 4]);
        self.nodes.insert(number, Node { parent, name, bytes, attributes, times, delete_pending: false });
        number
    }

    /// Takes away what has that number.
    pub fn remove(&mut self, number: u64) {
        self.nodes.remove(&number);
    }

    /// Puts a file, or a folder without bytes, at a path from the root, with the folders on the way to it.
    ///
    /// # Errors
    ///
    /// What cannot be a name, or is a file on the way.
    pub fn put(&mut self, path: &str, bytes: Option<&[u8]>, now: u64) -> Result<(), NTSTATUS> {
        let mut folder = ROOT;
        let mut names = path.split('\\').peekable();
        while let Some(name) = names.next() {
            if !is_name(name) {
                return Err(NAME_INVALID);
            }
            let is_file = names.peek().is_none() && bytes.is_some();
            let found = self.child(folder, name);
            let number =
                found.unwrap_or_else(|| self.make(folder, name, if is_file { ARCHIVE } else { DIRECTORY }, now));
            let Some(node) = self.node_mut(number).filter(|node| node.is_folder() != is_file) else {
                return Err(PATH_NOT_FOUND);
            };
            if let Some(bytes) = bytes.filter(|_| is_file) {
                node.bytes = bytes.to_vec();
            }
            folder = number;
        }
        Ok(())
    }

    /// What is at a path from the root.
    pub fn at(&self, path: &str) -> Option<&Node> {
        let (folder, name) = self.walk(ROOT, path).ok()?;
        self.node(if name.is_empty() { folder } else { self.child(folder, name)? })
    }

    /// The path of a file or folder, from the root and with a backslash in front.
    pub fn path(&self, number: u64) -> String {
        let (mut path, mut here) = (String::new(), number);
        while here != ROOT {
            let Some(node) = self.node(here) else { break };
            path = format!("\\{}{path}", node.name);
            here = node.parent;
        }
        if path.is_empty() { "\\".to_owned() } else { path }
    }
}

/// Whether a name is one of those that an expression with `*` and `?` means.
pub fn is_meant(expression: &str, name: &str) -> bool {
    if ["", "*", "*.*"].contains(&expression) {
        return true;
    }
    let (expression, name): (Vec<char>, Vec<char>) =
        (folded(expression).chars().collect(), folded(name).chars().collect());
    // The last star, and where in the name what it stands for ends.
    let (mut at, mut here, mut star) = (0, 0, None);
    while here < name.len() {
        match expression.get(at) {
            Some('*') => {
                star = Some((at, here));
                at += 1;
            }
            Some(&letter) if letter == '?' || letter == name[here] => (at, here) = (at + 1, here + 1),
            _ => {
                let Some((place, until)) = star else { return false };
                star = Some((place, until + 1));
                (at, here) = (place + 1, until + 1);
            }
        }
    }
    expression[at..].iter().all(|&letter| letter == '*')
}
