//! Files that drivers open by their paths, on the [volume](super::volume) of the run.

use std::{ptr, sync::Mutex};

use litemap::LiteMap;
use wdk_bindings::{
    ACCESS_MASK, BOOLEAN, HANDLE, IO_STATUS_BLOCK, NTSTATUS, OBJECT_ATTRIBUTES, PHANDLE, POBJECT_ATTRIBUTES, PVOID,
    STATUS_ACCESS_DENIED, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER, STATUS_SUCCESS, ULONG,
};

use super::{
    clock::system_time,
    handles,
    volume::{self, ARCHIVE, DIRECTORY, NAME_INVALID, NAME_NOT_FOUND, Node, PATH_NOT_FOUND, READ_ONLY, ROOT, Volume},
};
use crate::{
    argument::check_size,
    context::{self, DriverId},
    kernel::Kernel,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State},
    text,
};

/// Statuses of files that the bindings leave out.
const NAME_COLLISION: NTSTATUS = 0xC000_0035_u32.cast_signed();
const PATH_SYNTAX_BAD: NTSTATUS = 0xC000_003B_u32.cast_signed();
const SHARING_VIOLATION: NTSTATUS = 0xC000_0043_u32.cast_signed();
const DELETE_PENDING: NTSTATUS = 0xC000_0056_u32.cast_signed();
const IS_A_DIRECTORY: NTSTATUS = 0xC000_00BA_u32.cast_signed();
const NOT_A_DIRECTORY: NTSTATUS = 0xC000_0103_u32.cast_signed();
pub(super) const CANNOT_DELETE: NTSTATUS = 0xC000_0121_u32.cast_signed();
pub(super) const NOT_EMPTY: NTSTATUS = 0xC000_0101_u32.cast_signed();

/// `FILE_READ_DATA`, `FILE_WRITE_DATA`, `FILE_APPEND_DATA`, `FILE_EXECUTE`, `DELETE`, `SYNCHRONIZE`.
pub(super) const READ: u32 = 0x1;
pub(super) const WRITE: u32 = 0x2;
pub(super) const APPEND: u32 = 0x4;
const EXECUTE: u32 = 0x20;
pub(super) const DELETE: u32 = 0x1_0000;
const SYNCHRONIZE: u32 = 0x10_0000;
/// `GENERIC_READ`, `GENERIC_WRITE`, `GENERIC_EXECUTE`, `GENERIC_ALL` and `MAXIMUM_ALLOWED`, and what each means of a file.
const GENERIC: [(u32, u32); 5] = [
    (0x8000_0000, 0x12_0089),
    (0x4000_0000, 0x12_0116),
    (0x2000_0000, 0x12_00A0),
    (0x1000_0000, 0x1F_01FF),
    (0x0200_0000, 0x1F_01FF),
];

/// Options: `FILE_DIRECTORY_FILE`, `FILE_NO_INTERMEDIATE_BUFFERING`, `FILE_SYNCHRONOUS_IO_ALERT` and `_NONALERT`,
/// `FILE_NON_DIRECTORY_FILE`, `FILE_DELETE_ON_CLOSE`, `FILE_OPEN_BY_FILE_ID`.
const ONLY_FOLDER: u32 = 0x1;
pub(super) const UNBUFFERED: u32 = 0x8;
const SYNCHRONOUS: [u32; 2] = [0x10, 0x20];
const ONLY_FILE: u32 = 0x40;
const DELETE_ON_CLOSE: u32 = 0x1000;
const BY_NUMBER: u32 = 0x2000;

/// What is to become of a file that is there, or is not: `FILE_SUPERSEDE` to `FILE_OVERWRITE_IF`.
const SUPERSEDE: u32 = 0;
const OPEN: u32 = 1;
const CREATE: u32 = 2;
const OPEN_IF: u32 = 3;
const OVERWRITE: u32 = 4;
const OVERWRITE_IF: u32 = 5;
/// What has become of it: `FILE_SUPERSEDED` to `FILE_DOES_NOT_EXIST`.
const SUPERSEDED: u64 = 0;
const OPENED: u64 = 1;
const CREATED: u64 = 2;
const OVERWRITTEN: u64 = 3;
const EXISTS: u64 = 4;
const DOES_NOT_EXIST: u64 = 5;

