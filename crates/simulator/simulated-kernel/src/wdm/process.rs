//! Processes and threads as objects: who runs, by number and by pointer, and the references that drivers take.
//!
//! A process is known by an address that its number tells; nothing lies there, for the structure is opaque. What a driver refers to it
//! gives back before it is unloaded.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    ptr,
    sync::{Arc, Mutex},
};

use wdk_bindings::{
    BOOLEAN, HANDLE, NTSTATUS, PIRP, PVOID, STATUS_INVALID_PARAMETER, STATUS_PENDING, STATUS_SUCCESS, ULONG,
};

use super::{
    references::To,
    system_thread::{self, Thread},
};
use crate::{
    context::{self, SYSTEM_PROCESS},
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State},
};

/// Where processes are: that with number zero, which is none, would be first.
const FIRST: usize = 0xFA10_0000_0000;
/// From one to the next.
const STEP: usize = 0x1000;

/// `PsInitialSystemProcess`: the system's own process.
#[cfg(windows)]
pub static SYSTEM: std::sync::atomic::AtomicUsize =
    std::sync::atomic::AtomicUsize::new(FIRST + STEP * SYSTEM_PROCESS as usize);

/// The processes that run, besides the system's own.
#[derive(Default)]
pub struct Running(BTreeSet<u32>);

impl Part for Mutex<Running> {}

impl State {
    /// A process begins, or has ended.
    pub fn process_runs(&self, number: u32, runs: bool) {
        let mut running = self.locked::<Running>();
        if runs {
            running.0.insert(number);
        } else {
            running.0.remove(&number);
        }
    }

    fn is_running(&self, number: u32) -> bool {
        number == SYSTEM_PROCESS || self.locked::<Running>().0.contains(&number)
    }

    /// Counts references to a process. How many there are then; `None` if the object is none.
    pub fn count_process(&self, object: usize, by: i64) -> Option<i64> {
        number_of(object)?;
        let after = self.refer(object, To::Process, by);
        Some(after.unwrap_or_else(|| {
            bug_check(
                Rule::ReferenceUnderflow,
                format_args!("a process is dereferenced that the driver does not refer to"),
            )
        }))
    }
}

/// The number of the process that lies at an address. `None` if none does.
fn number_of(object: usize) -> Option<u32> {
    let behind = object.checked_sub(FIRST)?;
    let number = u32::try_from(behind / STEP).ok()?;
    (behind.is_multiple_of(STEP) && number != 0).then_some(number)
}

const fn object_of(number: u32) -> usize {
    FIRST + STEP * number as usize
}

/// The number of the process that a driver points to.
fn number(object: PVOID, routine: &str) -> u32 {
    number_of(object.addr()).unwrap_or_else(|| {
        bug_check(Rule::BadHandle, format_args!("{object:p} is no process, and is given to {routine}"))
    })
}

/// The thread that a driver points to.
fn thread(state: &State, object: PVOID, routine: &str) -> Arc<Thread> {
    state.thread_at(object.addr()).unwrap_or_else(|| {
        bug_check(Rule::BadHandle, format_args!("{object:p} is no thread, and is given to {routine}"))
    })
}

fn handle(number: u64) -> HANDLE {
    ptr::without_provenance_mut(usize::try_from(number).unwrap_or(0))
}

fn current_process() -> PVOID {
    ptr::without_provenance_mut(object_of(context::process()))
}

#[unsafe(no_mangle)]
extern "C" fn IoGetCurrentProcess() -> PVOID {
    routine!("IoGetCurrentProcess", HIGH_LEVEL, |_| current_process())
}

#[unsafe(no_mangle)]
extern "C" fn PsGetCurrentProcess() -> PVOID {
    routine!("PsGetCurrentProcess", HIGH_LEVEL, |_| current_process())
}

#[unsafe(no_mangle)]
extern "C" fn PsGetCurrentThread() -> PVOID {
    routine!("PsGetCurrentThread", HIGH_LEVEL, |state| ptr::without_provenance_mut(system_thread::current_object(
        state
    )))
}

#[unsafe(no_mangle)]
extern "C" fn KeGetCurrentThread() -> PVOID {
    routine!("KeGetCurrentThread", HIGH_LEVEL, |state| ptr::without_provenance_mut(system_thread::current_object(
        state
    )))
}

#[unsafe(no_mangle)]
extern "C" fn PsGetProcessId(process: PVOID) -> HANDLE {
    routine!("PsGetProcessId", HIGH_LEVEL, |_| handle(number(process, "PsGetProcessId").into()))
}

#[unsafe(no_mangle)]
extern "C" fn PsGetProcessExitStatus(process: PVOID) -> NTSTATUS {
    routine!("PsGetProcessExitStatus", PASSIVE_LEVEL, |state| {
        if state.is_running(number(process, "PsGetProcessExitStatus")) { STATUS_PENDING } else { STATUS_SUCCESS }
    })
}

#[unsafe(no_mangle)]
extern "C" fn PsGetThreadId(object: PVOID) -> HANDLE {
    routine!("PsGetThreadId", HIGH_LEVEL, |state| handle(thread(state, object, "PsGetThreadId").id()))
}

