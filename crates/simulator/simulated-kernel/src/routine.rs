//! What every routine does first: it notes that the thread is in the kernel, and looks at the IRQL and the stack.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use host::machine::{self, Irql};

use crate::{
    context, processors,
    report::{self, bug_check},
    rule::Rule,
    stack,
    state::{State, current},
};

/// Returns true if the environment wants each call printed, with `SIMULATED_KERNEL_TRACE`.
pub fn trace() -> bool {
    static WANTED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *WANTED.get_or_init(|| std::env::var_os("SIMULATED_KERNEL_TRACE").is_some())
}

/// Carries out a routine that a driver calls: checks the IRQL, and lets panics end as bug checks.
pub fn carry_out<R>(name: &'static str, limit: impl FnOnce() -> Irql, work: impl FnOnce(&Arc<State>) -> R) -> R {
    let _inside = context::Inside::new(name);
    if trace() {
        eprintln!(
            "{name}, thread {}, driver {}, at {}",
            context::thread(),
            context::caller().0,
            machine::current_irql()
        );
    }
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        #[cfg(unix)]
        crate::heap::report_violation();
        stack::check(name);
        let (now, limit) = (machine::current_irql(), limit());
        if now > limit {
            bug_check(Rule::IrqlTooHigh, format_args!("{name} called at {now}, but at most {limit} is allowed"));
        }
        let state = current();
        state.calls.fetch_add(1, Relaxed);
        if now < Irql::DISPATCH_LEVEL {
            processors::note_below_dispatch(&state);
        }
        work(&state)
    }));
    outcome.unwrap_or_else(|panic| report::bug_check_panic(&report::words_of(&*panic)))
}

/// Carries out a routine, at most at the IRQL of the DDI reference, or at one that is named: for what the reference documents under the
/// name of a macro, or not there.
macro_rules! routine {
    ($name:literal, $level:ident, $work:expr) => {
        $crate::routine::carry_out($name, || host::machine::Irql::$level, $work)
    };
    ($name:literal, $work:expr) => {{
        static LIMIT: std::sync::OnceLock<host::machine::Irql> = std::sync::OnceLock::new();
        $crate::routine::carry_out($name, || *LIMIT.get_or_init(|| $crate::limits::of($name)), $work)
    }};
}
pub(crate) use routine;