/// Where the volume begins, in each of its names.
const BEGINNINGS: [&str; 5] =
    [r"\??\C:", r"\DosDevices\C:", r"\GLOBAL??\C:", r"\DosDevices\Global\C:", r"\Device\HarddiskVolume1"];
/// The folder of the system, as a path of its own.
const SYSTEM_ROOT: &str = r"\SystemRoot";

/// A file that a driver has open.
#[derive(Clone)]
pub(super) struct Opened {
    owner: DriverId,
    pub node: u64,
    pub access: u32,
    share: u32,
    pub options: u32,
    /// Where the next byte is read or written, if the file is synchronous.
    pub position: u64,
    /// What a folder is listed by, and how many of its names were said.
    pub listing: Option<(String, usize)>,
}

impl Opened {
    /// Whether its reads and writes come one after the other, and the system keeps their place.
    pub const fn is_synchronous(&self) -> bool {
        self.options & (SYNCHRONOUS[0] | SYNCHRONOUS[1]) != 0
    }

    /// A read or a write has come to there. The system keeps the place of a synchronous file only.
    pub const fn leave_off_at(&mut self, place: u64) {
        if self.is_synchronous() {
            self.position = place;
        }
    }

    /// Whether it takes what `other` lets others do, or leaves it.
    const fn disagrees(&self, other: &Self) -> bool {
        const fn takes(access: u32) -> u32 {
            let reads = if access & (READ | EXECUTE) != 0 { 1 } else { 0 };
            let writes = if access & (WRITE | APPEND) != 0 { 2 } else { 0 };
            reads | writes | if access & DELETE != 0 { 4 } else { 0 }
        }
        let (mine, others) = (takes(self.access), takes(other.access));
        mine != 0 && others != 0 && (mine & !other.share != 0 || others & !self.share != 0)
    }
}

/// The volume, and what drivers have open of it, by handle.
#[derive(Default)]
pub struct Files {
    pub(super) volume: Volume,
    pub(super) opened: LiteMap<usize, Opened>,
}

impl Part for Mutex<Files> {}

impl Files {
    /// What is open by that handle.
    pub(super) fn opened(&mut self, handle: HANDLE) -> &mut Opened {
        self.opened.get_mut(&handle.addr()).unwrap_or_else(|| {
            bug_check(Rule::BadHandle, format_args!("{handle:p} is no file that is open"));
        })
    }

    /// The file or folder behind what is open.
    pub(super) fn node(&mut self, number: u64) -> &mut Node {
        let Some(node) = self.volume.node_mut(number) else { unreachable!("what is open stays") };
        node
    }

    /// Takes away what nobody has open and was to be deleted.
    fn settle(&mut self, number: u64) {
        let is_open = self.opened.values().any(|opened| opened.node == number);
        if !is_open && self.volume.node(number).is_some_and(|node| node.delete_pending) {
            self.volume.remove(number);
        }
    }
}

impl State {
    /// A driver is unloaded: its files must be closed.
    pub fn check_files(&self, owner: DriverId, name: &str) {
        let files = self.locked::<Files>();
        if let Some(opened) = files.opened.values().find(|opened| opened.owner == owner) {
            let path = files.volume.path(opened.node);
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} left a handle of the file C:{path} open"));
        }
    }

    /// Whether that is the handle of a file.
    pub fn is_file(&self, handle: usize) -> bool {
        self.locked::<Files>().opened.contains_key(&handle)
    }

    /// Closes a handle, if it is one of a file.
    pub fn close_opened(&self, handle: usize) -> bool {
        let mut files = self.locked::<Files>();
        let Some(opened) = files.opened.remove(&handle) else { return false };
        if opened.options & DELETE_ON_CLOSE != 0 && files.volume.children(opened.node).is_empty() {
            files.node(opened.node).delete_pending = true;
        }
        files.settle(opened.node);
        true
    }
}

impl Kernel {
    /// Puts a file on the drivers' volume `C:`, or a folder without bytes, by its path from the root: `Windows\Temp\a.txt`. Folders on
    /// the way to it are made.
    ///
    /// # Errors
    ///
    /// `STATUS_OBJECT_NAME_INVALID` or `STATUS_OBJECT_PATH_NOT_FOUND`.
    pub fn put_file(&self, path: &str, bytes: Option<&[u8]>) -> Result<(), NTSTATUS> {
        let now = system_time(&self.state);
        self.state.locked::<Files>().volume.put(path, bytes, now)
    }

