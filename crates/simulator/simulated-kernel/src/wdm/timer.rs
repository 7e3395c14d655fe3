//! Timers.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use host::machine::{Arguments, Event, EventKind, Timer};
use wdk_bindings::{_TIMER_TYPE, BOOLEAN, KDPC, KTIMER, LARGE_INTEGER, LONG, TIMER_TYPE, ULONG};

use super::{clock, dpc};
use crate::{
    context,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{State, current},
    tracked::{Kind, Object, Structure},
};

/// A timer, and the DPC that it was set with last.
pub struct KernelTimer {
    pub timer: Timer,
    signalled: Arc<Event>,
    dpc: Arc<AtomicUsize>,
}

impl Structure for KernelTimer {
    fn rule_if_freed(&self) -> Option<Rule> {
        self.timer.is_set().then_some(Rule::TimerFreedWhileSet)
    }

    fn is_signalled(&self) -> bool {
        self.signalled.is_set()
    }

    fn try_wait(&self) -> bool {
        self.signalled.try_wait()
    }
}

pub fn tracked(state: &State, timer: *mut KTIMER) -> Arc<KernelTimer> {
    state.structure(timer.expose_provenance(), Kind::Timer)
}

pub fn initialise(state: &Arc<State>, timer: *mut KTIMER, kind: TIMER_TYPE) {
    let kind = match kind {
        _TIMER_TYPE::NotificationTimer => EventKind::Notification,
        _TIMER_TYPE::SynchronizationTimer => EventKind::Synchronization,
        other => bug_check(Rule::BadArgument, format_args!("{other} is no kind of timer")),
    };
    let signalled = Arc::new(Event::new(&state.machine, kind));
    let (to_signal, of_expiry) = (signalled.clone(), Arc::new(AtomicUsize::new(0)));
    let dpc = of_expiry.clone();
    let object = Timer::try_new(&state.machine, "driver's timer", move |_| {
        let state = current();
        to_signal.set();
        state.dispatcher.signal();
        let address = of_expiry.load(Relaxed);
        if address != 0 {
            // Between an expiry and its call neither of them can be taken back, and others may get in between.
            if state.seed.is_none() {
                std::thread::yield_now();
            }
            // Queued already: then two expiries are one call.
            let _ = dpc::tracked(&state, std::ptr::with_exposed_provenance_mut(address)).queue(Arguments::NONE);
        }
    });
    let Ok(object) = object else { bug_check(Rule::NotSimulated, format_args!("no memory for a timer")) };
    // SAFETY: the driver's memory for a timer, of which nobody else knows yet.
    unsafe { timer.write(KTIMER::default()) };
    let object = KernelTimer { timer: object, signalled, dpc };
    state.track(timer.expose_provenance(), context::caller(), Object::new(Kind::Timer, object));
}

/// Microseconds from now until the due time, which is relative if negative.
fn delay(state: &State, due: LARGE_INTEGER) -> u64 {
    // SAFETY: every value of the union's numbers is one.
    let due = unsafe { due.QuadPart };
    // From the time that the driver knows, so that no timer is early by its clock.
    let end = if due < 0 {
        clock::known(state).saturating_add(due.unsigned_abs() / 10)
    } else {
        due.unsigned_abs().saturating_sub(clock::date_at(0)) / 10
    };
    end.saturating_sub(state.machine.now())
}

pub fn set(state: &State, timer: *mut KTIMER, due: LARGE_INTEGER, period: u64, dpc: *mut KDPC) -> BOOLEAN {
    let object = tracked(state, timer);
    if !dpc.is_null() {
        drop(dpc::tracked(state, dpc));
    }
    object.signalled.reset();
    // Taken out first, so that the expiry of what was set before does not queue the new DPC.
    let before = object.timer.cancel();
    object.dpc.store(dpc.expose_provenance(), Relaxed);
    let set = object.timer.set(delay(state, due), period, Arguments::NONE);
    BOOLEAN::from(before.is_some() || set.is_some())
}

#[unsafe(no_mangle)]
extern "C" fn KeInitializeTimer(timer: *mut KTIMER) {
    routine!("KeInitializeTimer", |state| initialise(state, timer, _TIMER_TYPE::NotificationTimer));
}

#[unsafe(no_mangle)]
extern "C" fn KeInitializeTimerEx(timer: *mut KTIMER, kind: TIMER_TYPE) {
    routine!("KeInitializeTimerEx", |state| initialise(state, timer, kind));
}

#[unsafe(no_mangle)]
extern "C" fn KeSetTimer(timer: *mut KTIMER, due: LARGE_INTEGER, dpc: *mut KDPC) -> BOOLEAN {
    routine!("KeSetTimer", |state| set(state, timer, due, 0, dpc))
}

#[unsafe(no_mangle)]
extern "C" fn KeSetTimerEx(timer: *mut KTIMER, due: LARGE_INTEGER, period: LONG, dpc: *mut KDPC) -> BOOLEAN {
    routine!("KeSetTimerEx", |state| {
        let Ok(period) = u64::try_from(period) else { bug_check(Rule::BadArgument, format_args!("a negative period")) };
        set(state, timer, due, period * 1000, dpc)
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeSetCoalescableTimer(
    timer: *mut KTIMER,
    due: LARGE_INTEGER,
    period: ULONG,
    _tolerable: ULONG,
    dpc: *mut KDPC,
) -> BOOLEAN {
    routine!("KeSetCoalescableTimer", |state| set(state, timer, due, u64::from(period) * 1000, dpc))
}

#[unsafe(no_mangle)]
extern "C" fn KeCancelTimer(timer: *mut KTIMER) -> BOOLEAN {
    routine!("KeCancelTimer", |state| {
        let object = tracked(state, timer);
        state.preempt();
        BOOLEAN::from(object.timer.cancel().is_some())
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeReadStateTimer(timer: *mut KTIMER) -> BOOLEAN {
    routine!("KeReadStateTimer", |state| BOOLEAN::from(tracked(state, timer).signalled.is_set()))
}
