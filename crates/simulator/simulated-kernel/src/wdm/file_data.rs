//! What drivers read, write and ask of the [files](super::files) that they have open.

use std::sync::Arc;

use image_loader::file_name;
use wdk_bindings::{
    BOOLEAN, HANDLE, IO_STATUS_BLOCK, NTSTATUS, PIO_STATUS_BLOCK, PUNICODE_STRING, PVOID, STATUS_BUFFER_OVERFLOW,
    STATUS_END_OF_FILE, STATUS_INFO_LENGTH_MISMATCH, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_INVALID_PARAMETER, STATUS_NO_MORE_FILES, STATUS_NO_SUCH_FILE, STATUS_OBJECT_NAME_COLLISION, STATUS_SUCCESS,
    ULONG,
};

use super::{
    clock::system_time,
    files::{APPEND, DELETE, Files, READ, UNBUFFERED, WRITE, answer, check_block, delete, is_true, needs},
    handles,
    volume::{self, DIRECTORY, LONGEST, NORMAL, Node},
};
use crate::{pool, report::bug_check, routine::routine, rule::Rule, state::State, text};

/// `STATUS_DISK_FULL`.
const DISK_FULL: NTSTATUS = 0xC000_007F_u32.cast_signed();
/// Bytes of a sector, which buffers and places of a file without intermediate buffering are made of.
const SECTOR: u64 = 512;
/// Bytes of a cluster, which files take up.
const CLUSTER: u64 = 4096;
/// As a place: the end of the file, and where the last call has left off.
const AT_END: i64 = -1;
const AT_POSITION: i64 = -2;
/// `FILE_READ_ATTRIBUTES`, `FILE_WRITE_ATTRIBUTES`.
const READ_ATTRIBUTES: u32 = 0x80;
const WRITE_ATTRIBUTES: u32 = 0x100;

/// What `FILE_INFORMATION_CLASS` numbers.
const DIRECTORY_INFORMATION: u32 = 1;
const FULL_DIRECTORY: u32 = 2;
const BOTH_DIRECTORY: u32 = 3;
const BASIC: u32 = 4;
const STANDARD: u32 = 5;
const INTERNAL: u32 = 6;
const NAME: u32 = 9;
const RENAME: u32 = 10;
const NAMES: u32 = 12;
const DISPOSITION: u32 = 13;
const POSITION: u32 = 14;
const ALLOCATION: u32 = 19;
const END_OF_FILE: u32 = 20;
const NETWORK_OPEN: u32 = 34;
const ATTRIBUTE_TAG: u32 = 35;

/// A read or a write, as a driver asks for it.
struct Transfer {
    routine: &'static str,
    handle: HANDLE,
    event: HANDLE,
    notify: PVOID,
    block: *mut IO_STATUS_BLOCK,
    buffer: PVOID,
    length: ULONG,
    offset: *const i64,
    key: *const ULONG,
}

/// Ends the test if the buffer that a driver passes is memory that it has freed.
fn check_buffer(buffer: PVOID, length: ULONG, routine: &str) {
    if length > 0 {
        let last = buffer.addr() + length as usize - 1;
        for byte in [buffer.addr(), last] {
            pool::check_live(byte, format_args!("the buffer of {routine} is in"));
        }
    }
}

impl Transfer {
    /// Looks at the arguments that reads and writes have in common.
    fn check(&self, state: &State) {
        check_block(self.block, self.routine);
        handles::check_handle(state, self.handle.addr());
        if !self.notify.is_null() {
            bug_check(Rule::BadArgument, format_args!("{} with an APC, which drivers leave out", self.routine));
        }
        if !self.event.is_null() {
            bug_check(Rule::NotSimulated, format_args!("{} with the handle of an event", self.routine));
        }
        if !self.key.is_null() {
            bug_check(Rule::NotSimulated, format_args!("{} with a key of a lock", self.routine));
        }
        check_buffer(self.buffer, self.length, self.routine);
    }

