//! Events, semaphores and waiting.

use std::sync::{
    Arc,
    atomic::{AtomicI32, Ordering::AcqRel, Ordering::Acquire},
};

use host::machine::{self, Event, EventKind, Irql};
use wdk_bindings::{
    _EVENT_TYPE, _WAIT_TYPE, BOOLEAN, EVENT_TYPE, KEVENT, KPRIORITY, KPROCESSOR_MODE, KSEMAPHORE, KWAIT_REASON,
    LARGE_INTEGER, LONG, NTSTATUS, PKWAIT_BLOCK, PVOID, STATUS_SUCCESS, STATUS_TIMEOUT, ULONG, WAIT_TYPE,
};

use super::{clock, routine};
use crate::{
    context,
    kernel::State,
    report::bug_check,
    rule::Rule,
    stack,
    tracked::{Object, Semaphore},
    waiting::{self, Wait},
};

fn event(state: &State, event: *mut KEVENT) -> Arc<Event> {
    state.event(event.expose_provenance())
}

fn semaphore(state: &State, semaphore: *mut KSEMAPHORE) -> Arc<Semaphore> {
    state.semaphore(semaphore.expose_provenance())
}

/// When a wait ends: `None` without a timeout.
pub fn end(state: &State, timeout: *mut LARGE_INTEGER) -> Option<u64> {
    if timeout.is_null() {
        return None;
    }
    // SAFETY: not null, so the driver's number, which lives until the call returns.
    let timeout = unsafe { timeout.read() };
    // SAFETY: every value of the union's numbers is one.
    let units = unsafe { timeout.QuadPart };
    let now = state.machine.now();
    Some(match units {
        0 => 0,
        ..0 => now.saturating_add(units.unsigned_abs().div_ceil(10)),
        _ => now.saturating_add(units.unsigned_abs().saturating_sub(clock::system_time(state)).div_ceil(10)),
    })
}

/// Checks that the caller may wait, if it would.
pub fn check_wait(name: &str, end: Option<u64>) {
    let now = machine::current_irql();
    let limit = if end == Some(0) { Irql::DISPATCH_LEVEL } else { Irql::APC_LEVEL };
    if now > limit {
        bug_check(Rule::IrqlTooHigh, format_args!("{name} waits at {now}"));
    }
}

/// The stack of a thread that waits in user mode can be paged out, with what others signal.
fn check_mode(mode: KPROCESSOR_MODE, object: usize) {
    if mode != 0 && stack::is_here(object) {
        bug_check(
            Rule::StackObject,
            format_args!("a wait in user mode for the object at {object:#x}, which is on the stack"),
        );
    }
}

/// Returns true if the object is signalled. If so, takes what waiting for it takes.
fn acquire(object: &Object) -> bool {
    match object {
        Object::Event(event) => event.try_wait(),
        Object::Timer(timer) => timer.signalled.try_wait(),
        Object::Mutex(mutex) => mutex.try_wait(),
        Object::Thread(thread) => thread.has_ended(),
        Object::Semaphore(semaphore) => {
            let taken = semaphore.count.fetch_update(AcqRel, Acquire, |count| (count > 0).then(|| count - 1));
            taken.is_ok()
        }
        _ => bug_check(Rule::BadArgument, format_args!("a wait for something that cannot be waited for")),
    }
}

fn is_signalled(object: &Object) -> bool {
    match object {
        Object::Event(event) => event.is_set(),
        Object::Timer(timer) => timer.signalled.is_set(),
        Object::Mutex(mutex) => mutex.is_signalled(),
        Object::Thread(thread) => thread.has_ended(),
        Object::Semaphore(semaphore) => semaphore.count.load(Acquire) > 0,
        _ => false,
    }
}