    /// The bytes of a file on the drivers' volume. `None` if there is no such file.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<Vec<u8>> {
        let files = self.state.locked::<Files>();
        files.volume.at(path).filter(|node| !node.is_folder()).map(|node| node.bytes.clone())
    }
}

/// What begins with `beginning`, without regard to case: the rest.
fn behind<'a>(path: &'a str, beginning: &str) -> Option<&'a str> {
    let (start, rest) = path.split_at_checked(beginning.len())?;
    let is_whole = rest.is_empty() || rest.starts_with('\\');
    (start.eq_ignore_ascii_case(beginning) && is_whole).then_some(rest)
}

/// Where a driver's path leads: the folder that it begins in, and the path from there.
fn place_of(state: &State, attributes: &OBJECT_ATTRIBUTES) -> Result<(u64, String), NTSTATUS> {
    let name = text::text(attributes.ObjectName);
    if !attributes.RootDirectory.is_null() {
        handles::check_handle(state, attributes.RootDirectory.addr());
        let mut files = state.locked::<Files>();
        let from = files.opened(attributes.RootDirectory).node;
        return match name.strip_prefix('\\') {
            Some(_) => Err(NAME_INVALID),
            None if files.node(from).is_folder() => Ok((from, name)),
            None => Err(STATUS_INVALID_PARAMETER),
        };
    }
    if name.is_empty() || !name.starts_with('\\') {
        return Err(PATH_SYNTAX_BAD);
    }
    if let Some(rest) = behind(&name, SYSTEM_ROOT) {
        return Ok((ROOT, format!("Windows{rest}")));
    }
    let Some(rest) = BEGINNINGS.iter().find_map(|beginning| behind(&name, beginning)) else {
        if state.wdm_device(&name).is_some() {
            bug_check(Rule::NotSimulated, format_args!("ZwCreateFile of the device {name}"));
        }
        // Another drive or device: there is none.
        return Err(PATH_NOT_FOUND);
    };
    if rest.is_empty() {
        bug_check(Rule::NotSimulated, format_args!("a handle of the volume {name} itself"));
    }
    Ok((ROOT, rest.trim_start_matches('\\').to_owned()))
}

/// What a driver wants of a file.
struct Wanted {
    access: u32,
    attributes: u32,
    share: u32,
    disposition: u32,
    options: u32,
}

impl Wanted {
    /// Looks at what the reference forbids, whatever is there.
    fn check(&self) -> NTSTATUS {
        let synchronous = SYNCHRONOUS.map(|option| self.options & option != 0);
        let (folder, file) = (self.options & ONLY_FOLDER != 0, self.options & ONLY_FILE != 0);
        let wrong = self.disposition > OVERWRITE_IF
            || self.share & !7 != 0
            || synchronous == [true, true]
            || synchronous != [false, false] && self.access & SYNCHRONIZE == 0
            || self.options & DELETE_ON_CLOSE != 0 && meant(self.access) & DELETE == 0
            || folder && (file || ![CREATE, OPEN, OPEN_IF].contains(&self.disposition))
            || self.options & UNBUFFERED != 0 && self.access & APPEND != 0;
        if wrong { STATUS_INVALID_PARAMETER } else { STATUS_SUCCESS }
    }
}

/// An access mask without generic rights.
fn meant(access: u32) -> u32 {
    let generic = GENERIC.iter().filter(|(bit, _)| access & bit != 0);
    generic.fold(access, |access, (bit, rights)| access & !bit | rights)
}

