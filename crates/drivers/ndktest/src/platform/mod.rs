//! The conformance suite's platform in the kernel.

mod memory;
mod tasks;

use alloc::{boxed::Box, vec::Vec};
use core::{fmt, hint, net::IpAddr};

use conformance::platform::{ExecutionContext, Family, PinnedMemory, Platform, Shape, Task};
use control::network::Reason;
use fallible::try_box;
use kernel::{KERNEL_MODE, WaitLock};
use ndkpi::{NDK_ADAPTER, NDK_VERSION, NtStatus};
use wdk_sys::{
    LARGE_INTEGER,
    ntddk::{
        KeDelayExecutionThread, KeFlushQueuedDpcs, KeGetCurrentProcessorNumberEx, KeQueryInterruptTimePrecise,
        PsGetCurrentThreadId,
    },
};

use self::memory::Pinned;
pub use self::tasks::beside;
use crate::{adapter::Adapter, run::Run};

/// Waiting begins with looking again for as many microseconds: most things come at once.
const EAGER: u64 = 50;

/// How long to wait for what a provider has to do soon, in microseconds.
pub const PATIENCE: u64 = 5_000_000;

/// How long a callback may look, in microseconds. It holds up everything else on its processor.
const DWELL: u64 = 1_000;

/// A run and the adapters that it is about.
pub struct KernelPlatform<'run> {
    run: &'run Run,
    adapters: &'run [Adapter],
    version: NDK_VERSION,
    opened: &'run OpenAdapters,
    processors: u32,
}

/// Every `NDK_ADAPTER` that is open: its address, and the number of its adapter.
pub struct OpenAdapters(WaitLock<Vec<(usize, u32)>>);

impl OpenAdapters {
    /// None is open.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new() -> Result<Self, NtStatus> {
        WaitLock::try_new(Vec::new()).map(Self)
    }
}

impl<'run> KernelPlatform<'run> {
    /// The platform of a run.
    pub fn new(run: &'run Run, adapters: &'run [Adapter], version: NDK_VERSION, opened: &'run OpenAdapters) -> Self {
        Self { run, adapters, version, opened, processors: tasks::processors() }
    }

    /// The version to open adapters with.
    #[must_use]
    pub const fn version(&self) -> NDK_VERSION {
        self.version
    }

    fn adapter(&self, number: u32) -> Option<&'run Adapter> {
        self.adapters.get(number as usize)
    }
}

impl Platform for KernelPlatform<'_> {
    fn adapters(&self) -> u32 {
        u32::try_from(self.adapters.len()).unwrap_or(u32::MAX)
    }

    fn open(&self, adapter: u32, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
        let from = self.adapter(adapter).ok_or(NtStatus::INVALID_PARAMETER)?;
        let opened = from.open(version).inspect_err(|status| {
            if from.is_gone(*status) {
                self.run.end_early(Reason::AdapterGone);
            }
        })?;
        let noted = self.opened.0.with(|all| {
            all.try_reserve(1).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
            all.push((opened.addr(), adapter));
            Ok(())
        });
        noted.map(|()| opened).inspect_err(|_| {
            // SAFETY: it was just opened, and nobody else knows it.
            unsafe { from.close(opened) };
        })
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) -> bool {
        let number = self.opened.0.with(|all| {
            let place = all.iter().position(|(address, _)| *address == adapter.addr())?;
            Some(all.swap_remove(place).1)
        });
        let from = number.and_then(|number| self.adapter(number));
        // SAFETY: this is what has opened the adapter, which is not used again (`# Safety` of the trait).
        from.inspect(|from| unsafe { from.close(adapter) }).is_some()
    }

    fn address(&self, adapter: u32, family: Family) -> Option<IpAddr> {
        let mut addresses = self.adapter(adapter)?.addresses().iter().flatten();
        addresses.find(|address| address.is_ipv4() == (family == Family::V4)).copied()
    }

    fn memory(&self, shape: Shape, length: usize) -> Result<Box<dyn PinnedMemory>, NtStatus> {
        let pinned = try_box(Pinned::try_new(shape, length)?).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        Ok(pinned)
    }

    fn now(&self) -> u64 {
        now()
    }

    fn wait(&self, limit: u64, until: &dyn Fn() -> bool) -> bool {
        let begin = now();
        loop {
            if until() {
                return true;
            }
            match now() - begin {
                waited if waited >= limit => return until(),
                waited => pause(waited),
            }
        }
    }

    fn dwell(&self, until: &dyn Fn() -> bool) -> bool {
        let end = now() + DWELL;
        while !until() {
            if now() > end {
                return false;
            }
            hint::spin_loop();
        }
        true
    }

    fn settle(&self) {
        // A transfer, a completion and a notification follow each other.
        for _ in 0..4 {
            flush();
        }
        self.run.sleep(2_000);
        flush();
    }

    fn sleep(&self, micros: u64) {
        // What the case was to wait for does not matter any more when the run is cancelled.
        self.run.sleep(micros);
    }

    fn raised(&self, work: &mut dyn FnMut()) {
        kernel::at_dispatch_level(work);
    }

    fn execution_context(&self) -> ExecutionContext {
        // SAFETY: the routine has no conditions.
        let thread = unsafe { PsGetCurrentThreadId() };
        // SAFETY: a null pointer says that only the index is wanted.
        let processor = unsafe { KeGetCurrentProcessorNumberEx(core::ptr::null_mut()) };
        ExecutionContext { thread: thread.addr(), processor }
    }

    fn processors(&self) -> u32 {
        self.processors
    }

    fn run(&self, tasks: &mut [&mut dyn Task]) -> Result<(), NtStatus> {
        tasks::run(self.processors, tasks)
    }

    fn cancelled(&self) -> bool {
        self.run.is_cancelled()
    }

    fn log(&self, line: fmt::Arguments<'_>) {
        self.run.say(line);
    }
}

/// Interrupt time, in units of 100 nanoseconds.
#[must_use]
pub fn ticks() -> u64 {
    let mut counter = 0;
    // SAFETY: the place lives until the call returns.
    unsafe { KeQueryInterruptTimePrecise(&raw mut counter) }
}

/// Microseconds of interrupt time.
#[must_use]
pub fn now() -> u64 {
    ticks() / 10
}

/// Waits a moment for something that was waited for as long, in microseconds: first eagerly, then in the kernel.
pub fn pause(waited: u64) {
    if waited < EAGER { hint::spin_loop() } else { sleep(1_000) }
}

/// Waits, for a multiple of the clock's period.
fn sleep(micros: u64) {
    // Negative: counted from now, in units of 100 nanoseconds.
    let units = i64::try_from(micros.saturating_mul(10)).unwrap_or(i64::MAX);
    let mut interval = LARGE_INTEGER { QuadPart: -units };
    // SAFETY: the caller is at `PASSIVE_LEVEL`, and the interval lives until the call returns.
    let _ = unsafe { KeDelayExecutionThread(KERNEL_MODE, 0, &raw mut interval) };
}

/// Waits for DPCs that are queued now.
fn flush() {
    // SAFETY: the caller is at `PASSIVE_LEVEL`.
    unsafe { KeFlushQueuedDpcs() };
}
