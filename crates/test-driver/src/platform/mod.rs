//! The conformance suite's platform in the kernel.

mod memory;
mod tasks;

use alloc::boxed::Box;
use core::{fmt, hint, net::IpAddr};

use conformance::platform::{Family, PinnedMemory, Place, Platform, Shape, Task};
use fallible::try_box;
use kernel::KERNEL_MODE;
use ndkpi::{NDK_ADAPTER, NDK_VERSION, NtStatus};
use wdk_sys::{
    LARGE_INTEGER,
    ntddk::{
        KeDelayExecutionThread, KeFlushQueuedDpcs, KeGetCurrentProcessorNumberEx, KeQueryInterruptTimePrecise,
        PsGetCurrentThreadId,
    },
};

use self::memory::Pinned;
use crate::{provider::Interface, run::Run};

/// Waiting begins with looking again for as many microseconds: most things come at once.
const EAGER: u64 = 50;

/// How long a callback may look, in microseconds. It holds up everything else on its processor.
const DWELL: u64 = 1_000;

/// A run and the provider that it is about.
pub struct KernelPlatform<'run> {
    run: &'run Run,
    interface: &'run Interface,
    addresses: [Option<IpAddr>; 8],
    processors: u32,
}

impl<'run> KernelPlatform<'run> {
    /// The platform of a run.
    pub fn new(run: &'run Run, interface: &'run Interface) -> Self {
        Self { run, interface, addresses: interface.addresses(), processors: tasks::processors() }
    }
}

impl Platform for KernelPlatform<'_> {
    fn adapters(&self) -> u32 {
        1
    }

    fn open(&self, adapter: u32, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
        if adapter == 0 { self.interface.open(version) } else { Err(NtStatus::INVALID_PARAMETER) }
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) -> bool {
        // SAFETY: the caller's promise; this platform opens adapters with this interface.
        unsafe { self.interface.close(adapter) };
        true
    }

    fn address(&self, adapter: u32, family: Family) -> Option<IpAddr> {
        let mut addresses = self.addresses.iter().flatten().filter(|_| adapter == 0);
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
                waited if waited < EAGER => hint::spin_loop(),
                _ => sleep(1_000),
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

    fn place(&self) -> Place {
        // SAFETY: the routine has no conditions.
        let thread = unsafe { PsGetCurrentThreadId() };
        // SAFETY: a null pointer says that only the index is wanted.
        let processor = unsafe { KeGetCurrentProcessorNumberEx(core::ptr::null_mut()) };
        Place { thread: thread.addr(), processor }
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

/// Waits, for a multiple of the clock's period.
fn sleep(micros: u64) {
    // Negative: counted from now, in units of 100 nanoseconds.
    let units = i64::try_from(micros.saturating_mul(10)).unwrap_or(i64::MAX);
    let mut interval = LARGE_INTEGER { QuadPart: -units };
    // SAFETY: the caller is at `PASSIVE_LEVEL`, and the interval lives until the call returns.
    let _ = unsafe { KeDelayExecutionThread(KERNEL_MODE, 0, &raw mut interval) };
}

/// Waits for deferred calls that are queued now.
fn flush() {
    // SAFETY: the caller is at `PASSIVE_LEVEL`.
    unsafe { KeFlushQueuedDpcs() };
}
