//! Timers that the system allocates: a `KTIMER` with a DPC of its own, both in memory of the system's.

use std::{ptr, sync::Mutex};

use host::machine::{self, Irql};
use litemap::LiteMap;
use wdk_bindings::{
    _TIMER_TYPE, BOOLEAN, KDPC, KTIMER, LARGE_INTEGER, LONGLONG, PEX_TIMER, PEXT_CALLBACK, PVOID, ULONG,
};

use super::{dpc, timer};
use crate::{
    argument::Argument,
    context::DriverId,
    report::bug_check,
    routine::routine,
    rule::Rule,
    sites::Site,
    state::{Part, State},
    tracked::Kind,
};

/// `EX_TIMER_HIGH_RESOLUTION`, `EX_TIMER_NO_WAKE` and `EX_TIMER_NOTIFICATION` of wdm.h.
const HIGH_RESOLUTION: ULONG = 4;
const NO_WAKE: ULONG = 8;
const NOTIFICATION: ULONG = 1 << 31;
/// `MAXLONG`.
const LONGEST_PERIOD: LONGLONG = i32::MAX as LONGLONG;

/// What a driver gets a pointer to. It is never freed: a callback may still use it after its deletion.
#[repr(C)]
struct Memory {
    /// Where a driver may wait for it.
    timer: KTIMER,
    dpc: KDPC,
    callback: PEXT_CALLBACK,
    context: Argument,
}

struct Allocated {
    owner: DriverId,
    attributes: ULONG,
    site: Site,
}

/// Those that are not deleted.
#[derive(Default)]
pub struct ExTimers(LiteMap<usize, Allocated>);

impl Part for Mutex<ExTimers> {}

/// It has expired: the routine of its DPC.
unsafe extern "C" fn expired(_: *mut KDPC, memory: PVOID, _: PVOID, _: PVOID) {
    let memory = memory.cast::<Memory>();
    // SAFETY: the memory of a timer, which is never freed. Nobody writes this field.
    let Some(callback) = (unsafe { (*memory).callback }) else { return };
    // SAFETY: the memory of a timer, which is never freed. Nobody writes this field.
    let context = unsafe { (*memory).context };
    // SAFETY: the driver's own routine, with its own context, at the level that it expects.
    unsafe { callback(memory.cast(), context.pointer("a timer")) };
}

/// The memory of a timer, and its attributes.
fn allocated(state: &State, timer: PEX_TIMER) -> (*mut Memory, ULONG) {
    let known = state.locked::<ExTimers>().0.get(&timer.expose_provenance()).map(|known| known.attributes);
    let Some(attributes) = known else {
        bug_check(Rule::BadHandle, format_args!("{timer:p} is no timer of ExAllocateTimer, or was deleted"));
    };
    (timer.cast(), attributes)
}

#[unsafe(no_mangle)]
extern "C" fn ExAllocateTimer(callback: PEXT_CALLBACK, context: PVOID, attributes: ULONG) -> PEX_TIMER {
    routine!("ExAllocateTimer", |state| {
        let both = HIGH_RESOLUTION | NO_WAKE;
        if attributes & !(both | NOTIFICATION) != 0 || attributes & both == both {
            bug_check(Rule::BadArgument, format_args!("ExAllocateTimer with the attributes {attributes:#x}"));
        }
        if state.strikes() {
            return ptr::null_mut();
        }
        let (owner, site) = (state.calling_driver(), Site::here());
        let memory = Box::into_raw(Box::new(Memory {
            timer: KTIMER::default(),
            dpc: KDPC::default(),
            callback,
            context: Argument::of(context),
        }));
        let kind = if attributes & NOTIFICATION == 0 {
            _TIMER_TYPE::SynchronizationTimer
        } else {
            _TIMER_TYPE::NotificationTimer
        };
        // SAFETY: memory of this function, which nobody else knows.
        timer::initialise(state, unsafe { &raw mut (*memory).timer }, kind);
        // SAFETY: memory of this function, which nobody else knows.
        dpc::initialise(state, unsafe { &raw mut (*memory).dpc }, Some(expired), memory.cast());
        let timers = &mut state.locked::<ExTimers>().0;
        timers.insert(memory.expose_provenance(), Allocated { owner, attributes, site });
        memory.cast()
    })
}

