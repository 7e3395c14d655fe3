//! Strings that are converted, and who frees them; and versions of Windows that a driver wants.

use wdk_sys::{
    ANSI_STRING, BOOLEAN, GUID, NTSTATUS, PCUNICODE_STRING, RTL_OSVERSIONINFOEXW, STATUS_BUFFER_OVERFLOW,
    STATUS_INVALID_PARAMETER, STATUS_REVISION_MISMATCH, STATUS_SUCCESS, UNICODE_STRING, ntddk::KfRaiseIrql,
};

use crate::asked::{call, tests};

unsafe extern "C" {
    // The kit declares them, the bindings leave them out.
    fn RtlAnsiStringToUnicodeString(to: *mut UNICODE_STRING, from: *const ANSI_STRING, allocates: BOOLEAN) -> NTSTATUS;
    fn RtlUnicodeStringToAnsiString(to: *mut ANSI_STRING, from: PCUNICODE_STRING, allocates: BOOLEAN) -> NTSTATUS;
    fn RtlUpcaseUnicodeString(to: *mut UNICODE_STRING, from: PCUNICODE_STRING, allocates: BOOLEAN) -> NTSTATUS;
    fn RtlStringFromGUID(guid: *const GUID, to: *mut UNICODE_STRING) -> NTSTATUS;
    fn RtlFreeUnicodeString(string: *mut UNICODE_STRING);
    fn RtlFreeAnsiString(string: *mut ANSI_STRING);
    fn VerSetConditionMask(mask: u64, types: u32, condition: u8) -> u64;
    fn RtlVerifyVersionInfo(wanted: *const RTL_OSVERSIONINFOEXW, types: u32, conditions: u64) -> NTSTATUS;
}

fn ansi(bytes: &mut [u8], length: usize) -> ANSI_STRING {
    let number = |number: usize| u16::try_from(number).expect("a short string");
    ANSI_STRING { Length: number(length), MaximumLength: number(bytes.len()), Buffer: bytes.as_mut_ptr().cast() }
}

fn unicode(units: &mut [u16], length: usize) -> UNICODE_STRING {
    let number = |number: usize| u16::try_from(2 * number).expect("a short string");
    UNICODE_STRING { Length: number(length), MaximumLength: number(units.len()), Buffer: units.as_mut_ptr() }
}

/// What a string says, and the unit behind it if it has room for one.
fn read(string: &UNICODE_STRING) -> (String, Option<u16>) {
    let count = usize::from(string.MaximumLength / 2);
    // SAFETY: the string has as many units.
    let units = unsafe { std::slice::from_raw_parts(string.Buffer, count) };
    let (said, rest) = units.split_at(usize::from(string.Length / 2));
    (String::from_utf16_lossy(said), rest.first().copied())
}

/// A string of the system's, of these bytes.
fn allocated(bytes: &[u8]) -> UNICODE_STRING {
    let (mut bytes, mut to) = (bytes.to_vec(), UNICODE_STRING::default());
    let length = bytes.len();
    let from = ansi(&mut bytes, length);
    assert_eq!(call!(RtlAnsiStringToUnicodeString(&raw mut to, &raw const from, 1)), STATUS_SUCCESS);
    to
}

/// A version, and the types and conditions by which it is compared.
fn verify(wanted: &RTL_OSVERSIONINFOEXW, conditions: &[(u32, u8)]) -> NTSTATUS {
    let types = conditions.iter().map(|(one, _)| one).sum();
    let mask = conditions.iter().fold(0, |mask, &(one, how)| call!(VerSetConditionMask(mask, one, how)));
    call!(RtlVerifyVersionInfo(wanted, types, mask))
}

/// `VER_MINORVERSION`, `VER_MAJORVERSION`, `VER_BUILDNUMBER`, `VER_SUITENAME`, `VER_PRODUCT_TYPE`.
const MINOR: u32 = 1;
const MAJOR: u32 = 2;
const BUILD: u32 = 4;
const SUITES: u32 = 0x40;
const PRODUCT: u32 = 0x80;
/// `VER_EQUAL`, `VER_GREATER`, `VER_GREATER_EQUAL`, `VER_LESS`, `VER_AND`, `VER_OR`.
const EQUAL: u8 = 1;
const GREATER: u8 = 2;
const AT_LEAST: u8 = 3;
const LESS: u8 = 4;
const EACH: u8 = 6;
const ANY: u8 = 7;

