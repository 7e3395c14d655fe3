//! Callback objects: drivers register routines with one, and whoever made it has them called.

use std::{
    ptr,
    sync::{Arc, Mutex},
};

use litemap::LiteMap;
use wdk_bindings::{
    BOOLEAN, NTSTATUS, OBJECT_ATTRIBUTES, POBJECT_ATTRIBUTES, PVOID, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS, STATUS_UNSUCCESSFUL, ULONG,
};

use crate::{
    argument::Argument,
    calls::Calls,
    context::{self, DriverId},
    report::bug_check,
    routine::routine,
    rule::Rule,
    sites::Site,
    state::{Part, State},
    text, waiting,
};

/// `PCALLBACK_FUNCTION`.
type Routine = unsafe extern "C" fn(PVOID, PVOID, PVOID);

/// Attributes of an object, in ntdef.h.
const PERMANENT: ULONG = 0x10;
const CASE_INSENSITIVE: ULONG = 0x40;

/// Those that the system makes. Drivers may register with them, and not notify.
const OF_THE_SYSTEM: [&str; 3] = [r"\Callback\SetSystemTime", r"\Callback\PowerState", r"\Callback\ProcessorAdd"];

/// A callback object.
struct Callback {
    name: String,
    /// More than one routine may be registered.
    multiple: bool,
    /// It stays when nobody refers to it.
    permanent: bool,
    is_of_the_system: bool,
    /// How often it is referred to, by its users and by registrations together.
    references: i64,
    /// How often each driver refers to it, with the place of its last call of `ExCreateCallback`.
    users: LiteMap<DriverId, (i64, Site)>,
}

/// A routine that is registered.
struct Registration {
    owner: DriverId,
    object: usize,
    routine: Routine,
    context: Argument,
    site: Site,
    calls: Calls,
}

/// All of them. What a driver gets for an object or a registration is its number here, and no address.
#[derive(Default)]
pub struct Callbacks {
    objects: LiteMap<usize, Callback>,
    /// In the order of their registration.
    registrations: LiteMap<usize, Arc<Registration>>,
}

impl Part for Mutex<Callbacks> {}

impl Callbacks {
    fn find(&self, name: &str, any_case: bool) -> Option<usize> {
        let is_it = |callback: &Callback| {
            if any_case { callback.name.eq_ignore_ascii_case(name) } else { callback.name == name }
        };
        self.objects.iter().find_map(|(&number, callback)| is_it(callback).then_some(number))
    }

    fn of(&self, object: usize) -> Vec<Arc<Registration>> {
        self.registrations.values().filter(|registration| registration.object == object).cloned().collect()
    }

    /// A reference is given up: the last one of an object that is not permanent takes it with it.
    fn give_up(&mut self, number: usize) {
        let Some(callback) = self.objects.get_mut(&number) else { return };
        callback.references -= 1;
        if callback.references <= 0 && !callback.permanent && !callback.is_of_the_system {
            self.objects.remove(&number);
        }
    }
}

impl Registration {
    fn call(&self, state: &State, one: PVOID, two: PVOID) {
        self.calls.make(state, || {
            let context = self.context.pointer("a callback object's routine");
            context::call(self.owner, "a callback object's routine", || {
                // SAFETY: the driver's own routine with its own context, and arguments that are the notifying driver's.
                unsafe { (self.routine)(context, one, two) };
            });
        });
    }
}

impl State {
    fn number(&self) -> usize {
        usize::try_from(self.next()).unwrap_or(0) * 64
    }

    /// A driver refers to a callback object, or gives a reference up. How many it has then; `None` if it is none.
    pub fn count_callback(&self, object: usize, by: i64) -> Option<i64> {
        if !self.locked::<Callbacks>().objects.contains_key(&object) {
            return None;
        }
        let driver = self.calling_driver();
        let mut callbacks = self.locked::<Callbacks>();
        let callback = callbacks.objects.get_mut(&object)?;
        let used: i64 = callback.users.values().map(|(count, _)| count).sum();
        if used + by < 0 {
            drop(callbacks);
            bug_check(Rule::ReferenceUnderflow, format_args!("a callback object is dereferenced once too often"));
        }
        callback.users.entry(driver).or_insert_with(|| (0, Site::here())).0 += by;
        if by < 0 {
            callbacks.give_up(object);
        } else {
            callback.references += by;
        }
        Some(callbacks.objects.get(&object).map_or(0, |callback| callback.references))
    }

