//! Notifications of plug and play: device interfaces that come and go.

use std::{
    ptr,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
};

use litemap::LiteMap;
use wdk_bindings::{
    _IO_NOTIFICATION_EVENT_CATEGORY, DEVICE_INTERFACE_CHANGE_NOTIFICATION, DRIVER_OBJECT, GUID,
    IO_NOTIFICATION_EVENT_CATEGORY, NTSTATUS, PDRIVER_NOTIFICATION_CALLBACK_ROUTINE,
    PNPNOTIFY_DEVICE_INTERFACE_INCLUDE_EXISTING_INTERFACES, PVOID, STATUS_INSUFFICIENT_RESOURCES, STATUS_SUCCESS,
    ULONG,
};

use crate::{
    argument::{Argument, same},
    calls::Calls,
    context::{self, DriverId},
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State},
    text, waiting,
};

/// `GUID_DEVICE_INTERFACE_ARRIVAL` and `_REMOVAL`, which differ in the first number.
const ARRIVAL: u32 = 0xCB3A_4004;
const REMOVAL: u32 = 0xCB3A_4005;
const EVENT: GUID =
    GUID { Data1: 0, Data2: 0x46F0, Data3: 0x11D0, Data4: [0xB0, 0x8F, 0x00, 0x60, 0x97, 0x13, 0x05, 0x3F] };

/// A registration.
pub struct Registration {
    owner: DriverId,
    class: GUID,
    routine: PDRIVER_NOTIFICATION_CALLBACK_ROUTINE,
    context: Argument,
    calls: Calls,
    /// The driver does not have its registration yet.
    registers: AtomicBool,
}

/// All registrations, by number, and what there is to tell of.
#[derive(Default)]
pub struct Notifications {
    all: LiteMap<usize, Arc<Registration>>,
    /// The device interfaces that are there: class and symbolic link.
    interfaces: Vec<(GUID, Vec<u16>)>,
}

impl Part for Mutex<Notifications> {}

impl Registration {
    fn tell(&self, state: &Arc<State>, event: u32, link: &[u16]) {
        let mut name = text::unicode(link);
        let mut notification = DEVICE_INTERFACE_CHANGE_NOTIFICATION {
            Version: 1,
            Size: u16::try_from(size_of::<DEVICE_INTERFACE_CHANGE_NOTIFICATION>()).unwrap_or(0),
            Event: GUID { Data1: event, ..EVENT },
            InterfaceClassGuid: self.class,
            SymbolicLinkName: &raw mut name,
        };
        let Some(routine) = self.routine else { return };
        self.calls.make(state, || {
            let context = self.context.pointer("a notification of plug and play");
            context::call(self.owner, "a notification of plug and play", || {
                // SAFETY: the driver's own routine and context, and a notification that lives until the call returns.
                unsafe { routine((&raw mut notification).cast(), context) };
            });
        });
    }
}

impl State {
    /// Interfaces, of these classes and with these symbolic links, come or go: tells everybody.
    pub fn interfaces_change(self: &Arc<Self>, changed: &[(GUID, Vec<u16>)], arrive: bool) {
        {
            let mut notifications = self.locked::<Notifications>();
            if arrive {
                notifications.interfaces.extend_from_slice(changed);
            } else {
                let goes = |(class, link): &(GUID, Vec<u16>)| {
                    changed.iter().any(|(one, gone)| same(one, class) && gone == link)
                };
                notifications.interfaces.retain(|interface| !goes(interface));
            }
        }
        for (class, link) in changed {
            let all: Vec<_> = self.locked::<Notifications>().all.values().cloned().collect();
            for registration in all.iter().filter(|registration| same(&registration.class, class)) {
                registration.tell(self, if arrive { ARRIVAL } else { REMOVAL }, link);
            }
        }
    }

    /// The names of the interfaces of a class that are there.
    pub fn enabled_interfaces(&self, class: &GUID) -> Vec<Vec<u16>> {
        let notifications = self.locked::<Notifications>();
        let of_class = notifications.interfaces.iter().filter(|(one, _)| same(one, class));
        of_class.map(|(_, link)| link.clone()).collect()
    }

    /// A driver is unloaded: it must not be registered any more.
    pub fn check_notifications(&self, owner: DriverId, name: &str) {
        let left = self.locked::<Notifications>().all.values().any(|registration| registration.owner == owner);
        if left {
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} left a registration for notifications"));
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn IoRegisterPlugPlayNotification(
    category: IO_NOTIFICATION_EVENT_CATEGORY,
    flags: ULONG,
    data: PVOID,
    driver: *mut DRIVER_OBJECT,
    routine: PDRIVER_NOTIFICATION_CALLBACK_ROUTINE,
    context: PVOID,
    entry: *mut PVOID,
) -> NTSTATUS {
    routine!("IoRegisterPlugPlayNotification", |state| {
        if category != _IO_NOTIFICATION_EVENT_CATEGORY::EventCategoryDeviceInterfaceChange {
            bug_check(Rule::NotSimulated, format_args!("notifications of category {category}"));
        }
        if driver.is_null() || routine.is_none() || data.is_null() {
            bug_check(Rule::BadArgument, format_args!("a registration for notifications with a null argument"));
        }
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        // SAFETY: for this category the driver passes the class, which lives until the call returns.
        let class = unsafe { data.cast::<GUID>().read() };
        let registration = Arc::new(Registration {
            owner: context::caller(),
            class,
            routine,
            context: Argument::of(context),
            calls: Calls::default(),
            registers: AtomicBool::new(true),
        });
        let number = usize::try_from(state.next()).unwrap_or(0) * 64;
        state.locked::<Notifications>().all.insert(number, registration.clone());
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { entry.write(ptr::without_provenance_mut(number)) };
        if flags & PNPNOTIFY_DEVICE_INTERFACE_INCLUDE_EXISTING_INTERFACES != 0 {
            let mut interfaces = state.locked::<Notifications>().interfaces.clone();
            interfaces.retain(|(one, _)| same(one, &class));
            for (_, link) in interfaces {
                registration.tell(state, ARRIVAL, &link);
            }
        }
        registration.registers.store(false, Release);
        STATUS_SUCCESS
    })
}

/// The registration is not there any more.
fn take(state: &State, entry: PVOID) -> Arc<Registration> {
    let registration = state.locked::<Notifications>().all.remove(&entry.addr());
    let Some(registration) = registration else {
        bug_check(Rule::BadHandle, format_args!("{entry:p} is no registration for notifications"));
    };
    registration.calls.end();
    registration
}

#[unsafe(no_mangle)]
extern "C" fn IoUnregisterPlugPlayNotification(entry: PVOID) -> NTSTATUS {
    routine!("IoUnregisterPlugPlayNotification", PASSIVE_LEVEL, |state| {
        // Calls that were begun go on: this routine does not wait for them.
        drop(take(state, entry));
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn IoUnregisterPlugPlayNotificationEx(entry: PVOID) -> NTSTATUS {
    routine!("IoUnregisterPlugPlayNotificationEx", |state| {
        let registration = take(state, entry);
        if registration.calls.are_here() && registration.registers.load(Acquire) {
            let words = "before IoRegisterPlugPlayNotification has returned, which the reference calls unsafe";
            bug_check(
                Rule::Deadlock,
                format_args!("a notification of plug and play ends its own registration {words}"),
            );
        }
        // A routine that ends its own registration is not waited for.
        let name = "IoUnregisterPlugPlayNotificationEx, for callbacks that run";
        waiting::until(state, None, name, || !registration.calls.are_elsewhere());
        STATUS_SUCCESS
    })
}