    /// Where in the file it is to happen.
    fn place(&self, files: &mut Files) -> Result<u64, NTSTATUS> {
        let opened = files.opened(self.handle).clone();
        let size = files.node(opened.node).bytes.len() as u64;
        // SAFETY: null or the driver's number, which lives until the call returns.
        let offset = unsafe { self.offset.as_ref() }.copied();
        let place = match offset {
            None | Some(AT_POSITION) if opened.is_synchronous() => opened.position,
            Some(AT_END) if self.routine == "ZwWriteFile" => size,
            Some(offset) => u64::try_from(offset).map_err(|_| STATUS_INVALID_PARAMETER)?,
            // The system keeps no place of a file that others read and write meanwhile.
            None => return Err(STATUS_INVALID_PARAMETER),
        };
        let whole = [place, u64::from(self.length), self.buffer.addr() as u64];
        if opened.options & UNBUFFERED != 0 && whole.iter().any(|number| !number.is_multiple_of(SECTOR)) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        Ok(place)
    }

    fn carry_out(&self, state: &Arc<State>, work: impl FnOnce(&mut Files) -> Result<u64, NTSTATUS>) -> NTSTATUS {
        self.check(state);
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let outcome = {
            let mut files = state.locked::<Files>();
            let is_folder = {
                let number = files.opened(self.handle).node;
                files.node(number).is_folder()
            };
            if is_folder { Err(STATUS_INVALID_DEVICE_REQUEST) } else { work(&mut files) }
        };
        let (status, count) = outcome.map_or_else(|status| (status, 0), |count| (STATUS_SUCCESS, count));
        // A request that is refused at once leaves the block alone; that of a read behind the end is not.
        if status == STATUS_SUCCESS || status == STATUS_END_OF_FILE {
            answer(self.block, status, count);
        }
        state.preempt();
        status
    }
}

