//! What every routine does first: it notes that the thread is in the kernel, and looks at the IRQL and the stack.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering::Relaxed},
};

use host::machine::{self, Irql};

use crate::{
    context, limits, processors,
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

/// The highest IRQL of a routine.
pub struct Limit(AtomicU8);

impl Limit {
    /// No IRQL: that of the DDI reference is not looked up yet.
    const UNKNOWN: u8 = u8::MAX;

    /// The one that the DDI reference has for the routine: looked up at the first call.
    pub const fn documented() -> Self {
        Self(AtomicU8::new(Self::UNKNOWN))
    }

    pub const fn at(irql: Irql) -> Self {
        Self(AtomicU8::new(irql.0))
    }

    fn of(&self, routine: &str) -> Irql {
        let known = self.0.load(Relaxed);
        if known != Self::UNKNOWN {
            return Irql(known);
        }
        let found = limits::of(routine);
        self.0.store(found.0, Relaxed);
        found
    }
}

/// Carries out a routine that a driver calls: checks the IRQL, and lets panics end as bug checks.
pub fn carry_out<R>(name: &'static str, limit: &Limit, work: impl FnOnce(&Arc<State>) -> R) -> R {
    let (mut work, mut result) = (Some(work), None);
    carry_out_any(name, limit, &mut |state| result = work.take().map(|work| work(state)));
    result.expect("a routine that returns has been carried out")
}

/// One for all of the many routines: a generic one took a tenth of what the compiler has to do for this crate.
fn carry_out_any(name: &'static str, limit: &Limit, work: &mut dyn FnMut(&Arc<State>)) {
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
        let (now, limit) = (machine::current_irql(), limit.of(name));
        if now > limit {
            bug_check(Rule::IrqlTooHigh, format_args!("{name} called at {now}, but at most {limit} is allowed"));
        }
        let state = current();
        state.calls.fetch_add(1, Relaxed);
        if now < Irql::DISPATCH_LEVEL {
            processors::note_below_dispatch(&state);
        }
        work(&state);
    }));
    outcome.unwrap_or_else(|panic| report::bug_check_panic(&report::words_of(&*panic)));
}

/// Carries out a routine, at most at the IRQL of the DDI reference, or at one that is named: for what the reference documents under the
/// name of a macro, or not there.
macro_rules! routine {
    ($name:expr, $level:ident, $work:expr) => {
        $crate::routine::carry_out($name, &$crate::routine::Limit::at(host::machine::Irql::$level), $work)
    };
    ($name:expr, $work:expr) => {{
        static LIMIT: $crate::routine::Limit = $crate::routine::Limit::documented();
        $crate::routine::carry_out($name, &LIMIT, $work)
    }};
}
pub(crate) use routine;
