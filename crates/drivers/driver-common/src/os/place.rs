//! Where code runs in the kernel.

use core::{
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use interpose::{InterposeOs, Phase, Stamp};
use ndkpi::MDL;
use wdk_sys::{
    PDRIVER_OBJECT,
    ntddk::{KeQueryInterruptTimePrecise, PsGetCurrentThreadId},
};

use super::{Kernel, processor};

/// The addresses of the driver's own code: none until the driver is started.
static IMAGE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Remembers where the driver's own code is.
///
/// # Safety
///
/// `driver` is the driver's object.
pub unsafe fn remember(driver: PDRIVER_OBJECT) {
    // SAFETY: `driver` is the driver's object (`# Safety`), which Windows keeps while the driver is loaded.
    let driver = unsafe { &*driver };
    let start = driver.DriverStart.addr();
    IMAGE[0].store(start, Relaxed);
    IMAGE[1].store(start + driver.DriverSize as usize, Relaxed);
}

fn own_code() -> Range<usize> {
    IMAGE[0].load(Relaxed)..IMAGE[1].load(Relaxed)
}

fn thread() -> usize {
    // SAFETY: callable at any IRQL; it only reads.
    unsafe { PsGetCurrentThreadId() }.addr()
}

fn place_at(time: u64) -> Stamp {
    Stamp { time, processor: processor::current(), irql: kernel::irql(), thread: thread() }
}

impl InterposeOs for Kernel {
    fn place(&self) -> Stamp {
        let mut counter = 0;
        // SAFETY: the place lives until the call returns. Interrupt time counts units of 100 nanoseconds.
        place_at(unsafe { KeQueryInterruptTimePrecise(&raw mut counter) })
    }

    fn stamp(&self, phase: Phase) -> Stamp {
        place_at(interpose::ticks(phase))
    }

    fn irql(&self) -> u8 {
        kernel::irql()
    }

    fn thread(&self) -> usize {
        thread()
    }

    fn stack(&self, frames: &mut [usize]) -> usize {
        let own = own_code();
        kernel::callers(frames, |frame| own.contains(&frame))
    }

    unsafe fn mdl_base(&self, mdl: *const MDL) -> Option<u64> {
        // SAFETY: `mdl` is null or a consumer's MDL (`# Safety` of the trait), and those describe locked pages (`NDKPI 7.4`).
        unsafe { super::virtual_address(mdl.cast_mut().cast()) }
    }
}