#[unsafe(no_mangle)]
extern "C" fn KeInitializeEvent(place: *mut KEVENT, kind: EVENT_TYPE, set: BOOLEAN) {
    routine!("KeInitializeEvent", |state| {
        let kind = match kind {
            _EVENT_TYPE::NotificationEvent => EventKind::Notification,
            _EVENT_TYPE::SynchronizationEvent => EventKind::Synchronization,
            other => bug_check(Rule::BadArgument, format_args!("{other} is no kind of event")),
        };
        // On the stack it may be another one, in the frame of another call.
        let before = state.tracked_event(place.expose_provenance()).filter(|_| !stack::is_here(place.addr()));
        state.dispatcher.initialised_again(place.addr(), before.is_some_and(|before| before.is_set()));
        let object = Event::new(&state.machine, kind);
        state.track(place.expose_provenance(), context::caller(), Object::Event(Arc::new(object)));
        if set != 0 {
            event(state, place).set();
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeSetEvent(place: *mut KEVENT, _increment: KPRIORITY, wait: BOOLEAN) -> LONG {
    routine!("KeSetEvent", |state| {
        if wait != 0 {
            bug_check(Rule::NotSimulated, format_args!("KeSetEvent with Wait"));
        }
        if machine::current_irql() > Irql::DISPATCH_LEVEL {
            bug_check(Rule::IrqlTooHigh, format_args!("KeSetEvent called at {}", machine::current_irql()));
        }
        let before = set(state, place);
        state.preempt();
        LONG::from(before)
    })
}

/// Sets an event. Whether it was set before.
pub fn set(state: &State, place: *mut KEVENT) -> bool {
    // The event may be gone as soon as it is set: its waiter may free it.
    let before = event(state, place).set();
    state.dispatcher.was_set(place.addr());
    state.dispatcher.signal();
    before
}

#[unsafe(no_mangle)]
extern "C" fn KeClearEvent(place: *mut KEVENT) {
    routine!("KeClearEvent", |state| {
        event(state, place).reset();
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeResetEvent(place: *mut KEVENT) -> LONG {
    routine!("KeResetEvent", |state| LONG::from(event(state, place).reset()))
}

#[unsafe(no_mangle)]
extern "C" fn KeReadStateEvent(place: *mut KEVENT) -> LONG {
    routine!("KeReadStateEvent", |state| LONG::from(event(state, place).is_set()))
}

#[unsafe(no_mangle)]
extern "C" fn KeInitializeSemaphore(place: *mut KSEMAPHORE, count: LONG, limit: LONG) {
    routine!("KeInitializeSemaphore", |state| {
        if limit <= 0 || !(0..=limit).contains(&count) {
            bug_check(Rule::BadArgument, format_args!("a semaphore with the count {count} and the limit {limit}"));
        }
        let object = Semaphore { count: AtomicI32::new(count), limit };
        state.track(place.expose_provenance(), context::caller(), Object::Semaphore(Arc::new(object)));
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeReadStateSemaphore(place: *mut KSEMAPHORE) -> LONG {
    routine!("KeReadStateSemaphore", |state| semaphore(state, place).count.load(Acquire))
}

#[unsafe(no_mangle)]
extern "C" fn KeReleaseSemaphore(
    place: *mut KSEMAPHORE,
    _increment: KPRIORITY,
    adjustment: LONG,
    wait: BOOLEAN,
) -> LONG {
    routine!("KeReleaseSemaphore", |state| {
        if wait != 0 {
            bug_check(Rule::NotSimulated, format_args!("KeReleaseSemaphore with Wait"));
        }
        if adjustment <= 0 {
            bug_check(Rule::BadArgument, format_args!("a semaphore is released by {adjustment}"));
        }
        let semaphore = semaphore(state, place);
        let before = semaphore.count.fetch_add(adjustment, AcqRel);
        if before + adjustment > semaphore.limit {
            bug_check(Rule::BadArgument, format_args!("a semaphore released beyond its limit"));
        }
        state.dispatcher.signal();
        before
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeWaitForSingleObject(
    object: PVOID,
    _reason: KWAIT_REASON,
    mode: KPROCESSOR_MODE,
    _alertable: BOOLEAN,
    timeout: *mut LARGE_INTEGER,
) -> NTSTATUS {
    routine!("KeWaitForSingleObject", |state| {
        let end = end(state, timeout);
        check_wait("KeWaitForSingleObject", end);
        check_mode(mode, object.addr());
        let objects = [object.addr()];
        let object = state.waitable(object.expose_provenance());
        let wait = Wait { what: "KeWaitForSingleObject", objects: &objects, rule: None };
        let signalled = waiting::until(state, end, wait, || acquire(&object));
        if signalled { STATUS_SUCCESS } else { STATUS_TIMEOUT }
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeWaitForMultipleObjects(
    count: ULONG,
    objects: *mut PVOID,
    kind: WAIT_TYPE,
    _reason: KWAIT_REASON,
    mode: KPROCESSOR_MODE,
    _alertable: BOOLEAN,
    timeout: *mut LARGE_INTEGER,
    blocks: PKWAIT_BLOCK,
) -> NTSTATUS {
    /// `THREAD_WAIT_OBJECTS`: as many need no blocks.
    const BUILT_IN: ULONG = 3;
    routine!("KeWaitForMultipleObjects", |state| {
        if count == 0 || count > 64 || (count > BUILT_IN && blocks.is_null()) {
            bug_check(Rule::BadArgument, format_args!("a wait for {count} objects"));
        }
        if ![_WAIT_TYPE::WaitAll, _WAIT_TYPE::WaitAny].contains(&kind) {
            bug_check(Rule::BadArgument, format_args!("there is no kind {kind} of wait"));
        }
        let end = end(state, timeout);
        check_wait("KeWaitForMultipleObjects", end);
        let of = |index: usize| {
            // SAFETY: the driver's array has as many pointers.
            let place = unsafe { objects.add(index) };
            // SAFETY: as above.
            let object = unsafe { place.read() };
            object.expose_provenance()
        };
        let places: Vec<usize> = (0..count as usize).map(of).collect();
        for &place in &places {
            check_mode(mode, place);
        }
        let objects: Vec<Object> = places.iter().map(|&place| state.waitable(place)).collect();
        let mut first = 0;
        let wait = Wait { what: "KeWaitForMultipleObjects", objects: &places, rule: None };
        let signalled = waiting::until(state, end, wait, || {
            if kind == _WAIT_TYPE::WaitAny {
                let found = objects.iter().position(acquire);
                first = found.unwrap_or(0);
                return found.is_some();
            }
            // Nothing is taken before everything is there.
            objects.iter().all(is_signalled) && objects.iter().all(acquire)
        });
        let index = NTSTATUS::try_from(first).unwrap_or(0);
        if signalled { STATUS_SUCCESS + index } else { STATUS_TIMEOUT }
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeDelayExecutionThread(
    _mode: KPROCESSOR_MODE,
    _alertable: BOOLEAN,
    interval: *mut LARGE_INTEGER,
) -> NTSTATUS {
    routine!("KeDelayExecutionThread", |state| {
        let end = end(state, interval).unwrap_or(0);
        waiting::until(state, Some(end), "KeDelayExecutionThread", || false);
        STATUS_SUCCESS
    })
}