/// Opens a file, or makes one. What has become of it, and the handle.
fn create(state: &State, attributes: &OBJECT_ATTRIBUTES, wanted: &Wanted) -> Result<(u64, usize), (NTSTATUS, u64)> {
    let plain = |status: NTSTATUS| (status, 0);
    match wanted.check() {
        STATUS_SUCCESS => {}
        status => return Err(plain(status)),
    }
    if wanted.options & BY_NUMBER != 0 {
        bug_check(Rule::NotSimulated, format_args!("a file that is opened by its number"));
    }
    let (from, path) = place_of(state, attributes).map_err(plain)?;
    let (path, is_of_folder) = path.strip_suffix('\\').map_or((path.as_str(), false), |path| (path, true));
    if path.contains(':') {
        bug_check(Rule::NotSimulated, format_args!("a stream of a file: {path}"));
    }
    let now = system_time(state);
    let mut files = state.locked::<Files>();
    let (folder, name) = files.volume.walk(from, path).map_err(plain)?;
    let found = if name.is_empty() { Some(folder) } else { files.volume.child(folder, name) };
    let access = meant(wanted.access);
    let opened = |node| Opened {
        owner: context::caller(),
        node,
        access,
        share: wanted.share,
        options: wanted.options,
        position: 0,
        listing: None,
    };
    if let Some(number) = found {
        let node = files.node(number);
        let is_folder = node.is_folder();
        let replaces = [SUPERSEDE, OVERWRITE, OVERWRITE_IF].contains(&wanted.disposition);
        if wanted.disposition == CREATE {
            return Err((NAME_COLLISION, EXISTS));
        }
        if node.delete_pending {
            return Err(plain(DELETE_PENDING));
        }
        if is_folder && (wanted.options & ONLY_FILE != 0 || replaces) {
            return Err(plain(IS_A_DIRECTORY));
        }
        if !is_folder && (wanted.options & ONLY_FOLDER != 0 || is_of_folder) {
            return Err(plain(NOT_A_DIRECTORY));
        }
        if node.attributes & READ_ONLY != 0 && !is_folder {
            if access & (WRITE | APPEND) != 0 || replaces {
                return Err(plain(STATUS_ACCESS_DENIED));
            }
            if wanted.options & DELETE_ON_CLOSE != 0 {
                return Err(plain(CANNOT_DELETE));
            }
        }
        let new = opened(number);
        if files.opened.values().any(|other| other.node == number && new.disagrees(other)) {
            return Err(plain(SHARING_VIOLATION));
        }
    } else {
        if [OPEN, OVERWRITE].contains(&wanted.disposition) {
            return Err((NAME_NOT_FOUND, DOES_NOT_EXIST));
        }
        if is_of_folder && wanted.options & ONLY_FOLDER == 0 {
            return Err(plain(NAME_INVALID));
        }
    }
    // From here on only the system can fail.
    drop(files);
    if state.strikes() {
        return Err(plain(STATUS_INSUFFICIENT_RESOURCES));
    }
    let handle = handles::new_handle(state, attributes.Attributes, "a file");
    let mut files = state.locked::<Files>();
    let (number, information) = match (found, wanted.disposition) {
        (None, _) => {
            let kind = if wanted.options & ONLY_FOLDER != 0 { DIRECTORY } else { ARCHIVE };
            let settable = wanted.attributes & volume::SETTABLE;
            (files.volume.make(folder, name, kind | settable, now), CREATED)
        }
        (Some(number), OPEN | OPEN_IF) => (number, OPENED),
        (Some(number), disposition) => {
            let node = files.node(number);
            node.bytes.clear();
            node.attributes = ARCHIVE | wanted.attributes & volume::SETTABLE;
            node.times = [node.times[0], now, now, now];
            (number, if disposition == SUPERSEDE { SUPERSEDED } else { OVERWRITTEN })
        }
    };
    files.opened.insert(handle, opened(number));
    Ok((information, handle))
}

/// Writes what became of a request.
pub(super) fn answer(block: *mut IO_STATUS_BLOCK, status: NTSTATUS, information: u64) {
    // SAFETY: the driver's block, which lives until the request is over, and that is now.
    let block = unsafe { &mut *block };
    block.__bindgen_anon_1.Status = status;
    block.Information = information;
}

/// Ends the test if a driver leaves out a place that the system writes to.
pub(super) fn check_block(block: *mut IO_STATUS_BLOCK, routine: &str) {
    if block.is_null() {
        bug_check(Rule::BadArgument, format_args!("{routine} without an IO_STATUS_BLOCK"));
    }
}

fn open(
    state: &State,
    routine: &str,
    handle: PHANDLE,
    attributes: POBJECT_ATTRIBUTES,
    block: *mut IO_STATUS_BLOCK,
    wanted: &Wanted,
) -> NTSTATUS {
    check_block(block, routine);
    if handle.is_null() {
        bug_check(Rule::BadArgument, format_args!("{routine} without a place for the handle"));
    }
    // SAFETY: null or the driver's structure, which lives until the call returns.
    let Some(attributes) = (unsafe { attributes.as_ref() }) else { return STATUS_INVALID_PARAMETER };
    check_size::<OBJECT_ATTRIBUTES>(attributes.Length, "OBJECT_ATTRIBUTES");
    let (status, information) = match create(state, attributes, wanted) {
        Ok((information, place)) => {
            // SAFETY: the driver's place, which lives until the call returns.
            unsafe { handle.write(ptr::without_provenance_mut(place)) };
            (STATUS_SUCCESS, information)
        }
        Err(outcome) => outcome,
    };
    answer(block, status, information);
    state.preempt();
    status
}

