//! Files that drivers open by their paths, on the volume that a run begins with.

use std::ptr;

use simulated_kernel::{Injection, Kernel, Rule, caught, object_attributes};
use wdk_sys::{
    HANDLE, IO_STATUS_BLOCK, NTSTATUS, OBJECT_ATTRIBUTES, POOL_FLAG_NON_PAGED, PVOID, STATUS_BUFFER_OVERFLOW,
    STATUS_DELETE_PENDING, STATUS_END_OF_FILE, STATUS_INFO_LENGTH_MISMATCH, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INVALID_PARAMETER, STATUS_NO_MORE_FILES, STATUS_NO_SUCH_FILE, STATUS_OBJECT_NAME_COLLISION,
    STATUS_OBJECT_NAME_INVALID, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_OBJECT_PATH_NOT_FOUND,
    STATUS_OBJECT_PATH_SYNTAX_BAD, STATUS_SHARING_VIOLATION, STATUS_SUCCESS, UNICODE_STRING,
    ntddk::{ExAllocatePool2, ExFreePool, KeLowerIrql, KfRaiseIrql, ZwClose},
};

use crate::driver::{self, Parts};

// The kit declares them, the bindings leave them out: SoftNDK does not call them.
unsafe extern "C" {
    fn ZwCreateFile(
        handle: *mut HANDLE,
        access: u32,
        attributes: *mut OBJECT_ATTRIBUTES,
        block: *mut IO_STATUS_BLOCK,
        allocation: *mut i64,
        file_attributes: u32,
        share: u32,
        disposition: u32,
        options: u32,
        extended: PVOID,
        length: u32,
    ) -> NTSTATUS;
    fn ZwOpenFile(
        handle: *mut HANDLE,
        access: u32,
        attributes: *mut OBJECT_ATTRIBUTES,
        block: *mut IO_STATUS_BLOCK,
        share: u32,
        options: u32,
    ) -> NTSTATUS;
    fn ZwDeleteFile(attributes: *mut OBJECT_ATTRIBUTES) -> NTSTATUS;
    fn ZwFlushBuffersFile(handle: HANDLE, block: *mut IO_STATUS_BLOCK) -> NTSTATUS;
    fn ZwReadFile(
        handle: HANDLE,
        event: HANDLE,
        notify: PVOID,
        context: PVOID,
        block: *mut IO_STATUS_BLOCK,
        buffer: PVOID,
        length: u32,
        offset: *const i64,
        key: *const u32,
    ) -> NTSTATUS;
    fn ZwWriteFile(
        handle: HANDLE,
        event: HANDLE,
        notify: PVOID,
        context: PVOID,
        block: *mut IO_STATUS_BLOCK,
        buffer: PVOID,
        length: u32,
        offset: *const i64,
        key: *const u32,
    ) -> NTSTATUS;
    fn ZwQueryInformationFile(
        handle: HANDLE,
        block: *mut IO_STATUS_BLOCK,
        place: PVOID,
        length: u32,
        class: u32,
    ) -> NTSTATUS;
    fn ZwSetInformationFile(
        handle: HANDLE,
        block: *mut IO_STATUS_BLOCK,
        place: PVOID,
        length: u32,
        class: u32,
    ) -> NTSTATUS;
    fn ZwQueryDirectoryFile(
        handle: HANDLE,
        event: HANDLE,
        notify: PVOID,
        context: PVOID,
        block: *mut IO_STATUS_BLOCK,
        place: PVOID,
        length: u32,
        class: u32,
        single: u8,
        expression: *mut UNICODE_STRING,
        restart: u8,
    ) -> NTSTATUS;
}

/// A call of the kernel, right, or as wrong as the test wants it.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments live until the call returns, or are as wrong as the test wants them.
        unsafe { $name($($argument),*) }
    }};
}

