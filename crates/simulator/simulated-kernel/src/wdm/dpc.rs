//! Deferred procedure calls.

use std::{cell::Cell, sync::Arc, time::Duration};

use host::machine::{Arguments, Dpc, Importance};
use wdk_bindings::{
    _KDPC_IMPORTANCE, BOOLEAN, CCHAR, KDPC, KDPC_IMPORTANCE, NTSTATUS, PKDEFERRED_ROUTINE, PROCESSOR_NUMBER, PVOID,
    STATUS_INVALID_PARAMETER, STATUS_SUCCESS,
};

use super::{processor, routine};
use crate::{
    argument::Argument,
    context::{self, DriverId},
    kernel::{State, current, lock},
    platform,
    report::bug_check,
    rule::Rule,
    tracked::Object,
};

thread_local! {
    /// Microseconds that the current DPC has stalled its processor.
    static STALLED: Cell<u64> = const { Cell::new(0) };
}

/// Adds to what the current DPC has stalled.
pub fn stall(microseconds: u64) {
    STALLED.set(STALLED.get() + microseconds);
}

/// An address as something that threads may carry.
#[derive(Clone, Copy)]
pub struct Word(pub usize);

impl Word {
    pub fn of<T>(pointer: *mut T) -> Self {
        Self(pointer.expose_provenance())
    }

