//! Calls from a driver into the kernel and from the kernel into a driver: what is noted and checked at each.

use host::machine::{Irql, current_irql, locks_held};

use crate::{paged, report::bug_check, rule::Rule, running, stack};

#[cfg(unix)]
pub use crate::running::in_driver;
pub use crate::running::{
    DriverId, NOBODY, SYSTEM_PROCESS, attached, caller, critical, current_site, entered_at, guarded, in_process,
    process, set_attached, set_critical, set_guarded, set_process, set_thread, thread,
};

/// The driver whose image has just called the kernel, from where, and its stack pointer. Elsewhere than on Windows nobody knows.
fn origin() -> Option<(DriverId, usize, usize)> {
    #[cfg(windows)]
    return crate::sites::origin::origin().map(|origin| (origin.driver, origin.site, origin.stack));
    #[cfg(unix)]
    None
}

/// The kernel, running on behalf of whoever called it. Restores when dropped.
pub struct Inside(running::Noted);

impl Inside {
    /// The current thread enters the kernel.
    pub fn new(routine: &'static str) -> Self {
        let (caller, site, stack) = origin().unwrap_or_else(|| (running::running(), 0, 0));
        Self(running::note(running::Noted { running: NOBODY, behalf: caller, routine, site, stack }))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        running::note(self.0);
    }
}

/// Calls a driver: checks that it leaves IRQL, locks and critical regions as it found them.
pub fn call<R>(driver: DriverId, what: &'static str, work: impl FnOnce() -> R) -> R {
    let (irql, locks, critical, attached) = (current_irql(), locks_held(), running::critical(), running::attached());
    if irql >= Irql::DISPATCH_LEVEL {
        paged::trim();
    }
    let before = running::enter(driver, what, irql);
    let entered = stack::Entered::new();
    let result = work();
    running::leave_driver();
    entered.left();
    if locks_held() != locks {
        bug_check(
            Rule::LockHeld,
            format_args!("{what} returned with {} spin locks more", locks_held().wrapping_sub(locks)),
        );
    }
    if current_irql() != irql {
        bug_check(
            Rule::IrqlNotRestored,
            format_args!("{what} was called at {irql} and returned at {}", current_irql()),
        );
    }
    if running::critical() != critical {
        bug_check(Rule::CriticalRegion, format_args!("{what} returned inside of a critical region"));
    }
    if running::attached() != attached {
        bug_check(Rule::BadArgument, format_args!("{what} returned while its thread is attached to another process"));
    }
    running::leave(before);
    result
}