const READ: u32 = 0x8000_0000;
const WRITE: u32 = 0x4000_0000;
const DELETE: u32 = 0x1_0000;
const SYNCHRONIZE: u32 = 0x10_0000;
const ALL: u32 = READ | WRITE | DELETE | SYNCHRONIZE;
const SHARED: u32 = 7;
const OPEN: u32 = 1;
const CREATE: u32 = 2;
const OPEN_IF: u32 = 3;
const OVERWRITE_IF: u32 = 5;
const FOLDER: u32 = 0x1;
const SYNCHRONOUS: u32 = 0x20;
const FILE: u32 = 0x40;
const ACCESS_DENIED: NTSTATUS = 0xC000_0022_u32.cast_signed();
const IS_A_DIRECTORY: NTSTATUS = 0xC000_00BA_u32.cast_signed();
const NOT_A_DIRECTORY: NTSTATUS = 0xC000_0103_u32.cast_signed();
const NOT_EMPTY: NTSTATUS = 0xC000_0101_u32.cast_signed();

const BASIC: u32 = 4;
const STANDARD: u32 = 5;
const NAME: u32 = 9;
const RENAME: u32 = 10;
const DISPOSITION: u32 = 13;
const POSITION: u32 = 14;
const END_OF_FILE: u32 = 20;
const NAMES: u32 = 12;

fn loads(kernel: &Kernel, load: fn(wdk_sys::PDEVICE_OBJECT)) {
    driver::prepare(Parts { load, ..Parts::default() });
    kernel.load("plain", driver::entry).expect("it loads").unload();
}

/// Loads the driver, which does this in its entry.
fn does(load: fn(wdk_sys::PDEVICE_OBJECT)) {
    loads(&Kernel::seeded(1).start(), load);
}

fn with_name<R>(root: HANDLE, name: &str, work: impl FnOnce(*mut OBJECT_ATTRIBUTES) -> R) -> R {
    // Not on the heap, which is the driver's, and may be what fails.
    let mut units = [0_u16; 128];
    let mut length = 0;
    for (place, unit) in units.iter_mut().zip(name.encode_utf16()) {
        *place = unit;
        length += 2;
    }
    let mut name = UNICODE_STRING { Length: length, MaximumLength: length, Buffer: units.as_mut_ptr() };
    let mut attributes = OBJECT_ATTRIBUTES { RootDirectory: root, ObjectName: &raw mut name, ..object_attributes() };
    work(&raw mut attributes)
}

/// What becomes of an attempt to open a file: the handle and what became of the file, or the status.
fn create(root: HANDLE, name: &str, access: u32, disposition: u32, options: u32) -> Result<(HANDLE, u64), NTSTATUS> {
    shared(root, name, access, SHARED, (disposition, options))
}

fn shared(
    root: HANDLE,
    name: &str,
    access: u32,
    share: u32,
    (disposition, options): (u32, u32),
) -> Result<(HANDLE, u64), NTSTATUS> {
    let (mut handle, mut block, nobody) = (ptr::null_mut(), IO_STATUS_BLOCK::default(), ptr::null_mut());
    let place = &raw mut handle;
    let status = with_name(root, name, |attributes| {
        let size = ptr::null_mut();
        call!(ZwCreateFile(
            place,
            access,
            attributes,
            &raw mut block,
            size,
            0x80,
            share,
            disposition,
            options,
            nobody,
            0
        ))
    });
    if status == STATUS_SUCCESS { Ok((handle, block.Information)) } else { Err(status) }
}

fn open(name: &str, access: u32) -> Result<HANDLE, NTSTATUS> {
    create(ptr::null_mut(), name, access | SYNCHRONIZE, OPEN, FILE | SYNCHRONOUS).map(|(handle, _)| handle)
}

fn make(name: &str) -> HANDLE {
    create(ptr::null_mut(), name, ALL, OVERWRITE_IF, FILE | SYNCHRONOUS).expect("a new file").0
}

fn write(handle: HANDLE, bytes: &[u8], offset: Option<i64>) -> (NTSTATUS, u64) {
    let (mut block, mut bytes, none) = (IO_STATUS_BLOCK::default(), bytes.to_vec(), ptr::null_mut());
    let offset = offset.as_ref().map_or(ptr::null(), ptr::from_ref);
    let (place, length) = (bytes.as_mut_ptr().cast(), u32::try_from(bytes.len()).expect("a few bytes"));
    let status = call!(ZwWriteFile(handle, none, none, none, &raw mut block, place, length, offset, ptr::null()));
    (status, block.Information)
}

