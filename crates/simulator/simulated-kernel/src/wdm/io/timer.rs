//! Timers of devices: each device has one at most, which calls its driver once a second while it runs.

use std::{cell::Cell, sync::Mutex};

use litemap::LiteMap;
use wdk_bindings::{
    _TIMER_TYPE, DEVICE_OBJECT, KDPC, KTIMER, LARGE_INTEGER, NTSTATUS, PDEVICE_OBJECT, PVOID, STATUS_SUCCESS,
};

use crate::{
    argument::Argument,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{self, Part, State},
    tracked::Kind,
    wdm::{dpc, timer},
};

/// `IoTimer`.
type Routine = unsafe extern "C" fn(*mut DEVICE_OBJECT, PVOID);

/// A second in microseconds, and as a time from now.
const SECOND: u64 = 1_000_000;
const IN_A_SECOND: LARGE_INTEGER = LARGE_INTEGER { QuadPart: -10_000_000 };

/// What expires, and whom it calls. It is never freed: its DPC may still be queued when the device goes.
#[repr(C)]
struct Memory {
    timer: KTIMER,
    dpc: KDPC,
    device: usize,
    routine: Routine,
    context: Argument,
}

/// The timers of devices that are there, by the address of the device, and whether each runs.
#[derive(Default)]
pub struct DeviceTimers(LiteMap<usize, (usize, bool)>);

impl Part for Mutex<DeviceTimers> {}

thread_local! {
    /// The device whose timer's routine runs on this thread.
    static EXPIRED: Cell<usize> = const { Cell::new(0) };
}

/// The routine of its DPC.
unsafe extern "C" fn expired(_: *mut KDPC, memory: PVOID, _: PVOID, _: PVOID) {
    // SAFETY: the memory of a timer, which is never freed, and whose fields nobody writes.
    let memory = unsafe { &*memory.cast::<Memory>() };
    let runs = state::current().locked::<DeviceTimers>().0.get(&memory.device).is_some_and(|&(_, runs)| runs);
    if runs {
        let context = memory.context.pointer("the timer of a device");
        let before = EXPIRED.replace(memory.device);
        // SAFETY: the driver's own routine, with its own device and context, at the level that it expects.
        unsafe { (memory.routine)(std::ptr::with_exposed_provenance_mut(memory.device), context) };
        EXPIRED.set(before);
    }
}

/// Starts or stops the timer of a device.
fn run(state: &State, device: PDEVICE_OBJECT, runs: bool) {
    let address = state.device_at(device).address;
    let known = state
        .locked::<DeviceTimers>()
        .0
        .get_mut(&address)
        .map(|(memory, running)| (*memory, std::mem::replace(running, runs)));
    let Some((memory, did_run)) = known else {
        bug_check(Rule::BadArgument, format_args!("the timer of a device that has none"));
    };
    if did_run == runs {
        return;
    }
    let memory: *mut Memory = std::ptr::with_exposed_provenance_mut(memory);
    // SAFETY: the memory of a timer, which is never freed.
    let (timer, dpc) = unsafe { (&raw mut (*memory).timer, &raw mut (*memory).dpc) };
    if runs {
        timer::set(state, timer, IN_A_SECOND, SECOND, dpc);
    } else {
        let _ = timer::tracked(state, timer).timer.cancel();
    }
}

impl State {
    /// A device is deleted, and its timer with it.
    pub fn delete_device_timer(&self, device: usize) {
        let gone = self.locked::<DeviceTimers>().0.remove(&device);
        let Some((memory, _)) = gone else { return };
        let memory: *mut Memory = std::ptr::with_exposed_provenance_mut(memory);
        // SAFETY: the memory of a timer, which is never freed.
        let timer = unsafe { &raw mut (*memory).timer };
        let _ = timer::tracked(self, timer).timer.cancel();
        self.untrack_and_remember(timer.expose_provenance(), Kind::Timer, ", and went with its device");
    }
}

#[unsafe(no_mangle)]
extern "C" fn IoInitializeTimer(device: PDEVICE_OBJECT, routine: Option<Routine>, context: PVOID) -> NTSTATUS {
    routine!("IoInitializeTimer", PASSIVE_LEVEL, |state| {
        let address = state.device_at(device).address;
        let Some(routine) = routine else {
            bug_check(Rule::BadArgument, format_args!("the timer of a device without a routine"));
        };
        if state.locked::<DeviceTimers>().0.contains_key(&address) {
            bug_check(Rule::BadArgument, format_args!("a second timer of a device"));
        }
        let (timer, dpc) = (KTIMER::default(), KDPC::default());
        let context = Argument::of(context);
        let memory = Box::into_raw(Box::new(Memory { timer, dpc, device: address, routine, context }));
        // SAFETY: memory of this function, which nobody else knows.
        timer::initialise(state, unsafe { &raw mut (*memory).timer }, _TIMER_TYPE::NotificationTimer);
        // SAFETY: memory of this function, which nobody else knows.
        dpc::initialise(state, unsafe { &raw mut (*memory).dpc }, Some(expired), memory.cast());
        state.locked::<DeviceTimers>().0.insert(address, (memory.expose_provenance(), false));
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn IoStartTimer(device: PDEVICE_OBJECT) {
    routine!("IoStartTimer", DISPATCH_LEVEL, |state| run(state, device, true));
}

#[unsafe(no_mangle)]
extern "C" fn IoStopTimer(device: PDEVICE_OBJECT) {
    routine!("IoStopTimer", DISPATCH_LEVEL, |state| {
        if EXPIRED.get() == device.addr() {
            bug_check(Rule::BadArgument, format_args!("the timer of a device is stopped by its own routine"));
        }
        run(state, device, false);
    });
}