#[unsafe(no_mangle)]
extern "C" fn ZwReadFile(
    handle: HANDLE,
    event: HANDLE,
    notify: PVOID,
    _context: PVOID,
    block: *mut IO_STATUS_BLOCK,
    buffer: PVOID,
    length: ULONG,
    offset: *const i64,
    key: *const ULONG,
) -> NTSTATUS {
    routine!("ZwReadFile", PASSIVE_LEVEL, |state| {
        let routine = "ZwReadFile";
        let transfer = Transfer { routine, handle, event, notify, block, buffer, length, offset, key };
        let now = system_time(state);
        transfer.carry_out(state, |files| {
            needs(files.opened(handle), READ, routine);
            let place = transfer.place(files)?;
            let number = files.opened(handle).node;
            let node = files.node(number);
            let start = usize::try_from(place).unwrap_or(usize::MAX);
            let rest = node.bytes.get(start..).unwrap_or_default();
            let bytes = &rest[..rest.len().min(length as usize)];
            if bytes.is_empty() && length > 0 {
                return Err(STATUS_END_OF_FILE);
            }
            // SAFETY: the driver's buffer has as many bytes as it says.
            unsafe { buffer.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            let count = bytes.len() as u64;
            node.times[1] = now;
            files.opened(handle).leave_off_at(place + count);
            Ok(count)
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn ZwWriteFile(
    handle: HANDLE,
    event: HANDLE,
    notify: PVOID,
    _context: PVOID,
    block: *mut IO_STATUS_BLOCK,
    buffer: PVOID,
    length: ULONG,
    offset: *const i64,
    key: *const ULONG,
) -> NTSTATUS {
    routine!("ZwWriteFile", PASSIVE_LEVEL, |state| {
        let routine = "ZwWriteFile";
        let transfer = Transfer { routine, handle, event, notify, block, buffer, length, offset, key };
        let now = system_time(state);
        transfer.carry_out(state, |files| {
            needs(files.opened(handle), WRITE | APPEND, routine);
            let appends = files.opened(handle).access & WRITE == 0;
            let number = files.opened(handle).node;
            let end = files.node(number).bytes.len() as u64;
            let place = if appends { end } else { transfer.place(files)? };
            let after = place.saturating_add(u64::from(length));
            if after > LONGEST {
                return Err(DISK_FULL);
            }
            let node = files.node(number);
            let (start, stop) = (usize::try_from(place).unwrap_or(0), usize::try_from(after).unwrap_or(0));
            if length > 0 && node.bytes.len() < stop {
                node.bytes.resize(stop, 0);
            }
            if length > 0 {
                // SAFETY: the driver's buffer has as many bytes as it says.
                let bytes = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), length as usize) };
                node.bytes[start..stop].copy_from_slice(bytes);
                node.times[2] = now;
                node.times[3] = now;
            }
            files.opened(handle).leave_off_at(after);
            Ok(u64::from(length))
        })
    })
}

/// The bytes of a structure that a driver is told.
#[derive(Default)]
struct Information(Vec<u8>);

impl Information {
    fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn times(self, node: &Node) -> Self {
        node.times.iter().fold(self, |fields, &time| fields.u64(time))
    }

    /// As many zeros as it takes to that length.
    fn filled(mut self, length: usize) -> Self {
        self.0.resize(length, 0);
        self
    }
}

fn attributes_of(node: &Node) -> u32 {
    if node.attributes == 0 { NORMAL } else { node.attributes }
}

fn size_of_file(node: &Node) -> [u64; 2] {
    let end = node.bytes.len() as u64;
    [end.next_multiple_of(CLUSTER), end]
}

/// What a driver is told of a file, and how many bytes of it have to fit.
fn information(files: &mut Files, handle: HANDLE, class: u32) -> (usize, Vec<u8>) {
    let opened = files.opened(handle).clone();
    let path = files.volume.path(opened.node);
    let node = files.node(opened.node);
    let [allocated, end] = size_of_file(node);
    let fields = Information::default();
    let fields = match class {
        BASIC => fields.times(node).u32(attributes_of(node)).filled(40),
        STANDARD => {
            let links = u32::from(!node.delete_pending);
            let fields = fields.u64(allocated).u64(end).u32(links);
            fields.u8(u8::from(node.delete_pending)).u8(u8::from(node.is_folder())).filled(24)
        }
        INTERNAL => fields.u64(opened.node),
        NAME => {
            let name: Vec<u8> = path.encode_utf16().flat_map(u16::to_le_bytes).collect();
            let mut fields = fields.u32(u32::try_from(name.len()).unwrap_or(0));
            fields.0.extend(name);
            return (8, fields.0);
        }
        POSITION => fields.u64(opened.position),
        NETWORK_OPEN => fields.times(node).u64(allocated).u64(end).u32(attributes_of(node)).filled(56),
        ATTRIBUTE_TAG => fields.u32(attributes_of(node)).u32(0),
        other => bug_check(Rule::NotSimulated, format_args!("ZwQueryInformationFile of the class {other}")),
    };
    (fields.0.len(), fields.0)
}

#[unsafe(no_mangle)]
extern "C" fn ZwQueryInformationFile(
    handle: HANDLE,
    block: PIO_STATUS_BLOCK,
    place: PVOID,
    length: ULONG,
    class: u32,
) -> NTSTATUS {
    routine!("ZwQueryInformationFile", PASSIVE_LEVEL, |state| {
        check_block(block, "ZwQueryInformationFile");
        handles::check_handle(state, handle.addr());
        check_buffer(place, length, "ZwQueryInformationFile");
        let (fixed, bytes) = {
            let mut files = state.locked::<Files>();
            if [BASIC, NETWORK_OPEN, ATTRIBUTE_TAG].contains(&class) {
                needs(files.opened(handle), READ_ATTRIBUTES, "ZwQueryInformationFile");
            }
            information(&mut files, handle, class)
        };
        if (length as usize) < fixed {
            return STATUS_INFO_LENGTH_MISMATCH;
        }
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let count = bytes.len().min(length as usize);
        // SAFETY: the driver's buffer has as many bytes as it says.
        unsafe { place.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), count) };
        let status = if count < bytes.len() { STATUS_BUFFER_OVERFLOW } else { STATUS_SUCCESS };
        answer(block, status, count as u64);
        status
    })
}

/// A number of a driver's structure.
fn number_at(bytes: &[u8], at: usize) -> i64 {
    let number = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    i64::from_le_bytes(number.unwrap_or_default())
}

/// What a driver changes of a file.
fn change(files: &mut Files, handle: HANDLE, class: u32, bytes: &[u8], now: u64) -> NTSTATUS {
    let routine = "ZwSetInformationFile";
    let number = files.opened(handle).node;
    match class {
        BASIC => {
            needs(files.opened(handle), WRITE_ATTRIBUTES, routine);
            let attributes = u32::from_le_bytes([bytes[32], bytes[33], bytes[34], bytes[35]]);
            let node = files.node(number);
            if attributes & DIRECTORY != 0 && !node.is_folder() {
                return STATUS_INVALID_PARAMETER;
            }
            for (index, time) in node.times.iter_mut().enumerate() {
                match number_at(bytes, 8 * index) {
                    // As it is: the others say whether what this handle does from here on changes it.
                    -2..=0 => {}
                    value => *time = u64::try_from(value).unwrap_or(*time),
                }
            }
            if attributes != 0 {
                node.attributes = node.attributes & DIRECTORY | attributes & volume::SETTABLE;
            }
        }
        POSITION => {
            let unbuffered = files.opened(handle).options & UNBUFFERED != 0;
            let Ok(place) = u64::try_from(number_at(bytes, 0)) else { return STATUS_INVALID_PARAMETER };
            if unbuffered && !place.is_multiple_of(SECTOR) {
                return STATUS_INVALID_PARAMETER;
            }
            files.opened(handle).position = place;
        }
        END_OF_FILE | ALLOCATION => {
            needs(files.opened(handle), WRITE, routine);
            let Ok(end) = u64::try_from(number_at(bytes, 0)) else { return STATUS_INVALID_PARAMETER };
            if end > LONGEST {
                return DISK_FULL;
            }
            let (end, node) = (usize::try_from(end).unwrap_or(0), files.node(number));
            if node.is_folder() {
                return STATUS_INVALID_PARAMETER;
            }
            // Less room than bytes cuts the file off; more of it is no byte more.
            if class == END_OF_FILE || end < node.bytes.len() {
                node.bytes.resize(end, 0);
                node.times[2] = now;
                node.times[3] = now;
            }
        }
        DISPOSITION => {
            needs(files.opened(handle), DELETE, routine);
            return delete(files, handle.addr(), is_true(bytes[0]));
        }
        RENAME => {
            needs(files.opened(handle), DELETE, routine);
            return rename(files, handle, bytes);
        }
        other => bug_check(Rule::NotSimulated, format_args!("{routine} of the class {other}")),
    }
    STATUS_SUCCESS
}

/// A new name, in the same folder: `FILE_RENAME_INFORMATION` with a name and no path.
fn rename(files: &mut Files, handle: HANDLE, bytes: &[u8]) -> NTSTATUS {
    let length = u32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]) as usize;
    let Some(name) = bytes.get(20..20 + length) else { return STATUS_INVALID_PARAMETER };
    let units: Vec<u16> = name.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
    let name = String::from_utf16_lossy(&units);
    if number_at(bytes, 8) != 0 || name.contains('\\') {
        bug_check(Rule::NotSimulated, format_args!("a file that gets a name in another folder: {name}"));
    }
    if !file_name::is_name(&name) {
        return volume::NAME_INVALID;
    }
    let number = files.opened(handle).node;
    let folder = files.node(number).parent;
    if let Some(other) = files.volume.child(folder, &name).filter(|&other| other != number) {
        let is_open = files.opened.values().any(|opened| opened.node == other);
        if !is_true(bytes[0]) || is_open || files.node(other).is_folder() {
            return STATUS_OBJECT_NAME_COLLISION;
        }
        files.volume.remove(other);
    }
    files.node(number).name = name;
    STATUS_SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ZwSetInformationFile(
    handle: HANDLE,
    block: PIO_STATUS_BLOCK,
    place: PVOID,
    length: ULONG,
    class: u32,
) -> NTSTATUS {
    routine!("ZwSetInformationFile", PASSIVE_LEVEL, |state| {
        check_block(block, "ZwSetInformationFile");
        handles::check_handle(state, handle.addr());
        check_buffer(place, length, "ZwSetInformationFile");
        let least = match class {
            BASIC => 40,
            DISPOSITION => 1,
            RENAME => 24,
            _ => 8,
        };
        if length < least {
            return STATUS_INFO_LENGTH_MISMATCH;
        }
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        // SAFETY: the driver's structure has as many bytes as it says.
        let bytes = unsafe { std::slice::from_raw_parts(place.cast::<u8>(), length as usize) }.to_vec();
        let now = system_time(state);
        let status = change(&mut state.locked::<Files>(), handle, class, &bytes, now);
        answer(block, status, 0);
        state.preempt();
        status
    })
}

