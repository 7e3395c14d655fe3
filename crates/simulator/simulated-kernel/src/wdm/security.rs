//! Security: who asks, and what an object may be asked for. Every program may do everything here, so only what drivers say is looked at.

use std::ptr;

use wdk_bindings::{ACCESS_MASK, BOOLEAN, KPROCESSOR_MODE, NTSTATUS, PVOID, STATUS_SUCCESS, ULONG};

use super::references::To;
use crate::{report::bug_check, routine::routine, rule::Rule, state::State};

/// `SECURITY_SUBJECT_CONTEXT`, which is opaque.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Subject {
    client: PVOID,
    level: i32,
    primary: PVOID,
    audit: PVOID,
}

/// `GENERIC_MAPPING`: which rights reading, writing, executing and everything are.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Mapping([ACCESS_MASK; 4]);

/// The address of the only token; nothing lies there.
const TOKEN: usize = 0xFA20_0000_0000;
/// The bits of an access for reading, writing, executing and everything (`GENERIC_READ` and so on).
const GENERIC: [ACCESS_MASK; 4] = [1 << 31, 1 << 30, 1 << 29, 1 << 28];
/// `MAXIMUM_ALLOWED`.
const MOST: ACCESS_MASK = 1 << 25;
/// `SECURITY_DESCRIPTOR_REVISION`.
const REVISION: u8 = 1;
/// Those of files.
static OF_FILES: Mapping = Mapping([0x0012_0089, 0x0012_0116, 0x0012_00A0, 0x001F_01FF]);

#[unsafe(no_mangle)]
extern "C" fn SeCaptureSubjectContext(place: *mut Subject) {
    routine!("SeCaptureSubjectContext", PASSIVE_LEVEL, |state| {
        state.refer(TOKEN, To::Subject, 1);
        let token = ptr::without_provenance_mut(TOKEN);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(Subject { client: ptr::null_mut(), level: 0, primary: token, audit: ptr::null_mut() }) };
    });
}

/// Ends the test unless the context was captured, and not released.
fn check_subject(state: &State, place: *const Subject, name: &str) {
    // SAFETY: the driver's structure, which lives until the call returns.
    let subject = unsafe { place.read() };
    if subject.primary.addr() != TOKEN || !state.refers_to(TOKEN) {
        bug_check(Rule::BadHandle, format_args!("{name} with the context of a subject that is not captured"));
    }
}

#[unsafe(no_mangle)]
extern "C" fn SeReleaseSubjectContext(place: *mut Subject) {
    routine!("SeReleaseSubjectContext", PASSIVE_LEVEL, |state| {
        check_subject(state, place, "SeReleaseSubjectContext");
        state.refer(TOKEN, To::Subject, -1);
        // SAFETY: the driver's structure, which it may capture again.
        unsafe { (&raw mut (*place).primary).write(ptr::null_mut()) };
    });
}

/// Locks nothing: nobody changes a token.
#[unsafe(no_mangle)]
extern "C" fn SeLockSubjectContext(place: *mut Subject) {
    routine!("SeLockSubjectContext", PASSIVE_LEVEL, |state| check_subject(state, place, "SeLockSubjectContext"));
}

#[unsafe(no_mangle)]
extern "C" fn SeUnlockSubjectContext(place: *mut Subject) {
    routine!("SeUnlockSubjectContext", PASSIVE_LEVEL, |state| check_subject(state, place, "SeUnlockSubjectContext"));
}

/// What is granted: what is wanted, in the rights of the object, and what was granted before.
fn granted(wanted: ACCESS_MASK, before: ACCESS_MASK, Mapping(mapping): Mapping) -> ACCESS_MASK {
    let all: ACCESS_MASK = GENERIC.iter().sum();
    let mapped =
        GENERIC.iter().zip(mapping).filter(|&(bit, _)| wanted & bit != 0).fold(0, |all, (_, right)| all | right);
    let most = if wanted & MOST == 0 { 0 } else { mapping[3] };
    wanted & !(all | MOST) | mapped | most | before
}

#[unsafe(no_mangle)]
extern "C" fn SeAccessCheck(
    descriptor: *const u8,
    subject: *const Subject,
    _locked: BOOLEAN,
    wanted: ACCESS_MASK,
    before: ACCESS_MASK,
    privileges: *mut PVOID,
    mapping: *const Mapping,
    _mode: KPROCESSOR_MODE,
    place: *mut ACCESS_MASK,
    status: *mut NTSTATUS,
) -> BOOLEAN {
    routine!("SeAccessCheck", PASSIVE_LEVEL, |state| {
        check_subject(state, subject, "SeAccessCheck");
        // SAFETY: null, or the driver's descriptor, which begins with its revision.
        if unsafe { descriptor.as_ref() } != Some(&REVISION) {
            bug_check(Rule::BadArgument, format_args!("SeAccessCheck with {descriptor:p}, which is no descriptor"));
        }
        if !privileges.is_null() {
            // SAFETY: not null, so the driver's place, which lives until the call returns. No privilege is used.
            unsafe { privileges.write(ptr::null_mut()) };
        }
        // SAFETY: the driver's structure and places, which live until the call returns.
        unsafe {
            place.write(granted(wanted, before, mapping.read()));
            status.write(STATUS_SUCCESS);
        }
        1
    })
}

#[unsafe(no_mangle)]
extern "C" fn IoGetFileObjectGenericMapping() -> *const Mapping {
    routine!("IoGetFileObjectGenericMapping", PASSIVE_LEVEL, |_| &raw const OF_FILES)
}

/// Who asks has every privilege. A `LUID` is passed as its eight bytes.
#[unsafe(no_mangle)]
extern "C" fn SeSinglePrivilegeCheck(_privilege: u64, _mode: KPROCESSOR_MODE) -> BOOLEAN {
    routine!("SeSinglePrivilegeCheck", PASSIVE_LEVEL, |_| 1)
}

/// No driver is verified by that of Windows: this kernel is the verifier.
#[unsafe(no_mangle)]
extern "C" fn MmIsVerifierEnabled(flags: *mut ULONG) -> NTSTATUS {
    routine!("MmIsVerifierEnabled", PASSIVE_LEVEL, |_| {
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { flags.write(0) };
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn MmIsDriverVerifying(_driver: PVOID) -> ULONG {
    routine!("MmIsDriverVerifying", APC_LEVEL, |_| 0)
}
