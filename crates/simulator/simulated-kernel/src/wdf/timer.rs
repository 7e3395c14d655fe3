//! The framework's timers: a timer of the kernel with a DPC of its own, both in memory of the framework's.

use std::{
    ptr,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32, AtomicUsize,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
};

use host::machine::{self, Irql};
use wdk_bindings::{
    _TIMER_TYPE, _WDF_EXECUTION_LEVEL, BOOLEAN, KDPC, KTIMER, LARGE_INTEGER, LONGLONG, NTSTATUS, PFN_WDF_TIMER, PVOID,
    PWDF_DRIVER_GLOBALS, PWDF_OBJECT_ATTRIBUTES, PWDF_TIMER_CONFIG, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INVALID_PARAMETER, STATUS_SUCCESS, WDF_TIMER_CONFIG, WDFOBJECT, WDFTIMER,
};

use super::{
    device::check_parent,
    function::function,
    object::{Kind, Object, Part, check_level, read_attributes},
};
use crate::{
    argument::check_size,
    calls::Calls,
    context,
    report::bug_check,
    rule::Rule,
    state::{self, State},
    tracked, waiting,
    wdm::{dpc, system_thread, timer as timer_of_wdm},
};

/// A timer.
pub struct TimerObject {
    /// The address of its [`Memory`].
    memory: usize,
    /// In microseconds; zero for one call.
    period: u64,
    /// Its callback comes at `PASSIVE_LEVEL`: what is known of its calls.
    passive: Option<Passive>,
    /// How many wait in `WdfTimerStop`: until the last has returned it does not start.
    stopping: AtomicU32,
    /// It was to start meanwhile: whoever stops it is told that it was in the queue.
    refused: AtomicBool,
}

/// The calls of a timer at `PASSIVE_LEVEL`, by a work item: of two that meet there is one.
#[derive(Default)]
struct Passive {
    calls: Calls,
    queued: AtomicBool,
}

impl Passive {
    fn is_idle(&self) -> bool {
        !self.queued.load(Acquire) && self.calls.are_over()
    }
}

/// The system's side of a timer. It is never freed: a call may still use it after the deletion.
#[repr(C)]
struct Memory {
    timer: KTIMER,
    dpc: KDPC,
    callback: PFN_WDF_TIMER,
    passive: bool,
    /// The handle, as soon as there is one.
    handle: AtomicUsize,
}

/// It has expired: the routine of its DPC.
unsafe extern "C" fn expired(_: *mut KDPC, memory: PVOID, _: PVOID, _: PVOID) {
    let memory = memory.cast::<Memory>();
    // SAFETY: the memory of a timer, which is never freed. Nobody writes this field.
    let Some(callback) = (unsafe { (*memory).callback }) else { return };
    // SAFETY: as above; it is atomic.
    let handle = unsafe { &(*memory).handle }.load(Acquire);
    // SAFETY: the memory of a timer, which is never freed.
    if unsafe { (*memory).passive } {
        return queue_call(callback, handle);
    }
    // SAFETY: the driver's own callback, with the handle of its timer, at the level that it expects.
    unsafe { callback(ptr::without_provenance_mut(handle)) };
}

/// Has the callback called at `PASSIVE_LEVEL`, unless a call is queued already.
fn queue_call(callback: unsafe extern "C" fn(WDFTIMER), handle: usize) {
    let state = state::current();
    let Some((object, timer)) = state.if_there::<TimerObject>(handle).filter(|(object, _)| object.is_live()) else {
        return;
    };
    let is_queued = timer.passive.as_ref().is_none_or(|passive| passive.queued.swap(true, AcqRel));
    if is_queued {
        return;
    }
    let (owner, of_thread) = (object.owner, state.clone());
    system_thread::spawn_for_work_item(&state, owner, move || {
        let Some(passive) = &timer.passive else { return };
        passive.calls.make(&of_thread, || {
            passive.queued.store(false, Release);
            context::call(owner, "EvtTimerFunc", || {
                // SAFETY: the driver's own callback, with the handle of its timer, which waits for it before it goes.
                unsafe { callback(ptr::without_provenance_mut(handle)) };
            });
        });
    });
}

impl Part for TimerObject {
    const NAME: &'static str = "timer";
}

impl Kind for TimerObject {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn end(&self, state: &Arc<State>, _object: &Object) {
        self.stop(state);
    }
}

impl TimerObject {
    /// The timer is being deleted: it is stopped, and below `DISPATCH_LEVEL` a call that was begun ends before.
    fn stop(&self, state: &Arc<State>) {
        self.cancel(state);
        if machine::current_irql() == Irql::PASSIVE_LEVEL {
            state.machine.flush();
            state.untrack(self.dpc().expose_provenance(), tracked::Kind::Dpc);
            state.untrack(self.timer().expose_provenance(), tracked::Kind::Timer);
            self.wait(state, "the deletion of a timer, for its callback,");
        }
    }