/// One name of a listing: the part before the name of its length, where the first four bytes lead to the next one.
fn entry(node: &Node, name: &str, class: u32) -> Vec<u8> {
    let units: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let length = u32::try_from(units.len()).unwrap_or(0);
    let [allocated, end] = size_of_file(node);
    let fields = Information::default().u32(0).u32(0);
    let fields = if class == NAMES {
        fields.u32(length)
    } else {
        fields.times(node).u64(end).u64(allocated).u32(attributes_of(node)).u32(length)
    };
    let mut fields = match class {
        FULL_DIRECTORY => fields.u32(0),
        // No file has a short name beside its own.
        BOTH_DIRECTORY => fields.u32(0).filled(94),
        _ => fields,
    };
    fields.0.extend(units);
    fields.0
}

#[unsafe(no_mangle)]
extern "C" fn ZwQueryDirectoryFile(
    handle: HANDLE,
    event: HANDLE,
    notify: PVOID,
    _context: PVOID,
    block: PIO_STATUS_BLOCK,
    place: PVOID,
    length: ULONG,
    class: u32,
    single: BOOLEAN,
    expression: PUNICODE_STRING,
    restart: BOOLEAN,
) -> NTSTATUS {
    routine!("ZwQueryDirectoryFile", PASSIVE_LEVEL, |state| {
        let (routine, buffer, offset, key) = ("ZwQueryDirectoryFile", place, std::ptr::null(), std::ptr::null());
        Transfer { routine, handle, event, notify, block, buffer, length, offset, key }.check(state);
        if ![DIRECTORY_INFORMATION, FULL_DIRECTORY, BOTH_DIRECTORY, NAMES].contains(&class) {
            bug_check(Rule::NotSimulated, format_args!("{routine} of the class {class}"));
        }
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let wanted = text::text(expression);
        let (status, bytes) = {
            let mut files = state.locked::<Files>();
            needs(files.opened(handle), READ, routine);
            list(&mut files, handle, class, &wanted, is_true(single), is_true(restart), length as usize)
        };
        // SAFETY: the driver's buffer has as many bytes as it says, and no more were put together.
        unsafe { place.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        answer(block, status, bytes.len() as u64);
        state.preempt();
        status
    })
}

/// The next names of a folder that fit.
fn list(
    files: &mut Files,
    handle: HANDLE,
    class: u32,
    wanted: &str,
    single: bool,
    restart: bool,
    room: usize,
) -> (NTSTATUS, Vec<u8>) {
    let folder = files.opened(handle).node;
    if !files.node(folder).is_folder() {
        return (STATUS_INVALID_PARAMETER, Vec::new());
    }
    // The first call says what is meant by the later ones too.
    let listing = files.opened(handle).listing.clone();
    let is_first = listing.is_none();
    let (expression, said) = listing.unwrap_or_else(|| (wanted.to_owned(), 0));
    let said = if restart { 0 } else { said };
    let mut names = vec![(".".to_owned(), folder), ("..".to_owned(), files.node(folder).parent)];
    for child in files.volume.children(folder) {
        let name = files.node(child).name.clone();
        names.push((name, child));
    }
    names.retain(|(name, _)| volume::is_meant(&expression, name));
    let (mut bytes, mut last, mut count) = (Vec::<u8>::new(), 0, 0);
    for (name, number) in names.iter().skip(said) {
        let entry = entry(files.node(*number), name, class);
        let start = bytes.len().next_multiple_of(8);
        if start + entry.len() > room {
            break;
        }
        if count > 0 {
            let step = u32::try_from(start - last).unwrap_or(0);
            bytes[last..last + 4].copy_from_slice(&step.to_le_bytes());
        }
        bytes.resize(start, 0);
        bytes.extend(entry);
        (last, count) = (start, count + 1);
        if single {
            break;
        }
    }
    files.opened(handle).listing = Some((expression, said + count));
    let status = match (count, names.len() > said) {
        (0, true) => STATUS_BUFFER_OVERFLOW,
        (0, false) if is_first => STATUS_NO_SUCH_FILE,
        (0, false) => STATUS_NO_MORE_FILES,
        _ => STATUS_SUCCESS,
    };
    (status, bytes)
}
