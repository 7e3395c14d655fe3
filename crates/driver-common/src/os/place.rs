//! Where code runs in the kernel.

use interpose::{InterposeOs, Place};
use ndkpi::MDL;
use wdk_sys::ntddk::{KeQueryInterruptTimePrecise, PsGetCurrentThreadId};

use super::{Kernel, processor};

impl InterposeOs for Kernel {
    fn place(&self) -> Place {
        let mut counter = 0;
        // SAFETY: the place lives until the call returns. Interrupt time counts units of 100 nanoseconds.
        let time = unsafe { KeQueryInterruptTimePrecise(&raw mut counter) };
        // SAFETY: callable at any IRQL; it only reads.
        let thread = unsafe { PsGetCurrentThreadId() };
        Place { time, processor: processor::current(), irql: kernel::irql(), thread: thread.addr() }
    }

    unsafe fn mdl_base(&self, mdl: *const MDL) -> Option<u64> {
        // SAFETY: the caller's promise; a consumer's MDLs describe locked pages (`NDKPI 7.4`).
        unsafe { super::virtual_address(mdl.cast_mut().cast()) }
    }
}