    /// Waits for a call at `PASSIVE_LEVEL` that was begun.
    fn wait(&self, state: &Arc<State>, what: &'static str) {
        let Some(passive) = self.passive.as_ref().filter(|passive| !passive.is_idle()) else { return };
        if passive.calls.are_here() {
            bug_check(Rule::Deadlock, format_args!("{what} is in that callback"));
        }
        waiting::until(state, None, what, || passive.is_idle());
    }

    fn new(state: &Arc<State>, config: &WDF_TIMER_CONFIG, passive: bool) -> Self {
        let memory = Box::into_raw(Box::new(Memory {
            timer: KTIMER::default(),
            dpc: KDPC::default(),
            callback: config.EvtTimerFunc,
            passive,
            handle: AtomicUsize::new(0),
        }));
        let timer = Self {
            memory: memory.expose_provenance(),
            period: u64::from(config.Period) * 1000,
            passive: passive.then(Passive::default),
            stopping: AtomicU32::new(0),
            refused: AtomicBool::new(false),
        };
        timer_of_wdm::initialise(state, timer.timer(), _TIMER_TYPE::NotificationTimer);
        dpc::initialise(state, timer.dpc(), Some(expired), memory.cast());
        timer
    }

    const fn memory(&self) -> *mut Memory {
        ptr::with_exposed_provenance_mut(self.memory)
    }

    fn timer(&self) -> *mut KTIMER {
        // SAFETY: the memory is never freed; only the address is taken.
        unsafe { &raw mut (*self.memory()).timer }
    }

    fn dpc(&self) -> *mut KDPC {
        // SAFETY: the memory is never freed; only the address is taken.
        unsafe { &raw mut (*self.memory()).dpc }
    }

    fn cancel(&self, state: &State) -> bool {
        timer_of_wdm::tracked(state, self.timer()).timer.cancel().is_some()
    }
}

fn timer(state: &State, handle: WDFTIMER) -> (Arc<Object>, Arc<TimerObject>) {
    state.usable(handle, Object::is_there)
}

pub extern "C" fn WdfTimerCreate(
    _globals: PWDF_DRIVER_GLOBALS,
    config: PWDF_TIMER_CONFIG,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    place: *mut WDFTIMER,
) -> NTSTATUS {
    function!("WdfTimerCreate", |state| {
        // SAFETY: the driver's structure, which lives until the call returns.
        let config = unsafe { config.read() };
        check_size::<WDF_TIMER_CONFIG>(config.Size, "WDF_TIMER_CONFIG");
        if config.EvtTimerFunc.is_none() {
            return STATUS_INVALID_PARAMETER;
        }
        if let Err(status) = check_parent(state, attributes) {
            return status;
        }
        let level = read_attributes(attributes).ExecutionLevel;
        let passive = level == _WDF_EXECUTION_LEVEL::WdfExecutionLevelPassive;
        let kind = Arc::new(TimerObject::new(state, &config, passive));
        let Some(object) = state.create_object(kind.clone(), attributes, None) else {
            kind.stop(state);
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        // SAFETY: the memory is never freed; the field is atomic.
        unsafe { &(*kind.memory()).handle }.store(object.handle, Release);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(object.pointer()) };
        STATUS_SUCCESS
    })
}

pub extern "C" fn WdfTimerStart(_globals: PWDF_DRIVER_GLOBALS, handle: WDFTIMER, due: LONGLONG) -> BOOLEAN {
    function!("WdfTimerStart", |state| {
        let (object, timer) = timer(state, handle);
        // While it is deleted its callback may still run, and start it again.
        if !object.is_live() {
            return 0;
        }
        if timer.stopping.load(Acquire) > 0 {
            timer.refused.store(true, Release);
            return 0;
        }
        timer_of_wdm::set(state, timer.timer(), LARGE_INTEGER { QuadPart: due }, timer.period, timer.dpc())
    })
}

pub extern "C" fn WdfTimerStop(_globals: PWDF_DRIVER_GLOBALS, handle: WDFTIMER, wait: BOOLEAN) -> BOOLEAN {
    function!("WdfTimerStop", |state| {
        let (_, timer) = timer(state, handle);
        check_level("WdfTimerStop", wait != 0);
        state.preempt();
        if wait == 0 {
            return BOOLEAN::from(timer.cancel(state));
        }
        if timer.stopping.fetch_add(1, AcqRel) == 0 {
            timer.refused.store(false, Release);
        }
        let cancelled = timer.cancel(state);
        state.machine.flush();
        timer.wait(state, "WdfTimerStop");
        timer.stopping.fetch_sub(1, AcqRel);
        BOOLEAN::from(timer.refused.swap(false, AcqRel) || cancelled)
    })
}

pub extern "C" fn WdfTimerGetParentObject(_globals: PWDF_DRIVER_GLOBALS, handle: WDFTIMER) -> WDFOBJECT {
    function!("WdfTimerGetParentObject", |state| timer(state, handle).0.parent_pointer())
}
