//! Events with a handle, and perhaps a name: objects of the system's, and not structures in a driver's memory.

use std::{ptr, sync::Mutex};

use host::machine::{Event, EventKind};
use litemap::LiteMap;
use wdk_bindings::{
    _EVENT_TYPE, ACCESS_MASK, BOOLEAN, EVENT_TYPE, HANDLE, KEVENT, LONG, NTSTATUS, OBJ_KERNEL_HANDLE,
    OBJECT_ATTRIBUTES, PCUNICODE_STRING, PHANDLE, PKEVENT, POBJECT_ATTRIBUTES, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INVALID_HANDLE, STATUS_INVALID_PARAMETER, STATUS_OBJECT_NAME_COLLISION, STATUS_OBJECT_NAME_NOT_FOUND,
    STATUS_SUCCESS, ULONG,
};

use super::{event, handles, io::interface::STATUS_OBJECT_NAME_EXISTS, references::To};
use crate::{
    argument::check_size,
    context::{self, DriverId, NOBODY},
    pool,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State},
    text,
    tracked::{Kind, Object},
};

/// `OBJ_OPENIF`: one of that name that is there is opened.
const OPEN_IF: ULONG = 0x80;

/// The tag of events of the system's.
const TAG: u32 = u32::from_ne_bytes(*b"Even");

/// An event of the system's: it lies in a block of its own.
struct EventObject {
    name: String,
    handles: u32,
    /// References by pointer.
    references: i64,
}

/// All of them, by their addresses, and their handles: whose each is, and of which event.
#[derive(Default)]
pub struct EventObjects {
    all: LiteMap<usize, EventObject>,
    handles: LiteMap<usize, (DriverId, usize)>,
}

impl Part for Mutex<EventObjects> {}

impl State {
    /// The event behind a handle. `None` if the handle is of none.
    pub fn event_of_handle(&self, handle: usize) -> Option<PKEVENT> {
        let address = self.locked::<EventObjects>().handles.get(&handle).map(|&(_, address)| address);
        address.map(ptr::with_exposed_provenance_mut)
    }

    /// Closes a handle, if it is one of an event.
    pub fn close_event(&self, handle: usize) -> bool {
        let mut events = self.locked::<EventObjects>();
        let Some((_, address)) = events.handles.remove(&handle) else { return false };
        if let Some(event) = events.all.get_mut(&address) {
            event.handles -= 1;
        }
        drop(events);
        self.delete_unused_event(address);
        true
    }

    /// Counts references to an event. How many the calling driver has then; `None` if the object is none.
    pub fn count_event(&self, object: usize, by: i64) -> Option<i64> {
        self.locked::<EventObjects>().all.get_mut(&object)?.references += by;
        let Some(after) = self.refer(object, To::Event, by) else {
            let words = "an event is dereferenced that the driver does not refer to";
            bug_check(Rule::ReferenceUnderflow, format_args!("{words}"));
        };
        self.delete_unused_event(object);
        Some(after)
    }

    /// An event to which nobody refers, by a handle or by a pointer, is gone.
    fn delete_unused_event(&self, address: usize) {
        let mut events = self.locked::<EventObjects>();
        let is_unused = events.all.get(&address).is_some_and(|event| event.handles == 0 && event.references == 0);
        if is_unused {
            events.all.remove(&address);
            drop(events);
            self.untrack_and_remember(address, Kind::Event, ", and its last handle closed since");
            pool::free(address, Some(TAG));
        }
    }

    /// A driver is unloaded: its handles of events must be closed.
    pub fn check_events(&self, owner: DriverId, name: &str) {
        let left = self.locked::<EventObjects>().handles.values().any(|&(of, _)| of == owner);
        if left {
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} left a handle of an event open"));
        }
    }
}

/// The event of that name. `None` without a name, or if there is none.
fn named(state: &State, name: &str) -> Option<usize> {
    let events = state.locked::<EventObjects>();
    let mut all = events.all.iter();
    all.find(|(_, event)| !name.is_empty() && event.name.eq_ignore_ascii_case(name)).map(|(&address, _)| address)
}

fn make(state: &State, name: &str, kind: EventKind, set: bool) -> usize {
    let Some(address) = pool::allocate(NOBODY, size_of::<KEVENT>(), TAG, true) else {
        bug_check(Rule::NotSimulated, format_args!("no memory for an event"));
    };
    let event = Event::new(&state.machine, kind);
    if set {
        event.set();
    }
    state.track(address, NOBODY, Object::new(Kind::Event, event));
    let object = EventObject { name: name.to_owned(), handles: 0, references: 0 };
    state.locked::<EventObjects>().all.insert(address, object);
    address
}