fn read(handle: HANDLE, length: u32, offset: Option<i64>) -> (NTSTATUS, Vec<u8>) {
    let (mut block, mut bytes, none) = (IO_STATUS_BLOCK::default(), vec![0xEE; length as usize], ptr::null_mut());
    let offset = offset.as_ref().map_or(ptr::null(), ptr::from_ref);
    let place = bytes.as_mut_ptr().cast();
    let status = call!(ZwReadFile(handle, none, none, none, &raw mut block, place, length, offset, ptr::null()));
    bytes.truncate(usize::try_from(block.Information).expect("a few bytes"));
    (status, bytes)
}

fn ask(handle: HANDLE, class: u32, length: u32) -> (NTSTATUS, Vec<u8>) {
    let (mut block, mut bytes) = (IO_STATUS_BLOCK::default(), vec![0; length as usize]);
    let place = bytes.as_mut_ptr().cast();
    let status = call!(ZwQueryInformationFile(handle, &raw mut block, place, length, class));
    bytes.truncate(usize::try_from(block.Information).expect("a few bytes"));
    (status, bytes)
}

fn set(handle: HANDLE, class: u32, bytes: &[u8]) -> NTSTATUS {
    let (mut block, mut bytes) = (IO_STATUS_BLOCK::default(), bytes.to_vec());
    let (place, length) = (bytes.as_mut_ptr().cast(), u32::try_from(bytes.len()).expect("a few bytes"));
    call!(ZwSetInformationFile(handle, &raw mut block, place, length, class))
}

fn close(handle: HANDLE) {
    assert_eq!(call!(ZwClose(handle)), STATUS_SUCCESS);
}

fn number(bytes: &[u8], at: usize) -> i64 {
    i64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The names of a folder, one call after the other, and what the last call says.
fn names(folder: HANDLE, expression: &str, single: bool) -> (Vec<String>, NTSTATUS) {
    let mut units: Vec<u16> = expression.encode_utf16().collect();
    let bytes = u16::try_from(2 * units.len()).expect("a short name");
    let mut expression = UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: units.as_mut_ptr() };
    let (mut names, mut restart) = (Vec::new(), 1);
    loop {
        let (mut block, mut bytes, none) = (IO_STATUS_BLOCK::default(), vec![0_u8; 256], ptr::null_mut());
        let (place, expression) = (bytes.as_mut_ptr().cast(), &raw mut expression);
        let single = u8::from(single);
        let (block, length) = (&raw mut block, 256);
        let status = call!(ZwQueryDirectoryFile(
            folder, none, none, none, block, place, length, NAMES, single, expression, restart
        ));
        if status != STATUS_SUCCESS {
            return (names, status);
        }
        restart = 0;
        let mut at = 0;
        loop {
            let word = |place: usize| u32::from_le_bytes(bytes[at + place..at + place + 4].try_into().expect("a word"));
            let name = bytes[at + 12..at + 12 + word(8) as usize].chunks(2);
            let units: Vec<u16> = name.map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
            names.push(String::from_utf16(&units).expect("a name"));
            match word(0) {
                0 => break,
                step => at += step as usize,
            }
        }
    }
}