    pub const fn pointer<T>(self) -> *mut T {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

pub fn tracked(state: &State, dpc: *mut KDPC) -> Arc<Dpc> {
    state.dpc(dpc.expose_provenance())
}

/// Counts a DPC that is running.
struct Running(Arc<State>, DriverId);

impl Running {
    fn new(state: Arc<State>, driver: DriverId) -> Self {
        *lock(&state.wdm.running).entry(driver).or_default() += 1;
        Self(state, driver)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(count) = lock(&self.0.wdm.running).get_mut(&self.1) {
            *count -= 1;
        }
    }
}

/// What a DPC counts for the watchdog if it does not stall: as long as the DDI reference allows it to run.
const NOMINAL: Duration = Duration::from_micros(100);

/// The current thread is below `DISPATCH_LEVEL`. If it is bound to a processor, so is that.
///
/// A thread of the simulated kernel runs beside the processor that it is bound to, so that the processor's queue need not be empty
/// when the thread runs.
pub fn is_below(state: &State) {
    if let Some(processor) = processor::bound() {
        lock(&state.wdm.at_dispatch).remove(&processor);
    }
}

/// A DPC is about to end that has stalled for so long: adds it to the time that its processor has been at
/// `DISPATCH_LEVEL`.
fn watch(state: &State, stalled: Duration) {
    let processor = state.machine.current_processor();
    let is_first = state.machine.calls_in_a_row(processor) <= 1;
    let mut at_dispatch = lock(&state.wdm.at_dispatch);
    let time = at_dispatch.entry(processor).or_default();
    *time = if is_first { Duration::ZERO } else { *time } + NOMINAL.max(stalled);
    let (time, limit) = (*time, state.dispatch_limit);
    drop(at_dispatch);
    if time > limit {
        bug_check(
            Rule::DpcWatchdog,
            format_args!("DPCs kept processor {processor} at DISPATCH_LEVEL for {time:?}, longer than {limit:?}"),
        );
    }
}

/// Makes a DPC.
fn run(owner: DriverId, work: PKDEFERRED_ROUTINE, dpc: Word, context: Argument, arguments: Arguments) {
    let state = current();
    let limit = state.dpc_limit;
    let _running = Running::new(state.clone(), owner);
    let Some(work) = work else { bug_check(Rule::BadArgument, format_args!("a DPC without a routine")) };
    let (before, stalled) = (platform::processor_time(), STALLED.replace(0));
    let context = context.pointer("a DPC");
    context::call(owner, "a DPC", || {
        // SAFETY: the driver's own routine, with its own arguments, at the level that it expects.
        unsafe { work(dpc.pointer(), context, arguments.first, arguments.second) };
    });
    let stalls = Duration::from_micros(STALLED.replace(stalled));
    // What the machine does meanwhile for others is not this call's.
    let took = platform::processor_time().saturating_sub(before) + stalls;
    if took > limit {
        bug_check(Rule::DpcTooLong, format_args!("a DPC ran for {took:?}, longer than {limit:?}"));
    }
    watch(&state, stalls);
}

#[unsafe(no_mangle)]
extern "C" fn KeInitializeDpc(dpc: *mut KDPC, work: PKDEFERRED_ROUTINE, context: PVOID) {
    routine!("KeInitializeDpc", |state| initialise(state, dpc, work, context));
}

/// A threaded DPC may run at `DISPATCH_LEVEL` too: its routine has to do with either.
#[unsafe(no_mangle)]
extern "C" fn KeInitializeThreadedDpc(dpc: *mut KDPC, work: PKDEFERRED_ROUTINE, context: PVOID) {
    routine!("KeInitializeThreadedDpc", |state| initialise(state, dpc, work, context));
}

pub fn initialise(state: &State, dpc: *mut KDPC, work: PKDEFERRED_ROUTINE, context: PVOID) {
    let (owner, address, context) = (state.calling_driver(), Word::of(dpc), Argument::of(context));
    let call = move |arguments| run(owner, work, address, context, arguments);
    let Ok(object) = Dpc::try_new(&state.machine, "driver's DPC", call) else {
        bug_check(Rule::NotSimulated, format_args!("no memory for a DPC"));
    };
    // SAFETY: the driver's memory for a DPC, of which nobody else knows yet.
    unsafe { dpc.write(KDPC::default()) };
    state.track(address.0, owner, Object::Dpc(Arc::new(object)));
}

/// Where `KeInitializeDpc` was loaded: what its symbol says is relative to that.
#[cfg(unix)]
pub fn anchor() -> usize {
    (KeInitializeDpc as *const ()).addr()
}

#[unsafe(no_mangle)]
extern "C" fn KeInsertQueueDpc(dpc: *mut KDPC, first: PVOID, second: PVOID) -> BOOLEAN {
    routine!("KeInsertQueueDpc", |state| {
        let object = tracked(state, dpc);
        state.preempt();
        let queued = object.queue_with(|| {
            // SAFETY: the driver's DPC, which nobody else writes: it was not queued, and now this thread queues it.
            unsafe { (*dpc).SystemArgument1 = first };
            // SAFETY: as above.
            unsafe { (*dpc).SystemArgument2 = second };
            Arguments { first, second }
        });
        BOOLEAN::from(queued)
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeRemoveQueueDpc(dpc: *mut KDPC) -> BOOLEAN {
    routine!("KeRemoveQueueDpc", |state| {
        let object = tracked(state, dpc);
        state.preempt();
        BOOLEAN::from(object.remove().is_some())
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeSetTargetProcessorDpcEx(dpc: *mut KDPC, number: *mut PROCESSOR_NUMBER) -> NTSTATUS {
    routine!("KeSetTargetProcessorDpcEx", |state| {
        // SAFETY: the driver's structure, which lives until the call returns.
        let number = unsafe { number.read() };
        if number.Group != 0 || u32::from(number.Number) >= state.machine.processors() || number.Reserved != 0 {
            return STATUS_INVALID_PARAMETER;
        }
        tracked(state, dpc).set_target(Some(u32::from(number.Number)));
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeSetTargetProcessorDpc(dpc: *mut KDPC, number: CCHAR) {
    routine!("KeSetTargetProcessorDpc", |state| {
        let target = u32::try_from(number).ok().filter(|&number| number < state.machine.processors());
        let Some(target) = target else {
            bug_check(Rule::BadArgument, format_args!("there is no processor {number}"));
        };
        tracked(state, dpc).set_target(Some(target));
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeSetImportanceDpc(dpc: *mut KDPC, importance: KDPC_IMPORTANCE) {
    routine!("KeSetImportanceDpc", |state| {
        let importance = match importance {
            _KDPC_IMPORTANCE::LowImportance => Importance::Low,
            _KDPC_IMPORTANCE::HighImportance => Importance::High,
            _KDPC_IMPORTANCE::MediumHighImportance => Importance::MediumHigh,
            _KDPC_IMPORTANCE::MediumImportance => Importance::Medium,
            other => bug_check(Rule::BadArgument, format_args!("{other} is no importance")),
        };
        tracked(state, dpc).set_importance(importance);
    });
}

#[unsafe(no_mangle)]
extern "C" fn KeFlushQueuedDpcs() {
    routine!("KeFlushQueuedDpcs", |state| state.machine.flush());
}