    /// A driver was unloaded: it must have given up its registrations and references.
    pub fn check_callbacks(&self, driver: DriverId, name: &str) {
        let callbacks = self.locked::<Callbacks>();
        let registered = callbacks.registrations.values().find(|registration| registration.owner == driver);
        if let Some(site) = registered.map(|registration| registration.site.clone()) {
            drop(callbacks);
            let words = "left a routine registered with a callback object; it was registered";
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} {words}{site}"));
        }
        let referred = callbacks.objects.values().find_map(|callback| {
            let (count, site) = callback.users.get(&driver)?;
            let others: i64 = callback.users.values().map(|(count, _)| count).sum();
            (*count > 0 && others > 0).then(|| (callback.name.clone(), site.clone()))
        });
        if let Some((object, site)) = referred {
            drop(callbacks);
            let words = "left a reference to the callback object";
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} {words} {object}; it was opened{site}"));
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn ExCreateCallback(
    place: *mut PVOID,
    attributes: POBJECT_ATTRIBUTES,
    create: BOOLEAN,
    multiple: BOOLEAN,
) -> NTSTATUS {
    routine!("ExCreateCallback", APC_LEVEL, |state| {
        // SAFETY: null or the driver's structure, which lives until the call returns.
        let Some(attributes) = (unsafe { attributes.as_ref() }) else { return STATUS_UNSUCCESSFUL };
        if usize::try_from(attributes.Length) != Ok(size_of::<OBJECT_ATTRIBUTES>()) {
            bug_check(Rule::BadArgument, format_args!("OBJECT_ATTRIBUTES of {} bytes", attributes.Length));
        }
        let name = text::text(attributes.ObjectName);
        if name.is_empty() {
            return STATUS_UNSUCCESSFUL;
        }
        let (driver, site) = (state.calling_driver(), Site::here());
        let any_case = attributes.Attributes & CASE_INSENSITIVE != 0;
        let mut callbacks = state.locked::<Callbacks>();
        let of_the_system =
            OF_THE_SYSTEM.iter().find(|one| **one == name || any_case && one.eq_ignore_ascii_case(&name));
        let found = callbacks.find(&name, any_case);
        if found.is_none() && of_the_system.is_none() && create == 0 {
            return STATUS_OBJECT_NAME_NOT_FOUND;
        }
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let number = found.unwrap_or_else(|| state.number());
        let callback = callbacks.objects.entry(number).or_insert_with(|| Callback {
            name,
            multiple: multiple != 0 || of_the_system.is_some(),
            permanent: attributes.Attributes & PERMANENT != 0,
            is_of_the_system: of_the_system.is_some(),
            references: 0,
            users: LiteMap::new(),
        });
        callback.references += 1;
        let user = callback.users.entry(driver).or_insert_with(|| (0, site.clone()));
        *user = (user.0 + 1, site);
        drop(callbacks);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(ptr::without_provenance_mut(number)) };
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn ExRegisterCallback(object: PVOID, routine: Option<Routine>, context: PVOID) -> PVOID {
    routine!("ExRegisterCallback", APC_LEVEL, |state| {
        let Some(routine) = routine else {
            bug_check(Rule::BadArgument, format_args!("ExRegisterCallback without a routine"));
        };
        let (owner, site, number) = (state.calling_driver(), Site::here(), state.number());
        let mut callbacks = state.locked::<Callbacks>();
        let has_one = !callbacks.of(object.addr()).is_empty();
        let Some(callback) = callbacks.objects.get_mut(&object.addr()) else {
            drop(callbacks);
            bug_check(Rule::BadHandle, format_args!("{object:p} is no callback object"));
        };
        if has_one && !callback.multiple || state.strikes() {
            return ptr::null_mut();
        }
        callback.references += 1;
        let registration = Registration {
            owner,
            object: object.addr(),
            routine,
            context: Argument::of(context),
            site,
            calls: Calls::default(),
        };
        callbacks.registrations.insert(number, Arc::new(registration));
        ptr::without_provenance_mut(number)
    })
}

#[unsafe(no_mangle)]
extern "C" fn ExUnregisterCallback(registration: PVOID) {
    routine!("ExUnregisterCallback", APC_LEVEL, |state| {
        let found = state.locked::<Callbacks>().registrations.remove(&registration.addr());
        let Some(found) = found else {
            bug_check(Rule::BadHandle, format_args!("{registration:p} is no registration with a callback object"));
        };
        found.calls.end();
        waiting::until(state, None, "ExUnregisterCallback, for routines that run", || !found.calls.are_elsewhere());
        state.locked::<Callbacks>().give_up(found.object);
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExNotifyCallback(object: PVOID, one: PVOID, two: PVOID) {
    routine!("ExNotifyCallback", DISPATCH_LEVEL, |state| {
        let callbacks = state.locked::<Callbacks>();
        let Some(callback) = callbacks.objects.get(&object.addr()) else {
            drop(callbacks);
            bug_check(Rule::BadHandle, format_args!("{object:p} is no callback object"));
        };
        let (name, is_of_the_system) = (callback.name.clone(), callback.is_of_the_system);
        let all = callbacks.of(object.addr());
        drop(callbacks);
        if is_of_the_system {
            bug_check(Rule::BadArgument, format_args!("a driver notifies {name}, which is the system's"));
        }
        for registration in all {
            registration.call(state, one, two);
        }
    });
}
