//! Events, semaphores and waiting.

use std::sync::{
    Arc,
    atomic::{
        AtomicI32,
        Ordering::{AcqRel, Acquire},
    },
};

use host::machine::{self, Event, EventKind, Irql};
use wdk_bindings::{
    _EVENT_TYPE, _WAIT_TYPE, BOOLEAN, EVENT_TYPE, KEVENT, KPRIORITY, KPROCESSOR_MODE, KSEMAPHORE, KWAIT_REASON,
    LARGE_INTEGER, LONG, NTSTATUS, PKWAIT_BLOCK, PVOID, STATUS_SUCCESS, STATUS_TIMEOUT, ULONG, WAIT_TYPE,
};

use super::timeout;
use crate::{
    context,
    report::bug_check,
    routine::routine,
    rule::Rule,
    stack,
    state::State,
    tracked::{Kind, Object, Structure},
    waiting::{self, Wait},
};

impl Structure for Event {
    fn is_signalled(&self) -> bool {
        self.is_set()
    }

    fn try_wait(&self) -> bool {
        Self::try_wait(self)
    }
}

/// A semaphore.
struct Semaphore {
    count: AtomicI32,
    limit: i32,
}

impl Structure for Semaphore {
    fn is_signalled(&self) -> bool {
        self.count.load(Acquire) > 0
    }

    fn try_wait(&self) -> bool {
        self.count.fetch_update(AcqRel, Acquire, |count| (count > 0).then(|| count - 1)).is_ok()
    }
}

fn event(state: &State, event: *mut KEVENT) -> Arc<Event> {
    state.structure(event.expose_provenance(), Kind::Event)
}

