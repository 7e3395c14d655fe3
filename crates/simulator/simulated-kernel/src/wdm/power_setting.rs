//! Settings of the power policy that drivers want to hear of. None ever changes here, so each registration hears once.

use std::{
    ptr,
    sync::{Arc, Mutex},
};

use litemap::LiteMap;
use wdk_bindings::{
    GUID, NTSTATUS, PDEVICE_OBJECT, PVOID, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER, STATUS_SUCCESS,
    ULONG,
};

use super::system_thread;
use crate::{
    argument::{Argument, same},
    calls::Calls,
    context::{self, DriverId},
    report::bug_check,
    routine::routine,
    rule::Rule,
    sites::Site,
    state::{Part, State},
    waiting,
};

/// `POWER_SETTING_CALLBACK`.
type Callback = unsafe extern "C" fn(*const GUID, PVOID, ULONG, PVOID) -> NTSTATUS;

const fn guid(one: u32, two: u16, three: u16, rest: [u8; 8]) -> GUID {
    GUID { Data1: one, Data2: two, Data3: three, Data4: rest }
}

/// The settings whose value is known here: the display is on, the power comes from the mains, the battery is full.
static KNOWN: [(GUID, u32); 4] = [
    // GUID_MONITOR_POWER_ON
    (guid(0x0273_1015, 0x4510, 0x4526, [0x99, 0xE6, 0xE5, 0xA1, 0x7E, 0xBD, 0x1A, 0xEA]), 1),
    // GUID_CONSOLE_DISPLAY_STATE
    (guid(0x6FE6_9556, 0x704A, 0x47A0, [0x8F, 0x24, 0xC2, 0x8D, 0x93, 0x6F, 0xDA, 0x47]), 1),
    // GUID_ACDC_POWER_SOURCE
    (guid(0x5D3E_9A59, 0xE9D5, 0x4B00, [0xA6, 0xBD, 0xFF, 0x34, 0xFF, 0x51, 0x65, 0x48]), 0),
    // GUID_BATTERY_PERCENTAGE_REMAINING
    (guid(0xA7AD_8041, 0xB45A, 0x4CAE, [0x87, 0xA3, 0xEE, 0xCB, 0xB4, 0x68, 0xA9, 0xE1]), 100),
];

/// A registration.
struct Registration {
    owner: DriverId,
    setting: GUID,
    callback: Callback,
    context: Argument,
    calls: Calls,
    site: Site,
}

/// All of them, by number.
#[derive(Default)]
pub struct Settings(LiteMap<usize, Arc<Registration>>);

impl Part for Mutex<Settings> {}

impl Registration {
    fn tell(&self, state: &State, mut value: u32) {
        self.calls.make(state, || {
            let context = self.context.pointer("a callback for a power setting");
            context::call(self.owner, "a callback for a power setting", || {
                // SAFETY: the driver's own routine and context, and a setting and a value that live until it returns.
                let _ = unsafe { (self.callback)(&raw const self.setting, (&raw mut value).cast(), 4, context) };
            });
        });
    }
}

impl State {
    /// A driver is unloaded: it must have ended its registrations.
    pub fn check_power_settings(&self, owner: DriverId, name: &str) {
        let settings = self.locked::<Settings>();
        let left = settings.0.values().find(|one| one.owner == owner).map(|one| one.site.clone());
        drop(settings);
        if let Some(site) = left {
            let words = "is still registered for a power setting (PoUnregisterPowerSettingCallback)";
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} {words}; it was registered{site}"));
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn PoRegisterPowerSettingCallback(
    _device: PDEVICE_OBJECT,
    setting: *const GUID,
    callback: Option<Callback>,
    context: PVOID,
    handle: *mut PVOID,
) -> NTSTATUS {
    routine!("PoRegisterPowerSettingCallback", PASSIVE_LEVEL, |state| {
        // SAFETY: null or the driver's identifier, which lives until the call returns.
        let (Some(&setting), Some(callback)) = (unsafe { setting.as_ref() }, callback) else {
            return STATUS_INVALID_PARAMETER;
        };
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let (owner, context) = (context::caller(), Argument::of(context));
        let site = Site::here();
        let new = Arc::new(Registration { owner, setting, callback, context, calls: Calls::default(), site });
        let number = usize::try_from(state.next()).unwrap_or(0) * 64;
        state.locked::<Settings>().0.insert(number, new.clone());
        if !handle.is_null() {
            // SAFETY: not null, so the driver's place, which lives until the call returns.
            unsafe { handle.write(ptr::without_provenance_mut(number)) };
        }
        if let Some(&(_, value)) = KNOWN.iter().find(|(known, _)| same(known, &setting)) {
            let of = state.clone();
            system_thread::spawn_for_work_item(state, owner, move || new.tell(&of, value));
            state.preempt();
        }
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn PoUnregisterPowerSettingCallback(handle: PVOID) -> NTSTATUS {
    routine!("PoUnregisterPowerSettingCallback", PASSIVE_LEVEL, |state| {
        let found = state.locked::<Settings>().0.remove(&handle.addr());
        let Some(found) = found else {
            bug_check(Rule::BadHandle, format_args!("{handle:p} is no registration for a power setting"));
        };
        found.calls.end();
        // One that is made by the callback itself is not waited for.
        let name = "PoUnregisterPowerSettingCallback, for callbacks that run";
        waiting::until(state, None, name, || !found.calls.are_elsewhere());
        STATUS_SUCCESS
    })
}
