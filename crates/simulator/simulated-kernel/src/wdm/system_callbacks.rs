//! What drivers register with the system to hear of processes, threads, images, handles and the registry.
//!
//! The registrations are here, with their rules; nothing of what they are about happens in this kernel, so none of the callbacks is called.

use std::sync::Mutex;

use wdk_bindings::{
    BOOLEAN, NTSTATUS, PCUNICODE_STRING, PVOID, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER,
    STATUS_SUCCESS, ULONG, UNICODE_STRING,
};

use crate::{
    context::{self, DriverId},
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State},
    text,
};

/// `STATUS_PROCEDURE_NOT_FOUND`.
const NOT_FOUND: NTSTATUS = 0xC000_007A_u32.cast_signed();
/// `STATUS_FLT_INSTANCE_ALTITUDE_COLLISION`.
const COLLISION: NTSTATUS = 0xC01C_0011_u32.cast_signed();
/// `OB_FLT_REGISTRATION_VERSION`.
const OB_VERSION: u16 = 0x0100;

/// What a registration is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Process,
    Thread,
    Image,
    Object,
    Registry,
}

impl Subject {
    const fn in_words(self) -> &'static str {
        match self {
            Self::Process => "processes",
            Self::Thread => "threads",
            Self::Image => "images",
            Self::Object => "objects",
            Self::Registry => "the registry",
        }
    }
}

/// A registration.
#[derive(Debug)]
struct Registration {
    owner: DriverId,
    subject: Subject,
    /// By what the driver takes it back: its routine, or the number that it was given.
    key: usize,
    /// Where it stands among others of its kind; empty where there is no such thing.
    altitude: String,
}

/// The registrations that there are.
#[derive(Default)]
pub struct SystemCallbacks(Vec<Registration>);

impl Part for Mutex<SystemCallbacks> {}

impl State {
    /// A driver is unloaded: it must not be registered any more.
    pub fn check_system_callbacks(&self, owner: DriverId, name: &str) {
        let left = self.locked::<SystemCallbacks>().0.iter().find(|one| one.owner == owner).map(|one| one.subject);
        if let Some(subject) = left {
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} left a callback for {}", subject.in_words()));
        }
    }

    fn has(&self, subject: Subject, key: usize) -> bool {
        self.locked::<SystemCallbacks>().0.iter().any(|one| (one.subject, one.key) == (subject, key))
    }

    fn add_system_callback(&self, subject: Subject, key: usize, altitude: String) {
        let owner = context::caller();
        self.locked::<SystemCallbacks>().0.push(Registration { owner, subject, key, altitude });
    }

    /// Takes one away. Whether there was one.
    fn remove_system_callback(&self, subject: Subject, key: usize) -> bool {
        let mut all = self.locked::<SystemCallbacks>();
        let place = all.0.iter().position(|one| (one.subject, one.key) == (subject, key));
        place.map(|place| all.0.remove(place)).is_some()
    }

    /// Whether something of that kind stands at that altitude.
    fn is_taken(&self, subject: Subject, altitude: &str) -> bool {
        self.locked::<SystemCallbacks>().0.iter().any(|one| one.subject == subject && one.altitude == altitude)
    }
}

/// Registers a routine of processes, or takes it back.
fn set_process_routine(state: &State, routine: PVOID, remove: BOOLEAN) -> NTSTATUS {
    let key = routine.addr();
    if remove != 0 {
        return if state.remove_system_callback(Subject::Process, key) { STATUS_SUCCESS } else { NOT_FOUND };
    }
    if state.has(Subject::Process, key) {
        return STATUS_INVALID_PARAMETER;
    }
    add_routine(state, Subject::Process, routine)
}

fn add_routine(state: &State, subject: Subject, routine: PVOID) -> NTSTATUS {
    if routine.is_null() {
        bug_check(Rule::BadArgument, format_args!("a callback for {} is a null pointer", subject.in_words()));
    }
    if state.strikes() {
        return STATUS_INSUFFICIENT_RESOURCES;
    }
    state.add_system_callback(subject, routine.addr(), String::new());
    STATUS_SUCCESS
}

fn remove_routine(state: &State, subject: Subject, routine: PVOID) -> NTSTATUS {
    if state.remove_system_callback(subject, routine.addr()) { STATUS_SUCCESS } else { NOT_FOUND }
}

#[unsafe(no_mangle)]
extern "C" fn PsSetCreateProcessNotifyRoutine(routine: PVOID, remove: BOOLEAN) -> NTSTATUS {
    routine!("PsSetCreateProcessNotifyRoutine", PASSIVE_LEVEL, |state| set_process_routine(state, routine, remove))
}

#[unsafe(no_mangle)]
extern "C" fn PsSetCreateProcessNotifyRoutineEx(routine: PVOID, remove: BOOLEAN) -> NTSTATUS {
    routine!("PsSetCreateProcessNotifyRoutineEx", PASSIVE_LEVEL, |state| set_process_routine(state, routine, remove))
}