fn version(major: u32, minor: u32) -> RTL_OSVERSIONINFOEXW {
    RTL_OSVERSIONINFOEXW { dwMajorVersion: major, dwMinorVersion: minor, ..RTL_OSVERSIONINFOEXW::default() }
}

tests! {
    a_string_of_the_code_page_is_converted_and_freed by {
        let mut string = allocated(b"a\x80\xFC");
        assert_eq!(read(&string), ("a\u{20AC}\u{FC}".to_owned(), Some(0)));
        let mut back = ANSI_STRING::default();
        assert_eq!(call!(RtlUnicodeStringToAnsiString(&raw mut back, &raw const string, 1)), STATUS_SUCCESS);
        // SAFETY: the string has as many bytes, and a terminator.
        let bytes = unsafe { std::slice::from_raw_parts(back.Buffer.cast::<u8>(), 4) };
        assert_eq!((back.Length, back.MaximumLength, bytes), (3, 4, &b"a\x80\xFC\0"[..]));
        call!(RtlFreeAnsiString(&raw mut back));
        call!(RtlFreeUnicodeString(&raw mut string));
        assert!(string.Buffer.is_null() && back.Buffer.is_null(), "nothing is left of a string that is freed");
        call!(RtlFreeUnicodeString(&raw mut string));
    }
    a_character_that_the_code_page_does_not_have_is_a_question_mark by {
        let (mut units, mut bytes) = ([0x4E2D, 0x80, u16::from(b'z')], [9; 4]);
        let (from, mut to) = (unicode(&mut units, 3), ansi(&mut bytes, 0));
        assert_eq!(call!(RtlUnicodeStringToAnsiString(&raw mut to, &raw const from, 0)), STATUS_SUCCESS);
        assert_eq!((to.Length, bytes), (3, *b"??z\0"));
    }
    a_buffer_has_room_for_the_terminator_or_is_left_alone by {
        let (mut bytes, mut units) = (*b"abc", [9; 4]);
        let from = ansi(&mut bytes, 3);
        let mut to = unicode(&mut units[..3], 0);
        assert_eq!(call!(RtlAnsiStringToUnicodeString(&raw mut to, &raw const from, 0)), STATUS_BUFFER_OVERFLOW);
        assert_eq!((to.Length, units), (0, [9; 4]));
        let mut to = unicode(&mut units, 0);
        assert_eq!(call!(RtlAnsiStringToUnicodeString(&raw mut to, &raw const from, 0)), STATUS_SUCCESS);
        assert_eq!((to.Length, read(&to)), (6, ("abc".to_owned(), Some(0))));
        let mut small = [9; 3];
        let mut back = ansi(&mut small, 0);
        assert_eq!(call!(RtlUnicodeStringToAnsiString(&raw mut back, &raw const to, 0)), STATUS_BUFFER_OVERFLOW);
    }
    capitals_are_made_in_a_buffer_or_in_memory_of_the_system by {
        let (mut units, mut capitals) = ([0x61, 0xDF, 0xFC, 0x31], [9; 4]);
        let (from, mut to) = (unicode(&mut units, 4), unicode(&mut capitals, 0));
        assert_eq!(call!(RtlUpcaseUnicodeString(&raw mut to, &raw const from, 0)), STATUS_SUCCESS);
        assert_eq!(read(&to), ("A\u{DF}\u{DC}1".to_owned(), None), "a sharp s is no single capital");
        let mut small = unicode(&mut capitals[..3], 0);
        assert_eq!(call!(RtlUpcaseUnicodeString(&raw mut small, &raw const from, 0)), STATUS_BUFFER_OVERFLOW);
        let mut own = UNICODE_STRING::default();
        assert_eq!(call!(RtlUpcaseUnicodeString(&raw mut own, &raw const from, 1)), STATUS_SUCCESS);
        assert_eq!((own.Length, own.MaximumLength), (8, 8));
        call!(RtlFreeUnicodeString(&raw mut own));
    }
    an_identifier_is_a_string_in_braces by {
        let guid = GUID { Data1: 0xAB, Data2: 0x1234, Data3: 0xC0DE, Data4: [1, 2, 3, 4, 5, 6, 7, 0xFF] };
        let mut string = UNICODE_STRING::default();
        assert_eq!(call!(RtlStringFromGUID(&raw const guid, &raw mut string)), STATUS_SUCCESS);
        assert_eq!(read(&string), ("{000000AB-1234-C0DE-0102-0304050607FF}".to_owned(), Some(0)));
        call!(RtlFreeUnicodeString(&raw mut string));
    }
    a_version_is_compared_part_by_part by {
        // This is 10.0, build 19041, a workstation.
        let at_least = [(MAJOR, AT_LEAST), (MINOR, AT_LEAST)];
        for (major, minor, expected) in [
            (6, 3, STATUS_SUCCESS), (10, 0, STATUS_SUCCESS), (10, 1, STATUS_REVISION_MISMATCH),
            (11, 0, STATUS_REVISION_MISMATCH),
        ] {
            assert_eq!(verify(&version(major, minor), &at_least), expected, "{major}.{minor}");
        }
        assert_eq!(verify(&version(10, 0), &[(MAJOR, GREATER)]), STATUS_REVISION_MISMATCH);
        assert_eq!(verify(&version(11, 0), &[(MAJOR, LESS)]), STATUS_SUCCESS);
        let build = |build| RTL_OSVERSIONINFOEXW { dwBuildNumber: build, wProductType: 1, ..version(10, 0) };
        let exact = [(MAJOR, EQUAL), (BUILD, EQUAL), (PRODUCT, EQUAL)];
        assert_eq!(verify(&build(19041), &exact), STATUS_SUCCESS);
        assert_eq!(verify(&build(19042), &exact), STATUS_REVISION_MISMATCH);
        let suites = |suites| RTL_OSVERSIONINFOEXW { wSuiteMask: suites, ..version(0, 0) };
        assert_eq!(verify(&suites(0), &[(SUITES, EACH)]), STATUS_SUCCESS);
        assert_eq!(verify(&suites(2), &[(SUITES, EACH)]), STATUS_REVISION_MISMATCH);
        assert_eq!(verify(&suites(2), &[(SUITES, ANY)]), STATUS_REVISION_MISMATCH);
        assert_eq!(verify(&version(10, 0), &[]), STATUS_INVALID_PARAMETER, "nothing is asked");
        assert_eq!(verify(&version(10, 0), &[(MAJOR, 0)]), STATUS_INVALID_PARAMETER, "no condition");
    }

    a_string_that_is_never_freed breaks PoolLeak by { allocated(b"abc"); }
    an_identifier_that_is_never_freed breaks PoolLeak by {
        let (guid, mut string) = (GUID::default(), UNICODE_STRING::default());
        let _ = call!(RtlStringFromGUID(&raw const guid, &raw mut string));
    }
    a_copy_of_a_string_freed_too breaks BadFree by {
        let mut string = allocated(b"abc");
        let mut copy = string;
        call!(RtlFreeUnicodeString(&raw mut string));
        call!(RtlFreeUnicodeString(&raw mut copy));
    }
    a_string_of_the_drivers_own_freed breaks BadFree by {
        let mut units = [0; 4];
        let mut string = unicode(&mut units, 0);
        call!(RtlFreeUnicodeString(&raw mut string));
    }
    a_string_converted_at_dispatch_level breaks IrqlTooHigh by {
        call!(KfRaiseIrql(2));
        allocated(b"abc");
    }
    a_string_freed_at_dispatch_level breaks IrqlTooHigh by {
        let mut string = allocated(b"abc");
        call!(KfRaiseIrql(2));
        call!(RtlFreeUnicodeString(&raw mut string));
    }
    a_string_longer_than_its_buffer breaks BadArgument by {
        let mut bytes = *b"abc";
        let from = ANSI_STRING { MaximumLength: 2, ..ansi(&mut bytes, 3) };
        let mut to = UNICODE_STRING::default();
        let _ = call!(RtlAnsiStringToUnicodeString(&raw mut to, &raw const from, 1));
    }
}
