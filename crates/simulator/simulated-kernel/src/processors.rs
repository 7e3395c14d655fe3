//! Which processor a thread is bound to, and how long DPCs have kept each one at `DISPATCH_LEVEL`.

use std::{cell::Cell, sync::Mutex, time::Duration};

use litemap::LiteMap;

use crate::{
    report::bug_check,
    rule::Rule,
    state::{Part, State, lock},
};

thread_local! {
    /// The affinity that the thread was given; zero if it has none.
    static AFFINITY: Cell<u64> = const { Cell::new(0) };
}

/// The affinity of the current thread; zero if it was given none.
pub fn affinity() -> u64 {
    AFFINITY.get()
}

/// Notes the affinity of the current thread.
pub fn set_affinity(mask: u64) {
    AFFINITY.set(mask);
}

/// The processor that the thread was bound to, if that is one.
pub fn bound() -> Option<u32> {
    let mask = AFFINITY.get();
    mask.is_power_of_two().then(|| mask.trailing_zeros())
}

/// How long DPCs have kept each processor at `DISPATCH_LEVEL`.
#[derive(Default)]
pub struct AtDispatch(Mutex<LiteMap<u32, Duration>>);

impl Part for AtDispatch {}

/// What a DPC counts for the watchdog if it does not stall: as long as the DDI reference allows it to run.
const NOMINAL: Duration = Duration::from_micros(100);

/// Notes that the current thread is below `DISPATCH_LEVEL`, and so is the processor that it is bound to.
///
/// A thread of the simulated kernel runs beside the processor that it is bound to, so that the processor's queue need not be empty
/// when the thread runs.
pub fn note_below_dispatch(state: &State) {
    if let Some(processor) = bound() {
        lock(&state.part::<AtDispatch>().0).remove(&processor);
    }
}

/// A DPC is about to end that has stalled for so long: adds it to the time that its processor has been at
/// `DISPATCH_LEVEL`.
pub fn watch(state: &State, stalled: Duration) {
    let processor = state.machine.current_processor();
    let is_first = state.machine.calls_in_a_row(processor) <= 1;
    let mut at_dispatch = lock(&state.part::<AtDispatch>().0);
    let time = at_dispatch.entry(processor).or_default();
    *time = if is_first { Duration::ZERO } else { *time } + NOMINAL.max(stalled);
    let (time, limit) = (*time, state.limits.dispatch);
    drop(at_dispatch);
    if time > limit {
        bug_check(
            Rule::DpcWatchdog,
            format_args!("DPCs kept processor {processor} at DISPATCH_LEVEL for {time:?}, longer than {limit:?}"),
        );
    }
}