#[test]
fn what_a_driver_writes_it_reads() {
    let kernel = Kernel::seeded(1).start();
    loads(&kernel, |_| {
        let root = ptr::null_mut();
        let (file, made) = create(root, r"\SystemRoot\temp\a.txt", ALL, OVERWRITE_IF, FILE | SYNCHRONOUS).expect("it");
        assert_eq!(made, 2, "FILE_CREATED");
        assert_eq!(write(file, b"hello", None), (STATUS_SUCCESS, 5));
        assert_eq!(write(file, b" you", None), (STATUS_SUCCESS, 4));
        assert_eq!(read(file, 4, None), (STATUS_END_OF_FILE, Vec::new()));
        assert_eq!(number(&ask(file, POSITION, 8).1, 0), 9);
        assert_eq!(set(file, POSITION, &6_i64.to_le_bytes()), STATUS_SUCCESS);
        assert_eq!(read(file, 100, None), (STATUS_SUCCESS, b"you".to_vec()));
        assert_eq!(read(file, 4, Some(1)), (STATUS_SUCCESS, b"ello".to_vec()));
        assert_eq!(read(file, 2, Some(-2)), (STATUS_SUCCESS, b" y".to_vec()), "where the last call left off");
        assert_eq!(write(file, b"!", Some(-1)), (STATUS_SUCCESS, 1), "at the end");
        assert_eq!(write(file, b"x", Some(12)), (STATUS_SUCCESS, 1));
        assert_eq!(read(file, 100, Some(8)), (STATUS_SUCCESS, b"u!\0\0x".to_vec()), "zeros between");
        let mut block = IO_STATUS_BLOCK::default();
        assert_eq!(call!(ZwFlushBuffersFile(file, &raw mut block)), STATUS_SUCCESS);
        close(file);
    });
    assert_eq!(kernel.file(r"windows\TEMP\A.TXT").as_deref(), Some(&b"hello you!\0\0x"[..]));
}

#[test]
fn a_run_begins_with_the_files_that_it_is_given() {
    let kernel = Kernel::seeded(1).start();
    kernel.put_file(r"data\deep\Old.bin", Some(&[1, 2, 3])).expect("a path");
    loads(&kernel, |_| {
        for path in [
            r"\??\C:\data\deep\old.bin",
            r"\DosDevices\c:\Data\Deep\OLD.BIN",
            r"\Device\HarddiskVolume1\data\deep\old.bin",
        ] {
            let file = open(path, READ).expect(path);
            assert_eq!(read(file, 8, None).1, [1, 2, 3]);
            close(file);
        }
        let (folder, _) =
            create(ptr::null_mut(), r"\??\C:\data", READ | SYNCHRONIZE, OPEN, FOLDER | SYNCHRONOUS).expect("it");
        let (file, opened) = create(folder, r"deep\old.bin", READ, OPEN, 0).expect("below the folder");
        assert_eq!(opened, 1, "FILE_OPENED");
        assert_eq!(read(file, 8, None), (STATUS_INVALID_PARAMETER, Vec::new()), "no place of an asynchronous file");
        assert_eq!(read(file, 8, Some(1)), (STATUS_SUCCESS, vec![2, 3]));
        assert_eq!(number(&ask(file, POSITION, 8).1, 0), 0, "and a read changes none");
        close(file);
        close(folder);
    });
}

#[test]
fn no_path_leads_out() {
    does(|_| {
        for (path, status) in [
            (r"\??\C:\..\x", STATUS_OBJECT_NAME_INVALID),
            (r"\??\C:\Windows\..\..\etc\passwd", STATUS_OBJECT_NAME_INVALID),
            (r"\??\C:\Windows\.\x", STATUS_OBJECT_NAME_INVALID),
            (r"\??\C:\Windows/../x", STATUS_OBJECT_NAME_INVALID),
            (r"\SystemRoot\\x", STATUS_OBJECT_NAME_INVALID),
            (r"\SystemRootx\y", STATUS_OBJECT_PATH_NOT_FOUND),
            (r"\??\D:\x", STATUS_OBJECT_PATH_NOT_FOUND),
            (r"\??\Z:\etc\passwd", STATUS_OBJECT_PATH_NOT_FOUND),
            (r"\??\UNC\host\share\x", STATUS_OBJECT_PATH_NOT_FOUND),
            (r"\Device\NoSuch\x", STATUS_OBJECT_PATH_NOT_FOUND),
            (r"C:\Windows\x", STATUS_OBJECT_PATH_SYNTAX_BAD),
            ("", STATUS_OBJECT_PATH_SYNTAX_BAD),
            (r"\??\C:\no\x", STATUS_OBJECT_PATH_NOT_FOUND),
            (r"\??\C:\no", STATUS_OBJECT_NAME_NOT_FOUND),
            (r"\??\C:\a*", STATUS_OBJECT_NAME_INVALID),
        ] {
            assert_eq!(open(path, READ).err(), Some(status), "{path}");
        }
        // To the kernel these are names like others.
        let file = make(r"\??\C:\NUL");
        assert_eq!(write(file, b"x", None).0, STATUS_SUCCESS);
        close(file);
    });
}

