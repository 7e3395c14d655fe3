//! Deferred procedure calls.

use std::{
    cell::Cell,
    sync::{Arc, Mutex},
    time::Duration,
};

use host::machine::{Arguments, Dpc, Importance};
use litemap::LiteMap;
use wdk_bindings::{
    _KDPC_IMPORTANCE, BOOLEAN, CCHAR, KDPC, KDPC_IMPORTANCE, NTSTATUS, PKDEFERRED_ROUTINE, PROCESSOR_NUMBER, PVOID,
    STATUS_INVALID_PARAMETER, STATUS_SUCCESS,
};

use crate::{
    argument::{Argument, Word},
    context::{self, DriverId},
    platform, processors,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State, current},
    tracked::{Kind, Object, Structure},
};

thread_local! {
    /// Microseconds that the current DPC has stalled its processor.
    static STALLED: Cell<u64> = const { Cell::new(0) };
}

/// Adds to what the current DPC has stalled.
pub fn stall(microseconds: u64) {
    STALLED.set(STALLED.get() + microseconds);
}

impl Structure for Dpc {
    fn rule_if_freed(&self) -> Option<Rule> {
        self.is_queued().then_some(Rule::DpcFreedWhileQueued)
    }
}

pub fn tracked(state: &State, dpc: *mut KDPC) -> Arc<Dpc> {
    state.structure(dpc.expose_provenance(), Kind::Dpc)
}

/// DPCs that are running, of all drivers together by driver.
#[derive(Default)]
pub struct RunningDpcs(LiteMap<DriverId, u32>);

impl Part for Mutex<RunningDpcs> {}

impl State {
    /// A driver is unloaded: none of its DPCs may run.
    pub fn check_running_dpcs(&self, driver: DriverId, name: &str) {
        let running = self.locked::<RunningDpcs>().0.get(&driver).copied().unwrap_or(0);
        if running > 0 {
            bug_check(Rule::DpcAtUnload, format_args!("a DPC of driver {name} runs at its unload"));
        }
    }
}

/// Counts a DPC that is running.
struct Running(Arc<State>, DriverId);

impl Running {
    fn new(state: Arc<State>, driver: DriverId) -> Self {
        *state.locked::<RunningDpcs>().0.entry(driver).or_default() += 1;
        Self(state, driver)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(count) = self.0.locked::<RunningDpcs>().0.get_mut(&self.1) {
            *count -= 1;
        }
    }
}

/// Makes a DPC.
fn run(owner: DriverId, work: PKDEFERRED_ROUTINE, dpc: Word, context: Argument, arguments: Arguments) {
    let state = current();
    let limit = state.limits.dpc;
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
    processors::watch(&state, stalls);
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
    state.track(address.0, owner, Object::new(Kind::Dpc, object));
}

#[unsafe(no_mangle)]
extern "C" fn KeInsertQueueDpc(dpc: *mut KDPC, first: PVOID, second: PVOID) -> BOOLEAN {
    routine!("KeInsertQueueDpc", |state| {
        let object = tracked(state, dpc);
        state.preempt();
        let queued = object.queue_with(|| {
            // SAFETY: the driver's DPC, which nobody else writes: it was not queued, and now this thread queues it.
            unsafe {
                (*dpc).SystemArgument1 = first;
                (*dpc).SystemArgument2 = second;
            }
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
