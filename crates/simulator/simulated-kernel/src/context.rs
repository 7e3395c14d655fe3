//! Which driver's code the current thread runs, if any.
//!
//! The kernel notes it whenever it calls a driver and whenever a driver calls the kernel. It decides where an allocation
//! comes from, whom a leak belongs to, and whose fault a panic is.

use std::cell::Cell;

use host::machine::{Irql, current_irql, locks_held};

use crate::{kernel, paged, report::bug_check, rule::Rule, stack};

/// A loaded driver. Zero is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DriverId(pub u32);

/// No driver: the kernel itself, or the test.
pub const NOBODY: DriverId = DriverId(0);

/// The number of the process that system threads belong to.
pub const SYSTEM_PROCESS: u32 = 4;

thread_local! {
    /// The driver whose code runs, while the kernel is not running on its behalf.
    static RUNNING: Cell<DriverId> = const { Cell::new(NOBODY) };
    /// The driver on whose behalf the kernel runs.
    static BEHALF: Cell<DriverId> = const { Cell::new(NOBODY) };
    /// The callback or routine, for messages.
    static ROUTINE: Cell<&'static str> = const { Cell::new("") };
    /// How often the thread has entered a critical region.
    static CRITICAL: Cell<u32> = const { Cell::new(0) };
    /// The level at which the kernel has called the driver.
    static ENTERED: Cell<Irql> = const { Cell::new(Irql::PASSIVE_LEVEL) };
    /// The number of the system thread; zero for a thread of the test or a processor.
    static THREAD: Cell<u64> = const { Cell::new(0) };
    /// The process in whose context the thread runs.
    static PROCESS: Cell<u32> = const { Cell::new(SYSTEM_PROCESS) };
    /// Where the driver called the kernel from, if it is an image.
    static SITE: Cell<usize> = const { Cell::new(0) };
    /// The driver's stack pointer at that call; zero if nobody knows.
    static STACK: Cell<usize> = const { Cell::new(0) };
}

/// Returns true if the current thread runs a driver's code.
pub fn in_driver() -> bool {
    RUNNING.get() != NOBODY
}

/// The driver that has called the kernel.
pub fn caller() -> DriverId {
    BEHALF.get()
}

/// From here on the thread is not a driver's.
pub fn leave_driver() {
    RUNNING.set(NOBODY);
}

/// What runs, for a message.
pub fn describe() -> String {
    let (driver, routine) = (RUNNING.get().max(BEHALF.get()), ROUTINE.get());
    if routine.is_empty() {
        return String::new();
    }
    let driver = kernel::driver_in_words(driver);
    format!("; in {routine}{driver}, at {}{}", current_irql(), site_in_words(SITE.get()))
}

/// The routine that the driver has called.
#[cfg(unix)]
pub fn current_routine() -> &'static str {
    ROUTINE.get()
}

/// Where the driver called the kernel from; zero if nobody knows.
pub fn current_site() -> usize {
    SITE.get()
}

/// The driver's stack pointer when it called the kernel, if the call was an image's.
#[cfg(windows)]
pub fn stack_of_caller() -> Option<usize> {
    Some(STACK.get()).filter(|&stack| stack != 0)
}

/// A place in a driver's image from which the kernel was called, for a message: the image and an offset.
#[cfg(windows)]
pub fn site_in_words(site: usize) -> String {
    crate::image::describe(site).map_or_else(String::new, |words| format!(", called from {words}"))
}

/// Without images nobody knows.
#[cfg(unix)]
pub const fn site_in_words(_site: usize) -> String {
    String::new()
}

/// The driver whose image has just called the kernel, from where, and its stack pointer. Elsewhere than on Windows nobody knows.
fn origin() -> Option<(DriverId, usize, usize)> {
    #[cfg(windows)]
    return crate::image::origin().map(|origin| (origin.driver, origin.site, origin.stack));
    #[cfg(unix)]
    None
}

/// The critical regions of the thread.
pub fn critical() -> u32 {
    CRITICAL.get()
}

/// The level at which the driver was called, which it may not go below.
pub fn entered_at() -> Irql {
    ENTERED.get()
}

/// Enters or leaves critical regions.
pub fn set_critical(count: u32) {
    CRITICAL.set(count);
}

/// The number of the process in whose context the thread runs.
pub fn process() -> u32 {
    PROCESS.get()
}

/// Does `work` in the context of a process.
pub fn in_process<R>(number: u32, work: impl FnOnce() -> R) -> R {
    let before = PROCESS.replace(number);
    let result = work();
    PROCESS.set(before);
    result
}

/// The number of the system thread.
pub fn thread() -> u64 {
    THREAD.get()
}

/// Says that this is a system thread.
pub fn set_thread(number: u64) {
    THREAD.set(number);
}

/// The kernel, running on behalf of whoever called it. Restores when dropped.
pub struct Inside {
    running: DriverId,
    behalf: DriverId,
    routine: &'static str,
    site: usize,
    stack: usize,
}

impl Inside {
    /// The current thread enters the kernel.
    pub fn new(routine: &'static str) -> Self {
        let running = RUNNING.replace(NOBODY);
        let (caller, site, stack) = origin().unwrap_or((running, 0, 0));
        Self {
            running,
            behalf: BEHALF.replace(caller),
            routine: ROUTINE.replace(routine),
            site: SITE.replace(site),
            stack: STACK.replace(stack),
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        RUNNING.set(self.running);
        BEHALF.set(self.behalf);
        ROUTINE.set(self.routine);
        SITE.set(self.site);
        STACK.set(self.stack);
    }
}

/// Calls a driver: checks that it leaves IRQL, locks and critical regions as it found them.
pub fn call<R>(driver: DriverId, what: &'static str, work: impl FnOnce() -> R) -> R {
    let (irql, locks, critical) = (current_irql(), locks_held(), CRITICAL.get());
    if irql >= Irql::DISPATCH_LEVEL {
        paged::trim();
    }
    let (running, behalf, routine) = (RUNNING.replace(driver), BEHALF.replace(driver), ROUTINE.replace(what));
    let level = ENTERED.replace(irql);
    let entered = stack::Entered::new();
    let result = work();
    RUNNING.set(NOBODY);
    entered.left();
    ENTERED.set(level);
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
    if CRITICAL.get() != critical {
        bug_check(Rule::CriticalRegion, format_args!("{what} returned inside of a critical region"));
    }
    RUNNING.set(running);
    BEHALF.set(behalf);
    ROUTINE.set(routine);
    result
}