#[test]
fn dispositions_and_kinds_are_kept() {
    does(|_| {
        let (root, path) = (ptr::null_mut(), r"\??\C:\x");
        let status = |disposition, options| {
            create(root, path, READ, disposition, options).map(|(handle, made)| {
                close(handle);
                made
            })
        };
        assert_eq!(status(OPEN, 0), Err(STATUS_OBJECT_NAME_NOT_FOUND));
        assert_eq!(status(4, 0), Err(STATUS_OBJECT_NAME_NOT_FOUND));
        assert_eq!(status(OPEN_IF, 0), Ok(2));
        assert_eq!(status(OPEN_IF, 0), Ok(1));
        assert_eq!(status(CREATE, 0), Err(STATUS_OBJECT_NAME_COLLISION));
        assert_eq!(status(OVERWRITE_IF, 0), Ok(3));
        assert_eq!(status(0, 0), Ok(0));
        assert_eq!(status(6, 0), Err(STATUS_INVALID_PARAMETER));
        assert_eq!(status(OPEN, FOLDER), Err(NOT_A_DIRECTORY));
        assert_eq!(status(OPEN, FOLDER | FILE), Err(STATUS_INVALID_PARAMETER));
        assert_eq!(status(OVERWRITE_IF, FOLDER), Err(STATUS_INVALID_PARAMETER));
        assert_eq!(status(OPEN, SYNCHRONOUS), Err(STATUS_INVALID_PARAMETER), "without SYNCHRONIZE");
        assert_eq!(open(r"\??\C:\Windows", READ).err(), Some(IS_A_DIRECTORY));
        let (folder, made) = create(root, r"\??\C:\new", READ | DELETE, CREATE, FOLDER).expect("a folder");
        assert_eq!(made, 2);
        close(make(r"\??\C:\new\f"));
        assert_eq!(set(folder, DISPOSITION, &[1]), NOT_EMPTY);
        close(folder);
    });
}

#[test]
fn who_shares_a_file_gets_it() {
    does(|_| {
        let (root, path, how) = (ptr::null_mut(), r"\??\C:\x", (OPEN_IF, 0));
        let (first, _) = shared(root, path, READ, 1, how).expect("for others to read");
        assert_eq!(shared(root, path, WRITE, SHARED, how).err(), Some(STATUS_SHARING_VIOLATION));
        assert_eq!(shared(root, path, READ, 0, how).err(), Some(STATUS_SHARING_VIOLATION));
        close(shared(root, path, READ, 1, how).expect("reads, and lets read").0);
        close(shared(root, path, 0x80, 0, how).expect("attributes only").0);
        close(first);
        close(shared(root, path, WRITE, 0, how).expect("nobody else").0);
    });
}

