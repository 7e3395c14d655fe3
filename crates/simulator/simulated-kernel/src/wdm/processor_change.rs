//! Who wants to hear of processors that are added. None ever is: a registration hears of those that are there, if it wants to.

use std::{
    ptr,
    sync::{Arc, Mutex},
};

use litemap::LiteMap;
use wdk_bindings::{NTSTATUS, PROCESSOR_NUMBER, PVOID, STATUS_SUCCESS, ULONG};

use crate::{
    argument::Argument,
    context::{self, DriverId},
    report::bug_check,
    routine::routine,
    rule::Rule,
    sites::Site,
    state::{Part, State},
};

/// `KE_PROCESSOR_CHANGE_NOTIFY_CONTEXT`.
#[repr(C)]
struct Change {
    state: i32,
    number: ULONG,
    status: NTSTATUS,
    processor: PROCESSOR_NUMBER,
}

const _: () = assert!(size_of::<Change>() == 16);

/// `KeProcessorAddStartNotify`, `KeProcessorAddCompleteNotify` and `KeProcessorAddFailureNotify`.
const START: i32 = 0;
const COMPLETE: i32 = 1;
const FAILURE: i32 = 2;

/// `KE_PROCESSOR_CHANGE_ADD_EXISTING`.
const ADD_EXISTING: ULONG = 1;

/// `PROCESSOR_CALLBACK_FUNCTION`.
type Callback = unsafe extern "C" fn(PVOID, *mut Change, *mut NTSTATUS);

/// A registration.
struct Registration {
    owner: DriverId,
    callback: Callback,
    context: Argument,
    site: Site,
}

/// All of them, by number.
#[derive(Default)]
pub struct Registrations(LiteMap<usize, Arc<Registration>>);

impl Part for Mutex<Registrations> {}

impl Registration {
    /// Tells of a processor. What the driver says to that.
    fn tell(&self, number: ULONG, state: i32, status: NTSTATUS) -> NTSTATUS {
        let processor = PROCESSOR_NUMBER { Group: 0, Number: u8::try_from(number).unwrap_or(0), Reserved: 0 };
        let mut change = Change { state, number, status, processor };
        let mut said = STATUS_SUCCESS;
        let context = self.context.pointer("a callback for processors");
        context::call(self.owner, "a callback for processors", || {
            // SAFETY: the driver's own routine and context, and places that live until it returns.
            unsafe { (self.callback)(context, &raw mut change, &raw mut said) };
        });
        said
    }

    /// Tells of all that are there. Those that it has heard of hear of the failure, if the driver refuses one.
    fn tell_of_all(&self, processors: ULONG) -> Result<(), NTSTATUS> {
        for number in 0..processors {
            let said = self.tell(number, START, STATUS_SUCCESS);
            if said < 0 {
                (0..number).for_each(|before| {
                    self.tell(before, FAILURE, said);
                });
                return Err(said);
            }
        }
        (0..processors).for_each(|number| {
            self.tell(number, COMPLETE, STATUS_SUCCESS);
        });
        Ok(())
    }
}

impl State {
    /// A driver is unloaded: it must have ended its registrations.
    pub fn check_processor_changes(&self, owner: DriverId, name: &str) {
        let all = self.locked::<Registrations>();
        let left = all.0.values().find(|one| one.owner == owner).map(|one| one.site.clone());
        drop(all);
        if let Some(site) = left {
            let words = "is still registered for processors (KeDeregisterProcessorChangeCallback)";
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} {words}; it was registered{site}"));
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn KeRegisterProcessorChangeCallback(callback: Option<Callback>, context: PVOID, flags: ULONG) -> PVOID {
    routine!("KeRegisterProcessorChangeCallback", APC_LEVEL, |state| {
        let Some(callback) = callback.filter(|_| flags & !ADD_EXISTING == 0) else {
            bug_check(Rule::BadArgument, format_args!("a registration for processors with the flags {flags:#x}"));
        };
        if state.strikes() {
            return ptr::null_mut();
        }
        let (owner, context, site) = (context::caller(), Argument::of(context), Site::here());
        let new = Arc::new(Registration { owner, callback, context, site });
        if flags & ADD_EXISTING != 0 && new.tell_of_all(state.machine.processors()).is_err() {
            return ptr::null_mut();
        }
        let number = usize::try_from(state.next()).unwrap_or(0) * 64;
        state.locked::<Registrations>().0.insert(number, new);
        ptr::without_provenance_mut(number)
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeDeregisterProcessorChangeCallback(handle: PVOID) {
    routine!("KeDeregisterProcessorChangeCallback", APC_LEVEL, |state| {
        let found = state.locked::<Registrations>().0.remove(&handle.addr());
        if found.is_none() {
            bug_check(Rule::BadHandle, format_args!("{handle:p} is no registration for processors"));
        }
    });
}
