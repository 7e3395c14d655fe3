//! Clocks.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use host::machine;
use litemap::LiteMap;
use wdk_bindings::{BOOLEAN, LARGE_INTEGER, ULONG, ULONG64, ULONGLONG};

use super::dpc;
use crate::{
    context::{self, DriverId},
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State},
};

/// The date at which every kernel starts, in units of 100 nanoseconds since 1601: so that a seed means the same every day.
const START: u64 = 133_800_000_000_000_000;
/// The period of the clock, and the shortest one, in units of 100 nanoseconds.
const PERIODS: (u32, u32) = (156_250, 5_000);

/// A thread that asks for the time so often does nothing else: others get on.
const IMPATIENCE: u64 = 32;

/// The time that was told last, with a seed: microseconds since the start.
#[derive(Default)]
pub struct LastTime(AtomicU64);

impl Part for LastTime {}

/// Drivers that have asked for a faster clock.
#[derive(Default)]
pub struct Resolution(LiteMap<DriverId, u32>);

impl Part for Mutex<Resolution> {}

impl State {
    /// A driver is unloaded: it must have given back what it raised.
    pub fn check_resolution(&self, owner: DriverId, name: &str) {
        if self.locked::<Resolution>().0.contains_key(&owner) {
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} left the clock's resolution raised"));
        }
    }
}

/// The date, as drivers know it.
pub fn system_time(state: &State) -> u64 {
    date_at(known(state))
}

/// The date at a time of the machine, in microseconds since the start.
pub const fn date_at(microseconds: u64) -> u64 {
    START + microseconds * 10
}

/// Microseconds since the start, as drivers know them: the machine's clock, or what they were told last, if that is later.
pub fn known(state: &State) -> u64 {
    state.machine.now().max(state.part::<LastTime>().0.load(Relaxed))
}

/// Microseconds since the start, for a driver that asks.
///
/// With a seed, time stands still while code runs, and code that polls the clock would poll for ever. So each question takes
/// a microsecond, and now and then the machine's clock follows, and others run.
fn tell(state: &Arc<State>) -> u64 {
    let Some(baton) = &state.baton else { return state.machine.now() };
    let ahead = || known(state) - state.machine.now();
    let free = machine::current_irql() == machine::Irql::PASSIVE_LEVEL && machine::no_locks_held();
    if free && ahead() >= IMPATIENCE {
        baton.yield_now(&state.machine, &state.dispatcher);
        state.machine.run_for(ahead());
    }
    // One thread runs at a time.
    let told = &state.part::<LastTime>().0;
    let now = state.machine.now().max(told.load(Relaxed) + 1);
    told.store(now, Relaxed);
    now
}

/// Units of 100 nanoseconds since the start, for a driver that asks.
pub fn interrupt_time(state: &Arc<State>) -> u64 {
    tell(state) * 10
}

#[unsafe(no_mangle)]
extern "C" fn KeQueryInterruptTimePrecise(counter: *mut ULONG64) -> ULONG64 {
    routine!("KeQueryInterruptTimePrecise", |state| {
        let units = interrupt_time(state);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { counter.write(units) };
        units
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeQueryUnbiasedInterruptTime() -> ULONGLONG {
    routine!("KeQueryUnbiasedInterruptTime", interrupt_time)
}

#[unsafe(no_mangle)]
extern "C" fn KeQuerySystemTimePrecise(date: *mut LARGE_INTEGER) {
    routine!("KeQuerySystemTimePrecise", |state| {
        let now = LARGE_INTEGER { QuadPart: date_at(tell(state)).cast_signed() };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { date.write(now) };
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeQueryPerformanceCounter(frequency: *mut LARGE_INTEGER) -> LARGE_INTEGER {
    routine!("KeQueryPerformanceCounter", |state| {
        if !frequency.is_null() {
            // SAFETY: not null, so the driver's place, which lives until the call returns.
            unsafe { frequency.write(LARGE_INTEGER { QuadPart: 10_000_000 }) };
        }
        LARGE_INTEGER { QuadPart: interrupt_time(state).cast_signed() }
    })
}

/// The zone of time here is that of the system's time.
#[unsafe(no_mangle)]
extern "C" fn ExSystemTimeToLocalTime(system: *const LARGE_INTEGER, local: *mut LARGE_INTEGER) {
    // SAFETY: the driver's places, which live until the call returns.
    routine!("ExSystemTimeToLocalTime", HIGH_LEVEL, |_| unsafe { local.write(system.read()) });
}

#[unsafe(no_mangle)]
extern "C" fn ExLocalTimeToSystemTime(local: *const LARGE_INTEGER, system: *mut LARGE_INTEGER) {
    // SAFETY: the driver's places, which live until the call returns.
    routine!("ExLocalTimeToSystemTime", HIGH_LEVEL, |_| unsafe { system.write(local.read()) });
}

/// The longest period, whatever the clock's is at the time.
#[unsafe(no_mangle)]
extern "C" fn KeQueryTimeIncrement() -> ULONG {
    routine!("KeQueryTimeIncrement", |_| PERIODS.0)
}

#[unsafe(no_mangle)]
extern "C" fn KeStallExecutionProcessor(microseconds: ULONG) {
    routine!("KeStallExecutionProcessor", |state| {
        if machine::current_irql() < machine::Irql::DISPATCH_LEVEL && microseconds > 1000 {
            bug_check(Rule::StallTooLong, format_args!("a processor stalled for {microseconds} us"));
        }
        dpc::stall(u64::from(microseconds));
        if state.seed.is_none() {
            std::thread::sleep(std::time::Duration::from_micros(u64::from(microseconds)));
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExSetTimerResolution(desired: ULONG, set: BOOLEAN) -> ULONG {
    routine!("ExSetTimerResolution", |state| {
        let mut resolution = state.locked::<Resolution>();
        let driver = context::caller();
        if set != 0 {
            *resolution.0.entry(driver).or_default() += 1;
            return desired.clamp(PERIODS.1, PERIODS.0);
        }
        let left = resolution.0.get(&driver).copied().unwrap_or(0);
        match left {
            0 => {
                drop(resolution);
                bug_check(
                    Rule::ReferenceUnderflow,
                    format_args!("the clock's resolution was not raised by this driver"),
                );
            }
            1 => drop(resolution.0.remove(&driver)),
            _ => drop(resolution.0.insert(driver, left - 1)),
        }
        PERIODS.0
    })
}

/// The longest period, the shortest and that of now, which somebody's wish has made the shortest.
#[unsafe(no_mangle)]
extern "C" fn ExQueryTimerResolution(longest: *mut ULONG, shortest: *mut ULONG, now: *mut ULONG) {
    routine!("ExQueryTimerResolution", PASSIVE_LEVEL, |state| {
        let is_raised = !state.locked::<Resolution>().0.is_empty();
        let values = [PERIODS.0, PERIODS.1, if is_raised { PERIODS.1 } else { PERIODS.0 }];
        for (place, value) in [longest, shortest, now].into_iter().zip(values) {
            // SAFETY: the driver's place, which lives until the call returns.
            unsafe { place.write(value) };
        }
    });
}