#[test]
fn a_file_is_described_changed_and_renamed() {
    let kernel = Kernel::seeded(1).start();
    loads(&kernel, |_| {
        let file = make(r"\??\C:\x.txt");
        assert_eq!(write(file, &[7; 10], None).0, STATUS_SUCCESS);
        let (status, standard) = ask(file, STANDARD, 24);
        assert_eq!((status, number(&standard, 0), number(&standard, 8)), (STATUS_SUCCESS, 4096, 10));
        assert_eq!(ask(file, STANDARD, 23).0, STATUS_INFO_LENGTH_MISMATCH);
        let (status, name) = ask(file, NAME, 64);
        assert_eq!((status, &name[..6]), (STATUS_SUCCESS, &[12, 0, 0, 0, b'\\', 0][..]));
        assert_eq!(ask(file, NAME, 8).0, STATUS_BUFFER_OVERFLOW);
        assert_eq!(set(file, END_OF_FILE, &4_i64.to_le_bytes()), STATUS_SUCCESS);
        assert_eq!(number(&ask(file, STANDARD, 24).1, 8), 4);
        let mut basic = ask(file, BASIC, 40).1;
        assert!(number(&basic, 0) > 0, "a date");
        basic[32] = 1;
        assert_eq!(set(file, BASIC, &basic), STATUS_SUCCESS);
        assert_eq!(open(r"\??\C:\x.txt", WRITE).err(), Some(ACCESS_DENIED), "read-only");
        basic[32] = 0x80;
        assert_eq!(set(file, BASIC, &basic), STATUS_SUCCESS);
        let rename = |name: &str, replace: u8| {
            let mut bytes = vec![replace, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            bytes.extend(u32::try_from(2 * name.len()).expect("short").to_le_bytes());
            bytes.extend(name.encode_utf16().flat_map(u16::to_le_bytes));
            bytes.resize(bytes.len().max(24), 0);
            set(file, RENAME, &bytes)
        };
        close(make(r"\??\C:\y.txt"));
        assert_eq!(rename("Y.txt", 0), STATUS_OBJECT_NAME_COLLISION);
        assert_eq!(rename("Y.txt", 1), STATUS_SUCCESS);
        assert_eq!(rename("a?b", 1), STATUS_OBJECT_NAME_INVALID);
        close(file);
    });
    assert_eq!((kernel.file("x.txt"), kernel.file("y.txt")), (None, Some(vec![7; 4])));
}

#[test]
fn a_deleted_file_goes_with_its_last_handle() {
    let kernel = Kernel::seeded(1).start();
    loads(&kernel, |_| {
        let (path, root) = (r"\??\C:\x", ptr::null_mut());
        let file = make(path);
        let mut block = IO_STATUS_BLOCK::default();
        let mut again = ptr::null_mut();
        let opened = with_name(root, path, |attributes| {
            call!(ZwOpenFile(&raw mut again, READ | SYNCHRONIZE, attributes, &raw mut block, SHARED, SYNCHRONOUS))
        });
        assert_eq!(opened, STATUS_SUCCESS);
        assert_eq!(set(file, DISPOSITION, &[1]), STATUS_SUCCESS);
        assert_eq!(open(path, READ).err(), Some(STATUS_DELETE_PENDING));
        assert_eq!(set(file, DISPOSITION, &[0]), STATUS_SUCCESS);
        close(open(path, READ).expect("it stays"));
        assert_eq!(set(file, DISPOSITION, &[1]), STATUS_SUCCESS);
        close(file);
        assert_eq!(open(path, READ).err(), Some(STATUS_DELETE_PENDING), "one handle is left");
        close(again);
        assert_eq!(open(path, READ).err(), Some(STATUS_OBJECT_NAME_NOT_FOUND));
        close(make(path));
        let gone = [0, 1].map(|_| with_name(root, path, |attributes| call!(ZwDeleteFile(attributes))));
        assert_eq!(gone, [STATUS_SUCCESS, STATUS_OBJECT_NAME_NOT_FOUND]);
        let (file, _) = create(root, path, READ | DELETE, CREATE, FILE | 0x1000).expect("to go at its close");
        close(file);
    });
    assert_eq!(kernel.file("x"), None);
}

#[test]
fn a_folder_is_listed() {
    let kernel = Kernel::seeded(1).start();
    for name in ["b.txt", "A.txt", "c.bin", "sub\\d.txt"] {
        kernel.put_file(&format!("list\\{name}"), Some(&[])).expect("a path");
    }
    loads(&kernel, |_| {
        let folder =
            || create(ptr::null_mut(), r"\??\C:\list", READ | SYNCHRONIZE, OPEN, FOLDER | SYNCHRONOUS).expect("it").0;
        for (expression, single, expected) in [
            ("", false, &[".", "..", "A.txt", "b.txt", "c.bin", "sub"][..]),
            ("*", true, &[".", "..", "A.txt", "b.txt", "c.bin", "sub"]),
            ("*.TXT", false, &["A.txt", "b.txt"]),
            ("?.*", true, &["..", "A.txt", "b.txt", "c.bin"]),
            ("c*n", false, &["c.bin"]),
        ] {
            let folder = folder();
            assert_eq!(
                names(folder, expression, single),
                (expected.iter().map(|&name| name.to_owned()).collect(), STATUS_NO_MORE_FILES),
                "{expression}"
            );
            close(folder);
        }
        let folder = folder();
        assert_eq!(names(folder, "none", false), (Vec::new(), STATUS_NO_SUCH_FILE));
        close(folder);
    });
}

#[test]
fn a_call_that_fails_leaves_nothing() {
    fn control(_: wdk_sys::PDEVICE_OBJECT, irp: wdk_sys::PIRP) -> NTSTATUS {
        let path = r"\??\C:\x";
        let attempt = || create(ptr::null_mut(), path, ALL, CREATE, FILE | SYNCHRONOUS);
        assert_eq!(attempt().err(), Some(STATUS_INSUFFICIENT_RESOURCES));
        assert_eq!(open(path, READ).err(), Some(STATUS_OBJECT_NAME_NOT_FOUND), "nothing was made");
        close(attempt().expect("the second time").0);
        driver::complete(irp, 0, 0)
    }
    driver::run(Parts { control, ..Parts::default() }, |kernel, _, file| {
        kernel.inject(Injection::Nth(1));
        assert!(file.control(driver::CODE, &[], 0).is_success());
        assert_eq!(kernel.faults_injected(), 1);
        kernel.inject(Injection::None);
    });
}

/// Tests that break a rule in the driver's entry.
macro_rules! rules {
    ($($name:ident breaks $rule:ident by $work:block)+) => {
        $(
            #[test]
            fn $name() {
                #[inline(never)]
                fn load(_: wdk_sys::PDEVICE_OBJECT) $work
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || does(load));
            }
        )+
    };
}