/// Threads of drivers are the system's. That of the test, which is every program's, has the process that it is in just now.
fn process_of(thread: &Thread) -> u32 {
    if thread.is_program() { context::process() } else { SYSTEM_PROCESS }
}

#[unsafe(no_mangle)]
extern "C" fn PsGetThreadProcessId(object: PVOID) -> HANDLE {
    routine!("PsGetThreadProcessId", HIGH_LEVEL, |state| {
        handle(process_of(&thread(state, object, "PsGetThreadProcessId")).into())
    })
}

#[unsafe(no_mangle)]
extern "C" fn PsGetThreadExitStatus(object: PVOID) -> NTSTATUS {
    routine!("PsGetThreadExitStatus", HIGH_LEVEL, |state| thread(state, object, "PsGetThreadExitStatus").exit_status())
}

#[unsafe(no_mangle)]
extern "C" fn PsIsSystemThread(object: PVOID) -> BOOLEAN {
    routine!("PsIsSystemThread", HIGH_LEVEL, |state| BOOLEAN::from(
        !thread(state, object, "PsIsSystemThread").is_program()
    ))
}

#[unsafe(no_mangle)]
extern "C" fn PsLookupProcessByProcessId(id: HANDLE, place: *mut PVOID) -> NTSTATUS {
    routine!("PsLookupProcessByProcessId", APC_LEVEL, |state| {
        let Some(number) = u32::try_from(id.addr()).ok().filter(|&number| state.is_running(number)) else {
            return STATUS_INVALID_PARAMETER;
        };
        let object = object_of(number);
        state.refer(object, To::Process, 1);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(ptr::without_provenance_mut(object)) };
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn PsLookupThreadByThreadId(id: HANDLE, place: *mut PVOID) -> NTSTATUS {
    routine!("PsLookupThreadByThreadId", APC_LEVEL, |state| {
        let Some(object) = state.refer_to_thread(id.addr() as u64) else { return STATUS_INVALID_PARAMETER };
        state.refer(object, To::Thread, 1);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(ptr::without_provenance_mut(object)) };
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn PsGetThreadProcess(object: PVOID) -> PVOID {
    routine!("PsGetThreadProcess", HIGH_LEVEL, |state| {
        ptr::without_provenance_mut(object_of(process_of(&thread(state, object, "PsGetThreadProcess"))))
    })
}

#[unsafe(no_mangle)]
extern "C" fn IoThreadToProcess(object: PVOID) -> PVOID {
    routine!("IoThreadToProcess", HIGH_LEVEL, |state| {
        ptr::without_provenance_mut(object_of(process_of(&thread(state, object, "IoThreadToProcess"))))
    })
}

/// The process whose request an IRP is. `None` for one that a driver has allocated.
fn requestor(state: &State, irp: PIRP) -> Option<u32> {
    let Some(request) = state.irp(irp) else {
        bug_check(Rule::BadHandle, format_args!("{irp:p} is asked who has made it, and is no IRP, or was one"));
    };
    request.process
}

#[unsafe(no_mangle)]
extern "C" fn IoGetRequestorProcess(irp: PIRP) -> PVOID {
    routine!("IoGetRequestorProcess", DISPATCH_LEVEL, |state| {
        requestor(state, irp).map_or(ptr::null_mut(), |number| ptr::without_provenance_mut(object_of(number)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn IoGetRequestorProcessId(irp: PIRP) -> ULONG {
    routine!("IoGetRequestorProcessId", DISPATCH_LEVEL, |state| requestor(state, irp).unwrap_or(0))
}

/// All programs have 64 bits.
#[unsafe(no_mangle)]
extern "C" fn IoIs32bitProcess(_irp: PIRP) -> BOOLEAN {
    routine!("IoIs32bitProcess", DISPATCH_LEVEL, |_| 0)
}

thread_local! {
    /// The processes that the thread has been attached from, with the addresses of the driver's structures.
    static ATTACHED: RefCell<Vec<(usize, u32)>> = const { RefCell::new(Vec::new()) };
}

/// The thread is in the context of another process from now on: its handles and its memory.
#[unsafe(no_mangle)]
extern "C" fn KeStackAttachProcess(process: PVOID, place: PVOID) {
    routine!("KeStackAttachProcess", APC_LEVEL, |state| {
        let number = number(process, "KeStackAttachProcess");
        if !state.is_running(number) {
            bug_check(Rule::BadHandle, format_args!("a thread is attached to process {number}, which has ended"));
        }
        let before = context::set_process(number);
        ATTACHED.with_borrow_mut(|attached| attached.push((place.addr(), before)));
        context::set_attached(context::attached() + 1);
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeUnstackDetachProcess(place: PVOID) {
    routine!("KeUnstackDetachProcess", APC_LEVEL, |_| {
        let last = ATTACHED.with_borrow_mut(Vec::pop);
        let Some((_, before)) = last.filter(|&(last, _)| last == place.addr()) else {
            bug_check(
                Rule::BadArgument,
                format_args!("a thread is detached that was not attached with {place:p} last"),
            );
        };
        context::set_process(before);
        context::set_attached(context::attached() - 1);
    });
}