#[unsafe(no_mangle)]
extern "C" fn ZwCreateFile(
    handle: PHANDLE,
    access: ACCESS_MASK,
    attributes: POBJECT_ATTRIBUTES,
    block: *mut IO_STATUS_BLOCK,
    _allocation: *mut i64,
    file_attributes: ULONG,
    share: ULONG,
    disposition: ULONG,
    options: ULONG,
    extended: PVOID,
    _length: ULONG,
) -> NTSTATUS {
    routine!("ZwCreateFile", PASSIVE_LEVEL, |state| {
        if !extended.is_null() {
            bug_check(Rule::NotSimulated, format_args!("ZwCreateFile with extended attributes"));
        }
        let wanted = Wanted { access, attributes: file_attributes, share, disposition, options };
        open(state, "ZwCreateFile", handle, attributes, block, &wanted)
    })
}

#[unsafe(no_mangle)]
extern "C" fn ZwOpenFile(
    handle: PHANDLE,
    access: ACCESS_MASK,
    attributes: POBJECT_ATTRIBUTES,
    block: *mut IO_STATUS_BLOCK,
    share: ULONG,
    options: ULONG,
) -> NTSTATUS {
    routine!("ZwOpenFile", PASSIVE_LEVEL, |state| {
        let wanted = Wanted { access, attributes: 0, share, disposition: OPEN, options };
        open(state, "ZwOpenFile", handle, attributes, block, &wanted)
    })
}

#[unsafe(no_mangle)]
extern "C" fn ZwDeleteFile(attributes: POBJECT_ATTRIBUTES) -> NTSTATUS {
    routine!("ZwDeleteFile", PASSIVE_LEVEL, |state| {
        // SAFETY: null or the driver's structure, which lives until the call returns.
        let Some(attributes) = (unsafe { attributes.as_ref() }) else { return STATUS_INVALID_PARAMETER };
        check_size::<OBJECT_ATTRIBUTES>(attributes.Length, "OBJECT_ATTRIBUTES");
        let wanted = Wanted { access: DELETE, attributes: 0, share: 7, disposition: OPEN, options: 0 };
        match create(state, attributes, &wanted) {
            Ok((_, handle)) => {
                let status = delete(&mut state.locked::<Files>(), handle, true);
                state.close_opened(handle);
                handles::forget_process(state, handle);
                status
            }
            Err((status, _)) => status,
        }
    })
}

/// A file is to go with its last handle, or is not any more.
pub(super) fn delete(files: &mut Files, handle: usize, goes: bool) -> NTSTATUS {
    let number = files.opened(ptr::without_provenance_mut(handle)).node;
    let is_read_only = files.node(number).attributes & READ_ONLY != 0;
    if goes && (number == ROOT || is_read_only) {
        return CANNOT_DELETE;
    }
    if goes && !files.volume.children(number).is_empty() {
        return NOT_EMPTY;
    }
    files.node(number).delete_pending = goes;
    STATUS_SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ZwFlushBuffersFile(handle: HANDLE, block: *mut IO_STATUS_BLOCK) -> NTSTATUS {
    routine!("ZwFlushBuffersFile", PASSIVE_LEVEL, |state| {
        check_block(block, "ZwFlushBuffersFile");
        handles::check_handle(state, handle.addr());
        needs(state.locked::<Files>().opened(handle), WRITE | APPEND, "ZwFlushBuffersFile");
        answer(block, STATUS_SUCCESS, 0);
        STATUS_SUCCESS
    })
}

/// A driver may do only what it has asked for when it opened the file. The system looks at that of programs; of a driver it is owed.
pub(super) fn needs(opened: &Opened, access: u32, routine: &str) {
    if opened.access & access == 0 {
        let words = "and DesiredAccess did not ask for it when the file was opened";
        bug_check(Rule::BadArgument, format_args!("{routine} needs one of the rights {access:#x}, {words}"));
    }
}

/// `BOOLEAN` as Rust has it.
pub(super) const fn is_true(value: BOOLEAN) -> bool {
    value != 0
}