#[unsafe(no_mangle)]
extern "C" fn ExSetTimer(timer: PEX_TIMER, due: LONGLONG, period: LONGLONG, _: PVOID) -> BOOLEAN {
    routine!("ExSetTimer", |state| {
        let (memory, attributes) = allocated(state, timer);
        if attributes & HIGH_RESOLUTION != 0 && due >= 0 {
            bug_check(Rule::BadArgument, format_args!("a timer of high resolution that is due at a point in time"));
        }
        if !(0..=LONGEST_PERIOD).contains(&period) {
            bug_check(Rule::BadArgument, format_args!("a timer with the period {period}"));
        }
        // A tenth of a microsecond is the unit here, and a period is not nothing.
        let period = if period == 0 { 0 } else { (period.unsigned_abs() / 10).max(1) };
        // SAFETY: the memory of a timer, which is never freed.
        let (object, dpc) = unsafe { (&raw mut (*memory).timer, &raw mut (*memory).dpc) };
        timer::set(state, object, LARGE_INTEGER { QuadPart: due }, period, dpc)
    })
}

#[unsafe(no_mangle)]
extern "C" fn ExCancelTimer(timer: PEX_TIMER, parameters: PVOID) -> BOOLEAN {
    routine!("ExCancelTimer", |state| {
        if !parameters.is_null() {
            bug_check(Rule::BadArgument, format_args!("ExCancelTimer with parameters, of which there are none"));
        }
        let (memory, _) = allocated(state, timer);
        state.preempt();
        BOOLEAN::from(timer::tracked(state, memory.cast()).timer.cancel().is_some())
    })
}

#[unsafe(no_mangle)]
extern "C" fn ExDeleteTimer(timer: PEX_TIMER, cancel: BOOLEAN, wait: BOOLEAN, _: PVOID) -> BOOLEAN {
    routine!("ExDeleteTimer", DISPATCH_LEVEL, |state| {
        let (memory, _) = allocated(state, timer);
        if wait != 0 && cancel == 0 {
            bug_check(Rule::BadArgument, format_args!("ExDeleteTimer waits for a timer that it does not cancel"));
        }
        if wait != 0 && machine::current_irql() > Irql::APC_LEVEL {
            bug_check(Rule::IrqlTooHigh, format_args!("ExDeleteTimer waits at {}", machine::current_irql()));
        }
        if wait != 0 && machine::current_irql() == Irql::APC_LEVEL {
            bug_check(Rule::NotSimulated, format_args!("ExDeleteTimer that waits at APC_LEVEL"));
        }
        state.locked::<ExTimers>().0.remove(&memory.expose_provenance());
        let object = timer::tracked(state, memory.cast());
        let cancelled = cancel != 0 && object.timer.cancel().is_some();
        if wait != 0 {
            state.machine.flush();
            // SAFETY: the memory of a timer, which is never freed.
            state.untrack(unsafe { &raw mut (*memory).dpc }.expose_provenance(), Kind::Dpc);
        }
        // One that is still set expires before it goes.
        if !object.timer.is_set() {
            state.untrack_and_remember(memory.expose_provenance(), Kind::Timer, ", and was deleted");
        }
        BOOLEAN::from(cancelled)
    })
}

impl State {
    /// A driver was unloaded: its timers have to be deleted.
    pub fn check_ex_timers(&self, driver: DriverId, name: &str) {
        let site =
            self.locked::<ExTimers>().0.values().find_map(|timer| (timer.owner == driver).then(|| timer.site.clone()));
        if let Some(site) = site {
            let words = format_args!("a timer of driver {name} is left at its unload; it was allocated{site}");
            bug_check(Rule::ReferenceLeak, words);
        }
    }
}