rules! {
    a_file_that_is_left_open breaks ReferenceLeak by {
        make(r"\??\C:\x");
    }

    a_file_at_dispatch_level breaks IrqlTooHigh by {
        let before = call!(KfRaiseIrql(2));
        make(r"\??\C:\x");
        call!(KeLowerIrql(before));
    }

    a_file_that_is_read_after_its_close breaks BadHandle by {
        let file = make(r"\??\C:\x");
        close(file);
        read(file, 1, None);
    }

    a_file_that_is_closed_twice breaks BadHandle by {
        let file = make(r"\??\C:\x");
        close(file);
        close(file);
    }

    a_write_that_was_not_asked_for breaks BadArgument by {
        close(make(r"\??\C:\x"));
        let file = open(r"\??\C:\x", READ).expect("it");
        write(file, b"x", None);
    }

    a_read_that_was_not_asked_for breaks BadArgument by {
        close(make(r"\??\C:\x"));
        let file = open(r"\??\C:\x", WRITE).expect("it");
        read(file, 1, None);
    }

    a_deletion_that_was_not_asked_for breaks BadArgument by {
        close(make(r"\??\C:\x"));
        let file = open(r"\??\C:\x", READ).expect("it");
        set(file, DISPOSITION, &[1]);
    }

    a_read_into_memory_that_is_free breaks UseAfterFree by {
        let file = make(r"\??\C:\x");
        write(file, b"hello", None);
        let block = call!(ExAllocatePool2(POOL_FLAG_NON_PAGED, 8, u32::from_le_bytes(*b"File")));
        call!(ExFreePool(block));
        let (mut status, none, start) = (IO_STATUS_BLOCK::default(), ptr::null_mut(), 0_i64);
        call!(ZwReadFile(file, none, none, none, &raw mut status, block, 5, &raw const start, ptr::null()));
    }

    a_question_into_memory_that_is_free breaks UseAfterFree by {
        let file = make(r"\??\C:\x");
        let block = call!(ExAllocatePool2(POOL_FLAG_NON_PAGED, 8, u32::from_le_bytes(*b"File")));
        call!(ExFreePool(block));
        let mut status = IO_STATUS_BLOCK::default();
        call!(ZwQueryInformationFile(file, &raw mut status, block, 8, POSITION));
    }

    a_file_without_a_status_block breaks BadArgument by {
        let mut handle = ptr::null_mut();
        with_name(ptr::null_mut(), r"\??\C:\x", |attributes| {
            call!(ZwOpenFile(&raw mut handle, READ, attributes, ptr::null_mut(), SHARED, 0))
        });
    }
}