/// A new handle of an event.
fn open(state: &State, address: usize, attributes: ULONG, place: PHANDLE) {
    let handle = handles::new_handle(state, attributes, "an event");
    let mut events = state.locked::<EventObjects>();
    if let Some(event) = events.all.get_mut(&address) {
        event.handles += 1;
    }
    events.handles.insert(handle, (context::caller(), address));
    drop(events);
    // SAFETY: the driver's place, which lives until the call returns.
    unsafe { place.write(ptr::without_provenance_mut(handle)) };
}

/// Makes or opens an event, which is set if it is new. Null if that fails.
fn make_or_open(state: &State, name: PCUNICODE_STRING, kind: EventKind, place: PHANDLE) -> PKEVENT {
    if state.strikes() {
        return ptr::null_mut();
    }
    let name = text::text(name);
    let address = named(state, &name).unwrap_or_else(|| make(state, &name, kind, true));
    open(state, address, OBJ_KERNEL_HANDLE, place);
    ptr::with_exposed_provenance_mut(address)
}

#[unsafe(no_mangle)]
extern "C" fn IoCreateNotificationEvent(name: PCUNICODE_STRING, handle: PHANDLE) -> PKEVENT {
    routine!("IoCreateNotificationEvent", PASSIVE_LEVEL, |state| make_or_open(state, name, event::NOTIFICATION, handle))
}

#[unsafe(no_mangle)]
extern "C" fn IoCreateSynchronizationEvent(name: PCUNICODE_STRING, handle: PHANDLE) -> PKEVENT {
    routine!("IoCreateSynchronizationEvent", PASSIVE_LEVEL, |state| {
        make_or_open(state, name, event::SYNCHRONIZATION, handle)
    })
}

/// The name and the attributes that a driver wants.
fn wanted(attributes: POBJECT_ATTRIBUTES) -> (String, ULONG) {
    // SAFETY: null or the driver's structure, which lives until the call returns.
    let Some(attributes) = (unsafe { attributes.as_ref() }) else { return (String::new(), 0) };
    check_size::<OBJECT_ATTRIBUTES>(attributes.Length, "OBJECT_ATTRIBUTES");
    (text::text(attributes.ObjectName), attributes.Attributes)
}

#[unsafe(no_mangle)]
extern "C" fn ZwCreateEvent(
    handle: PHANDLE,
    _access: ACCESS_MASK,
    attributes: POBJECT_ATTRIBUTES,
    kind: EVENT_TYPE,
    set: BOOLEAN,
) -> NTSTATUS {
    routine!("ZwCreateEvent", PASSIVE_LEVEL, |state| {
        let kind = match kind {
            _EVENT_TYPE::NotificationEvent => event::NOTIFICATION,
            _EVENT_TYPE::SynchronizationEvent => event::SYNCHRONIZATION,
            _ => return STATUS_INVALID_PARAMETER,
        };
        let (name, flags) = wanted(attributes);
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        match named(state, &name) {
            Some(_) if flags & OPEN_IF == 0 => STATUS_OBJECT_NAME_COLLISION,
            Some(address) => {
                open(state, address, flags, handle);
                STATUS_OBJECT_NAME_EXISTS
            }
            None => {
                open(state, make(state, &name, kind, set != 0), flags, handle);
                STATUS_SUCCESS
            }
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn ZwOpenEvent(handle: PHANDLE, _access: ACCESS_MASK, attributes: POBJECT_ATTRIBUTES) -> NTSTATUS {
    routine!("ZwOpenEvent", PASSIVE_LEVEL, |state| {
        let (name, flags) = wanted(attributes);
        let Some(address) = named(state, &name) else { return STATUS_OBJECT_NAME_NOT_FOUND };
        open(state, address, flags, handle);
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn ZwSetEvent(handle: HANDLE, previous: *mut LONG) -> NTSTATUS {
    routine!("ZwSetEvent", PASSIVE_LEVEL, |state| {
        handles::check_handle(state, handle.addr());
        let Some(place) = state.event_of_handle(handle.addr()) else { return STATUS_INVALID_HANDLE };
        let before = event::set(state, place);
        if !previous.is_null() {
            // SAFETY: not null, so the driver's place, which lives until the call returns.
            unsafe { previous.write(before.into()) };
        }
        state.preempt();
        STATUS_SUCCESS
    })
}