#[unsafe(no_mangle)]
extern "C" fn PsSetCreateThreadNotifyRoutine(routine: PVOID) -> NTSTATUS {
    routine!("PsSetCreateThreadNotifyRoutine", PASSIVE_LEVEL, |state| add_routine(state, Subject::Thread, routine))
}

#[unsafe(no_mangle)]
extern "C" fn PsRemoveCreateThreadNotifyRoutine(routine: PVOID) -> NTSTATUS {
    routine!("PsRemoveCreateThreadNotifyRoutine", PASSIVE_LEVEL, |state| {
        remove_routine(state, Subject::Thread, routine)
    })
}

#[unsafe(no_mangle)]
extern "C" fn PsSetLoadImageNotifyRoutine(routine: PVOID) -> NTSTATUS {
    routine!("PsSetLoadImageNotifyRoutine", PASSIVE_LEVEL, |state| add_routine(state, Subject::Image, routine))
}

#[unsafe(no_mangle)]
extern "C" fn PsRemoveLoadImageNotifyRoutine(routine: PVOID) -> NTSTATUS {
    routine!("PsRemoveLoadImageNotifyRoutine", PASSIVE_LEVEL, |state| remove_routine(state, Subject::Image, routine))
}

/// `OB_CALLBACK_REGISTRATION`, as the kit has it.
#[repr(C)]
struct ObjectRegistration {
    version: u16,
    count: u16,
    altitude: UNICODE_STRING,
    context: PVOID,
    operations: *const ObjectOperation,
}

/// `OB_OPERATION_REGISTRATION`.
#[repr(C)]
struct ObjectOperation {
    kind: PVOID,
    operations: ULONG,
    before: PVOID,
    after: PVOID,
}

#[unsafe(no_mangle)]
extern "C" fn ObGetFilterVersion() -> u16 {
    routine!("ObGetFilterVersion", APC_LEVEL, |_| OB_VERSION)
}

#[unsafe(no_mangle)]
extern "C" fn ObRegisterCallbacks(registration: *const ObjectRegistration, handle: *mut PVOID) -> NTSTATUS {
    routine!("ObRegisterCallbacks", APC_LEVEL, |state| {
        // SAFETY: the driver's structure, which lives until the call returns.
        let given = unsafe { &*registration };
        if given.version != OB_VERSION || given.count == 0 || given.operations.is_null() {
            return STATUS_INVALID_PARAMETER;
        }
        for index in 0..usize::from(given.count) {
            // SAFETY: the driver says that there are as many.
            let operation = unsafe { &*given.operations.add(index) };
            // `OB_OPERATION_HANDLE_CREATE` and `_DUPLICATE`.
            let is_known = operation.operations != 0 && operation.operations & !3 == 0;
            if !is_known || operation.before.is_null() && operation.after.is_null() {
                return STATUS_INVALID_PARAMETER;
            }
        }
        let altitude = text::text(&raw const given.altitude);
        if state.is_taken(Subject::Object, &altitude) {
            return COLLISION;
        }
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let key = 0xFA00_0000_0000 + usize::try_from(state.next()).unwrap_or(0) * 16;
        state.add_system_callback(Subject::Object, key, altitude);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { handle.write(std::ptr::without_provenance_mut(key)) };
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn ObUnRegisterCallbacks(handle: PVOID) {
    routine!("ObUnRegisterCallbacks", APC_LEVEL, |state| {
        if !state.remove_system_callback(Subject::Object, handle.addr()) {
            bug_check(
                Rule::BadHandle,
                format_args!("{handle:p} is no registration of callbacks for objects, or was one"),
            );
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn CmRegisterCallbackEx(
    routine: PVOID,
    altitude: PCUNICODE_STRING,
    _driver: PVOID,
    _context: PVOID,
    cookie: *mut i64,
    _reserved: PVOID,
) -> NTSTATUS {
    routine!("CmRegisterCallbackEx", APC_LEVEL, |state| {
        if routine.is_null() || cookie.is_null() {
            bug_check(Rule::BadArgument, format_args!("CmRegisterCallbackEx without a routine, or a place"));
        }
        let altitude = text::text(altitude);
        if state.is_taken(Subject::Registry, &altitude) {
            return COLLISION;
        }
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let key = usize::try_from(state.next()).unwrap_or(0);
        state.add_system_callback(Subject::Registry, key, altitude);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { cookie.write(i64::try_from(key).unwrap_or(0)) };
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn CmUnRegisterCallback(cookie: i64) -> NTSTATUS {
    routine!("CmUnRegisterCallback", APC_LEVEL, |state| {
        let key = usize::try_from(cookie).unwrap_or(0);
        if state.remove_system_callback(Subject::Registry, key) { STATUS_SUCCESS } else { STATUS_INVALID_PARAMETER }
    })
}
