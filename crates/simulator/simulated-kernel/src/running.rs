//! Which driver's code the current thread runs, if any.
//!
//! [`context`](crate::context) notes it whenever the kernel calls a driver and whenever a driver calls the kernel. It decides where an
//! allocation comes from, whom a leak belongs to, and whose fault a panic is.

use std::cell::Cell;

use host::machine::Irql;

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
    /// How often it has entered a guarded region.
    static GUARDED: Cell<u32> = const { Cell::new(0) };
    /// The level at which the kernel has called the driver.
    static ENTERED: Cell<Irql> = const { Cell::new(Irql::PASSIVE_LEVEL) };
    /// The number of the system thread; zero for a thread of the test or a processor.
    static THREAD: Cell<u64> = const { Cell::new(0) };
    /// How many processes it is attached to, one in the other.
    static ATTACHED: Cell<u32> = const { Cell::new(0) };
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

/// As long as it lives, the thread is nobody's: what it allocates is the system's.
pub struct Nobody(DriverId);

impl Nobody {
    pub fn new() -> Self {
        Self(RUNNING.replace(NOBODY))
    }
}

impl Drop for Nobody {
    fn drop(&mut self) {
        RUNNING.set(self.0);
    }
}

/// From here on the thread is not a driver's.
pub fn leave_driver() {
    RUNNING.set(NOBODY);
}

/// The driver and the routine that run, for a message. No routine, nothing to say.
pub fn driver_and_routine() -> (DriverId, &'static str) {
    (RUNNING.get().max(BEHALF.get()), ROUTINE.get())
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

/// The guarded regions of the thread, each of which is a critical region too.
pub fn guarded() -> u32 {
    GUARDED.get()
}

/// Enters or leaves guarded regions.
pub fn set_guarded(count: u32) {
    GUARDED.set(count);
}

/// The number of the process in whose context the thread runs.
pub fn process() -> u32 {
    PROCESS.get()
}

/// How many processes the thread is attached to, one in the other.
pub fn attached() -> u32 {
    ATTACHED.get()
}

/// It is attached to one more, or less.
pub fn set_attached(count: u32) {
    ATTACHED.set(count);
}

/// The thread is in the context of another process from now on. The number of the one before.
pub fn set_process(number: u32) -> u32 {
    PROCESS.replace(number)
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

/// What is noted of a thread, but for its number, process and critical regions.
#[derive(Clone, Copy)]
pub struct Noted {
    /// The driver whose code runs.
    pub running: DriverId,
    /// The driver on whose behalf the kernel runs.
    pub behalf: DriverId,
    /// The callback or routine.
    pub routine: &'static str,
    /// Where the driver called the kernel from.
    pub site: usize,
    /// The driver's stack pointer at that call.
    pub stack: usize,
}

/// Notes something else of the current thread. What was noted before.
pub fn note(new: Noted) -> Noted {
    Noted {
        running: RUNNING.replace(new.running),
        behalf: BEHALF.replace(new.behalf),
        routine: ROUTINE.replace(new.routine),
        site: SITE.replace(new.site),
        stack: STACK.replace(new.stack),
    }
}

/// The driver whose code runs.
pub fn running() -> DriverId {
    RUNNING.get()
}

/// Notes that a driver is called: its code runs, in this callback, from this level. What was noted before.
pub fn enter(driver: DriverId, what: &'static str, irql: Irql) -> (DriverId, DriverId, &'static str, Irql) {
    (RUNNING.replace(driver), BEHALF.replace(driver), ROUTINE.replace(what), ENTERED.replace(irql))
}

/// The driver has returned, and the checks are over: what was noted before is again.
pub fn leave((running, behalf, routine, irql): (DriverId, DriverId, &'static str, Irql)) {
    RUNNING.set(running);
    BEHALF.set(behalf);
    ROUTINE.set(routine);
    ENTERED.set(irql);
}