fn semaphore(state: &State, semaphore: *mut KSEMAPHORE) -> Arc<Semaphore> {
    state.structure(semaphore.expose_provenance(), Kind::Semaphore)
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

/// What can be waited for at that address: a thread to which the driver has a reference, or an object in its memory.
fn waitable(state: &State, address: usize) -> Arc<dyn Structure> {
    if let Some(thread) = state.thread_at(address) {
        return thread;
    }
    state.find_waitable(address)
}

/// The kind of event that one waiter takes.
pub const SYNCHRONIZATION: EventKind = EventKind::Synchronization;
/// The kind of event that stays set.
pub const NOTIFICATION: EventKind = EventKind::Notification;

/// Makes an event, which is not set.
pub fn initialise(state: &State, place: *mut KEVENT, kind: EventKind) {
    // On the stack it may be another one, in the frame of another call.
    let before = state.tracked(place.expose_provenance(), Kind::Event).filter(|_| !stack::is_here(place.addr()));
    state.dispatcher.initialised_again(place.addr(), before.is_some_and(|before| before.is_signalled()));
    let object = Event::new(&state.machine, kind);
    state.track(place.expose_provenance(), context::caller(), Object::new(Kind::Event, object));
}

/// Clears an event. Whether it was set before.
pub fn reset(state: &State, place: *mut KEVENT) -> bool {
    event(state, place).reset()
}

/// Waits for an event, at most until `end`, in microseconds of the machine. Whether it was set.
pub fn wait(state: &Arc<State>, what: &'static str, place: *mut KEVENT, end: Option<u64>) -> bool {
    check_wait(what, end);
    let object = event(state, place);
    let objects = [place.addr()];
    let wait = Wait::of(what, &objects);
    waiting::until(state, end, wait, || object.try_wait())
}

#[unsafe(no_mangle)]
extern "C" fn KeInitializeEvent(place: *mut KEVENT, kind: EVENT_TYPE, set: BOOLEAN) {
    routine!("KeInitializeEvent", |state| {
        let kind = match kind {
            _EVENT_TYPE::NotificationEvent => EventKind::Notification,
            _EVENT_TYPE::SynchronizationEvent => EventKind::Synchronization,
            other => bug_check(Rule::BadArgument, format_args!("{other} is no kind of event")),
        };
        initialise(state, place, kind);
        if set != 0 {
            event(state, place).set();
        }
    });
}

/// A call with `Wait` is made by a thread that waits next, so at most at this level. Until then Windows lets nobody else run on the processor;
/// here others may.
fn check_next_wait(routine: &str, wait: BOOLEAN, most: Irql) {
    let level = machine::current_irql();
    if wait != 0 && level > most {
        bug_check(Rule::IrqlTooHigh, format_args!("{routine} called at {level} by a thread that is to wait next"));
    }
}

#[unsafe(no_mangle)]
extern "C" fn KeSetEvent(place: *mut KEVENT, _increment: KPRIORITY, wait: BOOLEAN) -> LONG {
    routine!("KeSetEvent", |state| {
        check_next_wait("KeSetEvent", wait, Irql::APC_LEVEL);
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
    state.dispatcher.note_set(place.addr());
    state.dispatcher.signal_of(place.addr());
    before
}

/// Whoever waits goes on, at the same instant in which the event is cleared: here a waiter looks later, so a pulse for one is not simulated.
#[unsafe(no_mangle)]
extern "C" fn KePulseEvent(place: *mut KEVENT, _increment: KPRIORITY, wait: BOOLEAN) -> LONG {
    routine!("KePulseEvent", DISPATCH_LEVEL, |state| {
        check_next_wait("KePulseEvent", wait, Irql::APC_LEVEL);
        let event = event(state, place);
        if state.dispatcher.is_waited_for(place.addr()) {
            bug_check(Rule::NotSimulated, format_args!("a pulse of an event for which a thread waits"));
        }
        LONG::from(event.reset())
    })
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
        state.track(place.expose_provenance(), context::caller(), Object::new(Kind::Semaphore, object));
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
        check_next_wait("KeReleaseSemaphore", wait, Irql::PASSIVE_LEVEL);
        if adjustment <= 0 {
            bug_check(Rule::BadArgument, format_args!("a semaphore is released by {adjustment}"));
        }
        let semaphore = semaphore(state, place);
        let before = semaphore.count.fetch_add(adjustment, AcqRel);
        if before + adjustment > semaphore.limit {
            bug_check(Rule::BadArgument, format_args!("a semaphore released beyond its limit"));
        }
        state.dispatcher.signal_of(place.addr());
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
        let end = timeout::end(state, timeout);
        check_wait("KeWaitForSingleObject", end);
        check_mode(mode, object.addr());
        let objects = [object.addr()];
        let object = waitable(state, object.expose_provenance());
        let wait = Wait::of("KeWaitForSingleObject", &objects);
        let signalled = waiting::until(state, end, wait, || object.try_wait());
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
        let end = timeout::end(state, timeout);
        check_wait("KeWaitForMultipleObjects", end);
        let of = |index: usize| {
            // SAFETY: the driver's array has as many pointers.
            let object = unsafe { objects.add(index).read() };
            object.expose_provenance()
        };
        let places: Vec<usize> = (0..count as usize).map(of).collect();
        for &place in &places {
            check_mode(mode, place);
        }
        let objects: Vec<Arc<dyn Structure>> = places.iter().map(|&place| waitable(state, place)).collect();
        let mut first = 0;
        let wait = Wait::of("KeWaitForMultipleObjects", &places);
        let signalled = waiting::until(state, end, wait, || {
            if kind == _WAIT_TYPE::WaitAny {
                let found = objects.iter().position(|object| object.try_wait());
                first = found.unwrap_or(0);
                return found.is_some();
            }
            // Nothing is taken before everything is there.
            objects.iter().all(|object| object.is_signalled()) && objects.iter().all(|object| object.try_wait())
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
        let end = timeout::end(state, interval).unwrap_or(0);
        waiting::until(state, Some(end), Wait::time("KeDelayExecutionThread"), || false);
        STATUS_SUCCESS
    })
}
